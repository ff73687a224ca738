"""What all families share: the embeddings of source and target, and the output layer."""

from typing import Generic

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.models.seq2seq import M, S, Seq2Seq
from heedful.nn.embedding import Embedding


class EncoderDecoder(Seq2Seq[M, S], Generic[M, S]):
    """A model of any family, whose embeddings and output layer are shared as `model.sharing` says."""

    def __init__(
        self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int, pad_id: int, scale: float
    ) -> None:
        """Looking up an embedding multiplies it by `scale`."""
        super().__init__()
        self.config = config
        self.pad_id = pad_id
        self.target_embedding = Embedding(target_vocabulary, config.d_model, pad_id, scale)
        # A shared matrix exists once, under the target's name.
        self.own_source = None
        if config.sharing != "all":
            self.own_source = Embedding(source_vocabulary, config.d_model, pad_id, scale)
        self.own_output = None
        if config.sharing == "none":
            self.own_output = Embedding(target_vocabulary, config.d_model, pad_id, scale)
        self.own_bias = nn.Parameter(torch.zeros(target_vocabulary)) if config.output_bias else None

    @property
    def source_embedding(self) -> Embedding:
        """The embedding of source tokens: the target's unless they are separate."""
        return self.own_source or self.target_embedding

    @property
    def output_weight(self) -> Float[Tensor, "vocabulary d_model"]:
        """The output layer: the target embedding itself unless nothing is shared."""
        return (self.own_output or self.target_embedding).as_output

    @property
    def output_bias(self) -> Float[Tensor, " vocabulary"] | None:
        """The bias of the output layer, if `model.output_bias` is true."""
        return self.own_bias
