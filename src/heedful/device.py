"""Where tensors live and how many threads work on them."""

import os

import torch

from heedful.config import Device
from heedful.errors import ConfigError


def choose_device(device: Device) -> torch.device:
    """The device of this name; "auto" takes the fastest there is."""
    present = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if device == "auto":
        return torch.device(next(name for name, here in present.items() if here))
    if not present[device]:
        here = ", ".join(name for name, yes in present.items() if yes)
        raise ConfigError(f"device '{device}' is not on this machine, which has {here}; choose auto")
    return torch.device(device)


def use_threads(threads: int) -> int:
    """Let PyTorch use so many threads, 0 for all cores; give the number."""
    count = threads or _cores()
    torch.set_num_threads(count)
    return count


def _cores() -> int:
    """Cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
