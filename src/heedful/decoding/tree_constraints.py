"""Constrain a search to trees: outputs with exactly the words of their sentence, and with matching brackets.

This is a step function between a model and any search. At each step the model may open a phrase, close the innermost
one, or write the next word. The next word is known, so writing it gets the probability of all words of the sentence
together, and its remaining pieces follow automatically. The probability of illegal tokens goes to the legal ones. Words
that are not in the sentence do not count: label smoothing teaches a model to give a little probability to every piece
of the vocabulary at each step, and if all of these counted, the search would write too few brackets.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.decoding.step_function import NEVER, S, SpecialTokens, StepFunction
from heedful.decoding.token_constraints import TreeLeaves


@dataclass(frozen=True, slots=True)
class TreeProgress:
    """A tree as far as it is written."""

    leaves: TreeLeaves
    written: int = 0  # pieces of words
    closing: tuple[int, ...] = ()  # the tokens that close the open phrases, the innermost last
    empty: bool = False  # whether the innermost phrase is still empty

    @property
    def next_piece(self) -> int | None:
        """The next piece of the words; None if all are written."""
        return self.leaves.pieces[self.written] if self.written < len(self.leaves.pieces) else None

    @property
    def within_word(self) -> bool:
        """Whether a word has begun and is not over."""
        return self.next_piece is not None and self.written not in self.leaves.begins

    @property
    def closes(self) -> int | None:
        """The token that may close a phrase now."""
        return self.closing[-1] if self.closing and not self.empty and not self.within_word else None

    def after(self, token: int) -> "TreeProgress":
        """The tree after one more legal token."""
        if not self.within_word:
            if closing := self.leaves.brackets.get(token):
                return replace(self, closing=(*self.closing, closing), empty=True)
            if token == self.closes:
                return replace(self, closing=self.closing[:-1], empty=False)
        return self if self.next_piece is None else replace(self, written=self.written + 1, empty=False)


@dataclass(frozen=True, slots=True)
class TreeState(Generic[S]):
    """A model's state, and the tree of each row; None for rows that are not constrained."""

    state: S
    trees: tuple[TreeProgress | None, ...]

    def select(self, rows: Int[Tensor, " chosen"]) -> "TreeState[S]":
        """Keep these rows of the state and of the trees."""
        return TreeState(self.state.select(rows), tuple(self.trees[row] for row in rows.tolist()))


def constrain_to_trees(
    step: StepFunction[S], state: S, special: SpecialTokens, leaves: Sequence[TreeLeaves | None]
) -> tuple[StepFunction[TreeState[S]], TreeState[S]]:
    """A step function that allows only trees over `leaves`, one for each row, and its first state."""

    def tree_step(
        tokens: Int[Tensor, " rows"], before: TreeState[S]
    ) -> tuple[Float[Tensor, "rows vocabulary"], TreeState[S]]:
        logits, state = step(tokens, before.state)
        trees = tuple(
            tree.after(token) if tree and token != special.start else tree
            for tree, token in zip(before.trees, tokens.tolist(), strict=True)
        )
        return _allow_legal(logits.float(), trees, special.eos), TreeState(state, trees)

    return tree_step, TreeState(state, tuple(TreeProgress(own) if own else None for own in leaves))


def _allow_legal(
    logits: Float[Tensor, "rows vocabulary"], trees: Sequence[TreeProgress | None], eos: int
) -> Float[Tensor, "rows vocabulary"]:
    """The logits of legal tokens, and -inf elsewhere; the next word gets the sum over all words of the sentence."""
    brackets = next((tree.leaves.brackets for tree in trees if tree), {})
    opening = torch.tensor(list(brackets), dtype=torch.long, device=logits.device)
    legal = torch.full_like(logits, NEVER)
    for row, tree in enumerate(trees):
        if tree is None:
            legal[row] = logits[row]
            continue
        if tree.next_piece is not None:
            legal[row, tree.next_piece] = logits[row, list(set(tree.leaves.pieces))].logsumexp(dim=0)
            if not tree.within_word:
                legal[row, opening] = logits[row, opening]
        elif not tree.closing:
            legal[row, eos] = logits[row, eos]
        if tree.closes is not None:
            legal[row, tree.closes] = logits[row, tree.closes]
    return legal
