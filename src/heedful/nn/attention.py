"""Scaled dot-product and multi-head attention (section 3.2)."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from heedful.nn.dropout import Dropout
from heedful.nn.layout import Layout
from heedful.nn.linear import glorot_linear

Heads = Float[Tensor, "batch heads length width"]
Keys = Float[Tensor, "batch heads key d_k"]
Values = Float[Tensor, "batch heads key d_v"]


def attend(
    q: Float[Tensor, "*batch query d_k"],
    k: Float[Tensor, "*batch key d_k"],
    v: Float[Tensor, "*batch key d_v"],
    mask: Bool[Tensor, "*#batch #query key"] | None,
    dropout: Dropout | None = None,
) -> tuple[Float[Tensor, "*batch query d_v"], Float[Tensor, "*batch query key"]]:
    """Equation 1, and the softmax itself. No mask: every key may be looked at. A query without any key gives NaN."""
    # The query is scaled and not the product: it is the smaller matrix.
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1)
    return (weights if dropout is None else dropout(weights)) @ v, weights


def split_heads(x: Float[Tensor, "batch length all_heads"], num_heads: int) -> Heads:
    """Give every head its own part of the columns."""
    batch, length, width = x.shape
    return x.view(batch, length, num_heads, width // num_heads).transpose(1, 2)


def join_heads(x: Heads) -> Float[Tensor, "batch length all_heads"]:
    """Write the heads side by side: `join_heads(split_heads(x, n))` is x."""
    batch, heads, length, width = x.shape
    return x.transpose(1, 2).reshape(batch, length, heads * width)


class SelfAttention(nn.Module):
    """Queries, keys and values from the same sequence. They are one matrix, as in the paper's own code."""

    def __init__(self, d_model: int, num_heads: int, d_k: int, d_v: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.sizes = (num_heads * d_k, num_heads * d_k, num_heads * d_v)
        self.query_key_value = glorot_linear(d_model, sum(self.sizes))
        self.output = glorot_linear(num_heads * d_v, d_model)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "rows d_model"], layout: Layout, mask: Bool[Tensor, "*#batch #query key"] | None
    ) -> Float[Tensor, "rows d_model"]:
        q, k, v = self.project(layout.pad(self.query_key_value(x)))
        attended, _ = attend(q, k, v, mask, self.dropout)
        return self.output(layout.pack(join_heads(attended)))

    def step(
        self, x: Float[Tensor, "batch d_model"], keys: Keys, values: Values
    ) -> tuple[
        Float[Tensor, "batch d_model"], Float[Tensor, "batch heads key+1 d_k"], Float[Tensor, "batch heads key+1 d_v"]
    ]:
        """One position more: attend from it to all before and to itself; give the longer keys and values too."""
        q, k, v = self.project(self.query_key_value(x)[:, None])
        keys, values = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
        attended, _ = attend(q, keys, values, None)
        return self.output(join_heads(attended)[:, 0]), keys, values

    def project(self, joined: Float[Tensor, "batch key all"]) -> tuple[Keys, Keys, Values]:
        """Cut the joint projection into the queries, keys and values of the heads."""
        q, k, v = joined.split(self.sizes, dim=-1)
        return split_heads(q, self.num_heads), split_heads(k, self.num_heads), split_heads(v, self.num_heads)

    if TYPE_CHECKING:
        __call__ = forward


class CrossAttention(nn.Module):
    """Queries from the decoder, keys and values from the encoder's output; those two are one matrix."""

    def __init__(self, d_model: int, num_heads: int, d_k: int, d_v: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
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
        mask: Bool[Tensor, "batch 1 1 key"] | None,
    ) -> Float[Tensor, "rows d_model"]:
        q = split_heads(layout.pad(self.query(x)), self.num_heads)
        k, v = self.project(memory, memory_layout)
        attended, _ = attend(q, k, v, mask, self.dropout)
        return self.output(layout.pack(join_heads(attended)))

    def step(
        self, x: Float[Tensor, "batch d_model"], keys: Keys, values: Values, mask: Bool[Tensor, "batch 1 1 key"]
    ) -> Float[Tensor, "batch d_model"]:
        """One position: attend from it to the source, whose keys and values were projected once."""
        q = split_heads(self.query(x)[:, None], self.num_heads)
        attended, _ = attend(q, keys, values, mask)
        return self.output(join_heads(attended)[:, 0])

    def project(self, memory: Float[Tensor, "source_rows d_model"], layout: Layout) -> tuple[Keys, Values]:
        """Keys and values of the source, head by head."""
        k, v = layout.pad(self.key_value(memory)).split(self.sizes, dim=-1)
        return split_heads(k, self.num_heads), split_heads(v, self.num_heads)

    if TYPE_CHECKING:
        __call__ = forward
