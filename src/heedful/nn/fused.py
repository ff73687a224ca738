"""Parts of the network that take one pass over memory on a processor where PyTorch takes many.

Each function here has the plain form beside it and takes it wherever the compiled loops do not apply: on other devices,
for other types than float32, and where no gradient is wanted, so that to translate nothing has to be compiled.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.dropout import Dropout, Keys
from heedful.nn.layout import Layout
from heedful.nn.noise import keep_scale, threshold

Rows = Float[Tensor, "rows d_model"]


def applies(x: Tensor) -> bool:
    """Whether the compiled loops take this."""
    fits = x.device.type == "cpu" and x.dtype == torch.float32
    return fits and torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def dropout_add(x: Rows, y: Rows, dropout: Dropout, keys: Keys) -> Rows:
    """Give x + Dropout(y)."""
    if not dropout.active:
        return x + y
    if keys is None or not applies(x):
        return x + dropout(y, keys)
    return _DropoutAdd.apply(x, y, keys, _Drawn.of(dropout))


def dropout_add_norm(x: Rows, y: Rows, dropout: Dropout, keys: Keys, norm: nn.LayerNorm) -> Rows:
    """Give LayerNorm(x + Dropout(y))."""
    if keys is None or not dropout.active or not applies(x):
        return norm(x + dropout(y, keys))
    return _DropoutAddNorm.apply(x, y, norm.weight, norm.bias, norm.eps, keys, _Drawn.of(dropout))


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """How many heads, and how wide a key and a value is in each."""

    num_heads: int
    d_k: int
    d_v: int


def packed_attention(
    queries: Float[Tensor, "rows query_columns"],
    memory: Float[Tensor, "key_rows key_columns"] | None,
    layouts: tuple[Layout, Layout],
    sizes: HeadSizes,
    causal: bool,
    dropout: Dropout,
) -> Float[Tensor, "rows all_heads"]:
    """Multi-head attention between packed rows, heads side by side.

    `queries` holds the queries of all heads, `memory` their keys and then their values; where it is None those stand
    in the columns behind the queries.
    """
    return _PackedAttention.apply(queries, memory, layouts, sizes, causal, _Drawn.of(dropout))


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A dropout as the loops want it."""

    active: bool
    site: np.uint32
    threshold: np.uint32
    scale: np.float32

    @classmethod
    def of(cls, dropout: Dropout) -> "_Drawn":
        p = dropout.p
        return cls(dropout.active, np.uint32(dropout.site), np.uint32(threshold(p)), np.float32(keep_scale(p)))

    def arguments(self, keys: Tensor) -> tuple[Any, ...]:
        return keys.numpy(), self.site, self.threshold, self.scale


def _array(x: Tensor) -> Any:
    return x.detach().contiguous().numpy()


class _DropoutAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, y: Tensor, keys: Tensor, drawn: _Drawn) -> Tensor:  # type: ignore[no-untyped-def]
        from heedful.kernels import dropout_norm

        out = torch.empty_like(x)
        dropout_norm.dropout_add(_array(x), _array(y), *drawn.arguments(keys), out.numpy())
        ctx.save_for_backward(keys)
        ctx.drawn = drawn
        return out

    @staticmethod
    def backward(ctx, d_out: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        from heedful.kernels import dropout_norm

        d_y = torch.empty_like(d_out)
        dropout_norm.dropout(_array(d_out), *ctx.drawn.arguments(*ctx.saved_tensors), d_y.numpy())
        return d_out, d_y, None, None


class _DropoutAddNorm(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, x: Tensor, y: Tensor, gain: Tensor, bias: Tensor, epsilon: float, keys: Tensor, drawn: _Drawn
    ) -> Tensor:
        from heedful.kernels import dropout_norm

        out, normal, spread = torch.empty_like(x), torch.empty_like(x), x.new_empty(len(x))
        # Copies of the weights: FSDP2 frees their memory, which PyTorch refuses once NumPy has seen it.
        given = (_array(x), _array(y), _array(gain.clone()), _array(bias.clone()), np.float32(epsilon))
        dropout_norm.dropout_add_norm(*given, *drawn.arguments(keys), out.numpy(), normal.numpy(), spread.numpy())
        ctx.save_for_backward(normal, spread, gain, keys)
        ctx.drawn = drawn
        return out

    @staticmethod
    def backward(ctx, d_out: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        from heedful.kernels import dropout_norm

        normal, spread, gain, keys = ctx.saved_tensors
        d_x, d_y = torch.empty_like(d_out), torch.empty_like(d_out)
        d_gain, d_bias = torch.zeros_like(gain), torch.zeros_like(gain)
        given = (_array(d_out), normal.numpy(), spread.numpy(), _array(gain.clone()))
        made = (d_x.numpy(), d_y.numpy(), d_gain.numpy(), d_bias.numpy())
        dropout_norm.dropout_add_norm_backward(*given, *ctx.drawn.arguments(keys), *made)
        return d_x, d_y, d_gain, d_bias, None, None, None


class _PackedAttention(torch.autograd.Function):
    """The products are PyTorch's, on a grid of sentences x heads; all between them and the packed rows is one pass."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        queries: Tensor,
        memory: Tensor | None,
        layouts: tuple[Layout, Layout],
        sizes: HeadSizes,
        causal: bool,
        drawn: _Drawn,
    ) -> Tensor:
        from heedful.kernels import attention_kernels

        here, there = layouts
        at = _Columns.of(sizes, memory is None)
        source = queries if memory is None else memory
        q = _spread(queries, 0, here, sizes.num_heads, sizes.d_k, sizes.d_k**-0.5)
        k = _spread(source, at.key, there, sizes.num_heads, sizes.d_k)
        v = _spread(source, at.value, there, sizes.num_heads, sizes.d_v)
        weights = q @ k.transpose(-2, -1)
        scores = weights.numpy()
        attention_kernels.masked_softmax(
            scores, scores.view(np.int32), here.lengths.numpy(), there.lengths.numpy(), causal
        )
        dropped = _dropped(weights, here, drawn)
        ctx.save_for_backward(q, k, v, weights, dropped)
        ctx.layouts, ctx.sizes, ctx.at, ctx.drawn = layouts, sizes, at, drawn
        ctx.widths = (queries.shape[1], 0 if memory is None else memory.shape[1])
        out = queries.new_empty(len(queries), sizes.num_heads * sizes.d_v)
        _collect(dropped @ v, 0, here, out)
        return out

    @staticmethod
    def backward(ctx, d_out: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        from heedful.kernels import attention_kernels

        q, k, v, weights, dropped = ctx.saved_tensors
        (here, there), sizes, at, drawn = ctx.layouts, ctx.sizes, ctx.at, ctx.drawn
        d_attended = _spread(d_out, 0, here, sizes.num_heads, sizes.d_v)
        d_v = dropped.transpose(-2, -1) @ d_attended
        d_scores = _dropped(d_attended @ v.transpose(-2, -1), here, drawn)
        attention_kernels.softmax_backward(weights.numpy(), d_scores.numpy())
        d_queries = d_out.new_empty(len(d_out), ctx.widths[0])
        d_memory = d_out.new_empty(int(there.lengths.sum()), ctx.widths[1]) if ctx.widths[1] else None
        d_source = d_queries if d_memory is None else d_memory
        _collect(d_scores @ k, 0, here, d_queries, sizes.d_k**-0.5)
        _collect(d_scores.transpose(-2, -1) @ q, at.key, there, d_source)
        _collect(d_v, at.value, there, d_source)
        return d_queries, d_memory, None, None, None, None


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where the keys and values of the first head begin."""

    key: int
    value: int

    @classmethod
    def of(cls, sizes: HeadSizes, behind_queries: bool) -> "_Columns":
        key = sizes.num_heads * sizes.d_k if behind_queries else 0
        return cls(key, key + sizes.num_heads * sizes.d_k)


def _spread(rows: Tensor, first: int, layout: Layout, num_heads: int, width: int, factor: float = 1.0) -> Tensor:
    from heedful.kernels import attention_kernels

    grid = rows.new_empty(len(layout.lengths), num_heads, layout.longest, width)
    attention_kernels.pad_heads(_array(rows), first, layout.lengths.numpy(), np.float32(factor), grid.numpy())
    return grid


def _collect(grid: Tensor, first: int, layout: Layout, rows: Tensor, factor: float = 1.0) -> None:
    from heedful.kernels import attention_kernels

    attention_kernels.pack_heads(_array(grid), first, layout.lengths.numpy(), np.float32(factor), rows.numpy())


def _dropped(weights: Tensor, layout: Layout, drawn: _Drawn) -> Tensor:
    from heedful.kernels import attention_kernels

    if not drawn.active:
        return weights
    if layout.keys is None:
        raise ValueError("dropout on weights needs a key for each row; take the plain form without")
    out = torch.empty_like(weights)
    attention_kernels.weight_dropout(
        weights.numpy(), layout.lengths.numpy(), *drawn.arguments(layout.keys), out.numpy()
    )
    return out
