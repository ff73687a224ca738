"""The position-wise feed-forward network (section 3.3)."""

from typing import TYPE_CHECKING, assert_never

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from heedful.config import Activation
from heedful.nn.dropout import Dropout, DropoutKeys
from heedful.nn.linear import glorot_linear


class FeedForward(nn.Module):
    """Equation 2: max(0, x W1 + b1) W2 + b2."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation, dropout: float) -> None:
        super().__init__()
        self.inner = glorot_linear(d_model, d_ff)
        self.outer = glorot_linear(d_ff, d_model)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "rows d_model"], dropout_keys: DropoutKeys = None
    ) -> Float[Tensor, "rows d_model"]:
        return self.outer(self.dropout(activate(self.inner(x), self.activation), dropout_keys))

    if TYPE_CHECKING:
        __call__ = forward


def activate(x: Float[Tensor, "*shape"], activation: Activation) -> Float[Tensor, "*shape"]:
    """Apply the named non-linearity."""
    match activation:
        case "relu":
            return F.relu(x)
        case "gelu":
            return F.gelu(x)
        case "gelu-tanh":
            return F.gelu(x, approximate="tanh")
        case "swish":
            return F.silu(x)
        case _:
            assert_never(activation)
