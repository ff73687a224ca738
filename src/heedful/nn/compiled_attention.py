"""Compiled forms of equation 1 on a CPU; `heedful.nn.attention.attend_heads` chooses when to use them."""

from dataclasses import dataclass
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from heedful.kernels import as_array
from heedful.nn.dropout import DropoutArguments
from heedful.nn.key_values import HeadRows, PackedKeyValues, PooledKeyValues, QueryRows, SpanKeyValues
from heedful.nn.layout import Layout
from heedful.nn.multi_head import HeadSizes, ScaledDotProductAttention


def attend_compiled(attention: ScaledDotProductAttention, queries: QueryRows, key_values: PackedKeyValues) -> HeadRows:
    """`attend` of whole sentences, for training.

    It multiplies the same matrices as `attend`. Padding, scale, mask, softmax, dropout and packing take one pass over
    memory each, forwards and backwards.
    """
    layouts = key_values.query_layout, key_values.key_layout
    dropout, bias = DropoutArguments.of(attention.dropout), None
    if attention.bias is not None:
        longest = layouts[0].longest
        bias = attention.bias(torch.arange(1 - longest, longest))
    sizes, causal = attention.head_sizes, key_values.causal
    return _CompiledAttention.apply(queries, key_values.rows, bias, layouts, sizes, attention.scale, causal, dropout)


def attend_pooled(
    attention: ScaledDotProductAttention, queries: QueryRows, key_values: PooledKeyValues | SpanKeyValues
) -> HeadRows:
    """`attend` from one position of each hypothesis, for decoding.

    It takes keys and values from the pool row by row, where `attend` would need a copy of them for each hypothesis.
    """
    from heedful.kernels.attention_kernels import attend_slots, attend_spans

    sizes = attention.head_sizes
    out = queries.new_empty(len(queries), sizes.num_heads * sizes.d_v)
    rows = queries.contiguous().numpy(), key_values.keys.numpy(), key_values.values.numpy()
    rest = sizes.num_heads, np.float32(attention.scale), out.numpy()
    match key_values:
        case PooledKeyValues(slots=slots):
            bias = out.new_empty(0, 0) if attention.bias is None else attention.bias(key_values.distances[0])
            attend_slots(*rows, slots.numpy(), bias.numpy(), *rest)
        case SpanKeyValues(first=first, lengths=lengths):
            attend_spans(*rows, first.numpy(), lengths.numpy(), *rest)
        case _:
            assert_never(key_values)
    return out


class _CompiledAttention(torch.autograd.Function):
    """PyTorch multiplies, on a grid of sentences x heads; each step between that and the packed rows is one pass."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        queries: Tensor,
        key_values: Tensor | None,
        bias: Tensor | None,
        layouts: tuple[Layout, Layout],
        sizes: HeadSizes,
        scale: float,
        causal: bool,
        dropout: DropoutArguments,
    ) -> Tensor:
        from heedful.kernels import attention_kernels

        query_layout, key_layout = layouts
        columns = _Columns.of(sizes, key_values is None)
        source = queries if key_values is None else key_values
        q = _pad_heads(queries, 0, query_layout, sizes.num_heads, sizes.d_k, scale)
        k = _pad_heads(source, columns.key, key_layout, sizes.num_heads, sizes.d_k)
        v = _pad_heads(source, columns.value, key_layout, sizes.num_heads, sizes.d_v)
        weights = q @ k.transpose(-2, -1)
        scores = weights.numpy()
        lengths = query_layout.lengths.numpy(), key_layout.lengths.numpy()
        if bias is not None:
            attention_kernels.add_distance_bias(scores, as_array(bias), lengths[0])
        attention_kernels.masked_softmax(scores, scores.view(np.int32), *lengths, causal)
        kept = _drop_weights(weights, query_layout, dropout)
        ctx.save_for_backward(q, k, v, weights, kept)
        ctx.layouts, ctx.sizes, ctx.columns, ctx.scale, ctx.dropout = layouts, sizes, columns, scale, dropout
        ctx.widths = (queries.shape[1], 0 if key_values is None else key_values.shape[1])
        ctx.has_bias = bias is not None
        out = queries.new_empty(len(queries), sizes.num_heads * sizes.d_v)
        _pack_heads(kept @ v, 0, query_layout, out)
        return out

    @staticmethod
    def backward(ctx, d_out: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        from heedful.kernels import attention_kernels

        q, k, v, weights, kept = ctx.saved_tensors
        (query_layout, key_layout), sizes, columns = ctx.layouts, ctx.sizes, ctx.columns
        d_heads = _pad_heads(d_out, 0, query_layout, sizes.num_heads, sizes.d_v)
        d_v = kept.transpose(-2, -1) @ d_heads
        d_scores = _drop_weights(d_heads @ v.transpose(-2, -1), query_layout, ctx.dropout)
        attention_kernels.softmax_backward(weights.numpy(), d_scores.numpy())
        d_bias = None
        if ctx.has_bias:
            d_bias = d_out.new_zeros(sizes.num_heads, 2 * query_layout.longest - 1)
            attention_kernels.distance_bias_backward(d_scores.numpy(), query_layout.lengths.numpy(), d_bias.numpy())
        d_queries = d_out.new_empty(len(d_out), ctx.widths[0])
        d_key_values = d_out.new_empty(int(key_layout.lengths.sum()), ctx.widths[1]) if ctx.widths[1] else None
        d_source = d_queries if d_key_values is None else d_key_values
        _pack_heads(d_scores @ k, 0, query_layout, d_queries, ctx.scale)
        _pack_heads(d_scores.transpose(-2, -1) @ q, columns.key, key_layout, d_source)
        _pack_heads(d_v, columns.value, key_layout, d_source)
        return d_queries, d_key_values, d_bias, None, None, None, None, None


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns at which the keys and values of the first head begin."""

    key: int
    value: int

    @classmethod
    def of(cls, sizes: HeadSizes, behind_queries: bool) -> "_Columns":
        key = sizes.num_heads * sizes.d_k if behind_queries else 0
        return cls(key, key + sizes.num_heads * sizes.d_k)


def _pad_heads(rows: Tensor, first: int, layout: Layout, num_heads: int, width: int, factor: float = 1.0) -> Tensor:
    from heedful.kernels import attention_kernels

    grid = rows.new_empty(len(layout.lengths), num_heads, layout.longest, width)
    attention_kernels.pad_heads(as_array(rows), first, layout.lengths.numpy(), np.float32(factor), grid.numpy())
    return grid


def _pack_heads(grid: Tensor, first: int, layout: Layout, rows: Tensor, factor: float = 1.0) -> None:
    from heedful.kernels import attention_kernels

    attention_kernels.pack_heads(as_array(grid), first, layout.lengths.numpy(), np.float32(factor), rows.numpy())


def _drop_weights(weights: Tensor, layout: Layout, dropout: DropoutArguments) -> Tensor:
    from heedful.kernels import attention_kernels

    if not dropout.active:
        return weights
    if layout.dropout_keys is None:
        raise ValueError("compiled attention cannot draw dropout without keys; use the plain form")
    out = torch.empty_like(weights)
    inputs = weights.numpy(), layout.lengths.numpy(), *dropout.with_keys(layout.dropout_keys)
    attention_kernels.weight_dropout(*inputs, out.numpy())
    return out
