"""How well labels are found: the confusion matrix, accuracy, and precision, recall and F1 of each label."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
from jaxtyping import Int

from heedful.metrics import Score
from heedful.metrics.bootstrap import percent

Matrix = Int[np.ndarray, "labels labels"]

MACRO_F1 = "macro F1"
_SEED = 12345


@dataclass(frozen=True, slots=True)
class LabelScore:
    """How well one label is found, in per cent."""

    label: str
    precision: float
    recall: float
    f1: float
    count: int  # in the test set


@dataclass(frozen=True, slots=True)
class LabelReport:
    """All that the labels of a test set tell about a model; `confusion[i][j]`: label i was taken for label j."""

    labels: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    by_label: tuple[LabelScore, ...]
    scores: tuple[Score, ...]


def count_confusions(gold: Sequence[int], found: Sequence[int], labels: int) -> Matrix:
    """How often each label (row) was taken for each one (column)."""
    pairs = np.asarray(gold, dtype=np.int64) * labels + np.asarray(found, dtype=np.int64)
    return np.bincount(pairs, minlength=labels * labels).reshape(labels, labels)


def accuracy(confusion: Matrix) -> float:
    """The percentage of labels that are right."""
    return percent(float(np.trace(confusion)), float(confusion.sum()))


def f1_by_label(confusion: Matrix) -> np.ndarray:
    """F1 of each label in per cent; NaN for a label that neither occurs nor is found."""
    right, total = np.diag(confusion), confusion.sum(0) + confusion.sum(1)
    with np.errstate(invalid="ignore"):
        f1: np.ndarray = 200.0 * right / np.where(total, total, np.nan)
    return f1


def macro_f1(confusion: Matrix) -> float:
    """The mean of F1 over the labels that occur or are found, each with the same weight."""
    f1 = f1_by_label(confusion)
    return float(np.nanmean(f1)) if np.isfinite(f1).any() else 0.0


def report_labels(
    texts: Sequence[tuple[Sequence[int], Sequence[int]]], labels: Sequence[str], resamples: int = 1000
) -> LabelReport:
    """The scores of all texts, each with its right labels and those that were found.

    The intervals are by bootstrap over the texts. Labels that neither occur nor are found are left out.
    """
    count = len(labels)
    whole = count_confusions([g for gold, _ in texts for g in gold], [f for _, found in texts for f in found], count)
    used = [number for number in range(count) if whole[number].any() or whole[:, number].any()]
    signature = f"labels:{len(used)}|texts:{len(texts)}|bs:{resamples}|seed:{_SEED}|version:{version('heedful')}"
    drawn = _resample(texts, count, resamples)
    scores = []
    for metric, function in (("accuracy", accuracy), (MACRO_F1, macro_f1)):
        value = function(whole)
        low, high = np.percentile([function(one) for one in drawn], (2.5, 97.5)) if drawn else (value, value)
        scores.append(Score(metric, value, min(float(low), value), max(float(high), value), f"{metric}|{signature}"))
    f1 = f1_by_label(whole)
    by_label = tuple(
        LabelScore(
            labels[number],
            percent(float(whole[number, number]), float(whole[:, number].sum())) if whole[:, number].any() else 0.0,
            percent(float(whole[number, number]), float(whole[number].sum())) if whole[number].any() else 0.0,
            float(f1[number]),
            int(whole[number].sum()),
        )
        for number in used
    )
    kept = whole[np.ix_(used, used)]
    return LabelReport(
        tuple(labels[number] for number in used),
        tuple(tuple(int(cell) for cell in row) for row in kept),
        by_label,
        tuple(scores),
    )


def _resample(texts: Sequence[tuple[Sequence[int], Sequence[int]]], labels: int, resamples: int) -> list[Matrix]:
    """The confusion matrices of as many texts, drawn with replacement."""
    cells = [np.asarray(gold) * labels + np.asarray(found) for gold, found in texts]
    flat, owners = np.concatenate(cells), np.repeat(np.arange(len(cells)), [len(part) for part in cells])
    generator = np.random.default_rng(_SEED)
    matrices = []
    for _ in range(resamples if resamples > 1 else 0):
        times = np.bincount(generator.integers(len(cells), size=len(cells)), minlength=len(cells))
        counts = np.bincount(flat, weights=times[owners], minlength=labels * labels)
        matrices.append(counts.reshape(labels, labels).astype(np.int64))
    return matrices
