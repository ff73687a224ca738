"""A document as sentences, and back."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from heedful.documents.markup_transfer import Span, merged, place
from heedful.documents.passages import Draft, Passage, Placed, Run
from heedful.text.sentences import UNSPACED, Sentences


@dataclass(frozen=True, slots=True)
class Rendered:
    """The translation of a sentence, and pairs of a source word and a target word, counted from 0."""

    text: str
    links: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    spans: tuple[Span, ...]

    @property
    def kept(self) -> bool:
        """Whether there is nothing in it to translate."""
        return not any(c.isalpha() for span in self.spans if not span.run.fixed for c in self._of(span))

    @property
    def mixed(self) -> bool:
        return len(self.spans) > 1

    def _of(self, span: Span) -> str:
        return self.text[span.start : span.end]


class _Part:
    """A passage, its sentences, and where they stand."""

    def __init__(self, passage: Passage, language: str) -> None:
        self._runs = passage
        self._text = "".join(run.text for run in passage)
        self._ends = [0, *accumulate(len(run.text) for run in passage)]
        self._unspaced = language in UNSPACED
        # What is fixed has no end of a sentence in it.
        shown = "".join("X" * len(run.text) if run.fixed else run.text for run in passage)
        spans = Sentences(shown, language).spans
        self._edges = [(0, 0), *spans, (len(self._text), len(self._text))]
        self.sentences = [_Sentence(self._text[start:end], tuple(self._spans(start, end))) for start, end in spans]

    def placed(self, rendered: Sequence[Placed], language: str) -> Placed:
        """The passage with these in the places of its sentences."""
        out: Placed = []
        for number, ((_, last), (start, _)) in enumerate(pairwise(self._edges)):
            gap = self._gap(last, start)
            if 0 < number < len(rendered) and last == start and self._unspaced and language not in UNSPACED:
                gap.append((rendered[number][0][0], " "))
            out += gap
            out += rendered[number] if number < len(rendered) else []
        return merged(self._once(out), {number for number, run in enumerate(self._runs) if run.fixed})

    def _once(self, parts: Placed) -> Placed:
        """A fixed run in which a sentence that is too long was cut is in both of its parts."""
        first = {number: place for place, (number, _) in reversed([*enumerate(parts)])}
        return [
            (number, self._runs[number].text if self._runs[number].fixed else text)
            for place, (number, text) in enumerate(parts)
            if not self._runs[number].fixed or first[number] == place
        ]

    def _spans(self, start: int, end: int) -> Iterator[Span]:
        """The runs of a sentence; one without text counts if it stands inside."""
        for number, first, last in self._touching(start, end):
            if start < first < end if first == last else first < end and last > start:
                run = _cut(self._runs[number], start - first, end - first)
                yield Span(number, run, max(first - start, 0), min(last, end) - start)

    def _gap(self, start: int, end: int) -> Placed:
        """What stands between two sentences."""
        return [
            (number, self._text[max(first, start) : min(last, end)])
            for number, first, last in self._touching(start, end)
            if first == last or (first < end and last > start)
        ]

    def _touching(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """The runs that begin or end in a part of the text, and where that is."""
        for number in range(max(0, bisect_left(self._ends, start) - 1), len(self._runs)):
            first, last = self._ends[number], self._ends[number + 1]
            if first > end:
                return
            if last >= start:
                yield number, first, last


def _cut(run: Run, start: int, end: int) -> Run:
    """What of a run is inside of a sentence; one that is fixed is whole wherever it begins."""
    return run if run.fixed else replace(run, text=run.text[max(start, 0) : end])


class Work:
    """All sentences of a document. Those of one look are plain; for mixed ones links are wanted, too."""

    def __init__(self, draft: Draft, language: str) -> None:
        self._draft = draft
        self._parts = [_Part(passage, language) for passage in draft.passages]
        sentences = [sentence for part in self._parts for sentence in part.sentences if not sentence.kept]
        self.plain = [sentence.text for sentence in sentences if not sentence.mixed]
        self.mixed = [sentence.text for sentence in sentences if sentence.mixed]

    def written(self, plain: Sequence[Rendered], mixed: Sequence[Rendered], language: str) -> bytes:
        """The document in this language."""
        given = {False: iter(plain), True: iter(mixed)}
        placed = []
        for part in self._parts:
            found = [
                _kept(sentence) if sentence.kept else _placed(sentence, next(given[sentence.mixed]))
                for sentence in part.sentences
            ]
            placed.append(part.placed(found, language))
        return self._draft.written(placed, language)

    def notes(self, mixed: Sequence[Rendered]) -> list[str]:
        """What could not be kept."""
        lost = sum(1 for one in mixed if not one.links)
        unsure = [f"in {lost} sentences it is guessed where inline mark-up belongs"] if lost else []
        return [*self._draft.notes, *unsure]


def _kept(sentence: _Sentence) -> Placed:
    return [(span.number, sentence.text[span.start : span.end]) for span in sentence.spans]


def _placed(sentence: _Sentence, rendered: Rendered) -> Placed:
    if sentence.mixed:
        return place(sentence.text, sentence.spans, rendered.text, rendered.links)
    return [(sentence.spans[0].number, rendered.text)]
