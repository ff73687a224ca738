"""Attention to the source as the Transformer's rivals have it: one head, on a grid of sentences."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from heedful.nn.heads import MultiHead
from heedful.nn.linear import glorot_linear

Queries = Float[Tensor, "batch query d_query"]
SourceKeys = Float[Tensor, "batch source d_key"]
Scores = Float[Tensor, "batch query source"]


@dataclass(frozen=True, slots=True)
class Source:
    """What a decoder looks at."""

    keys: Float[Tensor, "batch source d_key"]
    values: Float[Tensor, "batch source d_value"]
    mask: Bool[Tensor, "batch 1 source"]

    def select(self, rows: Int[Tensor, " chosen"]) -> "Source":
        """Keep the source of these rows."""
        return Source(*(part.index_select(0, rows) for part in (self.keys, self.values, self.mask)))


class SourceAttention(MultiHead, ABC):
    """A softmax over the scores of all source positions, and the mean of their values by it."""

    def __init__(self) -> None:
        super().__init__(num_heads=1)

    @abstractmethod
    def scores(self, queries: Queries, keys: SourceKeys) -> Scores:
        """How well each key fits each query."""

    def forward(self, queries: Queries, source: Source) -> Float[Tensor, "batch query d_value"]:
        context, weights = self.look(queries, source)
        self.show(weights)
        return context

    def look(
        self, queries: Queries, source: Source
    ) -> tuple[Float[Tensor, "batch query d_value"], Float[Tensor, "batch 1 query source"]]:
        """Contexts and weights; for who takes one query after another and shows all weights at once."""
        weights = self.scores(queries, source.keys).masked_fill(~source.mask, -torch.inf).softmax(-1)
        return self.gated((weights @ source.values)[:, None])[:, 0], weights[:, None]

    if TYPE_CHECKING:
        __call__ = forward


class AdditiveAttention(SourceAttention):
    """Bahdanau et al. (2015), A.1.2: v tanh(W query + U key)."""

    def __init__(self, d_query: int, d_source: int, width: int) -> None:
        super().__init__()
        self.query = glorot_linear(d_query, width)
        self.key = nn.Linear(d_source, width, bias=False)  # that of the query is enough
        self.score = nn.Parameter(torch.empty(width))
        nn.init.xavier_uniform_(self.key.weight)
        nn.init.normal_(self.score, std=width**-0.5)

    def scores(self, queries: Queries, keys: SourceKeys) -> Scores:
        batch, length, width = queries.shape
        projected = self.query(queries.reshape(-1, width)).view(batch, length, -1)
        return torch.tanh(projected[:, :, None] + keys[:, None]) @ self.score


class DotAttention(SourceAttention):
    """Gehring et al. (2017), equation 1: query and key as they are."""

    def scores(self, queries: Queries, keys: SourceKeys) -> Scores:
        return queries @ keys.transpose(-2, -1)


class MultiplicativeAttention(DotAttention):
    """Luong et al. (2015), equation 8, "general": query W key. The product of W and key is made once a sentence."""

    def __init__(self, d_query: int, d_source: int) -> None:
        super().__init__()
        self.key = nn.Linear(d_source, d_query, bias=False)
        nn.init.xavier_uniform_(self.key.weight)
