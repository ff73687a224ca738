"""The heads of an attention, whose weights can be read and whose results can be gated."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.dropout import Dropout
from heedful.nn.positions import DistanceBias

Kind = Literal["encoder", "decoder", "cross"]  # self-attention of either stack, and attention to the source

Heads = Float[Tensor, "batch heads length width"]
HeadOutputs = Float[Tensor, "batch heads query d_v"]
Weights = Float[Tensor, "batch heads query key"]
WeightsHook = Callable[[Weights], None]


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """The number of heads, and the width of a key and of a value in each."""

    num_heads: int
    d_k: int
    d_v: int


class MultiHeadAttention(nn.Module):
    """Attention of one or more heads; the attention of every family of models is one."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.weights_hook: WeightsHook | None = None  # gets the weights; see `heedful.attention.record_attention`
        # Factors on the heads' results, for all sentences or for each; None stands for ones.
        self.gates: Float[Tensor, "*sentences heads"] | None = None

    @property
    def instrumented(self) -> bool:
        """Whether weights are read or heads gated, which only the plain form of attention can do."""
        return self.weights_hook is not None or self.gates is not None

    def instrument(self, outputs: HeadOutputs, weights: Weights) -> HeadOutputs:
        """Pass the weights to the hook, and return the gated results of the heads."""
        self.report(weights)
        return self.apply_gates(outputs)

    def report(self, weights: Weights) -> None:
        """Pass the weights to the hook, if there is one."""
        if self.weights_hook is not None:
            self.weights_hook(weights)

    def apply_gates(self, outputs: HeadOutputs) -> HeadOutputs:
        """Multiply the result of each head by its gate."""
        return outputs if self.gates is None else outputs * self.gates[..., None, None]


class ScaledDotProductAttention(MultiHeadAttention):
    """Attention by equation 1: the settings that self-attention and attention to the source have in common."""

    head_sizes: HeadSizes
    scale: float  # the factor on the scores: 1 / sqrt(d_k), except in T5
    dropout: Dropout
    window: int = 0  # how many positions a query sees to either side (section 4); 0: all
    bias: DistanceBias | None  # of self-attention only; a default here would hide the module


def split_heads(x: Float[Tensor, "batch length all_heads"], num_heads: int) -> Heads:
    """Give each head its block of the columns."""
    batch, length, width = x.shape
    return x.view(batch, length, num_heads, width // num_heads).transpose(1, 2)


def split_position(x: Float[Tensor, "batch all_heads"], num_heads: int) -> Float[Tensor, "batch heads 1 width"]:
    """`split_heads` of a single position."""
    batch, width = x.shape
    return x.view(batch, num_heads, 1, width // num_heads)


def join_heads(x: Heads) -> Float[Tensor, "batch length all_heads"]:
    """Write the heads side by side: `join_heads(split_heads(x, n))` is x."""
    batch, heads, length, width = x.shape
    return x.transpose(1, 2).reshape(batch, length, heads * width)


def join_position(x: Float[Tensor, "batch heads 1 width"]) -> Float[Tensor, "batch all_heads"]:
    """`join_heads` of a single position."""
    batch, heads, _, width = x.shape
    return x.reshape(batch, heads * width)
