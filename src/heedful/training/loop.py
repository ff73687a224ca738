"""The training loop: the corpus as updates, and updates as events, in generators that the caller drives."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from heedful.config import TrainConfig
from heedful.data.batch import Batching, Examples, Position, epoch_batches, split_batch
from heedful.errors import Diverged, OutOfSpace, out_of_memory
from heedful.models.predictor import AnyPredictor
from heedful.storage.sharded_tensors import gather_tensor
from heedful.training.events import StepDone
from heedful.training.gradients import Gradients, Update
from heedful.training.optimizer import MovingAverage, set_learning_rate
from heedful.training.precision import Precision
from heedful.training.schedule import learning_rate


@dataclass(slots=True)
class TrainingState:
    """Everything that training changes; consistent between two events, so it can be saved there."""

    model: AnyPredictor
    optimizer: torch.optim.Optimizer
    average: MovingAverage | None
    step: int = 0
    skipped: int = 0
    position: Position = field(default_factory=Position)
    precision: Precision = field(default_factory=Precision)


@dataclass(frozen=True, slots=True)
class UpdateSplit:
    """How an update is split: every process gets `parts` parts of about the same cost."""

    parts: int
    rank: int = 0
    processes: int = 1


def make_updates(
    corpora: Sequence[Examples],
    start: Position,
    batching: Batching,
    split: UpdateSplit,
    pad_id: int,
    device: torch.device,
) -> Iterator[Update]:
    """Endless updates from this position on; each epoch takes the next corpus.

    The pairs of an update are the same for any split, so a training can continue with other processes or threads.
    """
    epoch, skip = start.epoch, start.update
    while True:
        corpus = corpora[epoch % len(corpora)]
        source, target = corpus.lengths()
        batches = epoch_batches(source, target, batching, epoch)
        for number in range(skip, len(batches)):
            pairs, end = batches[number], number + 1 == len(batches)
            parts = split_batch(pairs, split.parts * split.processes)
            mine = [part for part in parts[split.rank :: split.processes] if len(part)]
            target_tokens = int(target[pairs].sum())
            yield Update(
                [corpus.batch(part, pad_id).to(device) for part in mine],
                target_tokens,
                target_tokens + int(source[pairs].sum()),
                epoch,
                Position(epoch + 1) if end else Position(epoch, number + 1),
            )
        epoch, skip = epoch + 1, 0


def training_steps(
    state: TrainingState, updates: Iterable[Update], gradients: Gradients, d_model: int, config: TrainConfig
) -> Iterator[StepDone]:
    """Train for as long as there are updates and the caller asks for the next event."""
    state.model.train()
    began = time.perf_counter()
    for update in updates:
        step = state.step + 1
        rate = learning_rate(step, d_model, config)
        set_learning_rate(state.optimizer, rate)
        loss = gradients(update, step)
        state.precision.unscale(state.optimizer)
        norm = gradient_norm(state.model, config.clip_norm)
        if math.isfinite(loss) and math.isfinite(norm):
            with state.precision.cast():
                state.optimizer.step()
            if state.average:
                state.average.update(state.model, step)
        else:
            if not (math.isfinite(loss) and state.precision.may_overflow):
                _stop_if_diverged(step, rate, loss, norm, config)
            state.skipped += 1
        state.precision.adapt(state.optimizer)
        state.optimizer.zero_grad(set_to_none=True)
        state.step, state.position = step, update.next
        speed = update.tokens / (time.perf_counter() - began)
        yield StepDone(step, update.epoch, loss, rate, norm, update.tokens, speed, state.skipped)
        began = time.perf_counter()  # the time that the caller spent on the event is not training time


def gradient_norm(model: torch.nn.Module, clip_norm: float) -> float:
    """The norm of all gradients; they are scaled down to `clip_norm` if that is set."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm: Tensor = gather_tensor(torch.nn.utils.get_total_norm(gradients))
    if clip_norm:
        torch.nn.utils.clip_grads_with_norm_(list(model.parameters()), clip_norm, norm)
    return norm.item()


def _stop_if_diverged(step: int, rate: float, loss: float, norm: float, config: TrainConfig) -> None:
    """NaN and infinity never reach the weights: the update is skipped, or training stops."""
    if config.on_non_finite == "stop":
        raise Diverged(
            f"at step {step} with learning rate {rate:.3g} the loss is {loss:.6g} and its gradient norm {norm:.6g}; "
            "lower train.learning_rate or set train.on_non_finite = 'skip', and resume from the last checkpoint"
        )


def set_up_layers(model: AnyPredictor, config: TrainConfig, device: torch.device) -> str:
    """Set up activation checkpointing and compilation as configured; return a warning if one is not used."""
    model.checkpoint_activations = config.checkpoint_activations
    if not config.compile:
        return ""
    if device.type == "cpu":
        return "train.compile is true, but on a CPU heedful's own kernels are faster, so nothing is compiled"
    compile_layers(model)
    return ""


def compile_layers(model: AnyPredictor) -> None:
    """Let PyTorch compile each layer when it is first used; lengths may differ from batch to batch."""
    for layer in model.layers:
        layer.compile(dynamic=True)


@contextmanager
def explain_out_of_memory(config: TrainConfig) -> Iterator[None]:
    """Turn every out-of-memory error inside into OutOfSpace, which names the settings to change and their values."""
    try:
        yield
    except Exception as error:
        if not out_of_memory(error):
            raise
        raise OutOfSpace(
            f"out of memory with train.batch_tokens = {config.batch_tokens} and train.accumulate = {config.accumulate};"
            " free some memory and continue with --resume, or start a new run with a higher train.accumulate (the same "
            "updates in smaller parts) or a lower train.batch_tokens"
        ) from error
