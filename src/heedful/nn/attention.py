"""Scaled dot-product and multi-head attention (section 3.2)."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from heedful.nn.dropout import Dropout
from heedful.nn.fused import HeadSizes, applies, packed_attention
from heedful.nn.heads import MultiHead
from heedful.nn.layout import Layout
from heedful.nn.linear import glorot_linear
from heedful.nn.masks import causal_mask, key_mask, window_mask
from heedful.nn.noise import HEAD_STRIDE, keep_mask

Heads = Float[Tensor, "batch heads length width"]
Keys = Float[Tensor, "batch heads key d_k"]
Values = Float[Tensor, "batch heads key d_v"]


def attend(
    q: Float[Tensor, "*batch query d_k"],
    k: Float[Tensor, "*batch key d_k"],
    v: Float[Tensor, "*batch key d_v"],
    mask: Bool[Tensor, "*#batch #query key"] | None,
    keep: Float[Tensor, "*batch query key"] | None = None,
) -> tuple[Float[Tensor, "*batch query d_v"], Float[Tensor, "*batch query key"]]:
    """Equation 1, and the softmax itself. No mask: every key may be looked at. A query without any key gives NaN.

    `keep` is what dropout multiplies the weights with.
    """
    # The query is scaled and not the product: it is the smaller matrix.
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1)
    return (weights if keep is None else weights * keep) @ v, weights


def attend_fused(
    q: Float[Tensor, "batch heads query d_k"],
    k: Keys,
    v: Values,
    mask: Bool[Tensor, "batch 1 1 key"] | None,
    causal: bool,
    dropout: float,
) -> Float[Tensor, "batch heads query d_v"]:
    """Equation 1 by PyTorch's fused kernels, which never write the weights to memory.

    Only for CUDA: on a processor plain products are faster at the length of sentences.
    """
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)


def attend_between(
    heads: MultiHead, grids: tuple[Heads, Keys, Values], layouts: tuple[Layout, Layout], causal: bool, dropout: Dropout
) -> Float[Tensor, "rows all_heads"]:
    """Attention of packed rows to packed rows, spread over grids; heads side by side in the result."""
    q, k, v = grids
    here, there = layouts
    if q.device.type == "cuda" and not heads.touched:
        mask = None if causal or there.full else key_mask(there.mask)
        return here.pack(join_heads(attend_fused(q, k, v, mask, causal, dropout.p if dropout.active else 0.0)))
    # Sentences start at column 0 of the grid, so the causal mask alone keeps every real row from the padding.
    mask = causal_mask(here.longest, q.device) if causal else None if there.full else key_mask(there.mask)
    keep = weight_dropout(dropout, here, q.shape[1], k.shape[2]) if dropout.active else None
    return here.pack(join_heads(heads.passed_on(*attend(q, k, v, mask, keep))))


def attend_nearby(
    heads: MultiHead, grids: tuple[Heads, Keys, Values], layout: Layout, window: int, causal: bool, dropout: Dropout
) -> Float[Tensor, "rows all_heads"]:
    """Restricted self-attention of packed rows; heads side by side in the result."""
    if not heads.touched and not dropout.active:
        return layout.pack(join_heads(attend_in_blocks(*grids, layout.mask, window, causal)))
    q, k, v = grids
    # Rows past a sentence see themselves, for a query without any key would give NaN.
    real = key_mask(layout.mask) | torch.eye(layout.longest, dtype=torch.bool, device=q.device)
    mask = window_mask(layout.longest, window, causal, q.device) & real
    keep = weight_dropout(dropout, layout, q.shape[1], k.shape[2]) if dropout.active else None
    return layout.pack(join_heads(heads.passed_on(*attend(q, k, v, mask, keep))))


def attend_in_blocks(
    q: Heads, k: Keys, v: Values, real: Bool[Tensor, "batch length"], window: int, causal: bool
) -> Float[Tensor, "batch heads length d_v"]:
    """Equation 1 within a window, in time and memory that grow with length x window.

    Queries are taken in blocks as long as the window: each sees nothing beyond the blocks beside its own.
    """
    length = q.shape[2]
    blocks = -(-length // window)
    fill = blocks * window - length
    after = 0 if causal else window
    # Block b of queries meets keys from the start of block b - 1 to the end of block b + 1, or of b if causal.
    k, v = (F.pad(x, (0, 0, window, fill + after)).unfold(2, 2 * window + after, window) for x in (k, v))
    q = F.pad(q, (0, 0, 0, fill)).unflatten(2, (blocks, window))
    here = torch.arange(window, device=q.device)[:, None] + window
    there = torch.arange(2 * window + after, device=q.device)
    near = (here - there <= window) & (there - here <= after)
    exists = F.pad(real, (window, fill + after)).unfold(1, 2 * window + after, window)[:, None, :, None]
    mask = (near & exists) | (here == there)
    found, _ = attend(q, k.transpose(-2, -1), v.transpose(-2, -1), mask)
    return found.flatten(2, 3)[:, :, :length]


def weight_dropout(
    dropout: Dropout, layout: Layout, num_heads: int, keys: int
) -> Float[Tensor, "batch heads query key"]:
    """What the weights of all heads are multiplied with."""
    shape, device = (len(layout.lengths), num_heads, layout.longest, keys), layout.lengths.device
    if layout.keys is None or device.type != "cpu":
        return F.dropout(torch.ones(shape, device=device), dropout.p)
    columns = HEAD_STRIDE * torch.arange(num_heads)[:, None] + torch.arange(keys)
    masks = keep_mask(layout.keys, columns.flatten(), dropout.site, dropout.p)
    return split_heads(layout.pad(masks), num_heads)


def split_heads(x: Float[Tensor, "batch length all_heads"], num_heads: int) -> Heads:
    """Give every head its own part of the columns."""
    batch, length, width = x.shape
    return x.view(batch, length, num_heads, width // num_heads).transpose(1, 2)


def join_heads(x: Heads) -> Float[Tensor, "batch length all_heads"]:
    """Write the heads side by side: `join_heads(split_heads(x, n))` is x."""
    batch, heads, length, width = x.shape
    return x.transpose(1, 2).reshape(batch, length, heads * width)


def can_fuse(heads: MultiHead, x: Float[Tensor, "rows columns"], layout: Layout, dropout: Dropout) -> bool:
    """Whether the compiled loops do this attention."""
    return applies(x) and not heads.touched and (layout.keys is not None or not dropout.active)


class SelfAttention(MultiHead):
    """Queries, keys and values from the same sequence. They are one matrix, as in the paper's own code.

    With a `window` a position sees only so many to either side of it (section 4); 0: all.
    """

    def __init__(self, d_model: int, num_heads: int, d_k: int, d_v: int, dropout: float, window: int = 0) -> None:
        super().__init__(num_heads)
        self.window = window
        self.head_sizes = HeadSizes(num_heads, d_k, d_v)
        self.sizes = (num_heads * d_k, num_heads * d_k, num_heads * d_v)
        self.query_key_value = glorot_linear(d_model, sum(self.sizes))
        self.output = glorot_linear(num_heads * d_v, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "rows d_model"], layout: Layout, causal: bool) -> Float[Tensor, "rows d_model"]:
        joined, layouts = self.query_key_value(x), (layout, layout)
        if self.window:
            grids = self.project(layout.pad(joined))
            return self.output(attend_nearby(self, grids, layout, self.window, causal, self.dropout))
        if can_fuse(self, joined, layout, self.dropout):
            return self.output(packed_attention(joined, None, layouts, self.head_sizes, causal, self.dropout))
        return self.output(attend_between(self, self.project(layout.pad(joined)), layouts, causal, self.dropout))

    def step(
        self, x: Float[Tensor, "batch d_model"], keys: Keys, values: Values
    ) -> tuple[
        Float[Tensor, "batch d_model"], Float[Tensor, "batch heads grown d_k"], Float[Tensor, "batch heads grown d_v"]
    ]:
        """One position more: attend from it to all before and to itself; give the longer keys and values too.

        Those that have left the window are given up.
        """
        q, k, v = self.project(self.query_key_value(x)[:, None])
        keys, values = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
        if self.window:
            keys, values = keys[:, :, -self.window - 1 :], values[:, :, -self.window - 1 :]
        attended = self.passed_on(*attend(q, keys, values, None))
        return self.output(join_heads(attended)[:, 0]), keys, values

    def project(self, joined: Float[Tensor, "batch key all"]) -> tuple[Keys, Keys, Values]:
        """Cut the joint projection into the queries, keys and values of the heads."""
        q, k, v = joined.split(self.sizes, dim=-1)
        return split_heads(q, self.num_heads), split_heads(k, self.num_heads), split_heads(v, self.num_heads)

    if TYPE_CHECKING:
        __call__ = forward


class CrossAttention(MultiHead):
    """Queries from the decoder, keys and values from the encoder's output; those two are one matrix."""

    def __init__(self, d_model: int, num_heads: int, d_k: int, d_v: int, dropout: float) -> None:
        super().__init__(num_heads)
        self.head_sizes = HeadSizes(num_heads, d_k, d_v)
        self.sizes = (num_heads * d_k, num_heads * d_v)
        self.query = glorot_linear(d_model, num_heads * d_k)
        self.key_value = glorot_linear(d_model, sum(self.sizes))
        self.output = glorot_linear(num_heads * d_v, d_model)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "rows d_model"],
        layout: Layout,
        memory: Float[Tensor, "source_rows d_model"],
        memory_layout: Layout,
    ) -> Float[Tensor, "rows d_model"]:
        q, layouts = self.query(x), (layout, memory_layout)
        if can_fuse(self, q, layout, self.dropout):
            joined = self.key_value(memory)
            return self.output(packed_attention(q, joined, layouts, self.head_sizes, False, self.dropout))
        grids = (split_heads(layout.pad(q), self.num_heads), *self.project(memory, memory_layout))
        return self.output(attend_between(self, grids, layouts, False, self.dropout))

    def step(
        self, x: Float[Tensor, "batch d_model"], keys: Keys, values: Values, mask: Bool[Tensor, "batch 1 1 key"]
    ) -> Float[Tensor, "batch d_model"]:
        """One position: attend from it to the source, whose keys and values were projected once."""
        q = split_heads(self.query(x)[:, None], self.num_heads)
        attended = self.passed_on(*attend(q, keys, values, mask))
        return self.output(join_heads(attended)[:, 0])

    def project(self, memory: Float[Tensor, "source_rows d_model"], layout: Layout) -> tuple[Keys, Values]:
        """Keys and values of the source, head by head."""
        k, v = layout.pad(self.key_value(memory)).split(self.sizes, dim=-1)
        return split_heads(k, self.num_heads), split_heads(v, self.num_heads)

    if TYPE_CHECKING:
        __call__ = forward
