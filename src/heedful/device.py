"""The device of tensors, the number of threads, and the memory in use."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from heedful.config import Device
from heedful.errors import ConfigError


def choose_device(device: Device) -> torch.device:
    """The device of this name; "auto" takes the fastest one.

    On CUDA, float32 products use TF32 from then on: ten bits of each factor, sums in float32.
    """
    present = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    chosen = next(name for name, here in present.items() if here) if device == "auto" else device
    if not present[chosen]:
        here = ", ".join(name for name, yes in present.items() if yes)
        raise ConfigError(f"device '{device}' is not available on this machine, which has {here}; choose auto")
    if chosen == "cuda":
        torch.set_float32_matmul_precision("high")
    return torch.device(chosen)


def exact_device(device: torch.device) -> torch.device:
    """Where 64-bit numbers are exact: on the device itself, or on the CPU for MPS.

    MPS has no float64, and older versions of PyTorch sort int64 there as if it were int32.
    """
    return torch.device("cpu") if device.type == "mps" else device


def use_threads(threads: int, processes: int = 1) -> int:
    """Set PyTorch's number of threads and return it; 0 means this process's share of all cores."""
    count = threads or max(1, _cores() // processes)
    torch.set_num_threads(count)
    return count


def _cores() -> int:
    """The cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory that this process uses on a device now and at its peak, in MiB."""

    now: int
    peak: int


def measure_memory(device: str) -> MemoryUse:
    """On a GPU the memory of its tensors, else the resident set of the process."""
    if device == "cuda":
        return MemoryUse(torch.cuda.memory_allocated() >> 20, torch.cuda.max_memory_allocated() >> 20)
    peak = _peak_resident()
    return MemoryUse(min(_resident() or peak, peak), peak)


def _resident() -> int:
    """In MiB; 0 if the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") >> 20
    except OSError:
        return 0


def _peak_resident() -> int:
    """In MiB; 0 if the system does not say."""
    try:
        import resource
    except ModuleNotFoundError:  # on Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit >> 20
