"""A document as a list of passages, whatever type of file it came from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from heedful.documents.safe_parsing import DocumentLimits


@dataclass(frozen=True, slots=True)
class InlineRun:
    """A stretch of a passage with the same formatting throughout, for example a bold word.

    A fixed run is not translated: it appears once in the output, unchanged. Its text is what the model sees in its
    place, and may be empty.
    """

    text: str
    fixed: bool = False
    depth: int = 0  # how many tags enclose it


Passage = tuple[InlineRun, ...]
PlacedRuns = list[tuple[int, str]]  # (index of a run, its text in the translation), in the order of the translation


@dataclass(slots=True)
class Document:
    """A parsed file. With the translation of every passage it can be written out again."""

    finish: Callable[[str], bytes]  # renders the file for a target language, once every passage is in place
    limits: DocumentLimits
    passages: list[Passage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what the translated file cannot keep
    _setters: list[Callable[[PlacedRuns], None]] = field(default_factory=list)
    _runs: int = 0
    _characters: int = 0

    def add(self, passage: Passage, setter: Callable[[PlacedRuns], None]) -> None:
        """Add a passage; `setter` is called with its translation."""
        self.passages.append(passage)
        self._setters.append(setter)
        self._runs += len(passage)
        self._characters += sum(len(run.text) for run in passage)
        self.limits.check(elements=self._runs, passages=len(self.passages), characters=self._characters)

    def write(self, translations: Sequence[PlacedRuns], language: str) -> bytes:
        """The file, with each passage replaced by its translation."""
        for setter, translation in zip(self._setters, translations, strict=True):
            setter(translation)
        return self.finish(language)
