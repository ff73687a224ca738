"""Dropout with residual and norm, in one pass over memory on a CPU where PyTorch takes many.

Each function also has the plain form and takes it wherever the compiled loops do not apply: on other devices, for types
other than float32, and without gradients, so that translating compiles nothing.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.dropout import Dropout, DropoutKeys
from heedful.nn.noise import keep_scale, threshold

Rows = Float[Tensor, "rows d_model"]


def can_use_kernels(x: Tensor) -> bool:
    """Whether the compiled loops apply to this tensor now."""
    fits = x.device.type == "cpu" and x.dtype == torch.float32
    return fits and torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def dropout_add(x: Rows, y: Rows, dropout: Dropout, dropout_keys: DropoutKeys) -> Rows:
    """Return x + Dropout(y)."""
    if not dropout.active:
        return x + y
    if dropout_keys is None or not can_use_kernels(x):
        return x + dropout(y, dropout_keys)
    return _DropoutAdd.apply(x, y, dropout_keys, DropoutArguments.of(dropout))


def dropout_add_norm(x: Rows, y: Rows, dropout: Dropout, dropout_keys: DropoutKeys, norm: nn.LayerNorm) -> Rows:
    """Return LayerNorm(x + Dropout(y))."""
    if dropout_keys is None or not dropout.active or not can_use_kernels(x):
        return norm(x + dropout(y, dropout_keys))
    return _DropoutAddNorm.apply(x, y, norm.weight, norm.bias, norm.eps, dropout_keys, DropoutArguments.of(dropout))


@dataclass(frozen=True, slots=True)
class DropoutArguments:
    """A dropout in the form that the compiled loops take."""

    active: bool
    site: np.uint32
    threshold: np.uint32
    scale: np.float32

    @classmethod
    def of(cls, dropout: Dropout) -> "DropoutArguments":
        """The arguments for this dropout."""
        p = dropout.p
        return cls(dropout.active, np.uint32(dropout.site), np.uint32(threshold(p)), np.float32(keep_scale(p)))

    def with_keys(self, dropout_keys: Tensor) -> tuple[Any, ...]:
        """The arguments of a call for rows with these keys."""
        return dropout_keys.numpy(), self.site, self.threshold, self.scale


def as_array(x: Tensor) -> Any:
    """The tensor as a contiguous NumPy array, without copying it if it is contiguous."""
    return x.detach().contiguous().numpy()


class _DropoutAdd(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, x: Tensor, y: Tensor, dropout_keys: Tensor, dropout: DropoutArguments
    ) -> Tensor:
        from heedful.kernels import dropout_norm

        out = torch.empty_like(x)
        dropout_norm.dropout_add(as_array(x), as_array(y), *dropout.with_keys(dropout_keys), out.numpy())
        ctx.save_for_backward(dropout_keys)
        ctx.dropout = dropout
        return out

    @staticmethod
    def backward(ctx, d_out: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        from heedful.kernels import dropout_norm

        d_y = torch.empty_like(d_out)
        dropout_norm.dropout(as_array(d_out), *ctx.dropout.with_keys(*ctx.saved_tensors), d_y.numpy())
        return d_out, d_y, None, None


class _DropoutAddNorm(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        x: Tensor,
        y: Tensor,
        gain: Tensor,
        bias: Tensor,
        epsilon: float,
        dropout_keys: Tensor,
        dropout: DropoutArguments,
    ) -> Tensor:
        from heedful.kernels import dropout_norm

        out, normal, inverse_std = torch.empty_like(x), torch.empty_like(x), x.new_empty(len(x))
        # Copies of the weights: FSDP2 frees their memory, and PyTorch refuses that once NumPy has seen it.
        inputs = (as_array(x), as_array(y), as_array(gain.clone()), as_array(bias.clone()), np.float32(epsilon))
        outputs = (out.numpy(), normal.numpy(), inverse_std.numpy())
        dropout_norm.dropout_add_norm(*inputs, *dropout.with_keys(dropout_keys), *outputs)
        ctx.save_for_backward(normal, inverse_std, gain, dropout_keys)
        ctx.dropout = dropout
        return out

    @staticmethod
    def backward(ctx, d_out: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        from heedful.kernels import dropout_norm

        normal, inverse_std, gain, dropout_keys = ctx.saved_tensors
        d_x, d_y = torch.empty_like(d_out), torch.empty_like(d_out)
        d_gain, d_bias = torch.zeros_like(gain), torch.zeros_like(gain)
        inputs = (as_array(d_out), normal.numpy(), inverse_std.numpy(), as_array(gain.clone()))
        outputs = (d_x.numpy(), d_y.numpy(), d_gain.numpy(), d_bias.numpy())
        dropout_norm.dropout_add_norm_backward(*inputs, *ctx.dropout.with_keys(dropout_keys), *outputs)
        return d_x, d_y, d_gain, d_bias, None, None, None
