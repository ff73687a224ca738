"""How good the model is on the validation pairs, on the way."""

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
from heedful.models.seq2seq import AnySeq2Seq
from heedful.nn.loss import smoothed_loss
from heedful.tasks import find_task
from heedful.training.prepare import Prepared
from heedful.translation.translator import Translator

T = TypeVar("T")

_SCORED = 1000  # greedy translations of so many texts are scored, at most


@contextmanager
def use_weights(model: nn.Module, weights: Mapping[str, Tensor] | None) -> Iterator[None]:
    """The model with other weights for a while, in evaluation; None: its own."""
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
    """Overwrite the weights that are named."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in weights.items():
            parameters[name].copy_(weight)


@torch.no_grad()
def compute_validation_loss(model: AnySeq2Seq, corpus: Corpus, batch_tokens: int) -> float:
    """Unsmoothed loss per target token."""
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
    """BLEU of greedy translations, or what else the task is judged by."""
    task = find_task(experiment.task)
    greedy = replace(experiment.search, method="beam", beam=1, groups=1, guard=False)
    translator = Translator.from_model(model, prepared.tokenizers, greedy, task)
    asked = sample_evenly(task.make_questions(prepared.valid_pairs), _SCORED)
    outputs = [output.text for output in translator.translate([question.source for question in asked])]
    references = [question.references for question in asked]
    return task.quick_score(outputs, references, experiment.evaluate.tokenize)


def sample_evenly(several: Sequence[T], most: int) -> Sequence[T]:
    """No more than that many, from beginning to end: several validation files may be of several kinds."""
    return several[:: max(1, -(-len(several) // most))]
