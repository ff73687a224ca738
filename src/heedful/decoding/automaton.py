"""How far an output is with the phrases that it must have."""

from collections.abc import Sequence
from dataclasses import dataclass

from heedful.decoding.constraints import Borders, Phrase

START = 0  # the place of an output with nothing said


@dataclass(frozen=True, slots=True)
class _Way:
    """A phrase as it may be written."""

    phrase: int
    tokens: tuple[int, ...]
    close: bool  # only where no space has to come before it


@dataclass(frozen=True, slots=True)
class _Place:
    """What matters of all that was said."""

    met: frozenset[int]  # phrases
    ended: frozenset[int]  # phrases that are met, unless the next token makes a longer word of them
    begun: frozenset[tuple[int, int]]  # ways, and how many of their tokens were just said
    open: bool  # whether a word may begin without a space


class Automaton:
    """Places are numbers, made when they are first reached; there are few of them, because phrases are short."""

    def __init__(self, phrases: Sequence[Phrase], borders: Borders) -> None:
        self._borders = borders
        self._sizes = [len(phrase.tokens) for phrase in phrases]
        ways = [(number, phrase.tokens, False) for number, phrase in enumerate(phrases)]
        ways += [(number, phrase.close, True) for number, phrase in enumerate(phrases) if phrase.close]
        self._ways = [_Way(*way) for way in ways]
        self._alphabet = frozenset(token for way in self._ways for token in way.tokens)
        self._places: list[_Place] = []
        self._numbers: dict[_Place, int] = {}
        self._moves: dict[tuple[int, int], int] = {}
        self._lefts: list[int] = []
        self._wanted: list[tuple[int, ...]] = []
        nothing: frozenset[int] = frozenset()
        self._number(_Place(nothing, nothing, frozenset(), open=True))

    def move(self, place: int, token: int) -> int:
        """The place after one more token."""
        if token not in self._alphabet:  # what stands in no phrase matters only by its kind
            glues, opens = token in self._borders.glues, token in self._borders.opens
            found = self._moves.get((place, -1 - glues - 2 * opens))
            if found is None:
                found = self._moves[place, -1 - glues - 2 * opens] = self._number(self._after(place, token))
            return found
        found = self._moves.get((place, token))
        if found is None:
            found = self._moves[place, token] = self._number(self._after(place, token))
        return found

    def left(self, place: int) -> int:
        """In how many tokens all phrases can be met; some token of `wanted` always leads to a place with less.

        Where phrases overlap, fewer might be enough: that one ends as another begins is not counted on.
        """
        return self._lefts[place]

    def wanted(self, place: int) -> tuple[int, ...]:
        """The tokens that go on with a phrase, or begin one that isn't met."""
        return self._wanted[place]

    def _number(self, place: _Place) -> int:
        number = self._numbers.get(place)
        if number is None:
            number = self._numbers[place] = len(self._places)
            self._places.append(place)
            self._lefts.append(self._count(place))
            next_ones = (self._ways[way].tokens[said] for way, said in self._under_way(place))
            self._wanted.append(tuple(sorted(set(next_ones))))
        return number

    def _under_way(self, place: _Place) -> set[tuple[int, int]]:
        """The ways that the next token may go on with or begin."""
        fresh = {
            (number, 0)
            for number, way in enumerate(self._ways)
            if way.phrase not in place.met | place.ended and (place.open or not way.close)
        }
        return fresh | place.begun

    def _after(self, number: int, token: int) -> _Place:
        place = self._places[number]
        met = place.met if token in self._borders.glues else place.met | place.ended
        advanced = {(way, said + 1) for way, said in self._under_way(place) if self._ways[way].tokens[said] == token}
        ended = {self._ways[way].phrase for way, said in advanced if said == len(self._ways[way].tokens)} - met
        begun = {
            (way, said)
            for way, said in advanced
            if said < len(self._ways[way].tokens) and self._ways[way].phrase not in met | ended
        }
        return _Place(met, frozenset(ended), frozenset(begun), token in self._borders.opens)

    def _count(self, place: _Place) -> int:
        """As `left`: either what has ended stays so, or a phrase under way goes on that would make it longer."""
        kept = self._missing(place, place.met | place.ended, glued=False)
        return min(kept, self._missing(place, place.met, glued=True)) if place.ended else kept

    def _missing(self, place: _Place, met: frozenset[int], *, glued: bool) -> int:
        """The tokens of all other phrases, but for what was said of the one that can go on best."""
        sizes, glues = self._sizes, self._borders.glues
        free = glued or not place.ended
        said_of = [
            sizes[way.phrase] - (len(way.tokens) - said)
            for way, said in ((self._ways[number], said) for number, said in place.begun)
            if free or way.tokens[said] not in glues
        ]
        whole = sum(size for phrase, size in enumerate(sizes) if phrase not in met)
        return whole - max(said_of, default=0) if said_of and max(said_of) > 0 else whole
