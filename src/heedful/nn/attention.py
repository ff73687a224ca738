"""Scaled dot-product and multi-head attention (section 3.2).

`attend` is equation 1 as the paper writes it. `attend_heads` computes it for all heads of a layer, and is the one place
that chooses how: plain, compiled or fused for whole sentences, in blocks within a window, from a pool of rows while
decoding. Every form gives the result of `attend` up to rounding; its docstring says how, and a test holds it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from heedful.kernels import can_use_kernels
from heedful.nn.compiled_attention import attend_compiled, attend_pooled
from heedful.nn.dropout import Dropout
from heedful.nn.key_values import (
    CachedKeyValues,
    HeadRows,
    Keys,
    KeyValues,
    PackedKeyValues,
    QueryRows,
    SpanKeyValues,
    Values,
)
from heedful.nn.layout import Layout, Rows
from heedful.nn.linear import glorot_linear
from heedful.nn.multi_head import HeadSizes, ScaledDotProductAttention, Weights, split_heads
from heedful.nn.noise import HEAD_STRIDE, keep_mask
from heedful.nn.positions import DistanceBias

KeepKeyValues = Callable[[HeadRows, HeadRows], None]


def attend(
    q: Float[Tensor, "*batch query d_k"],
    k: Float[Tensor, "*batch key d_k"],
    v: Float[Tensor, "*batch key d_v"],
    mask: Bool[Tensor, "*#batch #query key"] | None,
    keep: Float[Tensor, "*batch query key"] | None = None,
    bias: Float[Tensor, "*#batch query key"] | None = None,
    scale: float | None = None,
) -> tuple[Float[Tensor, "*batch query d_v"], Float[Tensor, "*batch query key"]]:
    """Equation 1, softmax(Q K^T / sqrt(d_k)) V, and the softmax itself.

    Without a mask, a query attends to every key. A query that may attend to none gives NaN. `keep` holds the factors by
    which dropout multiplies the weights. `bias` is added to the scores; the paper has none. `scale` replaces its
    factor 1 / sqrt(d_k).
    """
    # The query is scaled and not the product, because it is the smaller matrix.
    scores = (q * (q.shape[-1] ** -0.5 if scale is None else scale)) @ k.transpose(-2, -1)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1)
    return (weights if keep is None else weights * keep) @ v, weights


def attend_heads(attention: ScaledDotProductAttention, queries: QueryRows, key_values: KeyValues) -> HeadRows:
    """Equation 1 in all heads of an attention, heads side by side, by the fastest form that applies.

    Only the plain form has the weights, so it runs whenever they are read or heads are gated.
    """
    if attention.instrumented or isinstance(key_values, CachedKeyValues):
        return attend_plain(attention, queries, key_values)
    if not isinstance(key_values, PackedKeyValues):
        return attend_pooled(attention, queries, key_values)
    dropping = attention.dropout.active
    if attention.window:
        return (attend_plain if dropping else attend_windowed)(attention, queries, key_values)
    if can_use_kernels(queries) and not (dropping and key_values.query_layout.dropout_keys is None):
        return attend_compiled(attention, queries, key_values)
    if queries.device.type == "cuda":
        return attend_fused(attention, queries, key_values)
    return attend_plain(attention, queries, key_values)


def attend_plain(attention: ScaledDotProductAttention, queries: QueryRows, key_values: KeyValues) -> HeadRows:
    """`attend` itself, with all heads on a padded grid."""
    q, k, v = key_values.grids(queries, attention.head_sizes)
    keep = draw_weight_dropout(attention, key_values) if isinstance(key_values, PackedKeyValues) else None
    mask, bias = key_values.mask(attention.window), distance_bias(attention, key_values)
    outputs, weights = attend(q, k, v, mask, keep, bias, attention.scale)
    return key_values.take_rows(attention.instrument(outputs, weights))


def attend_fused(attention: ScaledDotProductAttention, queries: QueryRows, key_values: PackedKeyValues) -> HeadRows:
    """`attend` by PyTorch's fused kernels, which compute the same but never write the weights to memory.

    Only for CUDA: on a CPU, plain products are faster at the length of sentences.
    """
    q, k, v = key_values.grids(queries, attention.head_sizes)
    causal, dropout = key_values.causal and attention.bias is None, attention.dropout
    mask: Tensor | None = None if causal else key_values.mask(window=0)
    if (bias := distance_bias(attention, key_values)) is not None:  # these kernels take it as a mask
        mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
    p = dropout.p if dropout.active else 0.0
    outputs = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=p, is_causal=causal, scale=attention.scale
    )
    return key_values.take_rows(outputs)


def attend_windowed(attention: ScaledDotProductAttention, queries: QueryRows, key_values: PackedKeyValues) -> HeadRows:
    """`attend` under a window mask (section 4), without the products that the mask would hide."""
    q, k, v = key_values.grids(queries, attention.head_sizes)
    real, window = key_values.key_layout.mask, attention.window
    outputs = attend_in_blocks(q, k, v, real, window, key_values.causal, attention.bias, attention.scale)
    return key_values.take_rows(outputs)


def attend_in_blocks(
    q: Float[Tensor, "batch heads length d_k"],
    k: Float[Tensor, "batch heads length d_k"],
    v: Float[Tensor, "batch heads length d_v"],
    real: Bool[Tensor, "batch length"],
    window: int,
    causal: bool,
    bias: DistanceBias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "batch heads length d_v"]:
    """`attend` under a window mask, in time and memory that grow with length x window.

    The queries are cut into blocks as long as the window, so each block only needs its own keys and those of the blocks
    beside it: one `attend` with the blocks as a batch axis.
    """
    length = q.shape[2]
    blocks = -(-length // window)
    fill = blocks * window - length
    after = 0 if causal else window
    # Block b of queries meets the keys from the start of block b - 1 to the end of block b + 1, or of b if causal.
    k, v = (F.pad(x, (0, 0, window, fill + after)).unfold(2, 2 * window + after, window) for x in (k, v))
    q = F.pad(q, (0, 0, 0, fill)).unflatten(2, (blocks, window))
    here = torch.arange(window, device=q.device)[:, None] + window
    there = torch.arange(2 * window + after, device=q.device)
    near = (here - there <= window) & (there - here <= after)
    exists = F.pad(real, (window, fill + after)).unfold(1, 2 * window + after, window)[:, None, :, None]
    mask = (near & exists) | (here == there)
    added = None if bias is None else bias(there - here)[:, None]
    outputs, _ = attend(q, k.transpose(-2, -1), v.transpose(-2, -1), mask, None, added, scale)
    return outputs.flatten(2, 3)[:, :, :length]


def distance_bias(
    attention: ScaledDotProductAttention, key_values: KeyValues
) -> Float[Tensor, "heads query key"] | None:
    """The bias that self-attention adds to its scores; None: there is none, as in the paper."""
    if attention.bias is None or isinstance(key_values, SpanKeyValues):  # the source is at no distance
        return None
    return attention.bias(key_values.distances)


def draw_weight_dropout(attention: ScaledDotProductAttention, key_values: PackedKeyValues) -> Weights | None:
    """The factors by which dropout multiplies the weights of all heads; None: it is off."""
    dropout, layout = attention.dropout, key_values.query_layout
    if not dropout.active:
        return None
    heads, keys, device = attention.num_heads, key_values.key_layout.longest, layout.lengths.device
    if layout.dropout_keys is None or device.type != "cpu":
        return F.dropout(torch.ones((len(layout.lengths), heads, layout.longest, keys), device=device), dropout.p)
    columns = HEAD_STRIDE * torch.arange(heads)[:, None] + torch.arange(keys)
    masks = keep_mask(layout.dropout_keys, columns.flatten(), dropout.site, dropout.p)
    return split_heads(layout.pad(masks), heads)


class SelfAttention(ScaledDotProductAttention):
    """Queries, keys and values from the same sequence. Their projections are one matrix, as in the paper's own code."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_k: int,
        d_v: int,
        dropout: float,
        window: int = 0,
        bias: DistanceBias | None = None,
        scale: float | None = None,
        biases: bool = True,
    ) -> None:
        super().__init__(num_heads)
        self.window = window
        self.scale = d_k**-0.5 if scale is None else scale
        self.bias = bias
        self.head_sizes = HeadSizes(num_heads, d_k, d_v)
        self.sizes = (num_heads * d_k, num_heads * d_k, num_heads * d_v)
        self.query_key_value = glorot_linear(d_model, sum(self.sizes), biases)
        self.output = glorot_linear(num_heads * d_v, d_model, biases)
        self.dropout = Dropout(dropout)

    def forward(self, x: Rows, layout: Layout, causal: bool, keep: KeepKeyValues | None = None) -> Rows:
        """`keep` gets the keys and values, so that `step` can continue from them."""
        queries = self.query_key_value(x)
        if keep is not None:
            keep(*queries.split(self.sizes, dim=1)[1:])
        return self.output(attend_heads(self, queries, PackedKeyValues(None, layout, layout, causal)))

    def step(self, x: Rows, cache: Callable[[HeadRows, HeadRows], KeyValues]) -> Rows:
        """One position of each hypothesis: attend from it to all before it and to itself.

        `cache` takes the new keys and values and returns all of them.
        """
        queries, keys, values = self.query_key_value(x).split(self.sizes, dim=1)
        return self.output(attend_heads(self, queries, cache(keys, values)))

    if TYPE_CHECKING:
        __call__ = forward


class CrossAttention(ScaledDotProductAttention):
    """Queries from the decoder, keys and values from the encoder's output; the latter two are one matrix."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_k: int,
        d_v: int,
        dropout: float,
        scale: float | None = None,
        biases: bool = True,
    ) -> None:
        super().__init__(num_heads)
        self.bias = None
        self.scale = d_k**-0.5 if scale is None else scale
        self.head_sizes = HeadSizes(num_heads, d_k, d_v)
        self.sizes = (num_heads * d_k, num_heads * d_v)
        self.query = glorot_linear(d_model, num_heads * d_k, biases)
        self.key_value = glorot_linear(d_model, sum(self.sizes), biases)
        self.output = glorot_linear(num_heads * d_v, d_model, biases)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Rows,
        layout: Layout,
        memory: Float[Tensor, "source_rows d_model"],
        memory_layout: Layout,
    ) -> Rows:
        queries = self.query(x)
        key_values = PackedKeyValues(self.key_value(memory), layout, memory_layout, causal=False)
        return self.output(attend_heads(self, queries, key_values))

    def step(self, x: Rows, key_values: KeyValues) -> Rows:
        """One position of each hypothesis: attend from it to the source, whose keys and values were projected once."""
        return self.output(attend_heads(self, self.query(x), key_values))

    def project(self, memory: Float[Tensor, "source_rows d_model"], layout: Layout) -> tuple[Keys, Values]:
        """Keys and values of the source in each head."""
        k, v = layout.pad(self.key_value(memory)).split(self.sizes, dim=-1)
        return split_heads(k, self.num_heads), split_heads(v, self.num_heads)

    if TYPE_CHECKING:
        __call__ = forward
