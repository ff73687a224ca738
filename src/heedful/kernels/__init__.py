"""Loops that Numba compiles on first use: each does in one pass over memory what PyTorch does in many.

They work on NumPy arrays, on one thread and without Python's lock, so that several threads can each work on part of a
batch. No result depends on them: `heedful.nn` has each of them in plain PyTorch as well, for other devices, and tests
hold both to the same numbers.
"""

from typing import Any

import torch
from torch import Tensor


def can_use_kernels(x: Tensor) -> bool:
    """Whether the loops apply to this tensor now; not without gradients, so that translating compiles nothing."""
    fits = x.device.type == "cpu" and x.dtype == torch.float32
    return fits and torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def as_array(x: Tensor) -> Any:
    """The tensor as a contiguous NumPy array, without copying it if it is contiguous."""
    return x.detach().contiguous().numpy()
