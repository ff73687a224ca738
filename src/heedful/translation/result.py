"""The result of a translation."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heedful.metrics.alignment import Link
from heedful.translation.confidence import WordConfidence, is_low_confidence

if TYPE_CHECKING:
    from heedful.attention.forced_decoding import ForcedDecoding


@dataclass(frozen=True, slots=True)
class Alternative:
    """One translation of a text."""

    text: str
    score: float  # ranks alternatives: log-probability over length penalty; with mbr, the mean chrF to all samples
    log_prob: float
    pieces: tuple[str, ...]
    finished: bool = True  # False: cut off at the maximum length
    alignment: tuple[Link, ...] | None = None  # the source word that each word comes from; None: not requested
    repeats: bool = False  # True: it says the same thing many times in a row, and the source does not
    confidence: tuple[WordConfidence, ...] | None = None  # the model's confidence in each word; None: not requested

    @property
    def unsure(self) -> bool:
        """Whether the model's confidence is so low that you should check this."""
        return is_low_confidence(self.log_prob, len(self.pieces))


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of one text, with all alternatives that were requested, best first, or in the order drawn."""

    source: str
    text: str
    score: float
    source_pieces: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    redone: bool = False  # True: the first output looped or did not end, and this is the result of a retry

    @property
    def unsure(self) -> bool:
        """Whether you should check the best alternative."""
        return bool(self.alternatives) and self.alternatives[0].unsure

    @property
    def pieces(self) -> tuple[str, ...]:
        """The pieces of the best alternative."""
        return self.alternatives[0].pieces if self.alternatives else ()

    @property
    def alignment(self) -> tuple[Link, ...] | None:
        """The alignment of the best alternative; an empty text has no links."""
        return self.alternatives[0].alignment if self.alternatives else ()


@dataclass(frozen=True, slots=True)
class Inspection:
    """A translation, and what happened inside the model for each of its alternatives."""

    translation: Translation
    inside: "tuple[ForcedDecoding, ...]"
