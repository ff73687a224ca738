"""The linear layer."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from heedful.kernels import can_use_kernels
from heedful.kernels.matmul import affine_in_chunks, reads_fast


class Linear(nn.Linear):
    """PyTorch's layer, with a faster matrix product where there is one (see `heedful.kernels.matmul`)."""

    def forward(self, input: Float[Tensor, "rows inputs"]) -> Float[Tensor, "rows outputs"]:
        if can_use_kernels(input):
            return _Affine.apply(input, self.weight, self.bias)
        if reads_fast(input, self.weight):
            return affine_in_chunks(input, self.weight, self.bias)
        return F.linear(input, self.weight, self.bias)

    if TYPE_CHECKING:
        __call__ = forward


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # type: ignore[no-untyped-def]
        from heedful.kernels.matmul import matmul, pad_rows, product_type

        ctx.rows, ctx.size, ctx.has_bias = len(x), len(x) * weight.numel(), bias is not None
        dtype = product_type(ctx.size)
        x, weight = pad_rows(x, dtype, ctx.size), weight.to(dtype)
        ctx.save_for_backward(x, weight)
        out = matmul(x, weight.T)[: ctx.rows]
        return out if bias is None else out.add_(bias)

    @staticmethod
    def backward(ctx, d_out: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:  # type: ignore[no-untyped-def]
        from heedful.kernels.matmul import matmul, pad_rows

        x, weight = ctx.saved_tensors
        factor = pad_rows(d_out, x.dtype, ctx.size)
        d_bias = d_out.sum(0) if ctx.has_bias else None
        return matmul(factor, weight)[: ctx.rows], matmul(factor.T, x), d_bias


def glorot_linear(inputs: int, outputs: int, bias: bool = True) -> Linear:
    """A linear layer with Glorot-uniform weights, and zero biases unless it has none.

    Projections that the paper's code draws as one matrix are one layer here too, because the range of the draw depends
    on the size of the matrix.
    """
    layer = Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def draw_normal_weights(module: nn.Module, std: float) -> None:
    """Draw the weights of all linear layers in a module from N(0, std) instead; their biases stay zero."""
    for part in module.modules():
        if isinstance(part, Linear):
            nn.init.normal_(part.weight, std=std)


def draw_truncated_weights(module: nn.Module, std: float) -> None:
    """Like `draw_normal_weights`, without values beyond two standard deviations."""
    for part in module.modules():
        if isinstance(part, Linear):
            draw_truncated(part.weight, std)


def draw_truncated(weight: Tensor, std: float) -> None:
    """Draw a weight from N(0, std) without values beyond two standard deviations."""
    nn.init.trunc_normal_(weight, std=std, a=-2.0 * std, b=2.0 * std)
