"""ConvS2S: convolutions instead of recurrence (Gehring et al. 2017).

Gated linear units, residual connections scaled by sqrt(0.5), learned positions, attention to the source in every
decoder layer, and gradients of the encoder divided by twice the number of those, as in the authors' code. Embeddings
and hidden layers are of one width, d_model. There is no weight normalisation: it was for their optimiser, and Adam,
which all families are trained with here, scales each weight's step by itself; the initialisation is theirs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.models.embedded import Embedded
from heedful.models.seq2seq import Noise
from heedful.nn.convolution import HALF, GatedConvolution, scaled_linear
from heedful.nn.dropout import Dropout, number_sites
from heedful.nn.fused import Rows
from heedful.nn.heads import Kind, MultiHead
from heedful.nn.layout import Layout
from heedful.nn.positions import LearnedPositions
from heedful.nn.source_attention import DotAttention, Source


@dataclass(frozen=True, slots=True)
class Memory:
    """What all decoder layers look at, and the root of each sentence's length."""

    source: Source
    roots: Float[Tensor, " batch"]


@dataclass(frozen=True, slots=True)
class ConvolutionalState:
    """The last inputs of each layer, as far back as a window reaches, and the source."""

    position: int
    pasts: Float[Tensor, "batch layers past d_model"]
    source: Source
    roots: Float[Tensor, " batch"]
    sentences: Int[Tensor, " batch"]  # which sentence a row translates

    def select(self, rows: Int[Tensor, " chosen"]) -> "ConvolutionalState":
        """Keep these rows."""
        sentences, source, roots = self.sentences[rows], self.source, self.roots
        # As in the Transformer: most steps of a beam stay with their sentences.
        if not torch.equal(sentences, self.sentences):
            source, roots = source.select(rows), roots[rows]
        return ConvolutionalState(self.position, self.pasts.index_select(0, rows), source, roots, sentences)


class EncoderLayer(nn.Module):
    """A convolution that sees as far ahead as back."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.convolution = GatedConvolution(config.d_model, config.kernel_width, config.dropout)

    def forward(self, x: Rows, layout: Layout) -> Rows:
        return (self.convolution(x, layout, ahead=self.convolution.width // 2) + x) * HALF

    if TYPE_CHECKING:
        __call__ = forward


class DecoderLayer(nn.Module):
    """A convolution that looks back only, then attention to the source (section 3.3)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d = config.d_model
        self.convolution = GatedConvolution(d, config.kernel_width, config.dropout)
        self.query, self.output = scaled_linear(d, d), scaled_linear(d, d)
        self.attention = DotAttention()

    def forward(self, x: Rows, embedded: Rows, layout: Layout, memory: Memory) -> Rows:
        hidden = self.convolution(x, layout, ahead=0)
        queries = layout.pad(self.queries(hidden, embedded))
        context = layout.pack(self.attention(queries, memory.source) * memory.roots[:, None, None])
        return self.add_up(x, hidden, context)

    def step(
        self, x: Rows, embedded: Rows, past: Float[Tensor, "rows past d_model"], state: ConvolutionalState
    ) -> tuple[Rows, Float[Tensor, "rows past d_model"]]:
        """One position; gives what the next will look back at, too."""
        window = torch.cat([past, x[:, None]], dim=1)
        hidden = self.convolution.gate(window.flatten(1))
        context = self.attention(self.queries(hidden, embedded)[:, None], state.source)[:, 0]
        return self.add_up(x, hidden, context * state.roots[:, None]), window[:, 1:]

    def queries(self, hidden: Rows, embedded: Rows) -> Rows:
        """The state and the piece that was fed in."""
        return (self.query(hidden) + embedded) * HALF

    def add_up(self, x: Rows, hidden: Rows, context: Rows) -> Rows:
        """Both residual connections: around the attention, and around the layer."""
        return ((self.output(context) + hidden) * HALF + x) * HALF

    if TYPE_CHECKING:
        __call__ = forward


class Convolutional(Embedded[Memory, ConvolutionalState]):
    """Figure 1 of Gehring et al."""

    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int, pad_id: int) -> None:
        # Small embeddings, as theirs: attention multiplies them with no scale.
        super().__init__(config, source_vocabulary, target_vocabulary, pad_id, scale=1.0)
        d, dropout = config.d_model, config.dropout
        self.source_positions = LearnedPositions(d, config.max_positions)
        self.target_positions = LearnedPositions(d, config.max_positions)
        self.source_dropout, self.target_dropout, self.dropout = Dropout(dropout), Dropout(dropout), Dropout(dropout)
        self.source_in, self.source_out = scaled_linear(d, d, dropout), scaled_linear(d, d)
        self.target_in, self.target_out = scaled_linear(d, d, dropout), scaled_linear(d, d)
        encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.encoder, self.decoder = cast(Sequence[EncoderLayer], encoder), cast(Sequence[DecoderLayer], decoder)
        number_sites(self)

    @property
    def layers(self) -> Iterable[nn.Module]:
        """Encoder, then decoder."""
        return (*cast(nn.ModuleList, self.encoder), *cast(nn.ModuleList, self.decoder))

    @property
    def attentions(self) -> Mapping[Kind, Sequence[MultiHead]]:
        """Multi-step attention: one in each decoder layer."""
        return {"cross": [layer.attention for layer in self.decoder]}

    def encode(
        self, source: Int[Tensor, " source_rows"], lengths: Int[Tensor, " batch"], noise: Noise = None
    ) -> Memory:
        layout = Layout.of(lengths, noise)
        embedded = self.source_embedding(source) + self.source_positions(layout.positions, layout.longest)
        embedded = self.source_dropout(embedded, layout.keys)
        x = self.source_in(embedded)
        for layer in self.encoder:
            x = self.run_layer(layer, layout.keys, x, layout)
        keys = less_gradient(self.source_out(x), 0.5 / len(self.decoder))
        source_of = Source(layout.pad(keys), layout.pad((keys + embedded) * HALF), layout.mask[:, None])
        return Memory(source_of, lengths.to(keys.dtype).sqrt())

    def features(
        self,
        target_in: Int[Tensor, " target_rows"],
        lengths: Int[Tensor, " batch"],
        memory: Memory,
        noise: Noise = None,
    ) -> Float[Tensor, "target_rows d_model"]:
        layout = Layout.of(lengths, noise)
        embedded = self.target_embedding(target_in) + self.target_positions(layout.positions, layout.longest)
        embedded = self.target_dropout(embedded, layout.keys)
        x = self.target_in(embedded)
        for layer in self.decoder:
            x = self.run_layer(layer, layout.keys, x, embedded, layout, memory)
        return self.dropout(self.target_out(x), layout.keys)

    def start(self, memory: Memory) -> ConvolutionalState:
        values, config = memory.source.values, self.config
        batch = len(values)
        pasts = values.new_zeros(batch, config.decoder_layers, config.kernel_width - 1, config.d_model)
        sentences = torch.arange(batch, device=values.device)
        return ConvolutionalState(0, pasts, memory.source, memory.roots, sentences)

    def step(
        self, tokens: Int[Tensor, " rows"], state: ConvolutionalState
    ) -> tuple[Float[Tensor, "rows vocabulary"], ConvolutionalState]:
        here = tokens.new_tensor([state.position])
        embedded = self.target_embedding(tokens) + self.target_positions(here, state.position + 1)
        x, pasts = self.target_in(embedded), []
        for layer, past in zip(self.decoder, state.pasts.unbind(1), strict=True):
            x, grown = layer.step(x, embedded, past, state)
            pasts.append(grown)
        logits = self.output(self.target_out(x))
        after = torch.stack(pasts, dim=1)
        return logits, ConvolutionalState(state.position + 1, after, state.source, state.roots, state.sentences)


def less_gradient(x: Rows, factor: float) -> Rows:
    """The same numbers, whose gradient is multiplied: many attentions would send the encoder too much of it."""
    return cast(Tensor, _LessGradient.apply(x, factor))


class _LessGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, factor: float) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return gradient * ctx.factor, None
