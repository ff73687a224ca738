"""What a translator gives back."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heedful.metrics.alignment import Link
from heedful.translation.confidence import WordConfidence, is_low_confidence

if TYPE_CHECKING:
    from heedful.attention.forced_decoding import ForcedDecoding


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to say it."""

    text: str
    score: float  # what it is ranked by: log-probability over length penalty; of mbr the mean chrF with all others
    log_prob: float
    pieces: tuple[str, ...]
    finished: bool = True  # False: cut off at the maximum length
    alignment: tuple[Link, ...] | None = None  # which source word each word comes from; None: not asked for
    repeats: bool = False  # True: it says the same many times in a row, and the source does not
    confidence: tuple[WordConfidence, ...] | None = None  # how sure the model is of each word; None: not asked for

    @property
    def unsure(self) -> bool:
        """Whether the model had so many other ideas that this had better be checked."""
        return is_low_confidence(self.log_prob, len(self.pieces))


@dataclass(frozen=True, slots=True)
class Translation:
    """What became of one source text; `alternatives` has all that were asked for, the best first, or as drawn."""

    source: str
    text: str
    score: float
    source_pieces: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    redone: bool = False  # True: the first search found one that loops or does not end, and this is the second's

    @property
    def unsure(self) -> bool:
        """Whether the best alternative had better be checked."""
        return bool(self.alternatives) and self.alternatives[0].unsure

    @property
    def pieces(self) -> tuple[str, ...]:
        """The pieces of the best alternative."""
        return self.alternatives[0].pieces if self.alternatives else ()

    @property
    def alignment(self) -> tuple[Link, ...] | None:
        """That of the best alternative; of an empty text there is nothing to align."""
        return self.alternatives[0].alignment if self.alternatives else ()


@dataclass(frozen=True, slots=True)
class Look:
    """A translation and what went on inside the model, for each of its alternatives."""

    translation: Translation
    inside: "tuple[ForcedDecoding, ...]"
