"""What an output must have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:  # an engine that asks for nothing of this does not wait for PyTorch
    from heedful.decoding.stepping import Symbols


@dataclass(frozen=True, slots=True)
class Phrase:
    """Ids that must stand in an output, one right after the other.

    `tokens` may come after anything. `close` is the same as it is written without a space before it: only at the
    beginning of an output, and after those of `Borders.opens`; empty: nowhere.
    """

    tokens: tuple[int, ...]
    close: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Borders:
    """Where words begin and end: a phrase with a letter stuck to it is another word."""

    opens: frozenset[int] = frozenset()  # after these a word may begin without a space
    glues: frozenset[int] = frozenset()  # right after a phrase, these would make a longer word of it


@dataclass(frozen=True, slots=True)
class Leaves:
    """The words that a tree must be over."""

    pieces: tuple[int, ...]  # of all of them, end to end
    begins: frozenset[int]  # where in these a word begins
    brackets: Mapping[int, int]  # each id that opens a phrase, and the one that closes it; none of them begins a word


@dataclass(frozen=True, slots=True)
class Demand:
    """What the output of one sentence must have."""

    prefix: tuple[int, ...] = ()  # what it begins with
    phrases: tuple[Phrase, ...] = ()  # what is somewhere in it
    leaves: Leaves | None = None  # it must be a tree over these


ANYWHERE = Borders()


def check_demands(demands: Sequence[Demand], symbols: "Symbols", borders: Borders) -> None:
    """Refuse what no output can have."""
    never = {symbols.eos, *symbols.banned}
    for demand in demands:
        for phrase in demand.phrases:
            if not phrase.tokens:
                raise DataError("a phrase that must appear is empty; give at least one token")
            if phrase.tokens[0] in borders.glues:
                raise ConfigError(f"the phrase {list(phrase.tokens)} begins within a word, so that it cannot be placed")
        for tokens in (demand.prefix, *((*phrase.tokens, *phrase.close) for phrase in demand.phrases)):
            if found := never.intersection(tokens):
                raise DataError(f"an output cannot have the token {min(found)} in its midst, but it is asked for")


def too_long(demanded: int, room: int) -> DataError:
    """An output has no room for what is demanded of it."""
    return DataError(
        f"the pieces that must appear are {demanded}, but an output of this text has room for {room} before its end; "
        "ask for fewer, or raise search.max_extra"
    )
