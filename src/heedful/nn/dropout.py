"""Dropout (section 5.4)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.nn import noise
from heedful.nn.layout import Layout

DropoutKeys = Int[Tensor, " rows"] | None  # one random key for each row; see `heedful.nn.noise`


class Dropout(nn.Module):
    """Sets each number to zero with probability p and scales the others by 1 / (1 - p); the identity in evaluation.

    On a CPU, the keys of the rows decide which numbers fall, so the same keys always give the same result. Without
    keys, and on devices with a fast generator of their own, PyTorch draws the mask.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.full = p
        self.p = p  # now; see `set_dropout_share`
        self.site = 0  # which dropout of the model this is; see `number_sites`

    @property
    def active(self) -> bool:
        """Whether it changes anything now."""
        return self.training and self.p > 0.0

    def forward(self, x: Float[Tensor, "rows width"], dropout_keys: DropoutKeys) -> Float[Tensor, "rows width"]:
        if not self.active:
            return x
        if dropout_keys is None or x.device.type != "cpu":
            return F.dropout(x, self.p)
        return x * noise.keep_mask(dropout_keys, torch.arange(x.shape[1]), self.site, self.p).to(x.dtype)

    def extra_repr(self) -> str:
        return f"p={self.p}"

    if TYPE_CHECKING:
        __call__ = forward


def drop_words(
    ids: Int[Tensor, " rows"],
    lengths: Int[Tensor, " batch"],
    sentence_keys: Int[Tensor, " batch"] | None,
    pad_id: int,
    site: int,
    p: float,
) -> Int[Tensor, " rows"]:
    """Word dropout (Gal and Ghahramani, 2016): each id is PAD with probability p, and the embedding of PAD is zero."""
    if sentence_keys is None:
        return ids.masked_fill(torch.rand(ids.shape, device=ids.device) < p, pad_id)
    keys = noise.row_keys(sentence_keys.repeat_interleave(lengths), Layout.of(lengths).positions)
    return ids.masked_fill(noise.keep_mask(keys, torch.arange(1), site, p)[:, 0] == 0.0, pad_id)


def set_dropout_share(model: nn.Module, share: float) -> None:
    """Let every dropout of the model use this share of its full probability."""
    for part in model.modules():
        if isinstance(part, Dropout):
            part.p = share * part.full


def number_sites(model: nn.Module) -> None:
    """Number the dropouts of a model, so that no two of them drop the same numbers."""
    for number, part in enumerate(part for part in model.modules() if isinstance(part, Dropout)):
        part.site = number


@dataclass(frozen=True, slots=True)
class DropoutArguments:
    """A dropout in the form that the compiled loops take."""

    active: bool
    site: np.uint32
    threshold: np.uint32
    scale: np.float32

    @classmethod
    def of(cls, dropout: Dropout) -> "DropoutArguments":
        """The arguments for this dropout."""
        p = dropout.p
        return cls(
            dropout.active, np.uint32(dropout.site), np.uint32(noise.threshold(p)), np.float32(noise.keep_scale(p))
        )

    def with_keys(self, dropout_keys: Tensor) -> tuple[Any, ...]:
        """The arguments of a call for rows with these keys."""
        return dropout_keys.numpy(), self.site, self.threshold, self.scale
