"""Heads of all numbers and widths as equally many and equally wide ones, which is all that other programs know.

What is missing, because heads were pruned or d_k is not d_v, is filled up with zeros: a head whose values are zero adds
nothing, and zeros in a query and its key add nothing to their product.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from heedful.nn.attention import CrossAttention, SelfAttention


@dataclass(frozen=True, slots=True)
class PaddedHeads:
    """How many heads there are, and how wide each of them is, when all are filled up."""

    count: int
    width: int


def fit_heads(attentions: Iterable[SelfAttention | CrossAttention]) -> PaddedHeads:
    """As many and as wide as the largest of these needs them."""
    sizes = [attention.head_sizes for attention in attentions]
    return PaddedHeads(max(size.num_heads for size in sizes), max(max(size.d_k, size.d_v) for size in sizes))


def pad_heads(rows: Tensor, count: int, heads: PaddedHeads) -> Tensor:
    """The rows of `count` heads as those of more and wider ones, with zeros in the new rows."""
    own = rows.unflatten(0, (count, -1))
    filled = rows.new_zeros(heads.count, heads.width, *rows.shape[1:])
    filled[:count, : own.shape[1]] = own
    return filled.flatten(0, 1)


def unpad_heads(rows: Tensor, size: int, count: int, heads: PaddedHeads) -> Tensor:
    """The way back: of rows that were filled up the `size` that there were, of `count` heads."""
    filled = rows.unflatten(0, (heads.count, heads.width))
    return filled[:count, : size // count].flatten(0, 1)
