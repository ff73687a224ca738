"""Dropout (section 5.4)."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.nn import noise

Keys = Int[Tensor, " rows"] | None


class Dropout(nn.Module):
    """Sets each number to zero with probability p and scales the others by 1 / (1 - p); in evaluation does nothing.

    With a key for each row (see `heedful.nn.noise`) a processor always drops the same. Without, and on devices that
    have a fast generator of their own, PyTorch draws.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.site = 0  # which dropout of the model this is; see `number_sites`

    @property
    def active(self) -> bool:
        """Whether it does anything."""
        return self.training and self.p > 0.0

    def forward(self, x: Float[Tensor, "rows width"], keys: Keys) -> Float[Tensor, "rows width"]:
        if not self.active:
            return x
        if keys is None or x.device.type != "cpu":
            return F.dropout(x, self.p)
        return x * noise.keep_mask(keys, torch.arange(x.shape[1]), self.site, self.p).to(x.dtype)

    def extra_repr(self) -> str:
        return f"p={self.p}"

    if TYPE_CHECKING:
        __call__ = forward


def number_sites(model: nn.Module) -> None:
    """Tell the dropouts of a model apart, so that no two drop the same."""
    for number, part in enumerate(part for part in model.modules() if isinstance(part, Dropout)):
        part.site = number
