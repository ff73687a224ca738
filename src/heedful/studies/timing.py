"""How long something takes, on a machine that may have other things to do."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from heedful.kernels.threads import divide_threads


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """What this takes. On a processor, what its thread worked: as long as it lasts on an idle machine."""
    clock = time.thread_time if device.type == "cpu" else time.perf_counter
    _wait_for(device)
    began = clock()
    work()
    _wait_for(device)
    return clock() - began


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """On a processor inside of this; several threads take as long as they wait for one another and for others."""
    with divide_threads(torch.get_num_threads() if device.type == "cpu" else 1):
        yield


def _wait_for(device: torch.device) -> None:
    """Until it has done all it was told to; a processor always has."""
    match device.type:
        case "cuda":
            torch.cuda.synchronize(device)
        case "mps":
            torch.mps.synchronize()
