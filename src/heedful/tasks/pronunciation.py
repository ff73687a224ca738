"""Pronunciation: the letters of a word in, its phonemes out."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from heedful.data.pairs import Pair, read_lines
from heedful.errors import DataError
from heedful.metrics.score import Score

_COMMENT = ";;;"
_VARIANT = re.compile(r"(?<=.)\(\d+\)$")  # READ(1) is another way to say READ


def read(path: Path) -> Iterator[Pair]:
    """A dictionary: word, tab, phonemes; or as CMUDict has it, with spaces and comments. Variants may be numbered."""
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or line.startswith(_COMMENT):
            continue
        word, phonemes = _entry(line)
        if not word or not phonemes:
            raise DataError(f"{path}, line {number}: {line[:80]!r} must be a word, a tab and its phonemes")
        yield Pair(word, phonemes)


def scores(outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int) -> list[Score]:
    """WER and PER; the closest of several pronunciations counts."""
    from heedful.metrics.edit_distance import pronunciation_scores  # with NumPy, which translating need not wait for

    answers = [[right.split() for right in several] for several in references]
    return pronunciation_scores([output.split() for output in outputs], answers, resamples)


def _entry(line: str) -> tuple[str, str]:
    if "\t" in line:
        word, phonemes = line.split("\t", 2)[:2]
        return _VARIANT.sub("", word.strip()), " ".join(phonemes.split())
    word, *symbols = line.partition(" #")[0].split() or [""]
    return _VARIANT.sub("", word), " ".join(symbols)
