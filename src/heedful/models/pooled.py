"""What a Transformer's decoder remembers of many hypotheses on a processor, without ever copying it.

The keys and values of every position of every hypothesis that ever lived stand in one pool a layer. A hypothesis is a
list of places in it; to reorder hypotheses is to reorder those lists. Keys and values of the source stand there once
for all hypotheses of a sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heedful.nn.attention import CrossAttention, SelfAttention, attend, join_heads, split_heads
from heedful.nn.fused import Rows
from heedful.nn.heads import MultiHead
from heedful.nn.layout import Layout
from heedful.nn.masks import key_mask

_MANY = 8  # sentences: for fewer, loading the compiled loops would take longer than they save


class Pool:
    """Rows that only become more; those who know of fewer never see a change."""

    def __init__(self, width: int) -> None:
        self._rows = torch.empty(0, width)
        self.used = 0

    def add(self, rows: Float[Tensor, "rows width"]) -> None:
        """Write these behind all others."""
        end = self.used + len(rows)
        if end > len(self._rows):
            grown = self._rows.new_empty(2 * end, self._rows.shape[1])
            grown[: self.used] = self._rows[: self.used]
            self._rows = grown
        self._rows[self.used : end] = rows
        self.used = end

    @property
    def rows(self) -> Float[Tensor, "used width"]:
        """All of them."""
        return self._rows[: self.used]


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """What one layer of the decoder looks at: the past of all hypotheses, and the source."""

    keys: Pool
    values: Pool
    source_keys: Float[Tensor, "source_rows all_keys"]
    source_values: Float[Tensor, "source_rows all_values"]


@dataclass(frozen=True, slots=True)
class PooledState:
    """The hypotheses: where the past of each stands in the pools, and its source among the rows of all sources."""

    layers: Sequence[LayerMemory]
    slots: Int[Tensor, "batch position"]
    first: Int[Tensor, " batch"]
    lengths: Int[Tensor, " batch"]

    @property
    def position(self) -> int:
        """How much has been said."""
        return self.slots.shape[1]

    def select(self, rows: Int[Tensor, " chosen"]) -> "PooledState":
        """Keep these rows."""
        return PooledState(self.layers, self.slots[rows], self.first[rows], self.lengths[rows])

    def longer(self) -> "PooledState":
        """With a place for one position more, which each layer is about to fill."""
        begin, count = self.layers[0].keys.used, len(self.first)
        return PooledState(
            self.layers,
            torch.cat([self.slots, torch.arange(begin, begin + count)[:, None]], dim=1),
            self.first,
            self.lengths,
        )

    def look_back(self, layer: int, attention: SelfAttention, x: Rows) -> Rows:
        """Attend from the last position to all before and to itself."""
        from heedful.kernels.attention_kernels import attend_slots

        memory, (q, k, v) = self.layers[layer], attention.query_key_value(x).split(attention.sizes, dim=1)
        memory.keys.add(k)
        memory.values.add(v)
        if attention.touched:
            past = memory.keys.rows[self.slots], memory.values.rows[self.slots]
            return attention.output(_plain(attention, q, *past, None))
        keys, values = memory.keys.rows.numpy(), memory.values.rows.numpy()
        out = x.new_empty(len(x), attention.sizes[2])
        heads, scale = attention.num_heads, np.float32(attention.head_sizes.d_k**-0.5)
        attend_slots(q.contiguous().numpy(), keys, values, self.slots.numpy(), heads, scale, out.numpy())
        return attention.output(out)

    def look_at_source(self, layer: int, attention: CrossAttention, x: Rows) -> Rows:
        """Attend from the last position to the source."""
        from heedful.kernels.attention_kernels import attend_spans

        memory, q = self.layers[layer], attention.query(x)
        if attention.touched:
            places = torch.arange(int(self.lengths.max()))
            mask = key_mask(places < self.lengths[:, None])
            places = (self.first[:, None] + places).clamp(max=len(memory.source_keys) - 1)
            return attention.output(
                _plain(attention, q, memory.source_keys[places], memory.source_values[places], mask)
            )
        out = x.new_empty(len(x), attention.sizes[1])
        heads, scale = attention.num_heads, np.float32(attention.head_sizes.d_k**-0.5)
        source = memory.source_keys.numpy(), memory.source_values.numpy()
        attend_spans(q.numpy(), *source, self.first.numpy(), self.lengths.numpy(), heads, scale, out.numpy())
        return attention.output(out)


def _plain(
    heads: MultiHead,
    q: Float[Tensor, "batch all_keys"],
    keys: Float[Tensor, "batch key all_keys"],
    values: Float[Tensor, "batch key all_values"],
    mask: Bool[Tensor, "batch 1 1 key"] | None,
) -> Float[Tensor, "batch all_values"]:
    """The same without the compiled loops, for who watches heads or switches them off."""
    query, key, value = (split_heads(x, heads.num_heads) for x in (q[:, None], keys, values))
    return join_heads(heads.passed_on(*attend(query, key, value, mask)))[:, 0]


def can_pool(rows: Rows, layout: Layout, window: int) -> bool:
    """Whether the compiled loops do such attention, and there is enough for them to do."""
    fits = rows.device.type == "cpu" and rows.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return fits and not window and not torch.is_grad_enabled() and len(layout.lengths) >= _MANY


def start_pooled(rows: Rows, layout: Layout, attentions: Sequence[tuple[SelfAttention, CrossAttention]]) -> PooledState:
    """Nothing said yet; one hypothesis a sentence."""
    layers = []
    for attention, cross in attentions:
        keys, values = cross.key_value(rows).split(cross.sizes, dim=1)
        pools = Pool(attention.sizes[1]), Pool(attention.sizes[2])
        layers.append(LayerMemory(*pools, keys.contiguous(), values.contiguous()))
    lengths = layout.lengths
    return PooledState(layers, lengths.new_empty(len(lengths), 0), lengths.cumsum(0) - lengths, lengths)
