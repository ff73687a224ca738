"""A model's translations of a test set, scored."""

from collections.abc import Sequence
from dataclasses import dataclass

from heedful.config import BleuTokens, SearchConfig
from heedful.metrics.score import Score
from heedful.metrics.translation import translation_scores
from heedful.runs.report import Reporter
from heedful.translator import Translator


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Outputs in the order of the sources, and their scores."""

    outputs: tuple[str, ...]
    scores: tuple[Score, ...]


def evaluate(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    search: SearchConfig,
    tokenize: BleuTokens,
    language: str,
    report: Reporter,
) -> Evaluation:
    """Translate the sources and compare with one or more sets of references."""
    lines = translator.translate_lines(
        sources, search=search, done=lambda count: report.progress("translating", count, len(sources))
    )
    outputs = tuple(line.text for line in lines)
    return Evaluation(outputs, tuple(translation_scores(outputs, references, tokenize, language)))
