"""A sensible experiment for this data on this machine, with reasons."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from heedful.data.pairs import Pair

_SAMPLED_PAIRS = 200_000  # pairs whose distinct words are counted
_PIECES_A_WORD = 1.3
_ALPHABET = 258  # bytes and special pieces


@dataclass(frozen=True, slots=True)
class Survey:
    """What one look through the corpus tells."""

    pairs: int
    target_words: int
    distinct_words: int  # among the first pairs, both sides


@dataclass(frozen=True, slots=True)
class Choice:
    """Tables of an experiment, and why, by the key that would overrule it."""

    tables: dict[str, Any]
    reasons: dict[str, str]


def survey(pairs: Iterable[Pair]) -> Survey:
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
    return Survey(count, words, len(distinct))


def choose(found: Survey, device: str, *, model: bool) -> Choice:
    """Vocabulary, batch, schedule and, if wanted, the model by the size of the corpus and the kind of machine."""
    size, epochs, why = _size(found.pairs, device)
    vocabulary = min(_vocabulary(found.pairs), _ALPHABET + found.distinct_words // 2)
    pieces = max(1, round(found.target_words * _PIECES_A_WORD) + found.pairs)
    batch = max(256, min(4096 if device == "cpu" else 25_000, pieces // 16))
    steps = max(200, round(epochs * pieces / batch))
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
    reasons = {
        "model.preset": f"model: {why}",
        "text.vocabulary_size": f"vocabulary: {vocabulary} pieces, for {found.distinct_words} different words",
        "train.batch_tokens": f"batch: {batch} tokens a side",
        "train.max_steps": f"schedule: {steps} updates, about {epochs} times through the data",
    }
    return Choice(tables, reasons)


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
