"""A sensible experiment for this data on this machine, with reasons."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from heedful.config import Experiment
from heedful.data.pairs import Pair
from heedful.training.schedule import learning_rate

Given = Mapping[str, Any]

_SAMPLED_PAIRS = 200_000  # pairs whose distinct words are counted
_PIECES_A_WORD = 1.3
_ALPHABET = 258  # bytes and special pieces
_RATE_OF_TUNING = 0.1  # of the highest that the model was trained with
_EMA_DECAY = 0.998


@dataclass(frozen=True, slots=True)
class CorpusStatistics:
    """What one look through the corpus tells."""

    pairs: int
    target_words: int
    distinct_words: int  # among the first pairs, both sides


@dataclass(frozen=True, slots=True)
class ChosenSettings:
    """Tables of an experiment, and why, by the key that would overrule it."""

    tables: dict[str, Any]
    reasons: dict[str, str]


def measure_corpus(pairs: Iterable[Pair]) -> CorpusStatistics:
    """Count; bad files raise their errors here, before any work is done."""
    count = words = 0
    distinct: set[str] = set()
    for pair in pairs:
        count += 1
        target = pair.target.split()
        words += len(target)
        if count <= _SAMPLED_PAIRS:
            distinct.update(target)
            distinct.update(pair.source.split())
    return CorpusStatistics(count, words, len(distinct))


def choose_settings(
    found: CorpusStatistics, device: str, given: Given, *, model: bool, symbols: bool = False
) -> ChosenSettings:
    """Vocabulary, batch, schedule and, if wanted, the model by the size of the corpus and the kind of machine.

    `given` is what the user has set of [train]; `symbols`: no word of this text is cut into pieces.
    """
    size, epochs, why = _size(found.pairs, device)
    wanted = found.distinct_words if symbols else found.distinct_words // 2
    vocabulary = min(_vocabulary(found.pairs), _ALPHABET + wanted)
    pieces = _pieces(found)
    batch = given.get("batch_tokens", _batch(pieces, device))
    steps = given.get("max_steps", max(200, round(epochs * pieces / batch)))
    every = max(50, min(1000, steps // 20))
    tables: dict[str, Any] = {
        "model": {"preset": "modern", **size} if model else {},
        "text": {"vocabulary_size": vocabulary},
        "train": {
            "batch_tokens": batch,
            # In halves where the model is larger: the activations of a whole batch would take over a gigabyte.
            "accumulate": 2 if size and device == "cpu" else 1,
            "max_steps": steps,
            "warmup_steps": max(1, min(1000, steps // 8)),
            "validate_every": every,
            "save_every": every,
            "patience": 10,
        },
    }
    kind = "symbols" if symbols else "words"
    reasons = {
        "model.preset": f"model: {why}",
        "text.vocabulary_size": f"vocabulary: {vocabulary} pieces, for {found.distinct_words} different {kind}",
        "train.batch_tokens": f"batch: {batch} tokens a side",
        "train.max_steps": f"schedule: {steps} updates, about {epochs} times through the data",
    }
    return ChosenSettings(tables, reasons)


def choose_finetuning_settings(
    found: CorpusStatistics, before: Experiment, device: str, given: Given, *, hold_out: bool
) -> ChosenSettings:
    """How to go on training a model on this text: with small steps, judged early and often, so that it forgets little.

    `before` is what the model was trained by, `given` what the user has set of [train]; `hold_out` some pairs where
    there are none to validate on.
    """
    peak = learning_rate(max(1, before.train.warmup_steps), before.model.d_model, before.train)
    # What was tuned before was so with a low rate already.
    share, why = (1.0, "what") if before.train.init else (_RATE_OF_TUNING, "a tenth of what")
    rate = float(f"{share * peak:.2g}")
    epochs = _tuning_epochs(found.pairs)
    batch = given.get("batch_tokens", _batch(_pieces(found), device))
    steps = given.get("max_steps", max(50, round(epochs * _pieces(found) / batch)))
    every, warmup = max(5, min(500, steps // 20)), max(1, min(500, steps // 10))
    held_out = default_hold_out(found.pairs)
    tables: dict[str, Any] = {
        "data": {"hold_out": held_out} if hold_out else {},
        "train": {
            "batch_tokens": batch,
            "accumulate": 2 if before.model.d_model >= 256 and device == "cpu" else 1,
            "max_steps": steps,
            "schedule": "cosine",
            "learning_rate": rate,
            "warmup_steps": warmup,
            "ema_decay": _EMA_DECAY,
            "average_checkpoints": 1,
            "best_by": "loss",
            "validate_every": every,
            "save_every": every,
            "patience": 5,
        },
    }
    reasons = {
        "train.batch_tokens": f"batch: {batch} tokens a side",
        "train.learning_rate": f"learning rate: {rate:g} at most, {why} the model was trained with, "
        "so that it forgets little",
        "train.max_steps": f"schedule: {steps} updates, about {epochs} times through the text",
        "train.warmup_steps": f"warm-up: {warmup} updates",
    }
    if held_out or not hold_out:
        reasons |= {
            "train.validate_every": f"validation: every {every} updates",
            "train.patience": "end: after 5 validations without a better model, or all updates",
            "train.best_by": "model: the moving average with the lowest validation loss; "
            "if none is better, it stays as it was",
        }
    if hold_out:
        reasons["data.hold_out"] = f"held out: about {held_out} pairs to validate on"
    return ChosenSettings(tables, reasons)


def default_hold_out(pairs: int) -> int:
    """How many to validate on: 2 %, at most 1000; of few a tenth, for the score of twenty would be chance."""
    return min(1000, max(round(0.02 * pairs), min(200, pairs // 10)))


def _tuning_epochs(pairs: int) -> int:
    for limit, epochs in ((10_000, 20), (100_000, 10), (1_000_000, 5)):
        if pairs < limit:
            return epochs
    return 2


def _pieces(found: CorpusStatistics) -> int:
    return max(1, round(found.target_words * _PIECES_A_WORD) + found.pairs)


def _batch(pieces: int, device: str) -> int:
    return max(256, min(4096 if device == "cpu" else 25_000, pieces // 16))


def _size(pairs: int, device: str) -> tuple[dict[str, Any], int, str]:
    """What the preset's sizes are changed to, how many epochs, and why."""
    if pairs < 200_000:
        epochs = 50 if pairs < 50_000 else 20
        return {}, epochs, f"tiny, pre-norm, dropout 0.3: {pairs} pairs would overfit a larger one"
    wide = {"d_model": 256, "d_ff": 1024, "encoder_layers": 6, "decoder_layers": 6, "dropout": 0.2}
    if pairs < 2_000_000 or device == "cpu":
        return wide, 10 if pairs < 2_000_000 else 3, f"small, pre-norm: {pairs} pairs on {device}"
    base = {"d_model": 512, "d_ff": 2048, "num_heads": 8, "encoder_layers": 6, "decoder_layers": 6, "dropout": 0.1}
    return base, 10, f"base, pre-norm: {pairs} pairs on {device}"


def _vocabulary(pairs: int) -> int:
    for limit, size in ((20_000, 4000), (200_000, 8000), (2_000_000, 16_000)):
        if pairs < limit:
            return size
    return 32_000
