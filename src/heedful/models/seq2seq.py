"""Sequence-to-sequence models: their interface, the laws that they keep, and the parts that all families share.

Sentences are packed: `source` and `target_in` hold the ids of all sentences end to end, `lengths` their lengths.

1. Folding `step` from `start` over a target equals `decode` of it.
2. `state.select(rows)` commutes with `step`.
3. A row of `decode` depends on no later row of its sentence and on no other sentence.

Training, decoding and everything above them rely on this interface only, whatever family a model belongs to.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from heedful.config import ModelConfig
from heedful.kernels.matmul import narrow_products, products_are_narrow
from heedful.nn.dropout import DropoutKeys
from heedful.nn.embedding import Embedding
from heedful.nn.multi_head import Kind, MultiHeadAttention


@runtime_checkable
class DecoderState(Protocol):
    """The memory of a decoder between two steps, one row for each hypothesis."""

    def select(self, rows: Int[Tensor, " chosen"]) -> "DecoderState":
        """Keep these rows, in this order; a row may be chosen several times or not at all."""
        ...


M = TypeVar("M")
S = TypeVar("S", bound=DecoderState)
SentenceKeys = Int[Tensor, " batch"] | None  # a dropout key for each sentence; see `heedful.nn.noise`


class Seq2Seq(nn.Module, ABC, Generic[M, S]):
    """A conditional distribution over target sequences; M is its memory of the source, S its state while decoding."""

    pad_id: int
    checkpoint_activations: bool = False  # in training, recompute the activations of each layer instead of storing them

    @property
    @abstractmethod
    def layers(self) -> Iterable[nn.Module]:
        """The layers that are compiled and checkpointed one by one."""

    @property
    def attentions(self) -> Mapping[Kind, Sequence[MultiHeadAttention]]:
        """The attention of each layer, whose heads can be read and gated; some models have none."""
        return {}

    @abstractmethod
    def encode(
        self, source: Int[Tensor, " source_rows"], lengths: Int[Tensor, " batch"], sentence_keys: SentenceKeys = None
    ) -> M:
        """Read the source sentences."""

    @abstractmethod
    def features(
        self,
        target_in: Int[Tensor, " target_rows"],
        lengths: Int[Tensor, " batch"],
        memory: M,
        sentence_keys: SentenceKeys = None,
    ) -> Float[Tensor, "target_rows d_model"]:
        """The input of the output layer at each target position."""

    @property
    @abstractmethod
    def output_weight(self) -> Float[Tensor, "vocabulary d_model"]:
        """The matrix of the output layer."""

    @property
    def output_bias(self) -> Float[Tensor, " vocabulary"] | None:
        """The bias of the output layer; the paper's model has none."""
        return None

    @abstractmethod
    def start(self, memory: M) -> S:
        """The state before the first token, with one row per sentence."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, " rows"], state: S) -> tuple[Float[Tensor, "rows vocabulary"], S]:
        """Take one more token per row; return the logits of the next token and the new state."""

    def decode(
        self, target_in: Int[Tensor, " target_rows"], lengths: Int[Tensor, " batch"], memory: M
    ) -> Float[Tensor, "target_rows vocabulary"]:
        """The logits at all target positions at once."""
        return self.output(self.features(target_in, lengths, memory))

    def output(self, features: Float[Tensor, "rows d_model"]) -> Float[Tensor, "rows vocabulary"]:
        """The logits for these features."""
        return F.linear(features, self.output_weight, self.output_bias)

    def run_layer(self, layer: nn.Module, dropout_keys: DropoutKeys, *inputs: Any) -> Any:
        """The result of one of `layers`, whose dropout uses these keys; its activations are stored or recomputed."""
        if self.checkpoint_activations and self.training and torch.is_grad_enabled():
            # Keys give the same dropout twice. Where PyTorch's generator draws it, its state must be restored.
            drawn = dropout_keys is None or dropout_keys.device.type != "cpu"
            again = narrow_products if products_are_narrow() else nullcontext
            return checkpoint(
                layer,
                *inputs,
                use_reentrant=False,
                preserve_rng_state=drawn,
                context_fn=lambda: (nullcontext(), again()),  # PyTorch itself restores only autocast
            )
        return layer(*inputs)


AnySeq2Seq = Seq2Seq[Any, Any]


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
