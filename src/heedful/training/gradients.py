"""The gradient of an update's mean loss, computed by one thread or by several."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from heedful.data.batch import Batch, Position
from heedful.kernels.threads import divide_threads
from heedful.models.predictor import AnyPredictor
from heedful.nn import noise
from heedful.nn.dropout import drop_words, set_dropout_share
from heedful.nn.loss import smoothed_loss
from heedful.nn.noise import sentence_keys
from heedful.process_memory import keep_freed_memory
from heedful.training.precision import Precision
from heedful.training.schedule import dropout_share

P = TypeVar("P", bound=AnyPredictor)


@dataclass(frozen=True, slots=True)
class Update:
    """The data of one update of the weights, and the position in the data after it.

    `parts` are this process's share; `target_tokens` and `tokens` are counted over all processes.
    """

    parts: Sequence[Batch]
    target_tokens: int
    tokens: int
    epoch: int
    next: Position


_SOURCE_WORDS, _TARGET_WORDS = noise.MASK, noise.MASK - 1  # no model has so many places for dropout


@dataclass(frozen=True, slots=True)
class Objective:
    """The smoothed loss that training minimises, and R-Drop's divergence; all dropout is seeded by `seed`."""

    smoothing: float
    seed: int
    precision: Precision = field(default_factory=Precision)
    dropout_warmup: int = 0
    r_drop: float = 0.0
    word_dropout: float = 0.0

    def loss(self, model: AnyPredictor, batch: Batch, step: int, share: float) -> Tensor:
        """The summed loss of the batch times `share`."""
        dropout = dropout_share(step, self.dropout_warmup)
        if self.dropout_warmup:
            set_dropout_share(model, dropout)
        # Before dropout has its full probability there is nothing to regularise, and one pass takes half the time.
        r_drop = self.r_drop if step > self.dropout_warmup else 0.0
        # Other devices have their own random generator; see `Dropout`.
        keys = sentence_keys(self.seed, step, batch.indices) if batch.indices.device.type == "cpu" else None
        if r_drop:
            keys = None if keys is None else torch.cat([keys, sentence_keys(self.seed, -step, batch.indices)])
            batch, share = batch.twice(), share / 2.0
        if self.word_dropout:
            batch = self._drop_words(batch, keys, model.pad_id, dropout * self.word_dropout)
        with self.precision.cast():
            memory = model.encode(batch.source, batch.source_lengths, keys)
            features = model.features(batch.target_in, batch.target_lengths, memory, keys)
            output, gold = model.output_weight, batch.target_out
            return share * smoothed_loss(features, output, gold, self.smoothing, model.output_bias, r_drop).smoothed

    def _drop_words(self, batch: Batch, keys: Tensor | None, pad_id: int, p: float) -> Batch:
        """The batch with some of the words that the model reads hidden; those that it predicts stay."""
        source = drop_words(batch.source, batch.source_lengths, keys, pad_id, _SOURCE_WORDS, p)
        target_in = drop_words(batch.target_in, batch.target_lengths, keys, pad_id, _TARGET_WORDS, p)
        return replace(batch, source=source, target_in=target_in)

    def add_gradient(self, model: AnyPredictor, batch: Batch, step: int, share: float) -> Tensor:
        """Add the gradient of that loss to the model's; return the loss."""
        loss = self.loss(model, batch, step, share)
        self.precision.backward(loss)
        return loss.detach()


@runtime_checkable
class Gradients(Protocol):
    """Computes the gradient of an update."""

    def __call__(self, update: Update, step: int) -> float:
        """Store the gradient of the mean loss over all target tokens in the model; return that loss."""
        ...


def make_gradients(model: AnyPredictor, objective: Objective, workers: int) -> Gradients:
    """Compute the gradients of this model with so many workers."""
    keep_freed_memory()  # with one worker, small models train a fifth faster
    return ThreadedGradients(model, objective, workers) if workers > 1 else SequentialGradients(model, objective)


class SequentialGradients:
    """Compute the parts of an update one after another, each with all threads."""

    def __init__(self, model: AnyPredictor, objective: Objective) -> None:
        self._model = model
        self._objective = objective

    def __call__(self, update: Update, step: int) -> float:
        """See `Gradients`."""
        share = 1.0 / update.target_tokens
        with divide_threads(1):
            losses = [self._objective.add_gradient(self._model, part, step, share) for part in update.parts]
            return sum((loss.item() for loss in losses), start=0.0)


class ThreadedGradients:
    """Compute several parts of an update at the same time, each on one thread.

    Small matrices do not keep several threads busy, and every operator would wait for the slowest thread; a whole part
    of the batch does. Each worker has its own gradients of the shared weights. They are added in a fixed order, so that
    the same run gives the same bits.
    """

    def __init__(self, model: AnyPredictor, objective: Objective, workers: int) -> None:
        self._model = model
        self._objective = objective
        self._models = [model, *(share_weights(model) for _ in range(workers - 1))]
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="worker")

    def __call__(self, update: Update, step: int) -> float:
        """See `Gradients`."""
        workers = len(self._models)
        share = 1.0 / update.target_tokens

        def work(number: int) -> float:
            parts = update.parts[number::workers]
            model = self._models[number].train(self._model.training)
            return sum((self._objective.add_gradient(model, part, step, share).item() for part in parts), start=0.0)

        with divide_threads(workers):
            losses = list(self._threads.map(work, range(workers)))
        add_up_gradients(self._models)
        return sum(losses)


def add_up_gradients(models: Sequence[AnyPredictor]) -> None:
    """Add the gradients of models with the same weights to those of the first."""
    for own, *others in zip(*(model.parameters() for model in models), strict=True):
        for other in others:
            if other.grad is not None:
                own.grad = other.grad if own.grad is None else own.grad.add_(other.grad)
                other.grad = None


def share_weights(model: P) -> P:
    """A copy of the model with the same weights in the same memory, and its own gradients."""
    copy = deepcopy(model)
    for own, shared in zip(copy.parameters(), model.parameters(), strict=True):
        own.data = shared.data
    return copy
