"""Pictures: a picture in, its label out. The data layer reads them (`heedful.data.pictures`), not files of pairs."""

from collections.abc import Iterator
from pathlib import Path

from heedful.data.pairs import Pair
from heedful.errors import DataError
from heedful.tasks.labelling import CLASSIFICATION
from heedful.tasks.task import Task


def _refuse_pairs(path: Path) -> Iterator[Pair]:
    raise DataError(f"{path}: a model of pictures learns from a folder of pictures; name it with images")


PICTURES = Task(
    name="pictures",
    read_file=_refuse_pairs,
    score=CLASSIFICATION.score,
    quick_score=CLASSIFICATION.quick_score,
    quick_metric=CLASSIFICATION.quick_metric,
    # To everything but the network, a picture is a text of bytes.
    defaults={
        "model": {"preset": "vit", "head": "sequence"},
        "text": {"kind": "bytes", "vocabulary_size": 258},
    },
    files="one",
    pipeline_tag="image-classification",
    aligns_words=False,
    encoder="sequence",
    reads_pictures=True,
)
