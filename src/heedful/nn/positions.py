"""Positional encodings (section 3.5), and the learned biases by distance that came after them."""

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


def sinusoids(positions: Int[Tensor, " rows"], d_model: int) -> Float[Tensor, "rows d_model"]:
    """Sine at even and cosine at odd dimensions, with wavelengths 10000^(2i/d_model) x 2 pi."""
    # On the CPU, because MPS has no float64. It is done once per length.
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angles = positions.cpu().double()[:, None] * torch.exp(even * (-math.log(10_000.0) / d_model))
    table = torch.empty(len(positions), d_model)
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles.cos()[:, : d_model // 2]
    return table.to(positions.device)


class SinusoidalPositions(nn.Module):
    """The paper's encoding. The table grows with the longest sentence so far, so no sentence is too long."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        # Not saved with the weights: d_model determines it.
        self.register_buffer("table", torch.empty(0, d_model), persistent=False)
        self.table: Tensor

    def forward(self, positions: Int[Tensor, " rows"], longest: int) -> Float[Tensor, "rows d_model"]:
        table = self.table
        if longest > len(table):  # other threads may replace it meanwhile; the local one stays long enough
            table = self.table = sinusoids(torch.arange(2 * longest, device=positions.device), self.d_model)
        return table.index_select(0, positions)

    if TYPE_CHECKING:
        __call__ = forward


class LearnedPositions(nn.Module):
    """Table 3, row E. Positions beyond the table use its last row."""

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, positions: Int[Tensor, " rows"], longest: int) -> Float[Tensor, "rows d_model"]:
        return self.weight[positions.clamp(max=len(self.weight) - 1)]

    if TYPE_CHECKING:
        __call__ = forward


class DistanceBias(nn.Module):
    """A learned number for each head and each distance from query to key, added to the scores of self-attention.

    The bias is that of T5 (Raffel et al., 2020), with the clipped distances of Shaw et al. (2018): all keys more than
    `max_distance` to one side share a number. It starts at zero, so it changes nothing before training.
    """

    # Scores differ by several units, but an update moves a weight by about the learning rate: this enlarges its steps.
    GAIN = 8.0

    def __init__(self, num_heads: int, max_distance: int) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.weight = nn.Parameter(torch.zeros(num_heads, 2 * max_distance + 1))

    def forward(self, distances: Int[Tensor, "*shape"]) -> Float[Tensor, "heads *shape"]:
        """The bias of each head for keys at these distances to the right of their queries."""
        clipped = distances.clamp(-self.max_distance, self.max_distance)
        return self.table()[:, clipped + self.max_distance]

    def table(self) -> Float[Tensor, "heads distances"]:
        """The bias of each head for each distance from -`max_distance` to `max_distance`."""
        return self.GAIN * self.weight

    if TYPE_CHECKING:
        __call__ = forward


class BucketBias(DistanceBias):
    """T5's own bias by distance (Raffel et al., 2020): a learned number for each head and each bucket of distances.

    Half of a direction's buckets hold one distance each, the others ranges that grow by a factor up to `max_distance`.
    In a causal stack, no key is to the right of its query, so all buckets are for keys to the left.
    """

    def __init__(self, num_heads: int, buckets: int, max_distance: int, causal: bool) -> None:
        super().__init__(num_heads, max_distance)
        self.weight = nn.Parameter(torch.zeros(buckets, num_heads))
        self.causal = causal

    def table(self) -> Float[Tensor, "heads distances"]:
        distances = torch.arange(-self.max_distance, self.max_distance + 1, device=self.weight.device)
        return self.weight.T[:, self.find_buckets(distances)]

    def find_buckets(self, distances: Int[Tensor, " distances"]) -> Int[Tensor, " distances"]:
        """The row of the weights for each of these distances."""
        buckets = len(self.weight)
        if self.causal:
            return self._find_on_one_side((-distances).clamp(min=0), buckets)
        return self._find_on_one_side(distances.abs(), buckets // 2) + buckets // 2 * (distances > 0)

    def _find_on_one_side(self, far: Int[Tensor, " distances"], buckets: int) -> Int[Tensor, " distances"]:
        single = buckets // 2  # buckets with one distance each
        growth = torch.log(far.clamp(min=1).float() / single) / math.log(self.max_distance / single)
        shared = single + (growth * (buckets - single)).long()
        return torch.where(far < single, far, shared.clamp(max=buckets - 1))
