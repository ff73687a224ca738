"""Length penalties: what a log-probability is divided by, so that short outputs don't win for being short."""

from typing import TypeVar, assert_never

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.config.experiment import Penalty, SearchConfig

Length = TypeVar("Length", float, Tensor)


def length_penalty(length: Length, alpha: float, kind: Penalty) -> Length:
    """Section 6.1 takes ((5 + n) / 6)^alpha from Wu et al. (2016), equation 14; n counts EOS."""
    match kind:
        case "paper":
            return ((5 + length) / 6) ** alpha
        case "power":
            return length**alpha
        case _:
            assert_never(kind)


def penalty_table(longest: int, config: SearchConfig, device: torch.device) -> Float[Tensor, " lengths"]:
    """The penalty of every length from 0 to `longest`, at its own index."""
    lengths = torch.arange(longest + 1, dtype=torch.float32, device=device)
    return length_penalty(lengths, config.alpha, config.penalty)
