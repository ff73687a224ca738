"""What all attention has in common: heads that somebody may watch or switch off."""

from collections.abc import Callable
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

Kind = Literal["encoder", "decoder", "cross"]  # self-attention of either stack, and attention to the source

Weights = Float[Tensor, "batch heads query key"]
Attended = Float[Tensor, "batch heads query d_v"]
Watcher = Callable[[Weights], None]


class MultiHead(nn.Module):
    """Attention of one or more heads, as every family of models has it."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.watcher: Watcher | None = None  # is shown the weights; see `heedful.heads.record_attention`
        # What each head's result is multiplied by, in all sentences or in each of them; None: one.
        self.gates: Float[Tensor, "*sentences heads"] | None = None

    @property
    def touched(self) -> bool:
        """Whether someone watches or gates: fused kernels never form the weights, so this costs the plain path."""
        return self.watcher is not None or self.gates is not None

    def passed_on(self, attended: Attended, weights: Weights) -> Attended:
        """What the heads give to the output layer; who watches has seen the weights then."""
        self.show(weights)
        return self.gated(attended)

    def show(self, weights: Weights) -> None:
        """Let who watches see the weights."""
        if self.watcher is not None:
            self.watcher(weights)

    def gated(self, attended: Attended) -> Attended:
        """What is left of each head's result where heads are switched off."""
        return attended if self.gates is None else attended * self.gates[..., None, None]
