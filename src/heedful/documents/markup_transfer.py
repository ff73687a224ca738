"""Runs of a sentence in its translation: each word looks like the one that it comes from."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heedful.documents.passages import Placed, Run

_WORD = re.compile(r"\S++")
_LETTER = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Span:
    """Where a run stands in a sentence; `number` is what its passage knows it by."""

    number: int
    run: Run
    start: int
    end: int


def place(text: str, spans: Sequence[Span], translation: str, links: Sequence[tuple[int, int]]) -> Placed:
    """A translation in runs. Links are pairs of a source word and a target word; none: they are guessed."""
    return _Placing(text, spans, translation, links).placed()


class _Placing:
    def __init__(self, text: str, spans: Sequence[Span], translation: str, links: Sequence[tuple[int, int]]) -> None:
        self._text = text
        self._spans = spans
        self._translation = translation
        self._source = list(_WORD.finditer(text))
        self._target = list(_WORD.finditer(translation))
        links = links or self._guessed()
        counts = len(self._source), len(self._target)
        self._from = {target: source for source, target in links if source < counts[0] and target < counts[1]}
        # Where each link leaves the source; of those that leave one place the last counts.
        self._left = sorted((self._source[source].start(), target) for target, source in self._from.items())
        self._seen = [span for span in spans if span.start < span.end]
        self._starts = [span.start for span in self._seen]
        words = [span for span in spans if not span.run.fixed]
        self._fixed = {span.number for span in spans if span.run.fixed}
        self._by_number = {span.number: span for span in spans}
        self._usual = max(words, key=lambda span: span.end - span.start)
        self._plainest = min(words, key=lambda span: span.run.depth)

    def _guessed(self) -> list[tuple[int, int]]:
        """Nobody knows, so words come in the order of the source."""
        source, target = len(self._source), len(self._target)
        return [((2 * place + 1) * source // (2 * target), place) for place in range(target)]

    def placed(self) -> Placed:
        """Word by word; fixed runs that no word has brought are put where they stood."""
        by_word = self._words()
        seen = {number for parts in by_word for number, _ in parts}
        missing = [span for span in self._spans if span.run.fixed and span.number not in seen]
        inserted = self._insertions(missing)
        out: Placed = []
        for number, parts in enumerate(by_word):
            if not number:
                out += inserted.get(-1, ())
            if parts and out and number:
                gap = self._translation[self._target[number - 1].end() : self._target[number].start()]
                out.append((self._gap(out[-1][0], parts[0][0]), gap))
            out += parts
            out += inserted.get(number, ())
        return merged(out if by_word else inserted.get(-1, []), self._fixed)

    def _words(self) -> list[Placed]:
        """The parts of each target word; of words that come from a fixed run only the first brings it."""
        found: list[Placed] = []
        seen: set[int] = set()
        last = self._usual
        for number, word in enumerate(self._target):
            parts: Placed = []
            for span, text in self._parts(number, word[0], last):
                last = self._usual if span.run.fixed else span
                if not span.run.fixed:
                    parts.append((span.number, text))
                elif span.number not in seen:
                    seen.add(span.number)
                    parts.append((span.number, span.run.text))
            found.append(parts)
        return found

    def _parts(self, number: int, word: str, last: Span) -> list[tuple[Span, str]]:
        """A word, and the punctuation around it, which may look otherwise."""
        if number not in self._from:
            return [(last, word)]
        source = self._source[self._from[number]]
        if copied := self._copied(source, word):
            return copied
        before, core, after = (len(part) for part in _split(source[0]))
        inner = self._at(source.start() + before if core else source.start())
        ends = (self._at(source.start()) if before else inner, self._at(source.end() - 1) if after else inner)
        lead, middle, trail = _split(word)
        if inner.run.fixed:  # its own brackets are no punctuation
            opens, _, closes = _split(inner.run.text)
            lead, trail = lead.removesuffix(opens), trail.removeprefix(closes)
        parts = [(ends[0], lead), (inner, middle), (ends[1], trail)]
        return [(span, text) for span, text in parts if text]

    def _copied(self, source: "re.Match[str]", word: str) -> list[tuple[Span, str]]:
        """A word that has the fixed runs of a source word in it as they are; none: it has not, or there are none."""
        first, end = bisect_right(self._starts, source.start()) - 1, bisect_left(self._starts, source.end())
        parts: list[tuple[Span, str]] = []
        beside, here = self._plainest, 0
        for span in self._seen[first:end]:
            if not span.run.fixed:
                beside = span
                continue
            found = word.find(span.run.text, here)
            if found < 0:
                return []
            parts += [(beside, word[here:found]), (span, span.run.text)]
            beside, here = self._plainest, found + len(span.run.text)
        parts.append((beside, word[here:]))
        return [(span, text) for span, text in parts if text] if here else []

    def _at(self, place: int) -> Span:
        return self._seen[bisect_right(self._starts, place) - 1]

    def _gap(self, before: int, after: int) -> int:
        """Whose the space between two runs is: that of the one with fewer marks around it."""
        spans = [self._plainest if number in self._fixed else self._by_number[number] for number in (before, after)]
        return min(spans, key=lambda span: span.run.depth).number

    def _insertions(self, missing: Sequence[Span]) -> Mapping[int, Placed]:
        """After which target word each is to stand; those without text keep their order."""
        found: dict[int, Placed] = {}
        least = -1
        for span in missing:
            after = self._after(span)
            if not span.run.text:
                after = least = max(after, least)
            spaced = self._text[: span.start][-1:].isspace() and span.run.text
            parts: Placed = [(self._plainest.number, " ")] if spaced and after >= 0 else []
            parts.append((span.number, span.run.text))
            if after < 0 and span.run.text and self._text[span.end : span.end + 1].isspace():
                parts.append((self._plainest.number, " "))
            found.setdefault(after, []).extend(parts)
        return found

    def _after(self, span: Span) -> int:
        """The target word of the nearest source word before a run; -1: none."""
        before = bisect_left(self._left, (span.start,))
        return self._left[before - 1][1] if before else -1


def _split(word: str) -> tuple[str, str, str]:
    """What stands before a word, the word, and what stands after it."""
    letters = [found.start() for found in _LETTER.finditer(word)]
    if not letters:
        return "", word, ""
    first, last = letters[0], letters[-1] + 1
    return word[:first], word[first:last], word[last:]


def merged(parts: Placed, fixed: set[int]) -> Placed:
    """Neighbours of one run as one."""
    out: list[tuple[int, list[str]]] = []
    for number, text in parts:
        if out and out[-1][0] == number and number not in fixed:
            out[-1][1].append(text)
        elif text or number in fixed:
            out.append((number, [text]))
    return [(number, "".join(texts)) for number, texts in out]
