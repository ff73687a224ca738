"""Several models as one: at each step the mean of their probabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.decoding.stepping import Step


@dataclass(frozen=True, slots=True)
class Together:
    """The states of several models over the same hypotheses."""

    states: tuple[Any, ...]

    def select(self, rows: Int[Tensor, " chosen"]) -> "Together":
        """Keep these rows of each."""
        return Together(tuple(state.select(rows) for state in self.states))


def together(steps: Sequence[Step[Any]]) -> Step[Together]:
    """A step of all models at once, for any search. What it gives are log-probabilities, which are logits too."""

    def step(tokens: Int[Tensor, " rows"], state: Together) -> tuple[Float[Tensor, "rows vocabulary"], Together]:
        pairs = [one(tokens, own) for one, own in zip(steps, state.states, strict=True)]
        each = torch.stack([logits.float().log_softmax(dim=1) for logits, _ in pairs])
        return each.logsumexp(dim=0) - math.log(len(steps)), Together(tuple(after for _, after in pairs))

    return step
