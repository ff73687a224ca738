"""Several models as one: each step averages their probabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.decoding.step_function import StepFunction


@dataclass(frozen=True, slots=True)
class EnsembleState:
    """The states of several models over the same hypotheses."""

    states: tuple[Any, ...]

    def select(self, rows: Int[Tensor, " chosen"]) -> "EnsembleState":
        """Keep these rows of each state."""
        return EnsembleState(tuple(state.select(rows) for state in self.states))


def make_ensemble_step(steps: Sequence[StepFunction[Any]]) -> StepFunction[EnsembleState]:
    """A step function of all models together, for any search. It gives log-probabilities, which are logits too."""

    def step(
        tokens: Int[Tensor, " rows"], state: EnsembleState
    ) -> tuple[Float[Tensor, "rows vocabulary"], EnsembleState]:
        pairs = [one(tokens, own) for one, own in zip(steps, state.states, strict=True)]
        each = torch.stack([logits.float().log_softmax(dim=1) for logits, _ in pairs])
        return each.logsumexp(dim=0) - math.log(len(steps)), EnsembleState(tuple(after for _, after in pairs))

    return step
