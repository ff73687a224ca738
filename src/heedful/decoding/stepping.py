"""What a search needs of a model: a step function and a state whose rows can be chosen. Nothing else is asked of it."""

from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

Same = TypeVar("Same")
NEVER = float("-inf")  # the log-probability of what cannot be


@runtime_checkable
class State(Protocol):
    """What a decoder remembers of its hypotheses, one row each."""

    def select(self: Same, rows: Int[Tensor, " chosen"]) -> Same:
        """Keep these rows, in this order; a row may come more than once or not at all."""
        ...


S = TypeVar("S", bound=State)


@runtime_checkable
class Step(Protocol[S]):
    """Takes the last token of each row; gives the logits of the next, and the state after it."""

    def __call__(self, tokens: Int[Tensor, " rows"], state: S, /) -> tuple[Float[Tensor, "rows vocabulary"], S]: ...


@dataclass(frozen=True, slots=True)
class Symbols:
    """The ids that a search treats apart."""

    start: int  # what the first step is given
    eos: int  # what ends an output
    banned: tuple[int, ...] = ()  # never produced, such as padding; they keep their share of the probability


def select_rows(state: S, rows: Int[Tensor, " chosen"], present: int) -> S:
    """`state.select(rows)`, without the copy where the rows are already the `present` ones in their order."""
    if torch.equal(rows, torch.arange(present, device=rows.device)):
        return state
    return state.select(rows)
