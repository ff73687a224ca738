"""A model's outputs for a test set, scored."""

from collections.abc import Sequence
from dataclasses import dataclass

from heedful.config import BleuTokens, SearchConfig
from heedful.metrics import Score
from heedful.progress import Reporter
from heedful.tasks import Question, ScoringOptions
from heedful.translation.translator import Translator


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Outputs in the order of the questions, and their scores."""

    outputs: tuple[str, ...]
    scores: tuple[Score, ...]


def evaluate(
    translator: Translator,
    questions: Sequence[Question],
    search: SearchConfig,
    tokenize: BleuTokens,
    language: str,
    report: Reporter,
) -> Evaluation:
    """Answer the questions and compare with what is right."""
    lines = translator.translate_lines(
        [question.source for question in questions],
        search=search,
        done=lambda count: report.progress("translating", count, len(questions)),
    )
    outputs = tuple(line.text for line in lines)
    references = [question.references for question in questions]
    return Evaluation(outputs, tuple(translator.task.score(outputs, references, ScoringOptions(tokenize, language))))
