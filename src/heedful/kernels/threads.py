"""How the threads of this process are divided among workers."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from heedful.kernels.products import on_threads

_MOST_WORKERS = 8  # each has a copy of all gradients


def workers_for(device: torch.device) -> int:
    """How many parts of an update are worked on at the same time."""
    return min(torch.get_num_threads(), _MOST_WORKERS) if device.type == "cpu" else 1


@contextmanager
def shared_threads(workers: int) -> Iterator[None]:
    """Divide the threads among so many workers."""
    threads = torch.get_num_threads()
    each = max(1, threads // workers)
    torch.set_num_threads(each)
    try:
        with on_threads(each):
            yield
    finally:
        torch.set_num_threads(threads)
