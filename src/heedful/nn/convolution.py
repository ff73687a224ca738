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

SQRT_HALF = 0.5**0.5  # scales a sum of two terms to the variance of one (section 3.4)


def scaled_linear(inputs: int, outputs: int, dropout: float = 0.0, gain: float = 1.0) -> Linear:
    """A linear layer that preserves the variance of its input, which dropout has increased (section 3.5)."""
    layer = Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=(gain * (1.0 - dropout) / inputs) ** 0.5)
    nn.init.zeros_(layer.bias)
    return layer


class GatedConvolution(nn.Module):
    """Dropout, a convolution over `width` positions to twice the width, and a gated linear unit.

    The convolution is a linear layer applied to the window of each position, so it runs on packed rows without padding
    like every other product.
    """

    def __init__(self, d_model: int, width: int, dropout: float) -> None:
        super().__init__()
        self.width = width
        self.dropout = Dropout(dropout)
        # A gate roughly halves its input, which leaves a quarter of the variance.
        self.linear = scaled_linear(width * d_model, 2 * d_model, dropout, gain=4.0)

    def forward(self, x: Rows, layout: Layout, ahead: int) -> Rows:
        """Convolve windows that end `ahead` positions after the current one; beyond the sentence there are zeros."""
        x = self.dropout(x, layout.dropout_keys)
        return self.convolve(gather_windows(x, layout, range(ahead + 1 - self.width, ahead + 1)))

    def convolve(self, windows: Float[Tensor, "rows window"]) -> Rows:
        """The linear map and the gate, on windows whose positions are side by side."""
        return F.glu(self.linear(windows), dim=1)

    if TYPE_CHECKING:
        __call__ = forward


def gather_windows(x: Rows, layout: Layout, offsets: Iterable[int]) -> Float[Tensor, "rows window"]:
    """The rows at these offsets from each row, side by side; zeros beyond the ends of its sentence."""
    ends = layout.lengths.repeat_interleave(layout.lengths, output_size=len(x))
    shifted = []
    for offset in offsets:
        there = layout.positions + offset
        inside = ((there >= 0) & (there < ends)).to(x.dtype)[:, None]
        # All rows move, even across sentences; rows of another sentence are multiplied by zero.
        shifted.append(x.roll(-offset, 0) * inside if offset else x)
    return torch.cat(shifted, dim=1)
