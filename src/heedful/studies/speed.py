"""Measure the training speed of several models side by side."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product, repeat
from statistics import median

import torch

from heedful.config import ModelConfig, OptimizerKind, TrainConfig
from heedful.data.batch import Batch, Position
from heedful.kernels.threads import divide_threads
from heedful.models.build import build_seq2seq
from heedful.models.size import Vocabulary
from heedful.process_memory import keep_freed_memory
from heedful.training.gradients import Gradients, Objective, SequentialGradients, Update
from heedful.training.loop import TrainingState, training_steps
from heedful.training.optimizer import make_optimizer
from heedful.training.precision import Precision


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Measure the time of `work`. On a CPU it is the CPU time of this thread, which other programs do not affect."""
    clock = time.thread_time if device.type == "cpu" else time.perf_counter
    _wait_for(device)
    began = clock()
    work()
    _wait_for(device)
    return clock() - began


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """Use one thread on a CPU: with several, threads wait for each other and for other programs."""
    with divide_threads(torch.get_num_threads() if device.type == "cpu" else 1):
        yield


def _wait_for(device: torch.device) -> None:
    """Wait until the device has finished its queue."""
    match device.type:
        case "cuda":
            torch.cuda.synchronize(device)
        case "mps":
            torch.mps.synchronize()


_PAD, _EOS = 0, 1
_TRAIN = TrainConfig()


def measure_training_speed(
    configs: Mapping[str, ModelConfig],
    lengths: Sequence[int],
    vocabulary: int,
    batch_tokens: int,
    repeats: int,
    device: torch.device,
    optimizers: Mapping[str, OptimizerKind] | None = None,
) -> dict[tuple[str, int], float]:
    """Measure source and target tokens per second for each model and sentence length.

    A step is a complete training step (forward, backward, and Adam or the model's own of `optimizers`) with
    `batch_tokens` source and as many target tokens, on one CPU thread or on a GPU. The models take turns, so other load
    on the machine slows all of them alike.
    The result is the median; the first round does not count.
    """
    torch.manual_seed(1)
    keep_freed_memory()
    updates = {length: _update(length, vocabulary, batch_tokens, device) for length in lengths}
    steps = {}
    for name, config in configs.items():
        train = replace(_TRAIN, optimizer=(optimizers or {}).get(name, "adam"))
        learner, gradients = _learner(config, train, vocabulary, device)
        for length, update in updates.items():
            steps[name, length] = training_steps(learner, repeat(update), gradients, config.d_model, _TRAIN)
    took: dict[tuple[str, int], list[float]] = {key: [] for key in steps}
    with one_thread(device):
        # All models run one length before the next, so that they run it at about the same time.
        for _, length, name in product(range(repeats + 1), lengths, configs):
            took[name, length].append(seconds(partial(next, steps[name, length]), device))
    return {key: updates[key[1]].tokens / median(rounds[1:]) for key, rounds in took.items()}


def _learner(
    config: ModelConfig, train: TrainConfig, vocabulary: int, device: torch.device
) -> tuple[TrainingState, Gradients]:
    """Set up a model as `heedful train` does for one worker."""
    model = build_seq2seq(config, Vocabulary(vocabulary, vocabulary, _PAD, _EOS)).to(device)
    precision = Precision.of(train.precision, device)
    objective = Objective(train.label_smoothing, 1, precision)
    return TrainingState(model, make_optimizer(model, train), None, precision=precision), SequentialGradients(
        model, objective
    )


def _update(length: int, vocabulary: int, batch_tokens: int, device: torch.device) -> Update:
    """Make an update of random sentences of this length."""
    count = max(1, batch_tokens // length)
    source, target = torch.randint(_EOS + 1, vocabulary, (2, count, length))
    source[:, -1] = target[:, -1] = _EOS
    target_in = target.roll(1, 1)
    target_in[:, 0] = _PAD
    lengths = torch.full((count,), length)
    batch = Batch(source.flatten(), lengths, target_in.flatten(), target.flatten(), lengths, torch.arange(count))
    return Update([batch.to(device)], count * length, batch.tokens, 0, Position())
