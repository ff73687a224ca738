"""The length penalties of a whole search at once."""

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.config.experiment import SearchConfig
from heedful.decoding.length_penalty import length_penalty


def penalty_table(longest: int, config: SearchConfig, device: torch.device) -> Float[Tensor, " lengths"]:
    """The penalty of every length from 0 to `longest`, at its own index."""
    lengths = torch.arange(longest + 1, dtype=torch.float32, device=device)
    return length_penalty(lengths, config.alpha, config.penalty)
