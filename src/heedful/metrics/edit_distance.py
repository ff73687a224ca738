"""Error rates of phonemes, words and characters, and accuracy.

If there are several correct answers, the closest counts: the one with the fewest edits, and the longest of these.
"""

from collections.abc import Sequence
from importlib.metadata import version

import numpy as np
from rapidfuzz.distance import Levenshtein

from heedful.errors import DataError, counted
from heedful.metrics import Score
from heedful.metrics.bootstrap import Counts, bootstrap_score, percent

Symbols = Sequence[str]  # a string is a sequence of characters


def score_pronunciations(
    hypotheses: Sequence[Symbols], references: Sequence[Sequence[Symbols]], resamples: int = 1000
) -> list[Score]:
    """WER, where all phonemes of a word must be correct, and PER. `references[i]` are all correct answers."""
    counts = _count(hypotheses, references)
    signature = _signature(references, "word")
    return [
        bootstrap_score("WER", counts, lambda sums: percent(sums[2], sums[3]), signature, resamples),
        _edit_rate("PER", counts, references, "phoneme", resamples),
    ]


def score_characters(
    hypotheses: Sequence[Symbols], references: Sequence[Sequence[Symbols]], resamples: int = 1000
) -> list[Score]:
    """Accuracy of whole outputs, and CER."""
    counts = _count(hypotheses, references)
    return [
        _accuracy("accuracy", counts, references, resamples),
        _edit_rate("CER", counts, references, "character", resamples),
    ]


def score_tokens(
    hypotheses: Sequence[Symbols], references: Sequence[Sequence[Symbols]], resamples: int = 1000
) -> list[Score]:
    """Accuracy of whole lines, and the error rate of their words."""
    counts = _count(hypotheses, references)
    return [
        _accuracy("accuracy", counts, references, resamples),
        _edit_rate("token errors", counts, references, "token", resamples),
    ]


def count_edits(hypothesis: Symbols, references: Sequence[Symbols]) -> tuple[int, int]:
    """Insertions, deletions and substitutions to the closest reference, and its length."""
    distance, negative = min((Levenshtein.distance(hypothesis, right), -len(right)) for right in references)
    return distance, -negative


def _count(hypotheses: Sequence[Symbols], references: Sequence[Sequence[Symbols]]) -> Counts:
    """One row per output: edits, symbols of the closest reference, whether the output is wrong, and 1."""
    if not hypotheses:
        raise DataError("there are no outputs to score; the test set is empty")
    if len(hypotheses) != len(references):
        raise DataError(f"{counted(len(hypotheses), 'output')} but references for {len(references)}; they must pair up")
    rows = []
    for number, (hypothesis, right) in enumerate(zip(hypotheses, references, strict=True), 1):
        if not right:
            raise DataError(f"output {number} has no reference to compare with; give at least one")
        distance, length = count_edits(hypothesis, right)
        rows.append((distance, length, distance > 0, 1))
    return np.array(rows, dtype=np.float64)


def _edit_rate(
    metric: str, counts: Counts, references: Sequence[Sequence[Symbols]], unit: str, resamples: int
) -> Score:
    def rate(sums: Counts) -> float:
        # If the reference is empty, each symbol of the output is an error.
        return 100.0 * float(sums[0]) / max(1.0, float(sums[1]))

    return bootstrap_score(metric, counts, rate, _signature(references, unit), resamples)


def _accuracy(metric: str, counts: Counts, references: Sequence[Sequence[Symbols]], resamples: int) -> Score:
    return bootstrap_score(
        metric, counts, lambda sums: percent(sums[3] - sums[2], sums[3]), _signature(references, "line"), resamples
    )


def _signature(references: Sequence[Sequence[Symbols]], unit: str) -> str:
    numbers = {len(right) for right in references}
    nrefs = str(numbers.pop()) if len(numbers) == 1 else "var"
    return f"nrefs:{nrefs}|ref:closest|unit:{unit}|edits:levenshtein|rapidfuzz:{version('rapidfuzz')}"
