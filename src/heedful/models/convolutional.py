"""ConvS2S: convolutions instead of recurrence (Gehring et al. 2017).

Gated linear units, residual connections scaled by sqrt(0.5), learned positions, attention to the source in every
decoder layer, and gradients of the encoder divided by twice the number of decoder layers, as in the authors' code.
Embeddings and hidden layers have the same width, d_model. The initialisation is theirs. There is no weight
normalisation: their optimiser needed it, but Adam, which trains all families here, scales the step of each weight.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.models.predictor import SentenceKeys
from heedful.models.seq2seq import EncoderDecoder
from heedful.nn.dropout import Dropout, number_sites
from heedful.nn.layout import Layout, Rows
from heedful.nn.linear import Linear
from heedful.nn.multi_head import Kind, MultiHeadAttention
from heedful.nn.positions import LearnedPositions
from heedful.nn.source_attention import DotProductAttention, SourceKeyValues

SQRT_HALF = 0.5**0.5  # scales a sum of two terms to the variance of one (section 3.4)


@dataclass(frozen=True, slots=True)
class ConvolutionalMemory:
    """The source that all decoder layers attend to, and the square root of each sentence's length."""

    source: SourceKeyValues
    sqrt_lengths: Float[Tensor, " batch"]


@dataclass(frozen=True, slots=True)
class ConvolutionalState:
    """The last inputs of each layer, as many as a convolution reaches back, and the source."""

    position: int
    past: Float[Tensor, "batch layers past d_model"]
    source: SourceKeyValues
    sqrt_lengths: Float[Tensor, " batch"]
    sentences: Int[Tensor, " batch"]  # the sentence that each row translates

    def select(self, rows: Int[Tensor, " chosen"]) -> "ConvolutionalState":
        """Keep these rows."""
        sentences, source, sqrt_lengths = self.sentences[rows], self.source, self.sqrt_lengths
        # As in the Transformer: in most steps of a beam, rows stay with their sentences.
        if not torch.equal(sentences, self.sentences):
            source, sqrt_lengths = source.select(rows), sqrt_lengths[rows]
        return ConvolutionalState(self.position, self.past.index_select(0, rows), source, sqrt_lengths, sentences)


def scaled_linear(inputs: int, outputs: int, dropout: float = 0.0, gain: float = 1.0) -> Linear:
    """A linear layer that preserves the variance of its input, which dropout has increased (section 3.5)."""
    layer = Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=(gain * (1.0 - dropout) / inputs) ** 0.5)
    nn.init.zeros_(layer.bias)
    return layer


class GatedConvolution(nn.Module):
    """Section 3.2: dropout, a convolution over `width` positions to twice the width, and a gated linear unit.

    The convolution is a linear layer applied to the window of each position, so it runs on packed rows without padding
    like every other product.
    """

    def __init__(self, d_model: int, width: int, dropout: float) -> None:
        super().__init__()
        self.width = width
        self.dropout = Dropout(dropout)
        # A gate roughly halves its input, which leaves a quarter of the variance.
        self.linear = scaled_linear(width * d_model, 2 * d_model, dropout, gain=4.0)

    def forward(self, x: Rows, layout: Layout, ahead: int) -> Rows:
        """Convolve windows that end `ahead` positions after the current one; beyond the sentence there are zeros."""
        x = self.dropout(x, layout.dropout_keys)
        return self.convolve(gather_windows(x, layout, range(ahead + 1 - self.width, ahead + 1)))

    def convolve(self, windows: Float[Tensor, "rows window"]) -> Rows:
        """The linear map and the gate, on windows whose positions are side by side."""
        return F.glu(self.linear(windows), dim=1)

    if TYPE_CHECKING:
        __call__ = forward


def gather_windows(x: Rows, layout: Layout, offsets: Iterable[int]) -> Float[Tensor, "rows window"]:
    """The rows at these offsets from each row, side by side; zeros beyond the ends of its sentence."""
    ends = layout.lengths.repeat_interleave(layout.lengths, output_size=len(x))
    shifted = []
    for offset in offsets:
        there = layout.positions + offset
        inside = ((there >= 0) & (there < ends)).to(x.dtype)[:, None]
        # All rows move, even across sentences; rows of another sentence are multiplied by zero.
        shifted.append(x.roll(-offset, 0) * inside if offset else x)
    return torch.cat(shifted, dim=1)


class ConvolutionalEncoderLayer(nn.Module):
    """A convolution that reaches as far ahead as back."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.convolution = GatedConvolution(config.d_model, config.kernel_width, config.dropout)

    def forward(self, x: Rows, layout: Layout) -> Rows:
        return (self.convolution(x, layout, ahead=self.convolution.width // 2) + x) * SQRT_HALF

    if TYPE_CHECKING:
        __call__ = forward


class ConvolutionalDecoderLayer(nn.Module):
    """A causal convolution, then attention to the source (section 3.3)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d = config.d_model
        self.convolution = GatedConvolution(d, config.kernel_width, config.dropout)
        self.query, self.output = scaled_linear(d, d), scaled_linear(d, d)
        self.attention = DotProductAttention()

    def forward(self, x: Rows, embedded: Rows, layout: Layout, memory: ConvolutionalMemory) -> Rows:
        hidden = self.convolution(x, layout, ahead=0)
        queries = layout.pad(self.make_queries(hidden, embedded))
        context = layout.pack(self.attention(queries, memory.source) * memory.sqrt_lengths[:, None, None])
        return self.add_residuals(x, hidden, context)

    def step(
        self, x: Rows, embedded: Rows, past: Float[Tensor, "rows past d_model"], state: ConvolutionalState
    ) -> tuple[Rows, Float[Tensor, "rows past d_model"]]:
        """One position; returns the past for the next one too."""
        window = torch.cat([past, x[:, None]], dim=1)
        hidden = self.convolution.convolve(window.flatten(1))
        context = self.attention(self.make_queries(hidden, embedded)[:, None], state.source)[:, 0]
        return self.add_residuals(x, hidden, context * state.sqrt_lengths[:, None]), window[:, 1:]

    def make_queries(self, hidden: Rows, embedded: Rows) -> Rows:
        """The projected state plus the embedding of the last token."""
        return (self.query(hidden) + embedded) * SQRT_HALF

    def add_residuals(self, x: Rows, hidden: Rows, context: Rows) -> Rows:
        """Add both residual connections: around the attention, and around the layer."""
        return ((self.output(context) + hidden) * SQRT_HALF + x) * SQRT_HALF

    if TYPE_CHECKING:
        __call__ = forward


class Convolutional(EncoderDecoder[ConvolutionalMemory, ConvolutionalState]):
    """The model of figure 1 of Gehring et al."""

    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int, pad_id: int) -> None:
        # Small embeddings, like theirs, because their attention multiplies them without a scale.
        super().__init__(config, source_vocabulary, target_vocabulary, pad_id, scale=1.0)
        d, dropout = config.d_model, config.dropout
        self.source_positions = LearnedPositions(d, config.max_positions)
        self.target_positions = LearnedPositions(d, config.max_positions)
        self.source_dropout, self.target_dropout, self.dropout = Dropout(dropout), Dropout(dropout), Dropout(dropout)
        self.source_in, self.source_out = scaled_linear(d, d, dropout), scaled_linear(d, d)
        self.target_in, self.target_out = scaled_linear(d, d, dropout), scaled_linear(d, d)
        encoder = nn.ModuleList(ConvolutionalEncoderLayer(config) for _ in range(config.encoder_layers))
        decoder = nn.ModuleList(ConvolutionalDecoderLayer(config) for _ in range(config.decoder_layers))
        self.encoder = cast(Sequence[ConvolutionalEncoderLayer], encoder)
        self.decoder = cast(Sequence[ConvolutionalDecoderLayer], decoder)
        number_sites(self)

    @property
    def layers(self) -> Iterable[nn.Module]:
        """Encoder, then decoder."""
        return (*cast(nn.ModuleList, self.encoder), *cast(nn.ModuleList, self.decoder))

    @property
    def attentions(self) -> Mapping[Kind, Sequence[MultiHeadAttention]]:
        """Multi-step attention: one in each decoder layer."""
        return {"cross": [layer.attention for layer in self.decoder]}

    def encode(
        self, source: Int[Tensor, " source_rows"], lengths: Int[Tensor, " batch"], sentence_keys: SentenceKeys = None
    ) -> ConvolutionalMemory:
        layout = Layout.of(lengths, sentence_keys)
        embedded = self.source_embedding(source) + self.source_positions(layout.positions, layout.longest)
        embedded = self.source_dropout(embedded, layout.dropout_keys)
        x = self.source_in(embedded)
        for layer in self.encoder:
            x = self.run_layer(layer, layout.dropout_keys, x, layout)
        keys = scale_gradient(self.source_out(x), 0.5 / len(self.decoder))
        values = (keys + embedded) * SQRT_HALF
        key_values = SourceKeyValues(layout.pad(keys), layout.pad(values), layout.mask[:, None])
        return ConvolutionalMemory(key_values, lengths.to(keys.dtype).sqrt())

    def features(
        self,
        target_in: Int[Tensor, " target_rows"],
        lengths: Int[Tensor, " batch"],
        memory: ConvolutionalMemory,
        sentence_keys: SentenceKeys = None,
    ) -> Float[Tensor, "target_rows d_model"]:
        layout = Layout.of(lengths, sentence_keys)
        embedded = self.target_embedding(target_in) + self.target_positions(layout.positions, layout.longest)
        embedded = self.target_dropout(embedded, layout.dropout_keys)
        x = self.target_in(embedded)
        for layer in self.decoder:
            x = self.run_layer(layer, layout.dropout_keys, x, embedded, layout, memory)
        return self.dropout(self.target_out(x), layout.dropout_keys)

    def start(self, memory: ConvolutionalMemory) -> ConvolutionalState:
        values, config = memory.source.values, self.config
        batch = len(values)
        past = values.new_zeros(batch, config.decoder_layers, config.kernel_width - 1, config.d_model)
        sentences = torch.arange(batch, device=values.device)
        return ConvolutionalState(0, past, memory.source, memory.sqrt_lengths, sentences)

    def step(
        self, tokens: Int[Tensor, " rows"], state: ConvolutionalState
    ) -> tuple[Float[Tensor, "rows vocabulary"], ConvolutionalState]:
        here = tokens.new_tensor([state.position])
        embedded = self.target_embedding(tokens) + self.target_positions(here, state.position + 1)
        x, pasts = self.target_in(embedded), []
        for layer, past in zip(self.decoder, state.past.unbind(1), strict=True):
            x, next_past = layer.step(x, embedded, past, state)
            pasts.append(next_past)
        logits = self.output(self.target_out(x))
        after = torch.stack(pasts, dim=1)
        return logits, ConvolutionalState(state.position + 1, after, state.source, state.sqrt_lengths, state.sentences)


def scale_gradient(x: Rows, factor: float) -> Rows:
    """The same numbers, with their gradient multiplied by a factor: many attentions add up to too much of it."""
    return cast(Tensor, _ScaleGradient.apply(x, factor))


class _ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, factor: float) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return gradient * ctx.factor, None
