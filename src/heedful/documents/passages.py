"""What every kind of document becomes: passages, and what is done with their translations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from heedful.documents.safe_input import Bounds


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of a passage that looks the same all through, say one in bold.

    One that is fixed is not translated: it comes out once, and as it is. Its text is what a model is shown, so that it
    knows what stands there; that may be nothing.
    """

    text: str
    fixed: bool = False
    depth: int = 0  # of the marks around it


Passage = tuple[Run, ...]
Placed = list[tuple[int, str]]  # the numbers of runs, in the order of the translation, and what is in them


@dataclass(slots=True)
class Draft:
    """A document that was read. Whoever has the translations of all passages can write it."""

    finish: Callable[[str], bytes]  # given the target language, once all passages are told
    bounds: Bounds
    passages: list[Passage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what cannot be kept
    _told: list[Callable[[Placed], None]] = field(default_factory=list)
    _runs: int = 0
    _characters: int = 0

    def add(self, passage: Passage, told: Callable[[Placed], None]) -> None:
        """A passage, and what hears its translation."""
        self.passages.append(passage)
        self._told.append(told)
        self._runs += len(passage)
        self._characters += sum(len(run.text) for run in passage)
        self.bounds.check(elements=self._runs, passages=len(self.passages), characters=self._characters)

    def written(self, placed: Sequence[Placed], language: str) -> bytes:
        """The document with these in the places of its passages."""
        for told, one in zip(self._told, placed, strict=True):
            told(one)
        return self.finish(language)
