"""Residual connection, dropout and layer normalisation around a sub-layer (sections 3.1 and 5.4).

In training on a CPU, a compiled loop does this in one pass over memory, where PyTorch takes many.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import Norm
from heedful.kernels import as_array, can_use_kernels
from heedful.nn.dropout import Dropout, DropoutArguments, DropoutKeys
from heedful.nn.layout import Rows

NORM_EPSILON = 1e-6


class _LayerNorm(nn.LayerNorm):
    """PyTorch's layer, whose weights may be of a narrower type than its input, as FSDP2 gathers them."""

    def forward(self, input: Rows) -> Rows:
        return F.layer_norm(
            input, self.normalized_shape, self.weight.to(input.dtype), self.bias.to(input.dtype), self.eps
        )


def layer_norm(d_model: int, epsilon: float = NORM_EPSILON) -> nn.LayerNorm:
    """Layer normalisation as in the paper's code: biased variance, epsilon 1e-6 inside the root."""
    return _LayerNorm(d_model, eps=epsilon)


class RMSNorm(nn.LayerNorm):
    """Zhang and Sennrich (2019): divides by the root of the mean square; no mean is subtracted, no bias added."""

    def forward(self, input: Rows) -> Rows:
        return F.rms_norm(input, self.normalized_shape, self.weight.to(input.dtype), self.eps)


def rms_norm(d_model: int, epsilon: float = NORM_EPSILON) -> nn.LayerNorm:
    """RMS normalisation; T5's epsilon is the paper's."""
    return RMSNorm(d_model, eps=epsilon, bias=False)


class Residual(nn.Module):
    """The paper's post-norm: LayerNorm(x + Dropout(Sublayer(x))). Pre-norm: x + Dropout(Sublayer(LayerNorm(x)))."""

    def __init__(
        self,
        d_model: int,
        dropout: float,
        norm: Norm,
        epsilon: float = NORM_EPSILON,
        make_norm: Callable[[int, float], nn.LayerNorm] = layer_norm,
    ) -> None:
        super().__init__()
        self.norm = make_norm(d_model, epsilon)
        self.dropout = Dropout(dropout)
        self.place = norm

    def forward(self, x: Rows, dropout_keys: DropoutKeys, sublayer: Callable[[Rows], Rows]) -> Rows:
        match self.place:
            case "post":
                return dropout_add_norm(x, sublayer(x), self.dropout, dropout_keys, self.norm)
            case "pre":
                return dropout_add(x, sublayer(self.norm(x)), self.dropout, dropout_keys)
            case _:
                assert_never(self.place)

    if TYPE_CHECKING:
        __call__ = forward


def dropout_add(x: Rows, y: Rows, dropout: Dropout, dropout_keys: DropoutKeys) -> Rows:
    """Return x + Dropout(y)."""
    if not dropout.active:
        return x + y
    if dropout_keys is None or not can_use_kernels(x):
        return x + dropout(y, dropout_keys)
    return _DropoutAdd.apply(x, y, dropout_keys, DropoutArguments.of(dropout))


def dropout_add_norm(x: Rows, y: Rows, dropout: Dropout, dropout_keys: DropoutKeys, norm: nn.LayerNorm) -> Rows:
    """Return LayerNorm(x + Dropout(y))."""
    if isinstance(norm, RMSNorm) or dropout_keys is None or not dropout.active or not can_use_kernels(x):
        return norm(x + dropout(y, dropout_keys))
    return _DropoutAddNorm.apply(x, y, norm.weight, norm.bias, norm.eps, dropout_keys, DropoutArguments.of(dropout))


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
