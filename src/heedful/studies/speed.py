"""How fast models train, side by side on one machine."""

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product, repeat
from statistics import median

import torch

from heedful.config import ModelConfig, TrainConfig
from heedful.data.batch import Batch
from heedful.data.batching import Position
from heedful.models.build import Vocabulary, build_model
from heedful.train.events import StepDone
from heedful.train.gradients import Gradients, Objective, Update, make_gradients, workers_for
from heedful.train.loop import Learner, training_steps
from heedful.train.optimizer import make_optimizer
from heedful.train.precision import Precision

_PAD, _EOS = 0, 1
_TRAIN = TrainConfig()


def training_speed(
    configs: Mapping[str, ModelConfig],
    lengths: Sequence[int],
    vocabulary: int,
    batch_tokens: int,
    repeats: int,
    device: torch.device,
) -> dict[tuple[str, int], float]:
    """Source and target tokens a second, by the name of a model and the length of all sentences.

    A step is a whole one, as training takes it: forward, backward and Adam, an update of `batch_tokens` source and as
    many target tokens in parts for all threads. The models take turns, so that whatever else the machine does slows
    all of them, and the figure is the median; the first round does not count.
    """
    torch.manual_seed(1)
    updates = {length: _update(length, vocabulary, batch_tokens, device) for length in lengths}
    steps = {}
    for name, config in configs.items():
        learner, gradients = _learner(config, vocabulary, device)
        for length, update in updates.items():
            steps[name, length] = training_steps(learner, repeat(update), gradients, config.d_model, _TRAIN)
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key in steps}
    # One length after another, so that all models meet it at about the same time.
    for _, length, name in product(range(repeats + 1), lengths, configs):
        seconds[name, length].append(_seconds(steps[name, length], device))
    return {key: updates[key[1]].tokens / median(taken[1:]) for key, taken in seconds.items()}


def wait_for(device: torch.device) -> None:
    """Until it has done all it was told to; a processor always has."""
    match device.type:
        case "cuda":
            torch.cuda.synchronize(device)
        case "mps":
            torch.mps.synchronize()


def _seconds(steps: Iterator[StepDone], device: torch.device) -> float:
    wait_for(device)
    began = time.perf_counter()
    next(steps)
    wait_for(device)
    return time.perf_counter() - began


def _learner(config: ModelConfig, vocabulary: int, device: torch.device) -> tuple[Learner, Gradients]:
    """A model as `heedful train` sets it up in one process."""
    model = build_model(config, Vocabulary(vocabulary, vocabulary, _PAD, _EOS)).to(device)
    precision = Precision.of(_TRAIN.precision, device)
    objective = Objective(_TRAIN.label_smoothing, 1, precision)
    gradients = make_gradients(model, objective, workers_for(device))
    return Learner(model, make_optimizer(model, _TRAIN), None, precision=precision), gradients


def _update(length: int, vocabulary: int, batch_tokens: int, device: torch.device) -> Update:
    """Random sentences, all of this length, in as many parts as there are workers."""
    count = max(1, batch_tokens // length)
    workers = min(count, workers_for(device))
    parts = [_batch(count // workers + (number < count % workers), length, vocabulary) for number in range(workers)]
    target_tokens = count * length
    return Update([part.to(device) for part in parts], target_tokens, 2 * target_tokens, 0, Position())


def _batch(count: int, length: int, vocabulary: int) -> Batch:
    """So many pairs."""
    source, target = torch.randint(_EOS + 1, vocabulary, (2, count, length))
    source[:, -1] = target[:, -1] = _EOS
    target_in = target.roll(1, 1)
    target_in[:, 0] = _PAD
    lengths = torch.full((count,), length)
    return Batch(source.flatten(), lengths, target_in.flatten(), target.flatten(), lengths, torch.arange(count))
