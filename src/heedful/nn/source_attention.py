"""Attention to the source in the Transformer's rivals: one head, on a grid of sentences."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from heedful.nn.linear import glorot_linear
from heedful.nn.multi_head import MultiHeadAttention

Queries = Float[Tensor, "batch query d_query"]
SourceKeys = Float[Tensor, "batch source d_key"]
Scores = Float[Tensor, "batch query source"]


@dataclass(frozen=True, slots=True)
class SourceKeyValues:
    """Keys and values of the source sentences, and the mask of their padding."""

    keys: Float[Tensor, "batch source d_key"]
    values: Float[Tensor, "batch source d_value"]
    mask: Bool[Tensor, "batch 1 source"]

    def select(self, rows: Int[Tensor, " chosen"]) -> "SourceKeyValues":
        """The sources of these rows."""
        return SourceKeyValues(*(part.index_select(0, rows) for part in (self.keys, self.values, self.mask)))


class SourceAttention(MultiHeadAttention, ABC):
    """The mean of the source's values, weighted by a softmax over scores."""

    def __init__(self) -> None:
        super().__init__(num_heads=1)

    def scores(self, queries: Queries, keys: SourceKeys) -> Scores:
        """The score of each key for each query."""
        return self.compare(queries, keys)

    @abstractmethod
    def compare(self, queries: Queries, keys: SourceKeys) -> Scores:
        """The scores of queries that are projected already, if the attention does that."""

    def forward(self, queries: Queries, source: SourceKeyValues) -> Float[Tensor, "batch query d_value"]:
        contexts, weights = self.attend(queries, source)
        self.report(weights)
        return contexts

    def attend(
        self, queries: Queries, source: SourceKeyValues
    ) -> tuple[Float[Tensor, "batch query d_value"], Float[Tensor, "batch 1 query source"]]:
        """Contexts and weights, for callers that run query by query and then report all weights at once."""
        weights = self.scores(queries, source.keys).masked_fill(~source.mask, -torch.inf).softmax(-1)
        return self.apply_gates((weights @ source.values)[:, None])[:, 0], weights[:, None]

    if TYPE_CHECKING:
        __call__ = forward


class AdditiveAttention(SourceAttention):
    """Bahdanau et al. (2015), A.1.2: v tanh(W query + U key)."""

    def __init__(self, d_query: int, d_source: int, width: int) -> None:
        super().__init__()
        self.query = glorot_linear(d_query, width)
        self.key = nn.Linear(d_source, width, bias=False)  # the query's bias is enough
        self.score = nn.Parameter(torch.empty(width))
        nn.init.xavier_uniform_(self.key.weight)
        nn.init.normal_(self.score, std=width**-0.5)

    def scores(self, queries: Queries, keys: SourceKeys) -> Scores:
        batch, length, width = queries.shape
        return self.compare(self.query(queries.reshape(-1, width)).view(batch, length, -1), keys)

    def compare(self, queries: Queries, keys: SourceKeys) -> Scores:
        return torch.tanh(queries[:, :, None] + keys[:, None]) @ self.score


class DotProductAttention(SourceAttention):
    """Gehring et al. (2017), equation 1: query times key, with no projection of its own and no scale."""

    def compare(self, queries: Queries, keys: SourceKeys) -> Scores:
        return queries @ keys.transpose(-2, -1)


class MultiplicativeAttention(DotProductAttention):
    """Luong et al. (2015), equation 8, "general": query W key. W key is computed once per sentence."""

    def __init__(self, d_query: int, d_source: int) -> None:
        super().__init__()
        self.key = nn.Linear(d_source, d_query, bias=False)
        nn.init.xavier_uniform_(self.key.weight)
