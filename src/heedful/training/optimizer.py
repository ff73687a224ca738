"""Adam (section 5.3) or Muon, whose state is saved and loaded by name, and the moving average of the weights."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.config import TrainConfig
from heedful.errors import FolderError
from heedful.kernels.matmul import fast_batches, products_are_narrow

_ADAM_STATE = ("exp_avg", "exp_avg_sq", "step")
_MUON_STATE = ("momentum",)
MOMENTS = (*_ADAM_STATE, *_MUON_STATE)

_BETAS, _EPSILON = (0.9, 0.98), 1e-9  # section 5.3

# Muon
_MOMENTUM = 0.95
# Three odd polynomials x (a + b x² + c x⁴), one after another, bring singular values between 0.02 and 1 to between 0.88
# and 1.09. They were fitted to do so; the authors' single polynomial needs five rounds to come within 0.68 and 1.21.
_POLYNOMIALS = (
    (4.723452, -13.505533, 9.915154),
    (3.514079, -6.903916, 3.793372),
    (3.183205, -4.816112, 2.658192),
)
_SIZE = 0.2  # about the size of Adam's updates (Liu et al., 2025), so that the same learning rate suits both


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam with the paper's constants, or Muon if the recipe sets it."""
    if config.optimizer == "adam":
        return _make_adam(list(model.parameters()), config)
    matrices = _find_matrices(model)
    chosen = set(map(id, matrices))
    others = [parameter for parameter in model.parameters() if id(parameter) not in chosen]
    return Muon(matrices, _make_adam(others, config), config.weight_decay)


def _make_adam(parameters: Sequence[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """Adam; weight decay, if the recipe sets it, is decoupled and spares vectors."""
    if config.weight_decay == 0.0:
        return torch.optim.Adam(parameters, lr=0.0, betas=_BETAS, eps=_EPSILON, fused=True)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=_BETAS, eps=_EPSILON, fused=True)


def _find_matrices(model: nn.Module) -> list[nn.Parameter]:
    """All matrices but those of embeddings and output layer, whose rows belong to one piece each."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.RNNBase)]
    return [parameter for layer in layers for parameter in layer.parameters(recurse=False) if parameter.ndim == 2]


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use this learning rate from the next update on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state, named after its weights; empty before the first update."""
    return {
        f"{moment}.{name}": value
        for name, parameter in model.named_parameters()
        for moment, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the result of `optimizer_tensors`."""
    for name, parameter in model.named_parameters():
        found = {moment: tensors[key] for moment in MOMENTS if (key := f"{moment}.{name}") in tensors}
        if tensors and tuple(found) not in (_ADAM_STATE, _MUON_STATE):
            raise FolderError(f"the checkpoint has no optimizer state for {name}; it belongs to a different model")
        if found:
            optimizer.state[parameter] = {
                moment: value.to(parameter.device, copy=True) for moment, value in found.items()
            }


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al., 2024): moves a matrix by the same length in all directions of its gradient.

    `others` optimizes all parameters that are not matrices. PyTorch's own Muon works in bfloat16 on one matrix after
    the other; on a CPU without bfloat16 an update took 16 times as long as with this one, which works on all matrices
    of a shape at once, in float32 unless training multiplies in bfloat16.
    """

    def __init__(self, matrices: Sequence[nn.Parameter], others: torch.optim.Optimizer, weight_decay: float) -> None:
        super().__init__(matrices, {"lr": 0.0, "weight_decay": weight_decay})
        self._others = others
        others.state = self.state  # one state and one list of groups, for saving and for setting the rate
        self.param_groups += others.param_groups

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all weights that have a gradient."""
        self._others.step()
        group = self.param_groups[0]
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for weight in group["params"]:
            if weight.grad is not None:
                by_shape[weight.shape].append((weight, self._direction(weight, weight.grad)))
        for shape, pairs in by_shape.items():
            weights, directions = map(list, zip(*pairs, strict=True))
            stacked = torch.stack(directions)
            if products_are_narrow():
                stacked = stacked.bfloat16()
            with fast_batches() if weights[0].device.type == "cpu" else nullcontext():
                updates = orthogonalise(stacked).float()
            torch._foreach_mul_(weights, 1.0 - group["lr"] * group["weight_decay"])
            length = min(
                group["lr"] * _SIZE * max(shape) ** 0.5, torch.finfo(torch.float32).max
            )  # PyTorch refuses more
            torch._foreach_add_(weights, list(updates), alpha=-length)

    def _direction(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """Nesterov's direction: the momentum after this gradient, plus a little more of the gradient."""
        state = self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        state["momentum"].lerp_(gradient, 1.0 - _MOMENTUM)
        return gradient.lerp(state["momentum"], _MOMENTUM)


def orthogonalise(matrices: Float[Tensor, "count rows columns"]) -> Float[Tensor, "count rows columns"]:
    """Each matrix with its singular values set to about 1 by Newton and Schulz's iteration."""
    _, rows, columns = matrices.shape
    if rows > columns:
        return orthogonalise(matrices.mT).mT
    found = matrices / (torch.linalg.matrix_norm(matrices, keepdim=True) + 1e-7)
    square = found @ found.mT
    # The norm of the square bounds the largest singular value much more closely than the norm of the matrix does.
    bound = torch.linalg.matrix_norm(square, keepdim=True) + 1e-14
    found, square = found / bound.sqrt(), square / bound
    if 2 * columns > 3 * rows:  # for wide matrices, it is cheaper to iterate on the square alone
        return _iterate_square(square) @ found
    for number, (a, b, c) in enumerate(_POLYNOMIALS):
        if number:
            square = found @ found.mT
        found = torch.baddbmm(found, torch.baddbmm(square, square, square, beta=b, alpha=c), found, beta=a)
    return found


def _iterate_square(square: Float[Tensor, "count rows rows"]) -> Float[Tensor, "count rows rows"]:
    """The product of all rounds' factors, by which the iteration multiplies a matrix with this square."""
    product = factor = _factor(square, *_POLYNOMIALS[0])
    for polynomial in _POLYNOMIALS[1:]:
        square = factor @ (factor @ square)  # the factors commute: they are polynomials of the same matrix
        factor = _factor(square, *polynomial)
        product = factor @ product
    return product


def _factor(square: Float[Tensor, "count rows rows"], a: float, b: float, c: float) -> Float[Tensor, "count rows rows"]:
    factor = torch.baddbmm(square, square, square, beta=b, alpha=c)
    factor.diagonal(dim1=1, dim2=2).add_(a)
    return factor


class MovingAverage:
    """Exponential moving average of the weights; at first it forgets faster, so that the start leaves no trace."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    def update(self, model: nn.Module, step: int) -> None:
        """Move the average a little towards the weights after update number `step`."""
        decay = min(self.decay, (1 + step) / (10 + step))
        current = [p.detach() for p in model.parameters()]
        torch._foreach_lerp_(list(self.weights.values()), current, 1.0 - decay)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `weights`."""
        for name, weight in self.weights.items():
            weight.copy_(tensors[name])
