"""Constraints on the tokens of an output. Nothing here needs PyTorch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.decoding.step_function import SpecialTokens


@dataclass(frozen=True, slots=True)
class Phrase:
    """Ids that an output must contain, one right after the other.

    `tokens` may follow any token. `close` is the phrase as it is written without a space before it, which is possible
    only at the beginning of an output and after `WordBoundaries.opens`; `capital` is possible only at the beginning.
    Both are empty if there is no such form. The same phrase twice has to be there twice.
    """

    tokens: tuple[int, ...]
    close: tuple[int, ...] = ()
    capital: tuple[int, ...] = ()
    inflects: bool = False  # whether one of `WordBoundaries.endings` may follow


@dataclass(frozen=True, slots=True)
class WordBoundaries:
    """Where words begin and end: a phrase with a letter attached to it is a different word."""

    opens: frozenset[int] = frozenset()  # tokens after which a word may begin without a space
    glues: frozenset[int] = frozenset()  # tokens that, right after a phrase, would extend its last word
    endings: frozenset[int] = frozenset()  # those of `glues` that are an ending rather than another word


@dataclass(frozen=True, slots=True)
class TreeLeaves:
    """The words that a parse tree must have as its leaves."""

    pieces: tuple[int, ...]  # the pieces of all words, end to end
    begins: frozenset[int]  # the positions in `pieces` at which a word begins
    brackets: Mapping[int, int]  # each id that opens a phrase, and the one that closes it; no word begins with them


@dataclass(frozen=True, slots=True)
class TokenConstraints:
    """The constraints on the output of one sentence."""

    prefix: tuple[int, ...] = ()  # at its beginning
    phrases: tuple[Phrase, ...] = ()  # anywhere in it
    leaves: TreeLeaves | None = None  # the output must be a tree over these


NO_BOUNDARIES = WordBoundaries()
UNCONSTRAINED = TokenConstraints()


def check_constraints(
    constraints: Sequence[TokenConstraints], special: "SpecialTokens", boundaries: WordBoundaries
) -> None:
    """Refuse constraints that no output can meet."""
    impossible = {special.eos, *special.banned}
    for each in constraints:
        for phrase in each.phrases:
            if not phrase.tokens:
                raise DataError("a required phrase is empty; give at least one token")
            if phrase.tokens[0] in boundaries.glues:
                raise ConfigError(f"the required phrase {list(phrase.tokens)} begins within a word; begin it at a word")
        spelt = ((*phrase.tokens, *phrase.close, *phrase.capital) for phrase in each.phrases)
        for tokens in (each.prefix, *spelt):
            if found := impossible.intersection(tokens):
                raise DataError(f"token {min(found)} is required, but no output can contain it; leave it out")


def no_room_error(required: int, room: int) -> DataError:
    """The error for constraints that are longer than the output may become."""
    return DataError(
        f"the required words take {required} pieces, but the translation of this text has room for {room}; "
        "require fewer words, or raise search.max_extra"
    )
