"""Gated convolutions over packed sentences (Gehring et al. 2017, section 3.2)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.dropout import Dropout
from heedful.nn.fused import Rows
from heedful.nn.layout import Layout
from heedful.nn.linear import Linear

HALF = 0.5**0.5  # a sum of two is multiplied by this, so that its variance stays (section 3.4)


def scaled_linear(inputs: int, outputs: int, dropout: float = 0.0, gain: float = 1.0) -> Linear:
    """A linear layer that keeps the variance of its input, which dropout makes larger (section 3.5)."""
    layer = Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=(gain * (1.0 - dropout) / inputs) ** 0.5)
    nn.init.zeros_(layer.bias)
    return layer


class GatedConvolution(nn.Module):
    """Dropout, a window of `width` positions, one linear map of it to twice the width, and a gated linear unit.

    A convolution is that map applied at each position. So it runs on packed rows, without padding, as every other
    product does.
    """

    def __init__(self, d_model: int, width: int, dropout: float) -> None:
        super().__init__()
        self.width = width
        self.dropout = Dropout(dropout)
        # A gate halves its input or so: a quarter of the variance.
        self.linear = scaled_linear(width * d_model, 2 * d_model, dropout, gain=4.0)

    def forward(self, x: Rows, layout: Layout, ahead: int) -> Rows:
        """Windows that end `ahead` positions after their own; past a sentence there are zeros."""
        x = self.dropout(x, layout.keys)
        return self.gate(windows(x, layout, range(ahead + 1 - self.width, ahead + 1)))

    def gate(self, x: Float[Tensor, "rows window"]) -> Rows:
        """What comes of whole windows, positions side by side."""
        return F.glu(self.linear(x), dim=1)

    if TYPE_CHECKING:
        __call__ = forward


def windows(x: Rows, layout: Layout, offsets: Iterable[int]) -> Float[Tensor, "rows window"]:
    """Rows so far before (below zero) or after each row, side by side; zeros where the sentence has none."""
    ends = layout.lengths.repeat_interleave(layout.lengths, output_size=len(x))
    shifted = []
    for offset in offsets:
        there = layout.positions + offset
        inside = ((there >= 0) & (there < ends)).to(x.dtype)[:, None]
        # All rows move, also into the next sentence; what came from there is multiplied by zero.
        shifted.append(x.roll(-offset, 0) * inside if offset else x)
    return torch.cat(shifted, dim=1)
