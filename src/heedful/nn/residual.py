"""Residual connection, dropout and layer normalisation around a sub-layer (sections 3.1 and 5.4)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from jaxtyping import Float
from torch import Tensor, nn

from heedful.config import Norm
from heedful.nn.dropout import Dropout

Rows = Float[Tensor, "rows d_model"]

NORM_EPSILON = 1e-6


def layer_norm(d_model: int) -> nn.LayerNorm:
    """Layer normalisation as the paper's code has it: biased variance, epsilon 1e-6 inside the root."""
    return nn.LayerNorm(d_model, eps=NORM_EPSILON)


class Residual(nn.Module):
    """Post-norm, the paper's: LayerNorm(x + Dropout(Sublayer(x))). Pre-norm: x + Dropout(Sublayer(LayerNorm(x)))."""

    def __init__(self, d_model: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        self.norm = layer_norm(d_model)
        self.dropout = Dropout(dropout)
        self.place = norm

    def forward(self, x: Rows, sublayer: Callable[[Rows], Rows]) -> Rows:
        match self.place:
            case "post":
                return self.norm(x + self.dropout(sublayer(x)))
            case "pre":
                return x + self.dropout(sublayer(self.norm(x)))
            case _:
                assert_never(self.place)

    if TYPE_CHECKING:
        __call__ = forward
