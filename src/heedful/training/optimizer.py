"""Adam (section 5.3) or Muon, with state that is saved and loaded by name; and the moving average of the weights."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from heedful.config import TrainConfig
from heedful.errors import FolderError
from heedful.training.muon import Muon

_OF_ADAM = ("exp_avg", "exp_avg_sq", "step")
_OF_MUON = ("momentum",)
MOMENTS = (*_OF_ADAM, *_OF_MUON)


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam with the paper's constants, or where a recipe asks for it Muon."""
    if config.optimizer == "adam":
        return _adam(list(model.parameters()), config)
    matrices = _matrices(model)
    others = [parameter for parameter in model.parameters() if not _is_among(parameter, matrices)]
    return Muon(matrices, _adam(others, config), config.weight_decay)


def _adam(parameters: Sequence[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """Weight decay, where a recipe asks for it, is decoupled and spares vectors."""
    betas = (config.beta1, config.beta2)
    if config.weight_decay == 0.0:
        return torch.optim.Adam(parameters, lr=0.0, betas=betas, eps=config.epsilon, fused=True)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=config.epsilon, fused=True)


def _matrices(model: nn.Module) -> list[nn.Parameter]:
    """All between embeddings and output layer, whose rows are of one piece each and have little to do with others."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.RNNBase)]
    return [parameter for layer in layers for parameter in layer.parameters(recurse=False) if parameter.ndim == 2]


def _is_among(parameter: nn.Parameter, several: Sequence[nn.Parameter]) -> bool:
    return any(parameter is one for one in several)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use this rate from the next update on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's memory, named after the weights it belongs to; empty before the first update."""
    return {
        f"{moment}.{name}": value
        for name, parameter in model.named_parameters()
        for moment, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave."""
    for name, parameter in model.named_parameters():
        found = {moment: tensors[key] for moment in MOMENTS if (key := f"{moment}.{name}") in tensors}
        if tensors and tuple(found) not in (_OF_ADAM, _OF_MUON):
            raise FolderError(f"the checkpoint has no optimizer state for {name}; it is of another model")
        if found:
            optimizer.state[parameter] = {
                moment: value.to(parameter.device, copy=True) for moment, value in found.items()
            }


class MovingAverage:
    """Exponential moving average of the weights; early on it forgets faster, so that the start leaves no trace."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    def update(self, model: nn.Module, step: int) -> None:
        """Move a little towards the weights after update number `step`."""
        decay = min(self.decay, (1 + step) / (10 + step))
        current = [p.detach() for p in model.parameters()]
        torch._foreach_lerp_(list(self.weights.values()), current, 1.0 - decay)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `weights` held."""
        for name, weight in self.weights.items():
            weight.copy_(tensors[name])
