"""Which keys a query may attend to: boolean masks in which True means "may attend"."""

import torch
from jaxtyping import Bool
from torch import Tensor


def causal_mask(length: int, device: torch.device) -> Bool[Tensor, "length length"]:
    """Section 3.2.3: position i may attend to positions up to i."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def window_mask(length: int, window: int, causal: bool, device: torch.device) -> Bool[Tensor, "length length"]:
    """Section 4, restricted self-attention: position i may attend to i - window up to i + window, or to i if causal."""
    near = torch.ones(length, length, dtype=torch.bool, device=device).triu(-window)
    return near.tril(0 if causal else window)


def key_mask(keys: Bool[Tensor, "batch key"]) -> Bool[Tensor, "batch 1 1 key"]:
    """Every query of every head may attend to the keys that exist."""
    return keys[:, None, None, :]
