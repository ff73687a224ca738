"""The word that each piece belongs to. Words are separated by white space, as in `str.split`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from heedful.text.tokenizer import Tokenizer

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a text, and the index of the word of each piece.

    The index is None for the end of the sentence and for a piece of white space only. A piece with parts of several
    words belongs to the first of them.
    """

    texts: tuple[str, ...]
    of_pieces: tuple[int | None, ...]


def words_of_text(tokenizer: Tokenizer, text: str) -> Words:
    """The words of a text before any normalisation by the tokenizer; the pieces are those of `encode`."""
    return _words(text, tokenizer.spans(text))


def words_of_ids(tokenizer: Tokenizer, ids: Sequence[int]) -> Words:
    """The words of the text that these ids decode to.

    The end of each piece in the text is found by decoding all ids up to it, because the text of a piece can depend on
    the pieces before it, and a character can consist of several pieces.
    """
    text = tokenizer.decode(ids)
    ends = [_end(tokenizer.decode(ids[:count]), text) for count in range(len(ids) + 1)]
    return _words(text, [(start, end) for (start, _), (_, end) in pairwise(ends)])


def _end(prefix: str, text: str) -> tuple[int, int]:
    """The number of characters that a prefix shares with a text, without and with one that may be incomplete."""
    if text.startswith(prefix):
        return len(prefix), len(prefix)
    whole = next((place for place, (a, b) in enumerate(zip(prefix, text, strict=False)) if a != b), len(text))
    return whole, whole + 1


def _words(text: str, spans: Sequence[tuple[int, int]]) -> Words:
    word_at: list[int | None] = [None] * len(text)
    found = list(_WORD.finditer(text))
    for number, word in enumerate(found):
        word_at[word.start() : word.end()] = [number] * len(word[0])
    of_pieces = tuple(_first(word_at[start : max(end, start + 1)]) for start, end in spans)
    return Words(tuple(word[0] for word in found), of_pieces)


def _first(numbers: Sequence[int | None]) -> int | None:
    return next((number for number in numbers if number is not None), None)
