"""How far an output has come with its required phrases."""

from collections.abc import Sequence
from dataclasses import dataclass

from heedful.decoding.token_constraints import Phrase, WordBoundaries

START = 0  # the state of an empty output


@dataclass(frozen=True, slots=True)
class _Spelling:
    """One way to write a phrase."""

    phrase: int
    tokens: tuple[int, ...]
    close: bool  # only where no space has to come before it


@dataclass(frozen=True, slots=True)
class _State:
    """All that matters of the tokens so far."""

    met: frozenset[int]  # phrases
    ended: frozenset[int]  # phrases that are met, unless the next token makes a longer word of them
    begun: frozenset[tuple[int, int]]  # spellings, and how many of their tokens the output ends with
    open: bool  # whether a word may begin without a space


class PhraseAutomaton:
    """A state machine over tokens; its states are numbers, made when first reached. Short phrases have few of them."""

    def __init__(self, phrases: Sequence[Phrase], boundaries: WordBoundaries) -> None:
        self._boundaries = boundaries
        self._sizes = [len(phrase.tokens) for phrase in phrases]
        spellings = [(number, phrase.tokens, False) for number, phrase in enumerate(phrases)]
        spellings += [(number, phrase.close, True) for number, phrase in enumerate(phrases) if phrase.close]
        self._spellings = [_Spelling(*spelling) for spelling in spellings]
        self._alphabet = frozenset(token for spelling in self._spellings for token in spelling.tokens)
        self._states: list[_State] = []
        self._numbers: dict[_State, int] = {}
        self._transitions: dict[tuple[int, int], int] = {}
        self._remaining: list[int] = []
        self._continuations: list[tuple[int, ...]] = []
        nothing: frozenset[int] = frozenset()
        self._number(_State(nothing, nothing, frozenset(), open=True))

    def advance(self, state: int, token: int) -> int:
        """The state after one more token."""
        if token not in self._alphabet:  # a token of no phrase matters only by its kind
            glues, opens = token in self._boundaries.glues, token in self._boundaries.opens
            found = self._transitions.get((state, -1 - glues - 2 * opens))
            if found is None:
                found = self._transitions[state, -1 - glues - 2 * opens] = self._number(self._after(state, token))
            return found
        found = self._transitions.get((state, token))
        if found is None:
            found = self._transitions[state, token] = self._number(self._after(state, token))
        return found

    def remaining(self, state: int) -> int:
        """The number of tokens that meet all phrases; some token of `continuations` always lowers it.

        Overlapping phrases might need fewer: the count assumes that no phrase begins as another ends.
        """
        return self._remaining[state]

    def continuations(self, state: int) -> tuple[int, ...]:
        """The tokens that continue a phrase, or begin one that is not met."""
        return self._continuations[state]

    def _number(self, state: _State) -> int:
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
            self._remaining.append(self._count_remaining(state))
            next_ones = (self._spellings[spelling].tokens[written] for spelling, written in self._in_progress(state))
            self._continuations.append(tuple(sorted(set(next_ones))))
        return number

    def _in_progress(self, state: _State) -> set[tuple[int, int]]:
        """The spellings that the next token may continue or begin."""
        fresh = {
            (number, 0)
            for number, spelling in enumerate(self._spellings)
            if spelling.phrase not in state.met | state.ended and (state.open or not spelling.close)
        }
        return fresh | state.begun

    def _after(self, number: int, token: int) -> _State:
        state, spellings = self._states[number], self._spellings
        met = state.met if token in self._boundaries.glues else state.met | state.ended
        advanced = {
            (n, written + 1) for n, written in self._in_progress(state) if spellings[n].tokens[written] == token
        }
        ended = {spellings[n].phrase for n, written in advanced if written == len(spellings[n].tokens)} - met
        begun = {
            (n, written)
            for n, written in advanced
            if written < len(spellings[n].tokens) and spellings[n].phrase not in met | ended
        }
        return _State(met, frozenset(ended), frozenset(begun), token in self._boundaries.opens)

    def _count_remaining(self, state: _State) -> int:
        """See `remaining`: either phrases that ended stay so, or a phrase in progress goes on and makes them longer."""
        kept = self._count_missing(state, state.met | state.ended, glued=False)
        return min(kept, self._count_missing(state, state.met, glued=True)) if state.ended else kept

    def _count_missing(self, state: _State, met: frozenset[int], *, glued: bool) -> int:
        """The tokens of all other phrases, less those already written of the one that is furthest."""
        sizes, glues = self._sizes, self._boundaries.glues
        free = glued or not state.ended
        written_of = [
            sizes[spelling.phrase] - (len(spelling.tokens) - written)
            for spelling, written in ((self._spellings[number], written) for number, written in state.begun)
            if free or spelling.tokens[written] not in glues
        ]
        whole = sum(size for phrase, size in enumerate(sizes) if phrase not in met)
        return whole - max(written_of, default=0) if written_of and max(written_of) > 0 else whole
