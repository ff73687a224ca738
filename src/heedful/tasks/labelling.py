"""What BERT does: a label for each text, a tag for each word, the tokens hidden in plain text, a vector for a text."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from heedful.config.experiment import BleuTokens
from heedful.data.labels import read_labels, read_tags
from heedful.data.pairs import Pair
from heedful.errors import DataError
from heedful.metrics import Score
from heedful.tasks.task import References, ScoringOptions, Task


def _score(outputs: Sequence[str], references: References, options: ScoringOptions) -> list[Score]:
    """Accuracy and macro F1 of labels; those of a sentence of words have tabs between them."""
    from heedful.metrics.label_scores import report_labels  # imports NumPy, which translating does not need

    pairs = [(one[0].split("\t"), output.split("\t")) for one, output in zip(references, outputs, strict=True)]
    labels = sorted({label for pair in pairs for side in pair for label in side})
    numbers = {label: number for number, label in enumerate(labels)}
    texts = [([numbers[label] for label in gold], [numbers[label] for label in found]) for gold, found in pairs]
    return list(report_labels(texts, labels, options.resamples).scores)


def _quick_score(outputs: Sequence[str], references: References, tokenize: BleuTokens) -> Score:
    return _score(outputs, references, ScoringOptions(resamples=1))[1]


def _refuse_pairs(path: Path) -> Iterator[Pair]:
    raise DataError(f"{path}: a model of hidden tokens learns from plain text; name the file with text")


def _refuse_training(path: Path) -> Iterator[Pair]:
    raise DataError(
        f"{path}: models of task 'embedding' are imported, not trained; "
        "train one on plain text instead: heedful train --text FILE --objective masked"
    )


CLASSIFICATION = Task(
    name="classification",
    read_file=read_labels,
    score=_score,
    quick_score=_quick_score,
    quick_metric="macro F1",
    defaults={"model": {"preset": "bert", "head": "sequence"}},
    files="one",
    pipeline_tag="text-classification",
    aligns_words=False,
    encoder="sequence",
)
TAGGING = Task(
    name="tagging",
    read_file=read_tags,
    score=_score,
    quick_score=_quick_score,
    quick_metric="macro F1",
    defaults={"model": {"preset": "bert", "head": "tokens"}},
    files="one",
    pipeline_tag="token-classification",
    aligns_words=False,
    encoder="tokens",
)
MASKED = Task(
    name="masked",
    read_file=_refuse_pairs,
    score=_score,
    quick_score=_quick_score,
    quick_metric="accuracy",
    defaults={
        "model": {"preset": "bert", "head": "masked"},
        "train": {"validate_bleu": False, "best_by": "loss", "label_smoothing": 0.0},
    },
    files="one",
    pipeline_tag="fill-mask",
    aligns_words=False,
    encoder="masked",
)
EMBEDDING = Task(
    name="embedding",
    read_file=_refuse_training,
    score=_score,
    quick_score=_quick_score,
    quick_metric="accuracy",
    defaults={"model": {"preset": "bert-base", "head": "none"}},
    files="one",
    pipeline_tag="sentence-similarity",
    aligns_words=False,
    encoder="none",
)
