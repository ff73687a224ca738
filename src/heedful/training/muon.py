"""Muon (Jordan et al., 2024): a matrix is moved in all directions of its gradient by the same length.

PyTorch's own works in bfloat16, one matrix after the other. On a processor that has no such numbers an update took 16
times as long as by this one, which works in float32 on all matrices of a shape at once.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

_MOMENTUM = 0.95
_ROUNDS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # theirs: singular values come to lie between 0.7 and 1.2, and soon
_SIZE = 0.2  # about that of Adam's updates (Liu et al., 2025), so that the same learning rate suits both


class Muon(torch.optim.Optimizer):
    """For matrices, with another optimizer for all that are none."""

    def __init__(self, matrices: Sequence[nn.Parameter], others: torch.optim.Optimizer, weight_decay: float) -> None:
        super().__init__(matrices, {"lr": 0.0, "weight_decay": weight_decay})
        self._others = others
        others.state = self.state  # one memory and one list of groups, for who saves it or sets the rate
        self.param_groups += others.param_groups

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move all weights that have a gradient."""
        self._others.step()
        group = self.param_groups[0]
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for weight in group["params"]:
            if weight.grad is not None:
                by_shape[weight.shape].append((weight, self._direction(weight, weight.grad)))
        for shape, pairs in by_shape.items():
            weights, directions = map(list, zip(*pairs, strict=True))
            updates = orthogonalise(torch.stack(directions))
            torch._foreach_mul_(weights, 1.0 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(weights, list(updates), alpha=-group["lr"] * _SIZE * max(shape) ** 0.5)

    def _direction(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """Nesterov's: the momentum after this gradient, and a little more of the gradient."""
        state = self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        state["momentum"].lerp_(gradient, 1.0 - _MOMENTUM)
        return gradient.lerp(state["momentum"], _MOMENTUM)


def orthogonalise(matrices: Float[Tensor, "count rows columns"]) -> Float[Tensor, "count rows columns"]:
    """Each matrix with singular values of about 1, by Newton and Schulz's iteration."""
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonalise(matrices.mT).mT
    a, b, c = _COEFFICIENTS
    found = matrices / (torch.linalg.matrix_norm(matrices, keepdim=True) + 1e-7)
    for _ in range(_ROUNDS):
        square = found @ found.mT
        found = torch.baddbmm(found, torch.baddbmm(square, square, square, beta=b, alpha=c), found, beta=a)
    return found
