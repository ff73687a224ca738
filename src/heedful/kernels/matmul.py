"""Matrix products by the faster of two libraries.

PyTorch's wheels contain Intel's MKL, NumPy's contain OpenBLAS. On AMD processors OpenBLAS was 5 to 10 % faster for
nearly all shapes of a Transformer, on one thread; on other processors PyTorch's own is used. Both are exact up to
rounding.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor


@cache
def numpy_is_faster() -> bool:
    """Whether this is an AMD processor, with OpenBLAS in NumPy and MKL in PyTorch."""
    import llvmlite.binding as llvm

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    amd = llvm.get_host_cpu_name().startswith(("znver", "bdver"))
    return amd and "openblas" in blas and torch.backends.mkl.is_available()


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """The product of two float32 matrices on a CPU, without a gradient."""
    if numpy_is_faster():
        # PyTorch's memory is aligned. On unaligned memory, MKL's later results would depend on the address.
        out = torch.empty(left.shape[0], right.shape[1])
        with np.errstate(all="ignore"):  # the training loop notices NaN and infinity
            # Not `numpy()`: after that PyTorch cannot free a tensor's memory before the tensor, as FSDP2 does.
            np.dot(np.from_dlpack(left.detach()), np.from_dlpack(right.detach()), out=out.numpy())
            return out
    return left @ right


@cache
def _pools() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def limit_blas_threads(count: int) -> AbstractContextManager[object]:
    """Within this context NumPy's products use `count` threads; NumPy does not know PyTorch's limit."""
    return _pools().limit(limits=count, user_api="blas") if numpy_is_faster() else nullcontext()
