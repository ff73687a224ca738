"""Model selection: which weights the run folder keeps, and when validations no longer improve.

During training these are the weights with the best validation, taken from the moving average if there is one. At the
end the mean of the last checkpoints (section 6.1) replaces them if it validates at least as well. Without validation
pairs it is the mean, or the last weights.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from heedful.config import Experiment
from heedful.data.batch import Batching, Examples, epoch_batches
from heedful.data.captions import CaptionCorpus, find_matches
from heedful.data.labelled_corpus import LabelledCorpus
from heedful.data.pictures import PictureCorpus
from heedful.data.text import TextWindows
from heedful.errors import Diverged, FolderError
from heedful.metrics import Score
from heedful.metrics.label_scores import count_confusions, macro_f1
from heedful.metrics.recall import mean_recall
from heedful.metrics.text_loss import BITS_PER_CHARACTER, bits_per_character
from heedful.models.build import build_model
from heedful.models.clip import CLIP, contrastive_loss
from heedful.models.predictor import AnyPredictor
from heedful.models.seq2seq import require_seq2seq
from heedful.nn.loss import smoothed_loss
from heedful.progress import Reporter
from heedful.retrieval.vectors import rank_both_ways
from heedful.storage.checkpoint import Checkpoints
from heedful.storage.run_folder import RunFolder, WeightsValidation, fill_model
from heedful.storage.sharded_tensors import gather_tensor, is_sharded
from heedful.tasks import find_task
from heedful.training.checkpointing import RunProgress
from heedful.training.events import Validated
from heedful.training.loop import TrainingState
from heedful.training.prepare import Prepared
from heedful.training.process_group import ProcessGroup
from heedful.translation.translator import Translator

T = TypeVar("T")

_MOST_SCORED = 2000  # greedy translations


class Validator:
    """Scores weights of a model on the validation pairs of a run."""

    def __init__(self, model: AnyPredictor, experiment: Experiment, prepared: Prepared, device: torch.device) -> None:
        self._model = model
        self._experiment = experiment
        self._prepared = prepared
        self._device = device

    @property
    def has_pairs(self) -> bool:
        """Whether there is anything to validate on."""
        return self._prepared.valid is not None

    def score(self, weights: Mapping[str, Tensor] | None) -> tuple[float, float | None, float | None]:
        """The validation loss and, if the training wants it, the task's score and the brevity penalty in it.

        None: of the model's own weights.
        """
        config, valid = self._experiment.train, self._prepared.valid
        with self._model_with(weights) as model:
            if isinstance(valid, CaptionCorpus) and isinstance(model, CLIP):
                captions = [valid.captions(number) for number in range(len(valid))]
                recall = mean_recall(rank_both_ways(model, valid.pixels, captions))
                return compute_contrastive_loss(model, valid, config.batch_tokens), recall, None
            loss = compute_validation_loss(model, valid, config.batch_tokens) if valid else 0.0
            if isinstance(valid, LabelledCorpus | PictureCorpus):
                gold, found = predict_labels(model, valid, config.batch_tokens)
                return loss, macro_f1(count_confusions(gold, found, len(self._experiment.model.labels))), None
            if isinstance(valid, TextWindows):
                return loss, bits_per_character(loss, valid.tokens_per_character), None
            if not config.validate_bleu and config.best_by == "loss":
                return loss, None, None
            score = compute_validation_score(model, self._prepared, self._experiment)
            return loss, score.value, score.brevity_penalty

    @contextmanager
    def _model_with(self, weights: Mapping[str, Tensor] | None) -> Iterator[AnyPredictor]:
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
def compute_validation_loss(model: AnyPredictor, corpus: Examples, batch_tokens: int) -> float:
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


@torch.no_grad()
def compute_contrastive_loss(model: CLIP, corpus: CaptionCorpus, batch_tokens: int) -> float:
    """The loss per pair, each told apart from those of its batch."""
    device, total = next(model.parameters()).device, 0.0
    for indices in epoch_batches(*corpus.lengths(), Batching(batch_tokens, 0), 0):
        batch = corpus.batch(indices, model.pad_id).to(device)
        pictures = model.encode(batch.source, batch.source_lengths)
        logits = model.compare(pictures, model.encode_texts(batch.target_in, batch.target_lengths))
        total += contrastive_loss(logits, find_matches([batch])).item()
    return total / len(corpus)


@torch.no_grad()
def predict_labels(model: AnyPredictor, corpus: Examples, batch_tokens: int) -> tuple[list[int], list[int]]:
    """The right label and the likeliest one at every place that a corpus asks about, in any order."""
    device = next(model.parameters()).device
    gold, found = list[int](), list[int]()
    for indices in epoch_batches(*corpus.lengths(), Batching(batch_tokens, 0), 0):
        batch = corpus.batch(indices, model.pad_id).to(device)
        memory = model.encode(batch.source, batch.source_lengths)
        found += model.decode(batch.target_in, batch.target_lengths, memory).argmax(-1).tolist()
        gold += batch.target_out.tolist()
    return gold, found


def compute_validation_score(model: AnyPredictor, prepared: Prepared, experiment: Experiment) -> Score:
    """The task's quick score, such as BLEU, of greedy translations."""
    task = find_task(experiment.task)
    greedy = replace(experiment.search, method="beam", beam=1, groups=1, guard=False)
    translator = Translator.from_model(require_seq2seq(model, "the model"), prepared.tokenizers, greedy, task)
    asked = sample_evenly(task.make_questions(prepared.valid_pairs), _MOST_SCORED)
    outputs = translator.translate([question.source for question in asked], split_sentences=False)
    references = [question.references for question in asked]
    return task.quick_score([output.text for output in outputs], references, experiment.evaluate.tokenize)


def sample_evenly(several: Sequence[T], most: int) -> Sequence[T]:
    """At most `most` items, spread over all of them: several validation files may differ in kind."""
    taken = min(len(several), most)
    return [several[number * len(several) // taken] for number in range(taken)]


class ModelSelection:
    """Validates the weights of a training and decides which of them the run folder keeps."""

    def __init__(
        self,
        run: RunFolder,
        experiment: Experiment,
        validator: Validator,
        state: TrainingState,
        progress: RunProgress,
        group: ProcessGroup,
    ) -> None:
        self._run = run
        task = find_task(experiment.task)
        self._metric = BITS_PER_CHARACTER if task.continues_text else task.quick_metric
        self._config = experiment.train
        self._validator = validator
        self._state = state
        self._progress = progress
        self._group = group

    def is_due(self, reason: str) -> bool:
        """Whether to validate now: at regular steps and at the end, of which `reason` is not empty."""
        step = self._state.step
        if not self._validator.has_pairs or step <= self._progress.validated:
            return False
        return step % self._config.validate_every == 0 or bool(reason)

    @property
    def out_of_patience(self) -> bool:
        """Whether the last `train.patience` validations brought no better model."""
        return bool(self._config.patience) and self._progress.waited >= self._config.patience

    def validate(self) -> Validated:
        """Score the current weights; if they are the best so far, write them to the run folder."""
        began = time.monotonic()
        step, progress = self._state.step, self._progress
        weights = self._gather_weights()
        # The model's own weights need not be copied into it.
        others = weights if self._state.average or self._is_sharded() else None
        loss, score, brevity_penalty = self._group.run_on_first(lambda: self._validator.score(others))
        if not math.isfinite(loss) and self._config.on_non_finite == "stop":
            raise Diverged(
                f"the validation loss at step {step} is {loss}; lower train.learning_rate "
                "and resume from the last checkpoint"
            )
        value = self._value(loss, score)
        best = value < (math.inf if progress.best is None else progress.best)
        progress.validated = step
        if best:
            progress.best, progress.best_step, progress.waited = value, step, 0
            unchanged = "" if step else f", unchanged from {Path(self._config.init).name}"
            self._write(weights, f"best validation, step {step}{unchanged}", self._validation(loss, score))
        else:
            progress.waited += 1
        return Validated(
            step,
            loss,
            _perplexity(loss),
            score,
            self._metric,
            best,
            time.monotonic() - began,
            brevity_penalty,
        )

    def keep_last(self) -> None:
        """Write the current weights if there are no validation pairs to judge them by."""
        if not self._validator.has_pairs:
            self._write(self._gather_weights(), f"last, step {self._state.step}")

    def finish(self, checkpoints: Checkpoints, reporter: Reporter) -> str:
        """Write the weights that stay at the end of training; return a note that says which they are."""
        last = self._gather_weights()
        return self._group.run_on_first(lambda: self._choose_final(last, checkpoints, reporter))

    def _choose_final(self, last: Mapping[str, Tensor], checkpoints: Checkpoints, reporter: Reporter) -> str:
        step, wanted, every = self._state.step, self._config.average_checkpoints, self._config.save_every
        steps = [s for s in checkpoints.steps() if s % every == 0 or s == step][-wanted:]
        note = self._run.note()
        if wanted > 1 and len(steps) > 1:
            mean, steps = self._average_checkpoints(checkpoints, steps, reporter)
            as_good, validation = self._is_as_good(mean) if len(steps) > 1 else (False, None)
            if as_good:
                note = f"mean of the checkpoints of steps {', '.join(map(str, steps))}"
                self._run.write_weights(mean, note, validation)
        if not self._run.has_model or (not self._validator.has_pairs and wanted <= 1):
            note = f"last, step {step}"
            self._run.write_weights(last, note)
        return note

    def _average_checkpoints(
        self, checkpoints: Checkpoints, steps: list[int], reporter: Reporter
    ) -> tuple[dict[str, Tensor], list[int]]:
        """The mean weights of these checkpoints, and the steps of those that could be read."""
        prefix = "ema." if self._state.average else "model."
        read: list[int] = []

        def load_intact() -> Iterator[dict[str, Tensor]]:
            for step in steps:
                try:
                    weights = checkpoints.load_model(step, prefix)
                except FolderError as error:
                    reporter.say(f"left out of the mean: {error}")
                    continue
                read.append(step)
                yield weights

        return average_weights(load_intact()), read

    def _is_as_good(self, weights: dict[str, Tensor]) -> tuple[bool, WeightsValidation | None]:
        """Whether the weights validate at least as well as the best so far, and their validation."""
        if not self._validator.has_pairs or self._progress.best is None:
            return True, None
        loss, score, _ = self._validator.score(weights)
        return self._value(loss, score) <= self._progress.best, self._validation(loss, score)

    def _validation(self, loss: float, score: float | None) -> WeightsValidation:
        return WeightsValidation(_perplexity(loss), score, self._metric)

    def _value(self, loss: float, score: float | None) -> float:
        """The number by which models are compared; lower is better."""
        by_loss = self._config.best_by == "loss" or self._metric == BITS_PER_CHARACTER
        return loss if score is None or by_loss else -score

    def _gather_weights(self) -> dict[str, Tensor]:
        """The moving average if there is one, else the weights; whole and on the first process only.

        All processes must call this at the same time. Gathered tensors are in main memory, which is the largest.
        """
        average = self._state.average
        own = average.weights if average else {name: p.detach() for name, p in self._state.model.named_parameters()}
        gathered = {}
        for name, tensor in own.items():
            whole = gather_tensor(tensor)
            if self._group.is_first:
                gathered[name] = whole if whole is tensor else whole.cpu()
        return gathered

    def _is_sharded(self) -> bool:
        return is_sharded(next(self._state.model.parameters()))

    def _write(self, weights: Mapping[str, Tensor], note: str, validation: WeightsValidation | None = None) -> None:
        self._group.run_on_first(lambda: self._run.write_weights(weights, note, validation))


def _perplexity(loss: float) -> float:
    return math.exp(min(loss, 700.0))


def average_weights(several: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several checkpoints (section 6.1), summed in double precision."""
    sums: dict[str, Tensor] = {}
    count = 0
    for weights in several:
        count += 1
        for name, tensor in weights.items():
            sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
    return {name: (total / count).float() for name, total in sums.items()}
