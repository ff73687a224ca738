"""A search among trees alone: an output has exactly the words of its sentence, and brackets that match.

It stands between a model and any search, as a step function of its own. At each step a model chooses what to do: to
open a phrase, to close the innermost, or to write the next word. That word is known, so to write it has the
probability of all words of the sentence together, and its pieces follow of themselves. What is illegal gives its
probability to the rest. Other words do not count: label smoothing has taught a model to give each of the vocabulary's
thousands a little at every step, and with their sum too few brackets are written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.decoding.constraints import Leaves
from heedful.decoding.stepping import NEVER, S, Step, Symbols


@dataclass(frozen=True, slots=True)
class Place:
    """How far a tree has grown."""

    leaves: Leaves
    written: int = 0  # pieces of words
    closing: tuple[int, ...] = ()  # what closes the phrases that are open, the innermost last
    empty: bool = False  # whether nothing is in the innermost yet

    @property
    def next_piece(self) -> int | None:
        """Of the words; None: all are written."""
        return self.leaves.pieces[self.written] if self.written < len(self.leaves.pieces) else None

    @property
    def within_word(self) -> bool:
        """Whether a word is begun and not over."""
        return self.next_piece is not None and self.written not in self.leaves.begins

    @property
    def closes(self) -> int | None:
        """What may close a phrase now."""
        return self.closing[-1] if self.closing and not self.empty and not self.within_word else None

    def after(self, token: int) -> "Place":
        """The same with a legal token more."""
        if not self.within_word:
            if closing := self.leaves.brackets.get(token):
                return replace(self, closing=(*self.closing, closing), empty=True)
            if token == self.closes:
                return replace(self, closing=self.closing[:-1], empty=False)
        return self if self.next_piece is None else replace(self, written=self.written + 1, empty=False)


@dataclass(frozen=True, slots=True)
class Growing(Generic[S]):
    """A model's state, and how far the tree of each row is; None where anything may be written."""

    state: S
    places: tuple[Place | None, ...]

    def select(self, rows: Int[Tensor, " chosen"]) -> "Growing[S]":
        """Keep these rows of both."""
        return Growing(self.state.select(rows), tuple(self.places[row] for row in rows.tolist()))


def only_trees(
    step: Step[S], state: S, symbols: Symbols, trees: Sequence[Leaves | None]
) -> tuple[Step[Growing[S]], Growing[S]]:
    """A step function that allows nothing else, and its first state; `trees` has one a row."""

    def grow(tokens: Int[Tensor, " rows"], growing: Growing[S]) -> tuple[Float[Tensor, "rows vocabulary"], Growing[S]]:
        logits, state = step(tokens, growing.state)
        places = tuple(
            place.after(token) if place and token != symbols.start else place
            for place, token in zip(growing.places, tokens.tolist(), strict=True)
        )
        return _legal(logits.float(), places, symbols.eos), Growing(state, places)

    return grow, Growing(state, tuple(Place(leaves) if leaves else None for leaves in trees))


def _legal(
    logits: Float[Tensor, "rows vocabulary"], places: Sequence[Place | None], eos: int
) -> Float[Tensor, "rows vocabulary"]:
    """The logits of what may come next, and the sum of the sentence's words for the one that must be next."""
    brackets = next((place.leaves.brackets for place in places if place), {})
    opening = torch.tensor(list(brackets), dtype=torch.long, device=logits.device)
    legal = torch.full_like(logits, NEVER)
    for row, place in enumerate(places):
        if place is None:
            legal[row] = logits[row]
            continue
        if place.next_piece is not None:
            legal[row, place.next_piece] = logits[row, list(set(place.leaves.pieces))].logsumexp(dim=0)
            if not place.within_word:
                legal[row, opening] = logits[row, opening]
        elif not place.closing:
            legal[row, eos] = logits[row, eos]
        if place.closes is not None:
            legal[row, place.closes] = logits[row, place.closes]
    return legal
