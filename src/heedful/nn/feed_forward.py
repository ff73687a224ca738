"""The position-wise feed-forward network (section 3.3)."""

from typing import TYPE_CHECKING, assert_never

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from heedful.config import Activation
from heedful.nn.dropout import Dropout, DropoutKeys
from heedful.nn.linear import glorot_linear


class FeedForward(nn.Module):
    """Equation 2: max(0, x W1 + b1) W2 + b2. If the activation is gated, W1 holds the gates and then their inputs."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation, dropout: float, biases: bool = True) -> None:
        super().__init__()
        self.inner = glorot_linear(d_model, inner_width(d_ff, activation), biases)
        self.outer = glorot_linear(d_ff, d_model, biases)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "rows d_model"], dropout_keys: DropoutKeys = None
    ) -> Float[Tensor, "rows d_model"]:
        return self.outer(self.dropout(activate(self.inner(x), self.activation), dropout_keys))

    if TYPE_CHECKING:
        __call__ = forward


def inner_width(d_ff: int, activation: Activation) -> int:
    """The number of columns that give `d_ff` of them once they are activated."""
    return 2 * d_ff if activation == "gated-gelu-tanh" else d_ff


def activate(x: Float[Tensor, "*shape inner"], activation: Activation) -> Float[Tensor, "*shape d_ff"]:
    """Apply the named non-linearity; a gated one multiplies the second half of the columns by that of the first."""
    match activation:
        case "relu":
            return F.relu(x)
        case "gelu":
            return F.gelu(x)
        case "gelu-tanh":
            return F.gelu(x, approximate="tanh")
        case "gated-gelu-tanh":  # Shazeer (2020)
            gates, inputs = x.chunk(2, dim=-1)
            return F.gelu(gates, approximate="tanh") * inputs
        case "quick-gelu":  # of CLIP (Radford et al., 2021)
            return x * torch.sigmoid(1.702 * x)
        case "swish":
            return F.silu(x)
        case _:
            assert_never(activation)
