"""The type in which matrices are multiplied during training, and the scaling that keeps small gradients from vanishing.

Weights, sums over rows, softmax, norms and the optimizer are always float32; only matrix products use the other type.
"""

import platform
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, assert_never

import torch
from torch import Tensor

from heedful.config import PrecisionKind
from heedful.kernels.matmul import narrow_products
from heedful.training.process_group import ProcessGroup

_LEAST_SCALE = 1.0  # an overflow without scaling is not the fault of the scale


class Precision:
    """The type of matrix products, and the scale of the loss where that type is float16.

    float16 has no numbers below 6e-8, but many gradients are smaller: the loss is multiplied by a scale before the
    backward pass, and the gradients are divided by it afterwards. An overflow halves the scale; 2000 updates without
    one double it.
    """

    def __init__(
        self, dtype: torch.dtype = torch.float32, device: torch.device | None = None, warning: str = ""
    ) -> None:
        self.dtype = dtype
        self.warning = warning  # why the type is not the requested one
        self.device_type = (device or torch.device("cpu")).type
        self.scaler = torch.amp.GradScaler(self.device_type, enabled=dtype == torch.float16)
        self.scaler.scale(torch.zeros((), device=device))  # creates the scale now and not in whichever thread is first

    @classmethod
    def of(cls, wanted: PrecisionKind, device: torch.device, group: ProcessGroup | None = None) -> "Precision":
        """The requested precision; float32 if a device does not support it, or if the devices of a group differ."""
        group = group or ProcessGroup()
        dtype, warning = choose_precision(wanted, device)
        first = group.run_on_first(lambda: str(dtype))
        differs = "" if str(dtype) == first else f"process {group.rank} would compute in {dtype}, the first in {first}"
        if reason := group.agree_on(differs):
            advice = "set train.precision = 'float16' if all GPUs support it"
            return cls(torch.float32, device, f"{reason}: all use float32; {advice}")
        return cls(dtype, device, warning)

    def cast(self) -> AbstractContextManager[None]:
        """Compute matrix products in this type inside the block, in the calling thread."""
        if self.dtype == torch.float32:
            return nullcontext()
        if self.device_type == "cpu" and self.dtype == torch.bfloat16:
            return narrow_products()  # under autocast, the compiled loops would not apply
        return torch.autocast(self.device_type, self.dtype)

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of the loss, multiplied by the scale."""
        self.scaler.scale(loss).backward()

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by the scale."""
        if self._has_gradients(optimizer):
            self.scaler.unscale_(optimizer)

    def adapt(self, optimizer: torch.optim.Optimizer) -> None:
        """Lower the scale after an overflow; raise it after many updates without one."""
        if self._has_gradients(optimizer):
            self.scaler.update()

    @property
    def may_overflow(self) -> bool:
        """Whether the scale, rather than the training, can be the cause of gradients that are not finite."""
        return self.scaler.is_enabled() and self.scaler.get_scale() > _LEAST_SCALE

    def state(self) -> dict[str, float]:
        """The scale and its counters as plain numbers; empty if nothing is scaled."""
        return {name: float(value) for name, value in self.scaler.state_dict().items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`. A run that was saved in another type starts with a fresh scale."""
        if state and self.scaler.is_enabled():
            whole = {"growth_interval", "_growth_tracker"}
            self.scaler.load_state_dict({name: int(v) if name in whole else float(v) for name, v in state.items()})

    def _has_gradients(self, optimizer: torch.optim.Optimizer) -> bool:
        """GradScaler refuses an update without any gradient."""
        return any(p.grad is not None for group in optimizer.param_groups for p in group["params"])


def choose_precision(wanted: PrecisionKind, device: torch.device) -> tuple[torch.dtype, str]:
    """The type of matrix products on this device, and a warning if it is not the requested one."""
    match wanted:
        case "auto":
            return _fastest(device), ""
        case "float32":
            return torch.float32, ""
        case "bfloat16" | "float16":
            reason = _missing(wanted, device)
            if reason:
                return torch.float32, f"train.precision is {wanted}, but {reason}: float32 is used"
            return torch.bfloat16 if wanted == "bfloat16" else torch.float16, ""
        case _:
            assert_never(wanted)


def _fastest(device: torch.device) -> torch.dtype:
    """bfloat16 on CPUs that have it; float32 on MPS, where the gain depends on the chip and was not measured."""
    if device.type == "cpu" and _processor_has_bfloat16():
        return torch.bfloat16
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16


def _missing(wanted: PrecisionKind, device: torch.device) -> str:
    """Why the device cannot multiply fast in this type, or an empty string."""
    if device.type == "cpu":
        if wanted == "float16" or not _processor_has_bfloat16():
            return f"this processor ({platform.machine()}) has no instructions for it and would be many times slower"
    elif device.type == "cuda" and wanted == "bfloat16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return "this GPU does not support it (it does support float16)"
    return ""


def _processor_has_bfloat16() -> bool:
    """AVX512-BF16 or AMX of Intel and AMD, BF16 of ARM."""
    look = getattr(torch.cpu, "get_capabilities", dict)  # missing in the oldest supported PyTorch
    return any(bool(value) for name, value in look().items() if name.endswith("bf16"))
