"""The simplest tasks, which show whether a model learns at all: repeat the words, or reverse them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from heedful.config.experiment import BleuTokens
from heedful.data.pairs import Pair, read_lines
from heedful.metrics import Score
from heedful.tasks.task import References, ScoringOptions, Task


def _read_copies(path: Path) -> Iterator[Pair]:
    for line in read_lines(path):
        yield Pair(line, " ".join(line.split()))


def _read_reversals(path: Path) -> Iterator[Pair]:
    for line in read_lines(path):
        yield Pair(line, " ".join(reversed(line.split())))


def _score(outputs: Sequence[str], references: References, options: ScoringOptions) -> list[Score]:
    """Accuracy of whole lines, and the error rate of their words."""
    from heedful.metrics.edit_distance import score_tokens  # imports NumPy, which translating does not need

    answers = [[right.split() for right in several] for several in references]
    return score_tokens([output.split() for output in outputs], answers, options.resamples)


def _quick_score(outputs: Sequence[str], references: References, tokenize: BleuTokens) -> Score:
    return _score(outputs, references, ScoringOptions(resamples=1))[0]


COPY = Task(
    name="copy",
    read_file=_read_copies,
    source_tokenizer="symbols",
    target_tokenizer="symbols",
    score=_score,
    quick_score=_quick_score,
    quick_metric="accuracy",
)

REVERSE = replace(COPY, name="reverse", read_file=_read_reversals)
