"""The tables that all families have: embeddings of source and target, and the output layer."""

from typing import Generic

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.models.seq2seq import M, S, Seq2Seq
from heedful.nn.embedding import Embedding


class Embedded(Seq2Seq[M, S], Generic[M, S]):
    """A model whose tables are shared as `model.sharing` says, of whatever family."""

    def __init__(
        self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int, pad_id: int, scale: float
    ) -> None:
        """Embeddings are multiplied by `scale` when they are looked up."""
        super().__init__()
        self.config = config
        self.pad_id = pad_id
        self.target_embedding = Embedding(target_vocabulary, config.d_model, pad_id, scale)
        # Where matrices are shared, the weight exists once, under the target's name.
        self.own_source = None
        if config.sharing != "all":
            self.own_source = Embedding(source_vocabulary, config.d_model, pad_id, scale)
        self.own_output = None
        if config.sharing == "none":
            self.own_output = Embedding(target_vocabulary, config.d_model, pad_id, scale)
        self.own_bias = nn.Parameter(torch.zeros(target_vocabulary)) if config.output_bias else None

    @property
    def source_embedding(self) -> Embedding:
        """What the source is looked up in."""
        return self.own_source or self.target_embedding

    @property
    def output_weight(self) -> Float[Tensor, "vocabulary d_model"]:
        """The output layer: the target embedding itself unless nothing is shared."""
        return (self.own_output or self.target_embedding).as_output

    @property
    def output_bias(self) -> Float[Tensor, " vocabulary"] | None:
        """Only where `model.output_bias` says so."""
        return self.own_bias
