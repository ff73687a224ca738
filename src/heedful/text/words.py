"""Which word each piece is a part of. Words are what white space parts, as `str.split` has it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from heedful.text.tokenizer import Tokenizer

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a text, and the word of each of its pieces; None: white space alone, or the end of the sentence.

    A piece that holds parts of several words counts as one of the first.
    """

    texts: tuple[str, ...]
    of_pieces: tuple[int | None, ...]


def words_of_text(tokenizer: Tokenizer, text: str) -> Words:
    """The words of a text as its reader sees it, also where the tokenizer normalises it; pieces as by `encode`."""
    return _words(text, tokenizer.spans(text))


def words_of_ids(tokenizer: Tokenizer, ids: Sequence[int]) -> Words:
    """The words of what these ids decode to.

    How far the text goes at each piece is told by decoding all up to it: what a piece looks like may depend on those
    before it, and a character may need several.
    """
    text = tokenizer.decode(ids)
    ends = [_end(tokenizer.decode(ids[:count]), text) for count in range(len(ids) + 1)]
    return _words(text, [(start, end) for (start, _), (_, end) in pairwise(ends)])


def _end(prefix: str, text: str) -> tuple[int, int]:
    """How many characters a prefix has of a text: all of them, and with the one that it may have only a part of."""
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
