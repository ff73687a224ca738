"""Split a document into sentences, and put their translations back."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from heedful.documents.document import Document, InlineRun, Passage, PlacedRuns
from heedful.documents.markup_transfer import RunSpan, merge_runs, transfer_markup
from heedful.text.sentences import Sentences, needs_space


@dataclass(frozen=True, slots=True)
class TranslatedSentence:
    """The translation of a sentence, and its word alignment: pairs of a source and a target word, from 0."""

    text: str
    alignment: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    spans: tuple[RunSpan, ...]

    @property
    def untranslatable(self) -> bool:
        """Whether it has no letters outside fixed runs."""
        translatable = (self.text[span.start : span.end] for span in self.spans if not span.run.fixed)
        return not any(character.isalpha() for text in translatable for character in text)

    @property
    def has_markup(self) -> bool:
        return len(self.spans) > 1

    def place_translation(self, translation: TranslatedSentence) -> PlacedRuns:
        if self.has_markup:
            return transfer_markup(self.text, self.spans, translation.text, translation.alignment)
        return [(self.spans[0].number, translation.text)]

    def place_unchanged(self) -> PlacedRuns:
        return [(span.number, self.text[span.start : span.end]) for span in self.spans]


class _SegmentedPassage:
    """A passage and the spans of its sentences."""

    def __init__(self, passage: Passage, language: str) -> None:
        self._runs = passage
        self._text = "".join(run.text for run in passage)
        self._ends = [0, *accumulate(len(run.text) for run in passage)]
        self._language = language
        # No sentence ends inside a fixed run.
        masked = "".join("X" * len(run.text) if run.fixed else run.text for run in passage)
        spans = Sentences(masked, language).spans
        self._edges = [(0, 0), *spans, (len(self._text), len(self._text))]
        self.sentences = [_Sentence(self._text[start:end], tuple(self._find_spans(start, end))) for start, end in spans]

    def join(self, translations: Sequence[PlacedRuns], language: str) -> PlacedRuns:
        """The passage with its sentences replaced by these translations."""
        out: PlacedRuns = []
        for number, ((_, last), (start, _)) in enumerate(pairwise(self._edges)):
            gap = self._find_gap(last, start)
            if 0 < number < len(translations) and last == start and needs_space(self._language, language):
                gap.append((translations[number][0][0], " "))
            out += gap
            out += translations[number] if number < len(translations) else []
        return merge_runs(self._deduplicate_fixed(out), {number for number, run in enumerate(self._runs) if run.fixed})

    def _deduplicate_fixed(self, placed: PlacedRuns) -> PlacedRuns:
        """Keep each fixed run once: if an overlong sentence was cut inside one, both halves have it."""
        first = {number: index for index, (number, _) in reversed([*enumerate(placed)])}
        return [
            (number, self._runs[number].text if self._runs[number].fixed else text)
            for index, (number, text) in enumerate(placed)
            if not self._runs[number].fixed or first[number] == index
        ]

    def _find_spans(self, start: int, end: int) -> Iterator[RunSpan]:
        """The runs of a sentence; a run without text belongs to it only if it stands inside."""
        for number, first, last in self._find_touching(start, end):
            if start < first < end if first == last else first < end and last > start:
                run = _cut_run(self._runs[number], start - first, end - first)
                yield RunSpan(number, run, max(first - start, 0), min(last, end) - start)

    def _find_gap(self, start: int, end: int) -> PlacedRuns:
        """The text between two sentences, by runs."""
        return [
            (number, self._text[max(first, start) : min(last, end)])
            for number, first, last in self._find_touching(start, end)
            if first == last or (first < end and last > start)
        ]

    def _find_touching(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Number, start and end of each run that overlaps or touches this part of the text."""
        for number in range(max(0, bisect_left(self._ends, start) - 1), len(self._runs)):
            first, last = self._ends[number], self._ends[number + 1]
            if first > end:
                return
            if last >= start:
                yield number, first, last


def _cut_run(run: InlineRun, start: int, end: int) -> InlineRun:
    """The part of a run that is inside a sentence; a fixed run is never cut."""
    return run if run.fixed else replace(run, text=run.text[max(start, 0) : end])


class SegmentedDocument:
    """All sentences of a document.

    `plain` sentences have one formatting throughout. `mixed` sentences have inline markup inside, so their
    translations should come with a word alignment.
    """

    def __init__(self, document: Document, language: str) -> None:
        self._document = document
        self._passages = [_SegmentedPassage(passage, language) for passage in document.passages]
        sentences = [one for passage in self._passages for one in passage.sentences if not one.untranslatable]
        self.plain = [sentence.text for sentence in sentences if not sentence.has_markup]
        self.mixed = [sentence.text for sentence in sentences if sentence.has_markup]

    def write(self, plain: Sequence[TranslatedSentence], mixed: Sequence[TranslatedSentence], language: str) -> bytes:
        """The translated file."""
        plain_left, mixed_left = iter(plain), iter(mixed)
        placed = []
        for passage in self._passages:
            translations = [
                sentence.place_unchanged()
                if sentence.untranslatable
                else sentence.place_translation(next(mixed_left if sentence.has_markup else plain_left))
                for sentence in passage.sentences
            ]
            placed.append(passage.join(translations, language))
        return self._document.write(placed, language)

    def list_notes(self, mixed: Sequence[TranslatedSentence]) -> list[str]:
        """What the translated file does not keep exactly."""
        guessed = sum(1 for sentence in mixed if not sentence.alignment)
        sentences = "1 sentence" if guessed == 1 else f"{guessed} sentences"
        about_markup = [f"the position of inline markup is a guess in {sentences}"] if guessed else []
        return [*self._document.notes, *about_markup]
