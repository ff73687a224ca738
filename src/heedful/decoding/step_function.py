"""The step function: all that a search needs of a model, or of an ensemble of models."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

Same = TypeVar("Same")
NEVER = float("-inf")  # the log-probability of the impossible


@runtime_checkable
class SearchState(Protocol):
    """The memory of a step function, one row for each hypothesis."""

    def select(self: Same, rows: Int[Tensor, " chosen"]) -> Same:
        """Keep these rows, in this order; a row may be repeated or left out."""
        ...


S = TypeVar("S", bound=SearchState)


@runtime_checkable
class StepFunction(Protocol[S]):
    """Takes the last token of each row; returns the logits of the next token, and the new state."""

    def __call__(self, tokens: Int[Tensor, " rows"], state: S, /) -> tuple[Float[Tensor, "rows vocabulary"], S]: ...


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The ids that a search treats specially."""

    start: int  # given to the first step
    eos: int  # ends an output
    banned: tuple[int, ...] = ()  # never produced, such as padding; they keep their share of the probability


def select_rows(state: S, rows: Int[Tensor, " chosen"], present: int) -> S:
    """`state.select(rows)`, without a copy if these are all `present` rows in their order."""
    if torch.equal(rows, torch.arange(present, device=rows.device)):
        return state
    return state.select(rows)


@dataclass(frozen=True, slots=True)
class EnsembleState:
    """The states of several models over the same hypotheses."""

    states: tuple[Any, ...]

    def select(self, rows: Int[Tensor, " chosen"]) -> "EnsembleState":
        """Keep these rows of each state."""
        return EnsembleState(tuple(state.select(rows) for state in self.states))


def make_ensemble_step(steps: Sequence[StepFunction[Any]]) -> StepFunction[EnsembleState]:
    """A step function that averages the probabilities of several models.

    It returns log-probabilities, which are logits too.
    """

    def step(
        tokens: Int[Tensor, " rows"], state: EnsembleState
    ) -> tuple[Float[Tensor, "rows vocabulary"], EnsembleState]:
        pairs = [one(tokens, own) for one, own in zip(steps, state.states, strict=True)]
        each = torch.stack([logits.float().log_softmax(dim=1) for logits, _ in pairs])
        return each.logsumexp(dim=0) - math.log(len(steps)), EnsembleState(tuple(after for _, after in pairs))

    return step
