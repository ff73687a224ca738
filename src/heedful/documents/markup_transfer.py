"""Transfer inline markup to a translation: each target word gets the formatting of its source word."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heedful.documents.document import InlineRun, PlacedRuns

_WORD = re.compile(r"\S++")
_LETTER = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class RunSpan:
    """A run and its position in a sentence; `number` is its index in the passage."""

    number: int
    run: InlineRun
    start: int
    end: int


def transfer_markup(
    text: str, spans: Sequence[RunSpan], translation: str, alignment: Sequence[tuple[int, int]]
) -> PlacedRuns:
    """Split a translation into runs by its word alignment; if that is empty, words are assumed to keep their order."""
    return _MarkupTransfer(text, spans, translation, alignment).place()


class _MarkupTransfer:
    def __init__(
        self, text: str, spans: Sequence[RunSpan], translation: str, alignment: Sequence[tuple[int, int]]
    ) -> None:
        self._text = text
        self._spans = spans
        self._translation = translation
        self._source = list(_WORD.finditer(text))
        self._target = list(_WORD.finditer(translation))
        alignment = alignment or self._guess_alignment()
        counts = len(self._source), len(self._target)
        self._from = {target: source for source, target in alignment if source < counts[0] and target < counts[1]}
        # Start of each aligned source word, and its target word; of several with the same start the last counts.
        self._linked = sorted((self._source[source].start(), target) for target, source in self._from.items())
        self._seen = [span for span in spans if span.start < span.end]
        self._starts = [span.start for span in self._seen]
        words = [span for span in spans if not span.run.fixed]
        self._fixed = {span.number for span in spans if span.run.fixed}
        self._by_number = {span.number: span for span in spans}
        self._usual = max(words, key=lambda span: span.end - span.start)
        self._plainest = min(words, key=lambda span: span.run.depth)

    def _guess_alignment(self) -> list[tuple[int, int]]:
        """An alignment in the order of the source words."""
        source, target = len(self._source), len(self._target)
        return [((2 * index + 1) * source // (2 * target), index) for index in range(target)]

    def place(self) -> PlacedRuns:
        """Place word by word; a fixed run that no target word is aligned to goes after its left neighbour."""
        by_word = self._place_words()
        seen = {number for parts in by_word for number, _ in parts}
        missing = [span for span in self._spans if span.run.fixed and span.number not in seen]
        inserted = self._find_insertions(missing)
        out: PlacedRuns = []
        for number, parts in enumerate(by_word):
            if not number:
                out += inserted.get(-1, ())
            if parts and out and number:
                gap = self._translation[self._target[number - 1].end() : self._target[number].start()]
                out.append((self._choose_gap_run(out[-1][0], parts[0][0]), gap))
            out += parts
            out += inserted.get(number, ())
        return merge_runs(out if by_word else inserted.get(-1, []), self._fixed)

    def _place_words(self) -> list[PlacedRuns]:
        """The runs of each target word; of several words aligned to a fixed run, only the first contains it."""
        found: list[PlacedRuns] = []
        seen: set[int] = set()
        last = self._usual
        for number, word in enumerate(self._target):
            parts: PlacedRuns = []
            for span, text in self._split_word(number, word[0], last):
                last = self._usual if span.run.fixed else span
                if not span.run.fixed:
                    parts.append((span.number, text))
                elif span.number not in seen:
                    seen.add(span.number)
                    parts.append((span.number, span.run.text))
            found.append(parts)
        return found

    def _split_word(self, number: int, word: str, last: RunSpan) -> list[tuple[RunSpan, str]]:
        """The spans of a target word and of the punctuation around it, which may be formatted differently."""
        if number not in self._from:
            return [(last, word)]
        source = self._source[self._from[number]]
        if copied := self._find_copies(source, word):
            return copied
        before, core, after = (len(part) for part in _split_punctuation(source[0]))
        inner = self._find_span(source.start() + before if core else source.start())
        first = self._find_span(source.start()) if before else inner
        last = self._find_span(source.end() - 1) if after else inner
        lead, middle, trail = _split_punctuation(word)
        if inner.run.fixed:  # its own brackets do not count as punctuation
            opens, _, closes = _split_punctuation(inner.run.text)
            lead, trail = lead.removesuffix(opens), trail.removeprefix(closes)
        parts = [(first, lead), (inner, middle), (last, trail)]
        return [(span, text) for span, text in parts if text]

    def _find_copies(self, source: "re.Match[str]", word: str) -> list[tuple[RunSpan, str]]:
        """The spans of a word that repeats the fixed runs of its source word verbatim; empty if it does not."""
        first, end = bisect_right(self._starts, source.start()) - 1, bisect_left(self._starts, source.end())
        parts: list[tuple[RunSpan, str]] = []
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

    def _find_span(self, position: int) -> RunSpan:
        return self._seen[bisect_right(self._starts, position) - 1]

    def _choose_gap_run(self, before: int, after: int) -> int:
        """The run that gets the space between two runs: the one inside fewer tags."""
        spans = [self._plainest if number in self._fixed else self._by_number[number] for number in (before, after)]
        return min(spans, key=lambda span: span.run.depth).number

    def _find_insertions(self, missing: Sequence[RunSpan]) -> Mapping[int, PlacedRuns]:
        """The fixed runs to insert after each target word; runs without text keep their order."""
        found: dict[int, PlacedRuns] = {}
        least = -1
        for span in missing:
            after = self._find_left_neighbour(span)
            if not span.run.text:
                after = least = max(after, least)
            spaced = self._text[: span.start][-1:].isspace() and span.run.text
            parts: PlacedRuns = [(self._plainest.number, " ")] if spaced and after >= 0 else []
            parts.append((span.number, span.run.text))
            if after < 0 and span.run.text and self._text[span.end : span.end + 1].isspace():
                parts.append((self._plainest.number, " "))
            found.setdefault(after, []).extend(parts)
        return found

    def _find_left_neighbour(self, span: RunSpan) -> int:
        """The target word aligned to the nearest source word before a run, or -1."""
        before = bisect_left(self._linked, (span.start,))
        return self._linked[before - 1][1] if before else -1


def _split_punctuation(word: str) -> tuple[str, str, str]:
    """Leading punctuation, the word itself, and trailing punctuation."""
    letters = [found.start() for found in _LETTER.finditer(word)]
    if not letters:
        return "", word, ""
    first, last = letters[0], letters[-1] + 1
    return word[:first], word[first:last], word[last:]


def merge_runs(parts: PlacedRuns, fixed: set[int]) -> PlacedRuns:
    """Merge neighbouring parts of the same run; `fixed` runs are never merged."""
    out: list[tuple[int, list[str]]] = []
    for number, text in parts:
        if out and out[-1][0] == number and number not in fixed:
            out[-1][1].append(text)
        elif text or number in fixed:
            out.append((number, [text]))
    return [(number, "".join(texts)) for number, texts in out]
