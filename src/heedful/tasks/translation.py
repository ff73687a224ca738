"""Translation: a sentence in one language in, the same sentence in another out."""

from collections.abc import Sequence

from heedful.config.experiment import BleuTokens
from heedful.data.pairs import read_table
from heedful.errors import DataError
from heedful.metrics import Score
from heedful.metrics.bleu import score_bleu, score_translations
from heedful.tasks.task import References, ScoringOptions, Task


def _finish(source: str, output: str) -> str:
    return output


def _score(outputs: Sequence[str], references: References, options: ScoringOptions) -> list[Score]:
    """BLEU, chrF, TER and the paper's BLEU."""
    return score_translations(
        outputs, _reference_sets(references), options.tokenize, options.language, options.resamples
    )


def _quick_score(outputs: Sequence[str], references: References, tokenize: BleuTokens) -> Score:
    return score_bleu(outputs, _reference_sets(references), tokenize)


def _reference_sets(references: References) -> list[list[str]]:
    """Reorder the references as sacreBLEU wants them: all first answers, then all second answers."""
    if len({len(several) for several in references}) > 1:
        raise DataError("some sentences have more references than others; give each the same number")
    return [list(several) for several in zip(*references, strict=True)]


TRANSLATION = Task(
    name="translation",
    read_file=read_table,
    finish=_finish,
    score=_score,
    quick_score=_quick_score,
    quick_metric="BLEU",
    files="two",
    pipeline_tag="translation",
    translates=True,
    repeats_by_mistake=True,
)
