"""BERT (Devlin et al., 2019): the Transformer without its decoder, which reads a text and answers questions about it.

What differs from figure 1, as Google's code has it:

- One stack, the encoder, and one of three heads on it: for the tokens that were hidden, for a label of the whole text,
  or for a label of each word. Without a head, its features are the answer: their summary is the vector of a text.
- GELU instead of ReLU, in its exact form; Google's own code has the form with tanh.
- Positions are learned, and so is a vector for the first and one for the second of two texts. The sum of the three
  embeddings has no factor sqrt(d_model), and a norm and dropout of its own.
- Norms behind the sub-layers as in the paper, with epsilon 1e-12.
- Weights start from N(0, 0.02), cut off at two standard deviations.

A text begins with [CLS] and ends with [SEP], which is EOS here. `target_in` holds the places in its text that the model
is asked about: each hidden token, the first piece of each word, or 0 for the text as a whole.

Our own choices by configuration: pre-norm with a norm behind the stack, relative positions, and the mean of all
positions instead of that of [CLS] as the summary of a text.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, assert_never, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.config import ModelConfig, Pooling
from heedful.models.predictor import Predictor, SentenceKeys
from heedful.models.transformer import EncoderLayer, Memory, add_positions, make_positions
from heedful.nn.dropout import Dropout, DropoutKeys, number_sites
from heedful.nn.embedding import Embedding
from heedful.nn.feed_forward import activate
from heedful.nn.layout import Layout, Rows
from heedful.nn.linear import draw_truncated, draw_truncated_weights, glorot_linear
from heedful.nn.multi_head import Kind, MultiHeadAttention
from heedful.nn.positions import LearnedPositions
from heedful.nn.residual import layer_norm

NORM_EPSILON = 1e-12
WEIGHT_STD = 0.02


class BERT(Predictor[Memory]):
    """A distribution for each place of a text that it is asked about."""

    def __init__(self, config: ModelConfig, vocabulary: int, pad_id: int) -> None:
        super().__init__()
        self.config = config
        self.pad_id = pad_id
        self.embedding = Embedding(vocabulary, config.d_model, pad_id, scale=1.0)
        self.positions = make_positions(config)
        self.token_types = nn.Parameter(torch.empty(2, config.d_model))
        self.embedding_norm = layer_norm(config.d_model, NORM_EPSILON)
        self.dropout = Dropout(config.dropout)
        heads = config.encoder_heads or (config.num_heads,) * config.encoder_layers
        encoder = nn.ModuleList(EncoderLayer(config, number, False, NORM_EPSILON) for number in heads)
        self.encoder = cast(Sequence[EncoderLayer], encoder)
        self.encoder_norm = layer_norm(config.d_model, NORM_EPSILON) if config.norm == "pre" else nn.Identity()
        self.head = make_head(config, vocabulary)
        self._draw_weights()
        number_sites(self)

    def _draw_weights(self) -> None:
        draw_truncated_weights(self, WEIGHT_STD)
        own = [self.embedding.weight, self.token_types]
        own += [self.positions.weight] if isinstance(self.positions, LearnedPositions) else []
        own += [] if self.head.weight is None else [self.head.weight]
        for weight in own:
            draw_truncated(weight, WEIGHT_STD)
        with torch.no_grad():
            self.embedding.weight[self.pad_id].zero_()

    @property
    def layers(self) -> Iterable[nn.Module]:
        """The encoder's."""
        return tuple(cast(nn.ModuleList, self.encoder))

    @property
    def attentions(self) -> Mapping[Kind, Sequence[MultiHeadAttention]]:
        """Self-attention of the encoder only."""
        return {"encoder": [layer.attention for layer in self.encoder]}

    @property
    def output_weight(self) -> Float[Tensor, "outputs d_model"]:
        """The embedding itself for hidden tokens, else a row for each label."""
        return self.embedding.as_output if self.head.weight is None else self.head.weight

    @property
    def output_bias(self) -> Float[Tensor, " outputs"] | None:
        """The head's own."""
        return self.head.bias

    def answers_like(self, other: "BERT") -> bool:
        """Whether another model has the same head with the same labels."""
        return (self.config.head, self.config.labels) == (other.config.head, other.config.labels)

    def encode(
        self, source: Int[Tensor, " source_rows"], lengths: Int[Tensor, " batch"], sentence_keys: SentenceKeys = None
    ) -> Memory:
        return self.read(source, torch.zeros_like(source), Layout.of(lengths, sentence_keys))

    def read(self, tokens: Int[Tensor, " rows"], types: Int[Tensor, " rows"], layout: Layout) -> Memory:
        """The features of all positions; `types` are 0 in the first of two texts and 1 in the second."""
        embedded = self.embedding(tokens) + self.token_types[types]
        embedded = add_positions(embedded, self.positions, layout.positions, layout.longest)
        x = self.dropout(self.embedding_norm(embedded), layout.dropout_keys)
        for layer in self.encoder:
            x = self.run_layer(layer, layout.dropout_keys, x, layout)
        return Memory(self.encoder_norm(x), layout)

    def features(
        self,
        target_in: Int[Tensor, " target_rows"],
        lengths: Int[Tensor, " batch"],
        memory: Memory,
        sentence_keys: SentenceKeys = None,
    ) -> Float[Tensor, "target_rows d_model"]:
        layout, rows = memory.layout, memory.rows
        first = layout.lengths.cumsum(0) - layout.lengths
        asked = first.repeat_interleave(lengths, output_size=len(target_in)) + target_in
        if self.config.pooling == "mean" and isinstance(self.head, SequenceHead):
            chosen = summarise(memory, "mean").repeat_interleave(lengths, 0, output_size=len(target_in))
        else:
            chosen = rows[asked]
        return self.head(chosen, None if layout.dropout_keys is None else layout.dropout_keys[asked])


def summarise(memory: Memory, pooling: Pooling) -> Float[Tensor, "batch d_model"]:
    """The features of each text as one vector: those of its first position, or the mean of all."""
    lengths = memory.layout.lengths
    match pooling:
        case "cls":
            return memory.rows[lengths.cumsum(0) - lengths]
        case "mean":
            return memory.layout.pad(memory.rows).sum(1) / lengths[:, None]
        case _:
            assert_never(pooling)


class MaskedHead(nn.Module):
    """For hidden tokens: dense, GELU and a norm; then the embedding with a bias of its own."""

    weight = None

    def __init__(self, config: ModelConfig, vocabulary: int) -> None:
        super().__init__()
        self.dense = glorot_linear(config.d_model, config.d_model)
        self.activation = config.activation
        self.norm = layer_norm(config.d_model, NORM_EPSILON)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, x: Rows, dropout_keys: DropoutKeys) -> Rows:
        return self.norm(activate(self.dense(x), self.activation))

    if TYPE_CHECKING:
        __call__ = forward


class TokenHead(nn.Module):
    """For a label of each word: dropout, then a row for each label."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.weight = nn.Parameter(torch.empty(len(config.labels), config.d_model))
        self.bias = nn.Parameter(torch.zeros(len(config.labels)))

    def forward(self, x: Rows, dropout_keys: DropoutKeys) -> Rows:
        return self.dropout(x, dropout_keys)

    if TYPE_CHECKING:
        __call__ = forward


class SequenceHead(TokenHead):
    """For a label of the whole text: the pooler, dense and tanh; then dropout and a row for each label."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.pooler = glorot_linear(config.d_model, config.d_model)

    def forward(self, x: Rows, dropout_keys: DropoutKeys) -> Rows:
        return self.dropout(self.pooler(x).tanh(), dropout_keys)

    if TYPE_CHECKING:
        __call__ = forward


class NoHead(nn.Module):
    """For a model whose features are the answer."""

    weight = None
    bias = None

    def forward(self, x: Rows, dropout_keys: DropoutKeys) -> Rows:
        return x

    if TYPE_CHECKING:
        __call__ = forward


def make_head(config: ModelConfig, vocabulary: int) -> MaskedHead | TokenHead | SequenceHead | NoHead:
    """The configured head."""
    match config.head:
        case "masked":
            return MaskedHead(config, vocabulary)
        case "sequence":
            return SequenceHead(config)
        case "tokens":
            return TokenHead(config)
        case "none":
            return NoHead()
        case _:
            assert_never(config.head)


def is_of_head(name: str) -> bool:
    """Whether a weight of this name belongs to a head, which fine-tuning replaces."""
    return name.startswith(("head.", "head_"))
