"""Inflection, transliteration and the like: characters in, characters out."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from heedful.data.pairs import Pair, read_lines
from heedful.errors import DataError
from heedful.metrics.score import Score

_SPACE = "␣"  # what a space is called among symbols that have spaces between them


def read(path: Path) -> Iterator[Pair]:
    """Source, tab, target; or lemma, tab, form, tab, features, as SIGMORPHON has inflection: `gehen ging V;PST;3;SG`.

    The source of an inflection is the lemma, a tab, and the features.
    """
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        match line.split("\t"):
            case [source, target]:
                yield Pair(source, target)
            case [lemma, form, features]:
                yield Pair(f"{lemma}\t{features}", form)
            case columns:
                raise DataError(f"{path}, line {number}: a line must have 2 or 3 columns, but has {len(columns)}")


def spell(text: str) -> str:
    """The characters with spaces between them."""
    return " ".join(_SPACE if character.isspace() else character for character in text)


def unspell(symbols: str) -> str:
    """The text of which these are the characters."""
    return "".join(symbols.split()).replace(_SPACE, " ")


def source_symbols(text: str) -> str:
    """The characters of a text; features behind a tab are one symbol each, which no character is."""
    plain, _, features = text.partition("\t")
    return " ".join([spell(plain), *(f"<{feature}>" for feature in features.replace(";", " ").split())])


def scores(outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int) -> list[Score]:
    """Accuracy of whole outputs, and CER."""
    from heedful.metrics.edit_distance import character_scores  # with NumPy, which translating need not wait for

    return character_scores(outputs, references, resamples)
