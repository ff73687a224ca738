"""Captions: pictures and texts, which belong together or not. The data layer reads them (`heedful.data.captions`)."""

from collections.abc import Iterator
from pathlib import Path

from heedful.data.pairs import Pair
from heedful.errors import DataError
from heedful.tasks.labelling import CLASSIFICATION
from heedful.tasks.task import Task


def _refuse_pairs(path: Path) -> Iterator[Pair]:
    raise DataError(f"{path}: a model of captions learns from lines of picture, tab, caption; name them with captions")


CAPTIONS = Task(
    name="captions",
    read_file=_refuse_pairs,
    # Of a caption that was chosen among others; `heedful.metrics.recall` scores all of them.
    score=CLASSIFICATION.score,
    quick_score=CLASSIFICATION.quick_score,
    quick_metric="recall@5",
    defaults={"model": {"preset": "clip"}},
    files="one",
    pipeline_tag="zero-shot-image-classification",
    aligns_words=False,
    matches_pictures=True,
)
