"""One training step on one sentence, as training would make it: loss of each piece, gradient of each layer, update."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from heedful.config import TrainConfig
from heedful.data.batch import pack
from heedful.models.predictor import AnyPredictor
from heedful.nn.loss import smoothed_loss
from heedful.training.loop import gradient_norm
from heedful.training.optimizer import make_optimizer, set_learning_rate
from heedful.training.schedule import learning_rate

_FACTORS = (0.1, 1.0, 10.0, 100.0)
_POINTS = 120  # of the curve of the learning rate


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """What a step of training on one pair computes. Losses are in nats."""

    config: TrainConfig
    gold: float  # the target's share for the right piece
    other: float  # and for each other piece
    plain: tuple[float, ...]  # -log p of each piece
    smoothed: tuple[float, ...]  # its cross entropy with the smoothed target
    best: float  # the least that the smoothed loss of a piece can be: the entropy of its target
    gradients: Mapping[str, float]  # the length of the gradient of each part
    step: int  # the update whose learning rate is used
    rate: float
    rates: tuple[tuple[int, float], ...]  # updates and their learning rates
    after: Mapping[float, float]  # the mean smoothed loss after an update with the rate times this factor

    @property
    def loss(self) -> float:
        """The mean smoothed loss before the update."""
        return sum(self.smoothed) / len(self.smoothed)


def take_training_step(
    model: AnyPredictor, source: list[int], target: list[int], config: TrainConfig, places: list[int] | None = None
) -> TrainingStep:
    """Compute the step in the middle of this training; the model stays as it is.

    A model without a decoder is asked about `places`; others read the target, one place later. There is no dropout,
    and the optimizer begins with this step: its moments are zero before.
    """
    read = [model.pad_id, *target[:-1]] if places is None else places
    last = config.max_steps or 4 * max(1, config.warmup_steps)
    step = max(1, last // 2)
    d_model = model.output_weight.shape[1]
    rate = learning_rate(step, d_model, config)
    with torch.inference_mode():
        plain, smoothed = _losses(model, source, read, target, config.label_smoothing)
    size = len(model.output_weight)
    other = config.label_smoothing / (size - 1)
    gold = 1.0 - config.label_smoothing
    trained = _with_gradients(model, source, read, target, config)
    points = {max(1, round(last * point / _POINTS)) for point in range(_POINTS + 1)}
    places = sorted(points | {min(last, max(1, config.warmup_steps))})
    return TrainingStep(
        config=config,
        gold=gold,
        other=other,
        plain=tuple(plain),
        smoothed=tuple(smoothed),
        best=_entropy(gold, other, size),
        gradients=_gradient_lengths(trained),
        step=step,
        rate=rate,
        rates=tuple((place, learning_rate(place, d_model, config)) for place in places),
        after={factor: _loss_after(trained, source, read, target, config, rate * factor) for factor in _FACTORS},
    )


def _entropy(gold: float, other: float, size: int) -> float:
    if not other:
        return 0.0
    log = torch.log(torch.tensor([gold, other], dtype=torch.float64))
    return -float(gold * log[0] + (size - 1) * other * log[1])


def _features(model: AnyPredictor, source: list[int], read: list[int], target: list[int]) -> tuple[Tensor, Tensor]:
    """The last vector at each position, and the piece that has to come there."""
    device = next(model.parameters()).device
    source_ids, source_lengths = (tensor.to(device) for tensor in pack([source]))
    target_in, lengths = (tensor.to(device) for tensor in pack([read]))
    memory = model.encode(source_ids, source_lengths)
    return model.features(target_in, lengths, memory), torch.tensor(target, device=device)


def _losses(
    model: AnyPredictor, source: list[int], read: list[int], target: list[int], smoothing: float
) -> tuple[list[float], list[float]]:
    """The plain and the smoothed loss of each piece, by the function that training uses."""
    features, gold = _features(model, source, read, target)
    each = [
        smoothed_loss(
            features[place : place + 1], model.output_weight, gold[place : place + 1], smoothing, model.output_bias
        )
        for place in range(len(gold))
    ]
    return [float(one.plain) for one in each], [float(one.smoothed) for one in each]


def _with_gradients(
    model: AnyPredictor, source: list[int], read: list[int], target: list[int], config: TrainConfig
) -> AnyPredictor:
    """A copy of the model with the gradient of the mean smoothed loss."""
    own = copy.deepcopy(model)
    own.requires_grad_(True)
    with torch.enable_grad():
        features, gold = _features(own, source, read, target)
        loss = smoothed_loss(features, own.output_weight, gold, config.label_smoothing, own.output_bias)
        (loss.smoothed / loss.tokens).backward()
    return own


def _name_layers(model: AnyPredictor) -> dict[str, nn.Module]:
    """The layers by names such as `encoder.1`; a recurrent model has one part on each side."""
    found: dict[str, nn.Module] = {}
    for stack in ("encoder", "decoder"):
        part = getattr(model, stack, None)
        layers = list(part) if isinstance(part, nn.ModuleList) else [part] if isinstance(part, nn.Module) else []
        found |= {f"{stack}.{number}": layer for number, layer in enumerate(layers, 1)}
    return found


def _gradient_lengths(model: AnyPredictor) -> dict[str, float]:
    parts: dict[str, list[nn.Parameter]] = {"embedding": []}
    owner: dict[int, str] = {}
    for name, layer in _name_layers(model).items():
        owner |= {id(parameter): name for parameter in layer.parameters()}
        parts[name] = []
    for parameter in model.parameters():
        parts[owner.get(id(parameter), "embedding")].append(parameter)
    return {name: float(nn.utils.get_total_norm(_gradients(found))) for name, found in parts.items()}


def _gradients(parameters: list[nn.Parameter]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def _loss_after(
    trained: AnyPredictor, source: list[int], read: list[int], target: list[int], config: TrainConfig, rate: float
) -> float:
    """The mean smoothed loss after one update of a copy."""
    model = copy.deepcopy(trained)
    for parameter, before in zip(model.parameters(), trained.parameters(), strict=True):
        parameter.grad = None if before.grad is None else before.grad.clone()
    gradient_norm(model, config.clip_norm)
    optimizer = make_optimizer(model, config)
    set_learning_rate(optimizer, rate)
    optimizer.step()
    with torch.inference_mode():
        _, smoothed = _losses(model, source, read, target, config.label_smoothing)
    return sum(smoothed) / len(smoothed)
