"""Pronunciation: the letters of a word in, its phonemes out."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from heedful.config.experiment import BleuTokens
from heedful.data.pairs import Pair, read_lines
from heedful.errors import DataError
from heedful.metrics import Score
from heedful.tasks.characters import spell
from heedful.tasks.task import Question, References, ScoringOptions, Task

_COMMENT = ";;;"
_VARIANT = re.compile(r"(?<=.)\(\d+\)$")  # READ(1) is another pronunciation of READ


def _read_dictionary(path: Path) -> Iterator[Pair]:
    """Read lines of word, tab, phonemes; or CMUDict's format, with spaces and comments. Variants may be numbered."""
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or line.startswith(_COMMENT):
            continue
        word, phonemes = _split_entry(line)
        if not word or not phonemes:
            raise DataError(f"{path}, line {number}: {line[:80]!r} must be a word, a tab and its phonemes")
        yield Pair(word, phonemes)


def _make_questions(pairs: Iterable[Pair]) -> list[Question]:
    """A word with several entries is one question with several answers."""
    answers: dict[str, list[str]] = {}
    for pair in pairs:
        answers.setdefault(pair.source, []).append(pair.target)
    return [Question(source, tuple(right)) for source, right in answers.items()]


def _score(outputs: Sequence[str], references: References, options: ScoringOptions) -> list[Score]:
    """WER and PER; the closest of several pronunciations counts."""
    from heedful.metrics.edit_distance import score_pronunciations  # imports NumPy, which translating does not need

    answers = [[right.split() for right in several] for several in references]
    return score_pronunciations([output.split() for output in outputs], answers, options.resamples)


def _quick_score(outputs: Sequence[str], references: References, tokenize: BleuTokens) -> Score:
    wrong = _score(outputs, references, ScoringOptions(resamples=1))[0]
    right = 100.0 - wrong.value
    return replace(wrong, metric="accuracy", value=right, low=right, high=right)


def _split_entry(line: str) -> tuple[str, str]:
    if "\t" in line:
        word, phonemes = line.split("\t", 2)[:2]
        return _VARIANT.sub("", word.strip()), " ".join(phonemes.split())
    word, *symbols = line.partition(" #")[0].split() or [""]
    return _VARIANT.sub("", word), " ".join(symbols)


PRONUNCIATION = Task(
    name="pronunciation",
    read_file=_read_dictionary,
    source_symbols=spell,
    make_questions=_make_questions,
    source_tokenizer="symbols",
    target_tokenizer="symbols",
    score=_score,
    quick_score=_quick_score,
    quick_metric="accuracy",
)
