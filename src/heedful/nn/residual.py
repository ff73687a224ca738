"""Residual connection, dropout and layer normalisation around a sub-layer (sections 3.1 and 5.4)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from torch import nn

from heedful.config import Norm
from heedful.nn.dropout import Dropout, DropoutKeys
from heedful.nn.fused import Rows, dropout_add, dropout_add_norm

NORM_EPSILON = 1e-6


def layer_norm(d_model: int) -> nn.LayerNorm:
    """Layer normalisation as in the paper's code: biased variance, epsilon 1e-6 inside the root."""
    return nn.LayerNorm(d_model, eps=NORM_EPSILON)


class Residual(nn.Module):
    """The paper's post-norm: LayerNorm(x + Dropout(Sublayer(x))). Pre-norm: x + Dropout(Sublayer(LayerNorm(x)))."""

    def __init__(self, d_model: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        self.norm = layer_norm(d_model)
        self.dropout = Dropout(dropout)
        self.place = norm

    def forward(self, x: Rows, dropout_keys: DropoutKeys, sublayer: Callable[[Rows], Rows]) -> Rows:
        match self.place:
            case "post":
                return dropout_add_norm(x, sublayer(x), self.dropout, dropout_keys, self.norm)
            case "pre":
                return dropout_add(x, sublayer(self.norm(x)), self.dropout, dropout_keys)
            case _:
                assert_never(self.place)

    if TYPE_CHECKING:
        __call__ = forward
