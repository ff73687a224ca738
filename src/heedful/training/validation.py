"""How good the model is on the validation pairs during training."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from heedful.config import Experiment
from heedful.data.batching import Batching, epoch_batches
from heedful.data.corpus import Corpus
from heedful.models.build import build_model
from heedful.models.seq2seq import AnySeq2Seq
from heedful.nn.loss import smoothed_loss
from heedful.storage.run_folder import fill_model
from heedful.storage.sharded_tensors import is_sharded
from heedful.tasks import find_task
from heedful.training.prepare import Prepared
from heedful.translation.translator import Translator

T = TypeVar("T")

_MOST_SCORED = 1000  # greedy translations


class Validator:
    """Scores weights of a model on the validation pairs of a run."""

    def __init__(self, model: AnySeq2Seq, experiment: Experiment, prepared: Prepared, device: torch.device) -> None:
        self._model = model
        self._experiment = experiment
        self._prepared = prepared
        self._device = device

    @property
    def has_pairs(self) -> bool:
        """Whether there is anything to validate on."""
        return self._prepared.valid is not None

    def score(self, weights: Mapping[str, Tensor] | None) -> tuple[float, float | None]:
        """The validation loss and, if the training wants it, the task's score; None: of the model's own weights."""
        config, valid = self._experiment.train, self._prepared.valid
        with self._model_with(weights) as model:
            loss = compute_validation_loss(model, valid, config.batch_tokens) if valid else 0.0
            if not config.validate_bleu and config.best_by == "loss":
                return loss, None
            return loss, compute_validation_score(model, self._prepared, self._experiment)

    @contextmanager
    def _model_with(self, weights: Mapping[str, Tensor] | None) -> Iterator[AnySeq2Seq]:
        """The model with these weights in evaluation mode; a whole copy of it if its own weights are sharded."""
        if is_sharded(next(self._model.parameters())):
            with torch.device("meta"):
                model = build_model(self._experiment.model, self._prepared.tokenizers.vocabulary)
            fill_model(model.to_empty(device=self._device), weights or {}, "the training")
            yield model.eval()
            return
        with use_weights(self._model, weights):
            yield self._model


@contextmanager
def use_weights(model: nn.Module, weights: Mapping[str, Tensor] | None) -> Iterator[None]:
    """Give the model other weights inside the block, in evaluation mode; None: its own."""
    before = {name: p.detach().clone() for name, p in model.named_parameters()} if weights else {}
    copy_weights(model, weights or {})
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        copy_weights(model, before)
        model.train(was_training)


def copy_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Overwrite the named weights."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in weights.items():
            parameters[name].copy_(weight)


@torch.no_grad()
def compute_validation_loss(model: AnySeq2Seq, corpus: Corpus, batch_tokens: int) -> float:
    """The unsmoothed loss per target token."""
    device = next(model.parameters()).device
    source, target = corpus.lengths()
    total, tokens = 0.0, 0
    for indices in epoch_batches(source, target, Batching(batch_tokens, 0), 0):
        batch = corpus.batch(np.sort(indices), model.pad_id).to(device)
        memory = model.encode(batch.source, batch.source_lengths)
        features = model.features(batch.target_in, batch.target_lengths, memory)
        loss = smoothed_loss(features, model.output_weight, batch.target_out, 0.0, model.output_bias)
        total += loss.plain.item()
        tokens += loss.tokens
    return total / tokens


def compute_validation_score(model: AnySeq2Seq, prepared: Prepared, experiment: Experiment) -> float:
    """The task's quick score, such as BLEU, of greedy translations."""
    task = find_task(experiment.task)
    greedy = replace(experiment.search, method="beam", beam=1, groups=1, guard=False)
    translator = Translator.from_model(model, prepared.tokenizers, greedy, task)
    asked = sample_evenly(task.make_questions(prepared.valid_pairs), _MOST_SCORED)
    outputs = [output.text for output in translator.translate([question.source for question in asked])]
    references = [question.references for question in asked]
    return task.quick_score(outputs, references, experiment.evaluate.tokenize)


def sample_evenly(several: Sequence[T], most: int) -> Sequence[T]:
    """At most `most` items, spread over all of them: several validation files may differ in kind."""
    return several[:: max(1, -(-len(several) // most))]
