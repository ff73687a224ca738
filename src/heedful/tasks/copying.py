"""The smallest tasks, to see whether a model learns at all: say the words again, or say them backwards."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from heedful.data.pairs import Pair, read_lines
from heedful.metrics.score import Score


def read_copy(path: Path) -> Iterator[Pair]:
    """Every line and itself."""
    for line in read_lines(path):
        yield Pair(line, " ".join(line.split()))


def read_reverse(path: Path) -> Iterator[Pair]:
    """Every line and its words from the last to the first."""
    for line in read_lines(path):
        yield Pair(line, " ".join(reversed(line.split())))


def scores(outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int) -> list[Score]:
    """Accuracy of whole lines, and the error rate of their words."""
    from heedful.metrics.edit_distance import token_scores  # with NumPy, which translating need not wait for

    answers = [[right.split() for right in several] for several in references]
    return token_scores([output.split() for output in outputs], answers, resamples)
