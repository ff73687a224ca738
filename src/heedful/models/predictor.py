"""Models that predict: what training, storage and the measurements need of a model, whatever family it belongs to.

A predictor reads sources and gives a distribution at each place that it is asked about: the tokens of a translation
(`heedful.models.seq2seq`), the label of a text, the tags of its words, or its hidden tokens (`heedful.models.bert`).

Sentences are packed: `source` and `target_in` hold the ids of all sentences end to end, `lengths` their lengths.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from heedful.kernels.matmul import narrow_products, products_are_narrow
from heedful.nn.dropout import DropoutKeys
from heedful.nn.multi_head import Kind, MultiHeadAttention

M = TypeVar("M")
SentenceKeys = Int[Tensor, " batch"] | None  # a dropout key for each sentence; see `heedful.nn.noise`


class Predictor(nn.Module, ABC, Generic[M]):
    """A conditional distribution over what is asked about a source; M is its memory of the source."""

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


AnyPredictor = Predictor[Any]
