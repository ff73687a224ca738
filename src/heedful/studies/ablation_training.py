"""Train and measure one row of the ablation study, or read the result of an earlier run.

A model without one of its parts cannot be loaded as a model, so no weights are saved.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.config import BleuTokens, Experiment, flat, merge
from heedful.data.batch import Batching, pack
from heedful.data.stream import batches_by_length
from heedful.device import choose_device, use_threads
from heedful.errors import Diverged, FolderError
from heedful.kernels.threads import count_workers
from heedful.metrics.bleu import bleu
from heedful.metrics.breakdown import make_buckets, partial_bleu
from heedful.models.seq2seq import AnySeq2Seq, require_seq2seq
from heedful.models.transformer import Transformer
from heedful.storage.files import read_json, write_atomically
from heedful.studies import ablation_changes as changes
from heedful.studies.study import StudyInterrupted, StudyPlan
from heedful.tasks import make_experiment
from heedful.training.events import StepDone
from heedful.training.gradients import Objective, make_gradients
from heedful.training.loop import (
    TrainingState,
    UpdateSplit,
    explain_out_of_memory,
    make_updates,
    set_up_layers,
    training_steps,
)
from heedful.training.model_selection import compute_validation_loss, use_weights
from heedful.training.optimizer import MovingAverage, make_optimizer
from heedful.training.precision import Precision
from heedful.training.prepare import Prepared
from heedful.translation.translator import Translator


@dataclass(frozen=True, slots=True)
class AblationResult:
    """The measurements of one row. Losses are per target token; None means not finite."""

    fingerprint: str  # hash of everything that the result depends on
    curve: list[list[float | None]]  # (step, validation loss)
    training_loss: float | None  # mean of the last tenth of the updates, minus the minimum under label smoothing
    validation_loss: float | None  # unsmoothed
    bleu: float
    exact: float  # % of translations equal to their reference
    by_length: list[list[float]]  # (longest source, number of sentences, BLEU)
    orders_differ: float | None  # largest change of the memory when the order of the pieces changes
    orders: list[list[str]]  # (source, translation) for both orders
    alone_bleu: float  # of some sentences, batched with others of their length
    together_bleu: float  # of the same sentences, batched with a longer one
    together_changed: float  # % of these translations that change in the second batch
    examples: list[list[str]]  # (source, reference, output)
    steps: int
    stopped: str  # why training ended early, or empty
    seconds: float

    @property
    def perplexity(self) -> float | None:
        return None if self.validation_loss is None else math.exp(min(self.validation_loss, 700.0))


Settings = Callable[[Experiment], Mapping[str, Any]]
Seeds = Sequence[AblationResult]  # the results of one row, one for each seed
Verdict = Callable[[Seeds, Seeds], str]  # takes a row and the complete model


@dataclass(frozen=True, slots=True)
class Ablation:
    """One difference from the complete model: options of the recipe, or a change to the built model."""

    name: str
    changed: str
    verdict: Verdict
    settings: Settings = lambda _: {}
    change: Callable[[Transformer], None] = changes.nothing
    kind: type[Transformer] = Transformer

    def experiment(self, base: Experiment) -> Experiment:
        return make_experiment(merge(asdict(base), self.settings(base)))

    def differs(self, base: Experiment) -> bool:
        """Whether this changes anything: a recipe without dropout cannot lose it."""
        built = self.change is not changes.nothing or self.kind is not Transformer
        return built or self.experiment(base) != base


def write_result(path: Path, row: AblationResult) -> None:
    """Write the result atomically as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(asdict(row), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_result(path: Path, fingerprint: str) -> AblationResult | None:
    """Read a result with this fingerprint; None if the file is missing, damaged or from another experiment."""
    try:
        found: Any = read_json(path)
        row = AblationResult(**found)
    except (FolderError, TypeError):
        return None
    return row if row.fingerprint == fingerprint else None


def finite(value: float) -> float | None:
    """Return None for NaN and infinity, which JSON cannot hold."""
    return value if math.isfinite(value) else None


_MOST_PAIRS = 1000  # validation pairs to translate
_TOGETHER = 50  # pairs to translate again, in a batch with a longer sentence
_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class AblationData:
    """The data that every row is trained and measured on."""

    prepared: Prepared
    digest: str  # hash of the prepared data
    orders: tuple[list[int], list[int]]  # the same source pieces in two orders
    limits: tuple[int, ...]  # boundaries of the length ranges, in source pieces


def measure(model: AnySeq2Seq, experiment: Experiment, material: AblationData) -> dict[str, Any]:
    """Measure everything in an `AblationResult` that does not come from its training."""
    pairs, tokenize = material.prepared.valid_pairs[:_MOST_PAIRS], experiment.evaluate.tokenize
    translator = Translator.from_model(model, material.prepared.tokenizers, replace(experiment.search, beam=1))
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    ids = material.prepared.tokenizers.source.encode_all(sources)
    outputs = _by_batches(translator, ids)
    few = min(_TOGETHER, len(pairs))
    # One source is so long that most of the batch is padding.
    longest = max(ids, key=len)
    together = _together(translator, [*ids[:few], longest[:-1] + longest])[:few]
    alone = outputs[:few]  # these were batched by length
    return {
        "bleu": bleu(outputs, [references], tokenize),
        "exact": _share(outputs, references),
        "by_length": _by_length(list(map(len, ids)), outputs, references, material.limits, tokenize),
        **_orders(translator, material.orders),
        "alone_bleu": bleu(alone, [references[:few]], tokenize),
        "together_bleu": bleu(together, [references[:few]], tokenize),
        "together_changed": 100.0 - _share(together, alone),
        "examples": [list(example) for example in zip(sources, references, outputs, strict=True)][:_EXAMPLES],
    }


def _by_batches(translator: Translator, ids: Sequence[Sequence[int]]) -> list[str]:
    """Translate in batches of sentences of about the same length."""
    found: dict[int, str] = {}
    for batch in batches_by_length(range(len(ids)), ids, 1, translator.engine.batch_tokens):
        found |= zip(batch, _together(translator, [ids[index] for index in batch]), strict=True)
    return [found[index] for index in range(len(ids))]


def _together(translator: Translator, ids: Sequence[Sequence[int]]) -> list[str]:
    """Translate in one batch; a model that gives NaN translates everything to ""."""
    try:
        hypotheses = translator.decode(ids, translator.search, 1)
    except Diverged:
        return [""] * len(ids)
    return [translator.tokenizers.target.decode(best.tokens) for best, *_ in hypotheses]


def _orders(translator: Translator, orders: tuple[list[int], list[int]]) -> dict[str, Any]:
    """Compare the memory and the translation of the same pieces in two orders."""
    first, second = (_memory(translator, ids) for ids in orders)
    texts = [translator.tokenizers.source.decode(ids) for ids in orders]
    translations = _together(translator, orders)
    return {
        "orders_differ": finite((first - second).abs().max().item()),
        "orders": [list(pair) for pair in zip(texts, translations, strict=True)],
    }


@torch.inference_mode()
def _memory(translator: Translator, ids: list[int]) -> Tensor:
    """The encoder output of each piece, sorted by id, so that two orders of the same pieces can be compared."""
    device = next(translator.model.parameters()).device
    source, lengths = (tensor.to(device) for tensor in pack([ids]))
    rows: Tensor = translator.model.encode(source, lengths).rows
    return rows[source.argsort(stable=True)]


def _by_length(
    lengths: Sequence[int],
    outputs: Sequence[str],
    references: Sequence[str],
    limits: Sequence[int],
    tokenize: BleuTokens,
) -> list[list[float]]:
    """For each range of lengths: its limit, the number of sentences and their BLEU."""
    return [
        [bucket.limit, len(bucket.places), partial_bleu(bucket.places, outputs, [references], tokenize)]
        for bucket in make_buckets(lengths, limits)
    ]


def _share(left: Sequence[str], right: Sequence[str]) -> float:
    """The percentage of texts that are equal."""
    return 100.0 * sum(a == b for a, b in zip(left, right, strict=True)) / max(1, len(left))


_POINTS = 10  # points of a learning curve
# Keys that do not change the result of a row.
_UNRELATED = ("name", "data.", "train.threads", "train.device", "train.save_every", "train.validate_", "train.patience")


def make_row(part: Ablation, base: Experiment, material: AblationData, path: Path, plan: StudyPlan) -> AblationResult:
    """Read the result at `path` if it belongs to this experiment; otherwise train and measure it now."""
    experiment = part.experiment(base)
    fingerprint = _fingerprint(part, experiment, material)
    kept = read_result(path, fingerprint)
    if kept is not None:
        return kept
    with explain_out_of_memory(experiment.train):
        row = _train(part, experiment, material, fingerprint, plan)
    write_result(path, row)
    return row


def _fingerprint(part: Ablation, experiment: Experiment, material: AblationData) -> str:
    options = {key: value for key, value in flat(experiment).items() if not key.startswith(_UNRELATED)}
    depends_on = [part.name, material.digest, material.orders, material.limits, options]
    return sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()


def _train(
    part: Ablation, experiment: Experiment, material: AblationData, fingerprint: str, plan: StudyPlan
) -> AblationResult:
    config, prepared, began = experiment.train, material.prepared, time.monotonic()
    learner = _learner(part, experiment, prepared)
    losses: list[float] = []
    curve: list[list[float | None]] = []
    stopped = ""
    try:
        for event in _events(learner, experiment, prepared):
            losses.append(event.loss)
            plan.report.progress(part.name, event.step, config.max_steps)
            if came := plan.interrupted():
                raise StudyInterrupted(came)
            if event.step % max(1, config.max_steps // _POINTS) == 0 or event.step == config.max_steps:
                curve.append([event.step, _validated(learner, prepared, config.batch_tokens)])
    except Diverged:
        stopped = f"the loss or its gradient was not finite at step {learner.step + 1}"
    last = losses[-max(1, len(losses) // 10) :] or [math.nan]
    least = least_loss(config.label_smoothing, prepared.tokenizers.vocabulary.target)
    with use_weights(learner.model, learner.average.weights if learner.average else None):
        measured = measure(require_seq2seq(learner.model, part.name), experiment, material)
    return AblationResult(
        fingerprint=fingerprint,
        curve=curve,
        training_loss=finite(sum(last) / len(last) - least),
        validation_loss=_validated(learner, prepared, config.batch_tokens),
        steps=learner.step,
        stopped=stopped,
        seconds=time.monotonic() - began,
        **measured,
    )


def build(part: Ablation, experiment: Experiment, prepared: Prepared) -> Transformer:
    """Build the model of a row. Weights that the complete model also has start with the same values."""
    vocabulary = prepared.tokenizers.vocabulary
    torch.manual_seed(experiment.seed)
    model = part.kind(experiment.model, vocabulary.source, vocabulary.target, vocabulary.pad_id)
    part.change(model)
    return model


def _learner(part: Ablation, experiment: Experiment, prepared: Prepared) -> TrainingState:
    config = experiment.train
    device = choose_device(config.device)
    use_threads(config.threads)
    model = build(part, experiment, prepared).to(device)
    set_up_layers(model, config, device)
    average = MovingAverage(model, config.ema_decay) if config.ema_decay else None
    return TrainingState(
        model, make_optimizer(model, config), average, precision=Precision.of(config.precision, device)
    )


def _events(learner: TrainingState, experiment: Experiment, prepared: Prepared) -> Iterator[StepDone]:
    """Train a row to its end."""
    config, seed, model = experiment.train, experiment.seed, learner.model
    device = next(model.parameters()).device
    workers = count_workers(device)
    gradients = make_gradients(model, Objective(config.label_smoothing, seed, learner.precision), workers)
    split, batching = UpdateSplit(config.accumulate * workers), Batching(config.batch_tokens, seed)
    data = make_updates(prepared.train, learner.position, batching, split, model.pad_id, device)
    for event in training_steps(learner, data, gradients, experiment.model.d_model, config):
        yield event
        if event.step >= config.max_steps:
            return


def _validated(learner: TrainingState, prepared: Prepared, batch_tokens: int) -> float | None:
    """The unsmoothed loss on the validation pairs."""
    with use_weights(learner.model, learner.average.weights if learner.average else None):
        return finite(compute_validation_loss(learner.model, prepared.valid, batch_tokens)) if prepared.valid else None


def least_loss(smoothing: float, vocabulary: int) -> float:
    """The entropy of the smoothed targets, which is the training loss of a perfect model."""
    if not smoothing:
        return 0.0
    return -(1.0 - smoothing) * math.log(1.0 - smoothing) - smoothing * math.log(smoothing / (vocabulary - 1))
