"""Where the keys and values that queries attend to are kept, and how each becomes the grids of equation 1.

`PackedKeyValues` serve whole sentences: training, encoding and scoring. The others serve decoding, one position of each
hypothesis at a time, and differ in how hypotheses share memory.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heedful.nn.layout import Layout
from heedful.nn.masks import causal_mask, key_mask, window_mask
from heedful.nn.multi_head import (
    HeadOutputs,
    HeadSizes,
    join_heads,
    join_position,
    split_heads,
    split_position,
)

QueryRows = Float[Tensor, "rows query_columns"]
HeadRows = Float[Tensor, "rows all_heads"]
Keys = Float[Tensor, "batch heads key d_k"]
Values = Float[Tensor, "batch heads key d_v"]
Grids = tuple[Float[Tensor, "batch heads query d_k"], Keys, Values]
Mask = Bool[Tensor, "*#batch #query key"]
Distances = Int[Tensor, "query key"]


def distances_to_last(keys: int, device: torch.device) -> Distances:
    """How far each of these positions is to the right of the last one."""
    return torch.arange(1 - keys, 1, device=device)[None]


@dataclass(frozen=True, slots=True)
class PackedKeyValues:
    """Keys and values of whole sentences, as packed rows.

    `rows` holds the keys and then the values of all heads; if it is None, they follow the queries in the same rows.
    """

    rows: Float[Tensor, "key_rows key_columns"] | None
    query_layout: Layout
    key_layout: Layout
    causal: bool

    def grids(self, queries: QueryRows, sizes: HeadSizes) -> Grids:
        """Queries, keys and values of all heads as `attend` takes them."""
        heads, all_keys, all_values = sizes.num_heads, sizes.num_heads * sizes.d_k, sizes.num_heads * sizes.d_v
        if self.rows is None:
            q, k, v = self.query_layout.pad(queries).split((all_keys, all_keys, all_values), dim=-1)
        else:
            q = self.query_layout.pad(queries)
            k, v = self.key_layout.pad(self.rows).split((all_keys, all_values), dim=-1)
        return split_heads(q, heads), split_heads(k, heads), split_heads(v, heads)

    def mask(self, window: int) -> Mask | None:
        """Which keys each query may attend to; None: all."""
        here, there = self.query_layout, self.key_layout
        device = here.lengths.device
        if window:
            # Padding attends to itself, because a query without any key would give NaN.
            real = key_mask(here.mask) | torch.eye(here.longest, dtype=torch.bool, device=device)
            return window_mask(here.longest, window, self.causal, device) & real
        if self.causal:
            # Sentences start at column 0 of the grid, so this alone hides the padding from every real query.
            return causal_mask(here.longest, device)
        return None if there.full else key_mask(there.mask)

    @property
    def distances(self) -> Distances:
        """How far each key of the grid is to the right of each query."""
        device = self.query_layout.lengths.device
        here = torch.arange(self.query_layout.longest, device=device)
        return torch.arange(self.key_layout.longest, device=device) - here[:, None]

    def take_rows(self, outputs: HeadOutputs) -> HeadRows:
        """The results of all heads side by side, a row for each query."""
        return self.query_layout.pack(join_heads(outputs))


@dataclass(frozen=True, slots=True)
class CachedKeyValues:
    """Keys and values of earlier positions or of the source, in a grid with a row for each hypothesis."""

    keys: Keys
    values: Values
    key_mask: Bool[Tensor, "batch 1 1 key"] | None

    def grids(self, queries: QueryRows, sizes: HeadSizes) -> Grids:
        """Queries, keys and values of all heads as `attend` takes them."""
        return split_position(queries, sizes.num_heads), self.keys, self.values

    def mask(self, window: int) -> Mask | None:
        """Which keys exist; the cache holds no more than the window."""
        return self.key_mask

    @property
    def distances(self) -> Distances:
        """How far each key is to the right of the query, which is the last position."""
        return distances_to_last(self.keys.shape[2], self.keys.device)

    def take_rows(self, outputs: HeadOutputs) -> HeadRows:
        """The results of all heads side by side, a row for each query."""
        return join_position(outputs)


@dataclass(frozen=True, slots=True)
class PooledKeyValues:
    """Keys and values in a pool of rows that all hypotheses share; those of hypothesis i are the rows `slots[i]`."""

    keys: Float[Tensor, "pool all_keys"]
    values: Float[Tensor, "pool all_values"]
    slots: Int[Tensor, "batch key"]

    def grids(self, queries: QueryRows, sizes: HeadSizes) -> Grids:
        """Queries, keys and values of all heads as `attend` takes them."""
        k, v = (split_heads(pool[self.slots], sizes.num_heads) for pool in (self.keys, self.values))
        return split_position(queries, sizes.num_heads), k, v

    def mask(self, window: int) -> Mask | None:
        """None: all hypotheses have the same length."""
        return None

    @property
    def distances(self) -> Distances:
        """How far each key is to the right of the query, which is the last position."""
        return distances_to_last(self.slots.shape[1], self.slots.device)

    def take_rows(self, outputs: HeadOutputs) -> HeadRows:
        """The results of all heads side by side, a row for each query."""
        return join_position(outputs)


@dataclass(frozen=True, slots=True)
class SpanKeyValues:
    """Keys and values of the source, packed; those of hypothesis i are the `lengths[i]` rows from `first[i]` on."""

    keys: Float[Tensor, "source_rows all_keys"]
    values: Float[Tensor, "source_rows all_values"]
    first: Int[Tensor, " batch"]
    lengths: Int[Tensor, " batch"]

    def grids(self, queries: QueryRows, sizes: HeadSizes) -> Grids:
        """Queries, keys and values of all heads as `attend` takes them."""
        places = self.first[:, None] + torch.arange(int(self.lengths.max()))
        places = places.clamp(max=len(self.keys) - 1)
        k, v = (split_heads(rows[places], sizes.num_heads) for rows in (self.keys, self.values))
        return split_position(queries, sizes.num_heads), k, v

    def mask(self, window: int) -> Mask | None:
        """Which keys exist: sources differ in length."""
        return key_mask(torch.arange(int(self.lengths.max())) < self.lengths[:, None])

    def take_rows(self, outputs: HeadOutputs) -> HeadRows:
        """The results of all heads side by side, a row for each query."""
        return join_position(outputs)


KeyValues = PackedKeyValues | CachedKeyValues | PooledKeyValues | SpanKeyValues
