"""A fake of Apple's GPU: tensors on the CPU that claim to be on MPS and share its limits.

They have no float64 and no NumPy array, do not mix with tensors on the CPU, and `topk` of int64 works in int32, as in
older versions of PyTorch.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

MPS = torch.device("mps")
_MAY_MIX = ("__get__", "copy_", "to", "cpu")


class MpsTensor(Tensor):
    """A tensor that claims to be on MPS."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        given = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if func == Tensor.device.__get__:
            return MPS
        if name in ("cpu", "to"):
            target = "cpu" if name == "cpu" else _target(args[1:], given)
            with torch._C.DisableTorchFunctionSubclass():
                plain = args[0].as_subclass(Tensor)
                if target == "cpu":
                    return plain.to(*map(_on_cpu, args[1:]), **{key: _on_cpu(value) for key, value in given.items()})
        if name == "numpy":
            raise TypeError("can't convert mps:0 device type tensor to numpy; use Tensor.cpu() first")
        tensors = [x for x in tree_flatten((args, given))[0] if isinstance(x, Tensor)]
        plain_ones = [x for x in tensors if not isinstance(x, MpsTensor) and x.ndim]
        if plain_ones and name not in _MAY_MIX:
            raise RuntimeError(f"{name}: Expected all tensors to be on the same device, mps:0 and cpu")
        with torch._C.DisableTorchFunctionSubclass():
            args, given = tree_map(_on_cpu, args), {key: _on_cpu(value) for key, value in given.items()}
            if name == "topk" and args[0].dtype == torch.int64:
                args = (args[0].int(), *args[1:])
            return _claim(func(*args, **given))


class FakeMps(TorchFunctionMode):
    """Makes tensors that are created on MPS, or moved there, ones that claim to be."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        given = dict(kwargs or {})
        moved = getattr(func, "__name__", "") == "to" and not isinstance(args[0], MpsTensor)
        target = _target(args[1:], given) if moved else _target((), given)
        if target == "mps" and not any(isinstance(x, MpsTensor) for x in args):
            return _claim(func(*map(_on_cpu, args), **{key: _on_cpu(value) for key, value in given.items()}))
        return func(*args, **given)


@contextmanager
def fake_mps() -> Iterator[torch.device]:
    """Inside the block, this device is a fake of MPS."""
    with FakeMps():
        yield MPS


def move(module: nn.Module) -> None:
    """Move a model to the fake device."""
    for part in module.modules():
        for table in (part._parameters, part._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    moved = tensor.detach().as_subclass(MpsTensor)
                    table[name] = nn.Parameter(moved) if isinstance(tensor, nn.Parameter) else moved  # type: ignore[assignment]


def _target(args: Any, kwargs: Mapping[str, Any]) -> str:
    wanted = [kwargs.get("device"), *args]
    names = [torch.device(x).type for x in wanted if isinstance(x, str | torch.device)]
    names += ["mps" if isinstance(x, MpsTensor) else "cpu" for x in args if isinstance(x, Tensor)]
    return names[0] if names else "cpu" if any(isinstance(x, Tensor) for x in wanted) else ""


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "mps":
        return torch.device("cpu")
    return "cpu" if value == "mps" and isinstance(value, str) else value


def _claim(result: Any) -> Any:
    def claim(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if x.dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64")
        return x.as_subclass(MpsTensor)

    return tree_map(claim, result)
