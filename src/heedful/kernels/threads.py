"""The threads of this process, divided among workers."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from heedful.kernels.matmul import limit_blas_threads

_MOST_WORKERS = 8  # each worker has a copy of all gradients


def count_workers(device: torch.device) -> int:
    """How many parts of an update, or batches of a translation, run at the same time."""
    return min(torch.get_num_threads(), _MOST_WORKERS) if device.type == "cpu" else 1


@contextmanager
def divide_threads(workers: int) -> Iterator[None]:
    """Within this context, each of `workers` has an equal share of PyTorch's and NumPy's threads."""
    threads = torch.get_num_threads()
    each = max(1, threads // workers)
    torch.set_num_threads(each)
    try:
        with limit_blas_threads(each):
            yield
    finally:
        torch.set_num_threads(threads)
