"""Matrix products by the faster of two libraries.

PyTorch's wheels bring Intel's MKL, NumPy's bring OpenBLAS. On AMD's processors the second was 5 to 10 % faster for
nearly all shapes of a Transformer, on one thread; on others PyTorch's own is used. Both are exact to rounding.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor


@cache
def numpy_is_faster() -> bool:
    """Whether this processor is AMD's, and NumPy has OpenBLAS where PyTorch has MKL."""
    import llvmlite.binding as llvm

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    amd = llvm.get_host_cpu_name().startswith(("znver", "bdver"))
    return amd and "openblas" in blas and torch.backends.mkl.is_available()


def product(left: Tensor, right: Tensor) -> Tensor:
    """Give left @ right, of two matrices of float32 on a processor, without a gradient."""
    if numpy_is_faster():
        # In PyTorch's memory, which is aligned: what MKL makes of the result else depends on where it happens to lie.
        out = torch.empty(left.shape[0], right.shape[1])
        with np.errstate(all="ignore"):  # a loss that is no number is noticed by the loop
            # Not by `numpy()`, after which PyTorch never frees a tensor's memory before the tensor: FSDP2 does.
            np.dot(np.from_dlpack(left.detach()), np.from_dlpack(right.detach()), out=out.numpy())
            return out
    return left @ right


@cache
def _pools() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def on_threads(count: int) -> AbstractContextManager[object]:
    """NumPy's products on so many threads, as long as this lasts; it does not know how many PyTorch was given."""
    return _pools().limit(limits=count, user_api="blas") if numpy_is_faster() else nullcontext()
