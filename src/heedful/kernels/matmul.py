"""Matrix products by the fastest of three libraries, in float32 or in bfloat16.

PyTorch's wheels contain Intel's MKL and oneDNN, NumPy's contain OpenBLAS. MKL does not use AVX-512 on AMD processors,
and OpenBLAS does not know the newest of them; oneDNN does, and is twice as fast as either there. On older AMD
processors OpenBLAS was 5 to 10 % faster than MKL. All three are exact up to rounding.
"""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.errors import is_installed

Library = Literal["torch", "numpy", "onednn"]

_ROWS = 64  # numbers of rows are rounded up to a multiple of this
_SMALL = 1 << 20  # multiplications; oneDNN takes longer to start than MKL takes for a smaller product
_CHUNK, _LEAST_CHUNK = 512, 16  # rows of a product in `fast_reading`


@cache
def fastest_library() -> Library:
    """The library for this processor; PyTorch's own choice, MKL, on all but AMD's."""
    import llvmlite.binding as llvm

    amd = llvm.get_host_cpu_name().startswith(("znver", "bdver"))
    if not (amd and torch.backends.mkl.is_available()):
        return "torch"
    if torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512":
        return "onednn"
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    return "numpy" if "openblas" in blas else "torch"


class _Thread(threading.local):
    narrow = False
    reading = False


_thread = _Thread()


@contextmanager
def narrow_products() -> Iterator[None]:
    """Inside this block, layers of the calling thread multiply in bfloat16, and their gradients do so too."""
    before, _thread.narrow = _thread.narrow, True
    try:
        yield
    finally:
        _thread.narrow = before


def products_are_narrow() -> bool:
    """Whether the calling thread is inside `narrow_products`."""
    return _thread.narrow


@contextmanager
def fast_reading() -> Iterator[None]:
    """Inside this block, layers of the calling thread multiply by oneDNN without gradients too, where that is faster.

    It is for batches of whole texts. The results differ from those of MKL by rounding.
    """
    before, _thread.reading = _thread.reading, True
    try:
        yield
    finally:
        _thread.reading = before


def reads_fast(x: Tensor, weight: Tensor) -> bool:
    """Whether `affine_in_chunks` applies to this product now."""
    return (
        _thread.reading
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and not torch.is_grad_enabled()
        and len(x) * weight.numel() >= _SMALL
        and _onednn_is_fastest()
    )


@cache
def _onednn_is_fastest() -> bool:
    return is_installed("llvmlite") and fastest_library() == "onednn"


def affine_in_chunks(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The linear map of all rows, by oneDNN and without a gradient.

    oneDNN compiles code for every shape and keeps it with a copy of the weights, several megabytes for each. So rows
    are multiplied by the hundred, and the last ones are filled up to a power of two.
    """
    out = torch.empty(len(x), len(weight))
    for first in range(0, len(x), _CHUNK):
        rows = x[first : first + _CHUNK]
        count = len(rows)
        filled = max(_LEAST_CHUNK, 1 << (count - 1).bit_length())
        if filled > count:
            rows = F.pad(rows, (0, 0, 0, filled - count))
        product = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
        out[first : first + count] = product[:count]
    return out


def product_type(multiplications: int) -> torch.dtype:
    """The type of the factors of a product of this size: bfloat16 inside `narrow_products`, if the product gains."""
    return torch.bfloat16 if _thread.narrow and multiplications >= _SMALL else torch.float32


def pad_rows(x: Tensor, dtype: torch.dtype, multiplications: int) -> Tensor:
    """The rows in this type, as a factor of products of this size; for oneDNN, rows of zeros are added.

    oneDNN compiles code for every shape and keeps it, about a megabyte for each. The number of rows would be different
    in each batch.
    """
    rows, columns = x.shape
    missing = -rows % _ROWS if _uses_onednn(dtype, multiplications) else 0
    if not missing:
        return x.to(dtype)
    padded = torch.empty(rows + missing, columns, dtype=dtype)
    padded[:rows] = x
    padded[rows:] = 0.0
    return padded


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """The float32 product of two matrices on a CPU, both float32 or both bfloat16, without a gradient."""
    if left.dtype == torch.bfloat16:
        return (left @ right).float()
    if _uses_onednn(left.dtype, left.numel() * right.shape[1]):
        return torch.ops.mkldnn._linear_pointwise(left, right.T, None, "none", [], "")
    if fastest_library() == "numpy":
        # PyTorch's memory is aligned. On unaligned memory, MKL's later results would depend on the address.
        out = torch.empty(left.shape[0], right.shape[1])
        with np.errstate(all="ignore"):  # the training loop notices NaN and infinity
            # Not `numpy()`: after that PyTorch cannot free a tensor's memory before the tensor, as FSDP2 does.
            np.dot(np.from_dlpack(left.detach()), np.from_dlpack(right.detach()), out=out.numpy())
            return out
    return left @ right


def _uses_onednn(dtype: torch.dtype, multiplications: int) -> bool:
    if dtype == torch.float32:
        return multiplications >= _SMALL and fastest_library() == "onednn"
    return dtype == torch.bfloat16


@contextmanager
def fast_batches() -> Iterator[None]:
    """Inside this block, PyTorch's own products of float32 matrices use oneDNN too, if that is the fastest library.

    Processors with AMX then multiply in bfloat16, so this is only for results that may be approximate.
    """
    if fastest_library() != "onednn":
        yield
        return
    setting = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = setting.fp32_precision
    setting.fp32_precision = "bf16"  # the permission by which PyTorch prefers oneDNN to MKL
    try:
        yield
    finally:
        setting.fp32_precision = before


@cache
def _pools() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def limit_blas_threads(count: int) -> AbstractContextManager[object]:
    """Within this context NumPy's products use `count` threads; NumPy does not know PyTorch's limit."""
    return _pools().limit(limits=count, user_api="blas") if fastest_library() == "numpy" else nullcontext()
