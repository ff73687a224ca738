"""Constraints on translations, required terms and a prefix, as text and as ids."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from heedful.errors import DataError
from heedful.text.tokenizer import Tokenizer

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # how a piece shows a byte that is not a whole character


# How much less likely than the free translation a translation with its terms may be: the difference of the mean
# log-probabilities of their pieces. Chosen with bench/terms.py; docs/how-to/translate.md has its table.
MAX_LOSS = 0.6
LONGEST_ENDING = 3  # letters that inflection may add to a term


@dataclass(frozen=True, slots=True)
class Term:
    """A term of a glossary."""

    source: str
    target: str

    @property
    def is_name(self) -> bool:
        """Whether it stays as it is. A name is never given up, and has no endings."""
        return self.source == self.target

    @property
    def inflects(self) -> bool:
        """Whether it may have an ending in the translation."""
        return not self.is_name and self.target[-1:].isalpha()

    def __str__(self) -> str:
        return f"{self.source} = {self.target}"


@dataclass(frozen=True, slots=True)
class Constraints:
    """What translations must contain: the target term for each source term, and a prefix.

    A term that is not a name is given up if the translation with it is less likely than without it by more than
    `max_loss`, in nats per piece.
    """

    glossary: Mapping[str, str] = field(default_factory=dict)  # from source terms to target terms
    prefix: str = ""
    max_loss: float = MAX_LOSS

    def find_terms(self, source: str) -> list[Term]:
        """The terms of a text, one for each occurrence, in order. If source terms overlap, only the longest counts."""
        taken = [False] * len(source)
        found: dict[int, Term] = {}
        for term in sorted(self.glossary, key=len, reverse=True):
            for start, end in _find_words(source, term):
                if not any(taken[start:end]) and _is_word(source, start, end):
                    taken[start:end] = [True] * (end - start)
                    found[start] = Term(term, self.glossary[term])
        return [found[start] for start in sorted(found)]


def find_missing(translation: str, terms: Iterable[Term]) -> list[Term]:
    """The terms that a translation does not contain, or not as often as the list does."""
    left: dict[str, int] = {}
    missing = []
    for term in terms:
        left.setdefault(term.target, _count_term(translation, term))
        left[term.target] -= 1
        if left[term.target] < 0:
            missing.append(term)
    return missing


def _count_term(text: str, term: Term) -> int:
    """How often a term stands in a text as a word, or with an ending if it may have one."""
    count = 0
    for start, end in _find_words(text, term.target):
        ending = end
        while term.inflects and ending < len(text) and _is_letter(text[ending]):
            ending += 1
        count += ending - end <= LONGEST_ENDING and _is_word(text, start, ending)
    return count


def _find_words(text: str, term: str) -> Iterator[tuple[int, int]]:
    """The places of a term in a text; where the first word begins, its first letter may be a capital."""
    yield from (match.span() for match in re.finditer(re.escape(term), text))
    first = next((place for place, character in enumerate(text) if character.isalnum()), 0)
    capital = capitalise(term)
    if capital != term and text.startswith(capital, first):
        yield first, first + len(capital)


def capitalise(term: str) -> str:
    """The term as it begins a sentence."""
    return term[:1].upper() + term[1:]


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
    """A term as ids: after a space, directly after an opening bracket, and with a capital at the beginning.

    The last two are empty if that is not possible.
    """

    spaced: tuple[int, ...]
    close: tuple[int, ...]
    capital: tuple[int, ...] = ()


def encode_term(tokenizer: Tokenizer, term: str) -> TermIds:
    """The ids of a term; an error if they would not decode to the same term."""
    spaced = _ids_after(tokenizer, "a", f" {term}")
    if not term.strip() or spaced is None:
        made = tokenizer.decode(tokenizer.encode(term))
        raise DataError(f"the term {term!r} cannot be required: the model's tokenizer turns it into {made!r}")
    upper = capitalise(term)
    capital = () if upper == term else _ids_after(tokenizer, "a", f" {upper}") or ()
    return TermIds(spaced, _ids_after(tokenizer, "(", term) or (), capital)


def find_word_boundaries(tokenizer: Tokenizer) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    """The ids after which a word may begin without a space, those that continue the word before them, and endings.

    An ending is one of the second that has few letters and nothing else.
    """
    opens, glues, endings = set(), set(), set()
    for number in range(tokenizer.vocabulary_size):
        (piece,) = _pieces(tokenizer, number)
        bytes_of_piece = _BYTE.findall(piece)  # part of a character may be part of a letter
        if piece and not _is_letter(piece[-1]) and not (bytes_of_piece and piece.endswith(bytes_of_piece[-1])):
            opens.add(number)
        if piece and (_is_letter(piece[0]) or _BYTE.match(piece)):
            glues.add(number)
            if piece.isalpha() and len(piece) <= LONGEST_ENDING:
                endings.add(number)
    return frozenset(opens), frozenset(glues), frozenset(endings)


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
