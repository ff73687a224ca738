"""All that a search needs of a model: a step function, and a state whose rows can be selected."""

from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

Same = TypeVar("Same")
NEVER = float("-inf")  # the log-probability of the impossible


@runtime_checkable
class SearchState(Protocol):
    """The memory of a step function, one row for each hypothesis."""

    def select(self: Same, rows: Int[Tensor, " chosen"]) -> Same:
        """Keep these rows, in this order; a row may come more than once or not at all."""
        ...


S = TypeVar("S", bound=SearchState)


@runtime_checkable
class StepFunction(Protocol[S]):
    """Takes the last token of each row; gives the logits of the next token, and the state after it."""

    def __call__(self, tokens: Int[Tensor, " rows"], state: S, /) -> tuple[Float[Tensor, "rows vocabulary"], S]: ...


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The ids that a search treats specially."""

    start: int  # given to the first step
    eos: int  # ends an output
    banned: tuple[int, ...] = ()  # never produced, such as padding; they keep their share of the probability


def select_rows(state: S, rows: Int[Tensor, " chosen"], present: int) -> S:
    """`state.select(rows)`, without the copy where the rows are already the `present` ones in their order."""
    if torch.equal(rows, torch.arange(present, device=rows.device)):
        return state
    return state.select(rows)
