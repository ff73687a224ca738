"""The Transformer (section 3)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.models.embedded import Embedded
from heedful.models.pooled import PooledState, can_pool, start_pooled
from heedful.models.seq2seq import Noise
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.dropout import Dropout, number_sites
from heedful.nn.feed_forward import FeedForward
from heedful.nn.fused import Rows
from heedful.nn.heads import Kind, MultiHead
from heedful.nn.layout import Layout
from heedful.nn.masks import key_mask
from heedful.nn.positions import LearnedPositions, SinusoidalPositions
from heedful.nn.residual import Residual, layer_norm


@dataclass(frozen=True, slots=True)
class Memory:
    """The encoder's output."""

    rows: Float[Tensor, "source_rows d_model"]
    layout: Layout


@dataclass(frozen=True, slots=True)
class TransformerState:
    """Keys and values of all positions so far and of the source, layer by layer."""

    position: int
    keys: list[Float[Tensor, "batch _heads key d_k"]]  # layers may differ in their heads
    values: list[Float[Tensor, "batch _heads key d_v"]]
    source_keys: Sequence[Float[Tensor, "batch _heads source d_k"]]
    source_values: Sequence[Float[Tensor, "batch _heads source d_v"]]
    source_mask: Bool[Tensor, "batch 1 1 source"]
    sentences: Int[Tensor, " batch"]  # which sentence a row translates

    def longer(self) -> "TransformerState":
        """A state of its own for one position more, whose keys and values each layer is about to add."""
        return replace(self, position=self.position + 1, keys=list(self.keys), values=list(self.values))

    def look_back(self, layer: int, attention: SelfAttention, x: Rows) -> Rows:
        """Attend from the last position to all before and to itself."""
        x, self.keys[layer], self.values[layer] = attention.step(x, self.keys[layer], self.values[layer])
        return x

    def look_at_source(self, layer: int, attention: CrossAttention, x: Rows) -> Rows:
        """Attend from the last position to the source."""
        return attention.step(x, self.source_keys[layer], self.source_values[layer], self.source_mask)

    def select(self, rows: Int[Tensor, " chosen"]) -> "TransformerState":
        """Keep these rows."""
        sentences = self.sentences[rows]
        # A beam reorders hypotheses within their sentence, whose source is the same: most steps need not copy it.
        same = torch.equal(sentences, self.sentences)
        return TransformerState(
            self.position,
            [k.index_select(0, rows) for k in self.keys],
            [v.index_select(0, rows) for v in self.values],
            self.source_keys if same else [k.index_select(0, rows) for k in self.source_keys],
            self.source_values if same else [v.index_select(0, rows) for v in self.source_values],
            self.source_mask if same else self.source_mask.index_select(0, rows),
            sentences,
        )


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    def __init__(self, config: ModelConfig, heads: int) -> None:
        super().__init__()
        self.attention = self_attention(config, heads)
        self.attention_residual = residual(config)
        self.feed_forward = feed_forward(config)
        self.feed_forward_residual = residual(config)

    def forward(self, x: Rows, layout: Layout) -> Rows:
        keys = layout.keys
        x = self.attention_residual(x, keys, lambda y: self.attention(y, layout, causal=False))
        return self.feed_forward_residual(x, keys, lambda y: self.feed_forward(y, keys))

    if TYPE_CHECKING:
        __call__ = forward


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, then the feed-forward network."""

    def __init__(self, config: ModelConfig, heads: int, cross_heads: int) -> None:
        super().__init__()
        self.attention = self_attention(config, heads)
        self.attention_residual = residual(config)
        self.cross_attention = CrossAttention(
            config.d_model, cross_heads, d_key(config), d_value(config), config.attention_dropout
        )
        self.cross_attention_residual = residual(config)
        self.feed_forward = feed_forward(config)
        self.feed_forward_residual = residual(config)

    def forward(self, x: Rows, layout: Layout, memory: Memory) -> Rows:
        keys = layout.keys
        x = self.attention_residual(x, keys, lambda y: self.attention(y, layout, causal=True))
        x = self.cross_attention_residual(
            x, keys, lambda y: self.cross_attention(y, layout, memory.rows, memory.layout)
        )
        return self.feed_forward_residual(x, keys, lambda y: self.feed_forward(y, keys))

    def step(self, x: Rows, layer: int, state: "TransformerState | PooledState") -> Rows:
        """One position of each hypothesis, with what the state remembers for this layer."""
        x = self.attention_residual(x, None, lambda y: state.look_back(layer, self.attention, y))
        x = self.cross_attention_residual(x, None, lambda y: state.look_at_source(layer, self.cross_attention, y))
        return self.feed_forward_residual(x, None, self.feed_forward)

    if TYPE_CHECKING:
        __call__ = forward


class Transformer(Embedded[Memory, TransformerState | PooledState]):
    """Figure 1."""

    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int, pad_id: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary, pad_id, scale=config.d_model**0.5)
        self.source_positions = positions(config)
        self.target_positions = positions(config)
        self.dropout, self.target_dropout = Dropout(config.dropout), Dropout(config.dropout)
        reading = config.encoder_heads or (config.num_heads,) * config.encoder_layers
        writing = config.decoder_heads or (config.num_heads,) * config.decoder_layers
        looking = config.cross_heads or (config.num_heads,) * config.decoder_layers
        # The casts tell the type checker what the layers are; PyTorch's list does not say.
        encoder = nn.ModuleList(EncoderLayer(config, heads) for heads in reading)
        decoder = nn.ModuleList(DecoderLayer(config, *heads) for heads in zip(writing, looking, strict=True))
        self.encoder, self.decoder = cast(Sequence[EncoderLayer], encoder), cast(Sequence[DecoderLayer], decoder)
        # With the norm inside the residual branch nothing has normalised the end of a stack yet.
        pre = config.norm == "pre"
        self.encoder_norm = layer_norm(config.d_model) if pre else nn.Identity()
        self.decoder_norm = layer_norm(config.d_model) if pre else nn.Identity()
        number_sites(self)

    @property
    def layers(self) -> Iterable[nn.Module]:
        """Encoder, then decoder."""
        return (*cast(nn.ModuleList, self.encoder), *cast(nn.ModuleList, self.decoder))

    @property
    def attentions(self) -> Mapping[Kind, Sequence[MultiHead]]:
        """Figure 1's three."""
        return {
            "encoder": [layer.attention for layer in self.encoder],
            "decoder": [layer.attention for layer in self.decoder],
            "cross": [layer.cross_attention for layer in self.decoder],
        }

    def encode(
        self, source: Int[Tensor, " source_rows"], lengths: Int[Tensor, " batch"], noise: Noise = None
    ) -> Memory:
        layout = Layout.of(lengths, noise)
        embedded = self.source_embedding(source)
        x = self.dropout(embedded + self.source_positions(layout.positions, layout.longest), layout.keys)
        for layer in self.encoder:
            x = self.run_layer(layer, layout.keys, x, layout)
        return Memory(self.encoder_norm(x), layout)

    def features(
        self,
        target_in: Int[Tensor, " target_rows"],
        lengths: Int[Tensor, " batch"],
        memory: Memory,
        noise: Noise = None,
    ) -> Float[Tensor, "target_rows d_model"]:
        layout = Layout.of(lengths, noise)
        embedded = self.target_embedding(target_in)
        x = self.target_dropout(embedded + self.target_positions(layout.positions, layout.longest), layout.keys)
        for layer in self.decoder:
            x = self.run_layer(layer, layout.keys, x, layout, memory)
        return self.decoder_norm(x)

    def start(self, memory: Memory) -> TransformerState | PooledState:
        attentions = [(layer.attention, layer.cross_attention) for layer in self.decoder]
        if can_pool(memory.rows, memory.layout, self.config.window):
            return start_pooled(memory.rows, memory.layout, attentions)
        batch, config = len(memory.layout.lengths), self.config
        source = [layer.cross_attention.project(memory.rows, memory.layout) for layer in self.decoder]
        heads = [layer.attention.num_heads for layer in self.decoder]
        return TransformerState(
            position=0,
            keys=[memory.rows.new_empty(batch, count, 0, d_key(config)) for count in heads],
            values=[memory.rows.new_empty(batch, count, 0, d_value(config)) for count in heads],
            source_keys=[keys.contiguous() for keys, _ in source],
            source_values=[values.contiguous() for _, values in source],
            source_mask=key_mask(memory.layout.mask),
            sentences=torch.arange(batch, device=memory.rows.device),
        )

    def step(
        self, tokens: Int[Tensor, " rows"], state: TransformerState | PooledState
    ) -> tuple[Float[Tensor, "rows vocabulary"], TransformerState | PooledState]:
        here, grown = tokens.new_tensor([state.position]), state.longer()
        x = self.target_dropout(self.target_embedding(tokens) + self.target_positions(here, state.position + 1), None)
        for index, layer in enumerate(self.decoder):
            x = layer.step(x, index, grown)
        return self.output(self.decoder_norm(x)), grown


def d_key(config: ModelConfig) -> int:
    """Width of a query and a key in one head."""
    return config.d_k or config.d_model // config.num_heads


def d_value(config: ModelConfig) -> int:
    """Width of a value in one head."""
    return config.d_v or config.d_model // config.num_heads


def self_attention(config: ModelConfig, heads: int) -> SelfAttention:
    """Attention within one sequence, sized by the configuration."""
    widths = d_key(config), d_value(config)
    return SelfAttention(config.d_model, heads, *widths, config.attention_dropout, config.window)


def feed_forward(config: ModelConfig) -> FeedForward:
    """The feed-forward network, sized by the configuration."""
    return FeedForward(config.d_model, config.d_ff, config.activation, config.activation_dropout)


def residual(config: ModelConfig) -> Residual:
    """The connection around a sub-layer."""
    return Residual(config.d_model, config.dropout, config.norm)


def positions(config: ModelConfig) -> SinusoidalPositions | LearnedPositions:
    """The positional encoding that the configuration names."""
    match config.positions:
        case "sinusoidal":
            return SinusoidalPositions(config.d_model)
        case "learned":
            return LearnedPositions(config.d_model, config.max_positions)
        case _:
            assert_never(config.positions)
