"""The memory of a Transformer's decoder while it decodes step by step: keys and values, layer by layer.

`KVCache` has a grid with a row for each hypothesis, so reordering hypotheses copies it. `PooledKVCache`, for CPUs,
never copies: the keys and values of every position of every hypothesis are rows of one pool per layer, and a hypothesis
is a list of rows. Those of the source are stored once for all hypotheses of a sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.key_values import CachedKeyValues, PooledKeyValues, SpanKeyValues
from heedful.nn.layout import Layout, Rows
from heedful.nn.masks import key_mask
from heedful.nn.multi_head import split_position

_MANY = 8  # sentences: with fewer, loading the compiled loops would take longer than they save

KeyRows = Float[Tensor, "batch all_keys"]
ValueRows = Float[Tensor, "batch all_values"]


@dataclass(frozen=True, slots=True)
class KVCache:
    """Keys and values of all positions so far and of the source, in grids."""

    position: int
    keys: list[Float[Tensor, "batch _heads key d_k"]]  # layers may differ in their heads
    values: list[Float[Tensor, "batch _heads key d_v"]]
    source_keys: Sequence[Float[Tensor, "batch _heads source d_k"]]
    source_values: Sequence[Float[Tensor, "batch _heads source d_v"]]
    source_mask: Bool[Tensor, "batch 1 1 source"]
    sentences: Int[Tensor, " batch"]  # the sentence that each row translates
    window: int  # how many earlier positions are kept; 0: all

    def grow(self) -> "KVCache":
        """A cache of its own for one more position, whose keys and values each layer appends."""
        return replace(self, position=self.position + 1, keys=list(self.keys), values=list(self.values))

    def append(self, layer: int, keys: KeyRows, values: ValueRows) -> CachedKeyValues:
        """Add keys and values of the last position to a layer; return all that it attends to."""
        heads = self.keys[layer].shape[1]
        grown = torch.cat([self.keys[layer], split_position(keys, heads)], dim=2)
        grown_values = torch.cat([self.values[layer], split_position(values, heads)], dim=2)
        if self.window:
            grown, grown_values = grown[:, :, -self.window - 1 :], grown_values[:, :, -self.window - 1 :]
        self.keys[layer], self.values[layer] = grown, grown_values
        return CachedKeyValues(grown, grown_values, None)

    def source(self, layer: int) -> CachedKeyValues:
        """Keys and values of the source in a layer."""
        return CachedKeyValues(self.source_keys[layer], self.source_values[layer], self.source_mask)

    def select(self, rows: Int[Tensor, " chosen"]) -> "KVCache":
        """Keep these rows."""
        sentences = self.sentences[rows]
        # A beam reorders hypotheses within their sentence, so in most steps the source need not be copied.
        same = torch.equal(sentences, self.sentences)
        return KVCache(
            self.position,
            [k.index_select(0, rows) for k in self.keys],
            [v.index_select(0, rows) for v in self.values],
            self.source_keys if same else [k.index_select(0, rows) for k in self.source_keys],
            self.source_values if same else [v.index_select(0, rows) for v in self.source_values],
            self.source_mask if same else self.source_mask.index_select(0, rows),
            sentences,
            self.window,
        )


class RowPool:
    """Rows that can only be added to; views taken earlier never change."""

    def __init__(self, width: int) -> None:
        self._rows = torch.empty(0, width)
        self.used = 0

    def add(self, rows: Float[Tensor, "rows width"]) -> None:
        """Write these after all others."""
        end = self.used + len(rows)
        if end > len(self._rows):
            grown = self._rows.new_empty(2 * end, self._rows.shape[1])
            grown[: self.used] = self._rows[: self.used]
            self._rows = grown
        self._rows[self.used : end] = rows
        self.used = end

    @property
    def rows(self) -> Float[Tensor, "used width"]:
        """All rows so far."""
        return self._rows[: self.used]


@dataclass(frozen=True, slots=True)
class LayerPools:
    """Keys and values of one layer: those of all hypotheses, and those of the source."""

    keys: RowPool
    values: RowPool
    source_keys: Float[Tensor, "source_rows all_keys"]
    source_values: Float[Tensor, "source_rows all_values"]


@dataclass(frozen=True, slots=True)
class PooledKVCache:
    """For each hypothesis, the pool rows of its positions, and the span of its source among the rows of all sources."""

    layers: Sequence[LayerPools]
    slots: Int[Tensor, "batch position"]
    first: Int[Tensor, " batch"]
    lengths: Int[Tensor, " batch"]

    @property
    def position(self) -> int:
        """The number of positions so far."""
        return self.slots.shape[1]

    def grow(self) -> "PooledKVCache":
        """A cache with rows for one more position, whose keys and values each layer appends."""
        begin, count = self.layers[0].keys.used, len(self.first)
        new = torch.arange(begin, begin + count)[:, None]
        return PooledKVCache(self.layers, torch.cat([self.slots, new], dim=1), self.first, self.lengths)

    def append(self, layer: int, keys: KeyRows, values: ValueRows) -> PooledKeyValues:
        """Add keys and values of the last position to a layer; return all that it attends to."""
        pools = self.layers[layer]
        pools.keys.add(keys)
        pools.values.add(values)
        return PooledKeyValues(pools.keys.rows, pools.values.rows, self.slots)

    def source(self, layer: int) -> SpanKeyValues:
        """Keys and values of the source in a layer."""
        pools = self.layers[layer]
        return SpanKeyValues(pools.source_keys, pools.source_values, self.first, self.lengths)

    def select(self, rows: Int[Tensor, " chosen"]) -> "PooledKVCache":
        """Keep these rows."""
        return PooledKVCache(self.layers, self.slots[rows], self.first[rows], self.lengths[rows])


def start_cache(
    memory: Rows, layout: Layout, attentions: Sequence[tuple[SelfAttention, CrossAttention]], window: int
) -> KVCache | PooledKVCache:
    """The cache before the first position, with one hypothesis per sentence, of the kind that decodes faster."""
    if can_pool(memory, layout, window):
        return _start_pooled(memory, layout, attentions)
    batch = len(layout.lengths)
    source = [cross.project(memory, layout) for _, cross in attentions]
    sizes = [attention.head_sizes for attention, _ in attentions]
    return KVCache(
        position=0,
        keys=[memory.new_empty(batch, size.num_heads, 0, size.d_k) for size in sizes],
        values=[memory.new_empty(batch, size.num_heads, 0, size.d_v) for size in sizes],
        source_keys=[keys.contiguous() for keys, _ in source],
        source_values=[values.contiguous() for _, values in source],
        source_mask=key_mask(layout.mask),
        sentences=torch.arange(batch, device=memory.device),
        window=window,
    )


def can_pool(memory: Rows, layout: Layout, window: int) -> bool:
    """Whether the compiled loops apply, and there is enough work to make loading them worthwhile."""
    fits = memory.device.type == "cpu" and memory.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return fits and not window and not torch.is_grad_enabled() and len(layout.lengths) >= _MANY


def _start_pooled(
    memory: Rows, layout: Layout, attentions: Sequence[tuple[SelfAttention, CrossAttention]]
) -> PooledKVCache:
    layers = []
    for attention, cross in attentions:
        keys, values = cross.key_value(memory).split(cross.sizes, dim=1)
        pools = RowPool(attention.sizes[1]), RowPool(attention.sizes[2])
        layers.append(LayerPools(*pools, keys.contiguous(), values.contiguous()))
    lengths = layout.lengths
    return PooledKVCache(layers, lengths.new_empty(len(lengths), 0), lengths.cumsum(0) - lengths, lengths)
