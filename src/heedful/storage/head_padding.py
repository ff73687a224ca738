"""Pad attention layers to the same number of heads, all of the same width, because other programs support only that.

If heads were pruned, or d_k is not d_v, the missing rows are zeros: a head whose values are zero adds nothing, and
zeros in a query and its key add nothing to their product.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from heedful.nn.attention import CrossAttention, SelfAttention


@dataclass(frozen=True, slots=True)
class PaddedHeads:
    """The number of heads after padding, and the width of each."""

    count: int
    width: int
    bias_columns: int = 0  # the first of the columns that hold a bias by distance, one for each head; 0: none


def fit_heads(attentions: Iterable[SelfAttention | CrossAttention]) -> PaddedHeads:
    """The smallest padding that all of these layers fit into."""
    layers = list(attentions)
    sizes = [attention.head_sizes for attention in layers]
    count, width = max(size.num_heads for size in sizes), max(max(size.d_k, size.d_v) for size in sizes)
    if all(attention.bias is None for attention in layers):
        return PaddedHeads(count, width)
    return PaddedHeads(count, width + count, bias_columns=width)


def pad_heads(rows: Tensor, count: int, heads: PaddedHeads) -> Tensor:
    """Pad the rows of `count` heads with zeros to more and wider heads."""
    own = rows.unflatten(0, (count, -1))
    padded = rows.new_zeros(heads.count, heads.width, *rows.shape[1:])
    padded[:count, : own.shape[1]] = own
    return padded.flatten(0, 1)


def unpad_heads(rows: Tensor, size: int, count: int, heads: PaddedHeads) -> Tensor:
    """Undo `pad_heads`: the `size` original rows of `count` heads."""
    padded = rows.unflatten(0, (heads.count, heads.width))
    return padded[:count, : size // count].flatten(0, 1)
