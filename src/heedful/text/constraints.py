"""Constraints on translations, required terms and a prefix, as text and as ids."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from heedful.errors import DataError
from heedful.text.tokenizer import Tokenizer

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # how a piece shows a byte that is not a whole character


@dataclass(frozen=True, slots=True)
class Constraints:
    """What translations must contain: the target term for each source term, and a prefix."""

    glossary: Mapping[str, str] = field(default_factory=dict)  # from source terms to target terms
    prefix: str = ""

    def find_terms(self, source: str) -> list[str]:
        """The target terms for a text, each once. If source terms overlap, only the longest counts."""
        taken = [False] * len(source)
        found: dict[int, str] = {}
        for term in sorted(self.glossary, key=len, reverse=True):
            for match in re.finditer(re.escape(term), source):
                start, end = match.span()
                if not any(taken[start:end]) and _is_word(source, start, end):
                    taken[start:end] = [True] * (end - start)
                    found[start] = self.glossary[term]
        return list(dict.fromkeys(found[start] for start in sorted(found)))


def read_glossary(lines: Iterable[str], origin: str) -> dict[str, str]:
    """Read lines of a source term, a tab and a target term; `origin` names the file in errors."""
    glossary: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        source, *rest = (part.strip() for part in line.split("\t"))
        if len(rest) != 1 or not source or not rest[0]:
            raise DataError(f"{origin}, line {number} must be a source term, a tab and a target term, but is {line!r}")
        if glossary.setdefault(source, rest[0]) != rest[0]:
            raise DataError(f"{origin}, line {number}: {source!r} has a different translation above; keep one of them")
    return glossary


@dataclass(frozen=True, slots=True)
class TermIds:
    """A term as ids: after a space, and directly after an opening bracket (empty if that is not possible)."""

    spaced: tuple[int, ...]
    close: tuple[int, ...]


def encode_term(tokenizer: Tokenizer, term: str) -> TermIds:
    """The ids of a term; an error if they would not decode to the same term."""
    spaced = _ids_after(tokenizer, "a", f" {term}")
    if not term.strip() or spaced is None:
        made = tokenizer.decode(tokenizer.encode(term))
        raise DataError(f"the term {term!r} cannot be required: the model's tokenizer turns it into {made!r}")
    return TermIds(spaced, _ids_after(tokenizer, "(", term) or ())


def find_word_boundaries(tokenizer: Tokenizer) -> tuple[frozenset[int], frozenset[int]]:
    """The ids after which a word may begin without a space, and the ids that continue the word before them."""
    opens, glues = set(), set()
    for number in range(tokenizer.vocabulary_size):
        (piece,) = _pieces(tokenizer, number)
        bytes_of_piece = _BYTE.findall(piece)  # part of a character may be part of a letter
        if piece and not _is_letter(piece[-1]) and not (bytes_of_piece and piece.endswith(bytes_of_piece[-1])):
            opens.add(number)
        if piece and (_is_letter(piece[0]) or _BYTE.match(piece)):
            glues.add(number)
    return frozenset(opens), frozenset(glues)


def _pieces(tokenizer: Tokenizer, number: int) -> Sequence[str]:
    try:
        return tokenizer.pieces([number])
    except DataError:  # a foreign vocabulary may have gaps
        return [""]


def _ids_after(tokenizer: Tokenizer, before: str, text: str) -> tuple[int, ...] | None:
    """The ids of a text after another; None if a piece spans both, or if they do not decode to the same."""
    first, whole = tokenizer.encode(before)[:-1], tokenizer.encode(before + text)[:-1]
    if whole[: len(first)] != first or tokenizer.decode(whole) != before + text:
        return None
    return tuple(whole[len(first) :])


def _is_word(text: str, start: int, end: int) -> bool:
    """Whether this part of a text is not part of a longer word."""
    before, after = text[start - 1 : start] if start else "", text[end : end + 1]
    glued_before = before and _is_letter(before) and _is_letter(text[start])
    return not glued_before and not (after and _is_letter(after) and _is_letter(text[end - 1]))


def _is_letter(character: str) -> bool:
    """Letters and digits, except in scripts that are written without spaces."""
    return character.isalnum() and unicodedata.east_asian_width(character) not in ("W", "F")
