"""Captions: pictures and texts, which belong together or not. The data layer reads them (`heedful.data.captions`)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from heedful.config.experiment import BleuTokens
from heedful.data.pairs import Pair
from heedful.errors import DataError
from heedful.metrics import Score
from heedful.tasks.task import References, ScoringOptions, Task


def _refuse_pairs(path: Path) -> Iterator[Pair]:
    raise DataError(f"{path}: a model of captions learns from lines of picture, tab, caption; name them with captions")


def _score(outputs: Sequence[str], references: References, options: ScoringOptions) -> list[Score]:
    raise DataError("a model of captions writes no text that could be scored")  # never: `heedful.retrieval` scores it


def _quick_score(outputs: Sequence[str], references: References, tokenize: BleuTokens) -> Score:
    return _score(outputs, references, ScoringOptions())[0]


CAPTIONS = Task(
    name="captions",
    read_file=_refuse_pairs,
    score=_score,
    quick_score=_quick_score,
    quick_metric="recall@5",
    defaults={"model": {"preset": "clip"}},
    files="one",
    pipeline_tag="zero-shot-image-classification",
    aligns_words=False,
    matches_pictures=True,
)
