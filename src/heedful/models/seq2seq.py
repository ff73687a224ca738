"""What every sequence-to-sequence model can do, and the laws that it keeps.

Sentences are packed: `source` and `target_in` hold the ids of all sentences end to end, `lengths` says where each ends.

1. Folding `step` from `start` over a target equals `decode` of it.
2. `state.select(rows)` commutes with `step`.
3. A row of `decode` depends on no later row of its sentence and on no other sentence.

Training, search and everything above know only this, never which family a model is of.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from heedful.nn.dropout import Keys
from heedful.nn.heads import Kind, MultiHead


@runtime_checkable
class State(Protocol):
    """What a decoder remembers of its hypotheses, one row each."""

    def select(self, rows: Int[Tensor, " chosen"]) -> "State":
        """Keep these rows, in this order; a row may come more than once or not at all."""
        ...


M = TypeVar("M")
Noise = Int[Tensor, " batch"] | None  # a key a sentence that dropout is drawn from; see `heedful.nn.noise`
S = TypeVar("S", bound=State)


class Seq2Seq(nn.Module, ABC, Generic[M, S]):
    """A conditional distribution over target sequences; M is its memory of the source, S its state while decoding."""

    pad_id: int
    checkpoint_activations: bool = False  # in training, work out each layer's activations twice instead of keeping them

    @property
    @abstractmethod
    def layers(self) -> Iterable[nn.Module]:
        """The parts whose activations are kept or not, and that are compiled, one by one."""

    @property
    def attentions(self) -> Mapping[Kind, Sequence[MultiHead]]:
        """The attention of each layer, for who looks at heads or switches them off; not all models have any."""
        return {}

    @abstractmethod
    def encode(self, source: Int[Tensor, " source_rows"], lengths: Int[Tensor, " batch"], noise: Noise = None) -> M:
        """Read the source sentences."""

    @abstractmethod
    def features(
        self, target_in: Int[Tensor, " target_rows"], lengths: Int[Tensor, " batch"], memory: M, noise: Noise = None
    ) -> Float[Tensor, "target_rows d_model"]:
        """What the output layer sees at each target position."""

    @property
    @abstractmethod
    def output_weight(self) -> Float[Tensor, "vocabulary d_model"]:
        """The matrix of the output layer."""

    @property
    def output_bias(self) -> Float[Tensor, " vocabulary"] | None:
        """The bias of the output layer, which the paper's has not."""
        return None

    @abstractmethod
    def start(self, memory: M) -> S:
        """The state before the first token, one row a sentence."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, " rows"], state: S) -> tuple[Float[Tensor, "rows vocabulary"], S]:
        """Take one more token a row; give the logits of the next."""

    def decode(
        self, target_in: Int[Tensor, " target_rows"], lengths: Int[Tensor, " batch"], memory: M
    ) -> Float[Tensor, "target_rows vocabulary"]:
        """The logits at each target position, all at once."""
        return self.output(self.features(target_in, lengths, memory))

    def output(self, features: Float[Tensor, "rows d_model"]) -> Float[Tensor, "rows vocabulary"]:
        """What the output layer makes of features."""
        return F.linear(features, self.output_weight, self.output_bias)

    def run_layer(self, layer: nn.Module, keys: Keys, *inputs: Any) -> Any:
        """What one of `layers` gives; its dropout is drawn from these keys. Its activations are kept if they are to."""
        if self.checkpoint_activations and self.training and torch.is_grad_enabled():
            # A hash draws the same dropout twice; where PyTorch's generator draws it has to be turned back.
            drawn = keys is None or keys.device.type != "cpu"
            return checkpoint(layer, *inputs, use_reentrant=False, preserve_rng_state=drawn)
        return layer(*inputs)


AnySeq2Seq = Seq2Seq[Any, Any]
