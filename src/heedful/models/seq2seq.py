"""Sequence-to-sequence models: their interface, the laws that they keep, and the parts that all families share.

1. Folding `step` from `start` over a target equals `decode` of it.
2. `state.select(rows)` commutes with `step`.
3. A row of `decode` depends on no later row of its sentence and on no other sentence.

Decoding and everything above it rely on this interface only, whatever family a model belongs to; training needs only
that of a `Predictor`.
"""

from abc import abstractmethod
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.models.predictor import AnyPredictor, M, Predictor
from heedful.nn.embedding import Embedding


@runtime_checkable
class DecoderState(Protocol):
    """The memory of a decoder between two steps, one row for each hypothesis."""

    def select(self, rows: Int[Tensor, " chosen"]) -> "DecoderState":
        """Keep these rows, in this order; a row may be chosen several times or not at all."""
        ...


S = TypeVar("S", bound=DecoderState)


class Seq2Seq(Predictor[M], Generic[M, S]):
    """A conditional distribution over target sequences; M is its memory of the source, S its state while decoding."""

    @abstractmethod
    def start(self, memory: M) -> S:
        """The state before the first token, with one row per sentence."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, " rows"], state: S) -> tuple[Float[Tensor, "rows vocabulary"], S]:
        """Take one more token per row; return the logits of the next token and the new state."""


AnySeq2Seq = Seq2Seq[Any, Any]


def require_seq2seq(model: AnyPredictor, origin: str) -> AnySeq2Seq:
    """The model itself, if it writes text token by token; `origin` names it in the error."""
    if not isinstance(model, Seq2Seq):
        kind = type(model).__name__
        verb = "find" if kind == "CLIP" else "classify"
        raise ConfigError(f"{origin} is a {kind}, which writes no text; use it with: heedful {verb}")
    return model


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
        if config.sharing in ("target", "none"):
            self.own_source = Embedding(source_vocabulary, config.d_model, pad_id, scale)
        self.own_output = None
        if config.sharing in ("inputs", "none"):
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
