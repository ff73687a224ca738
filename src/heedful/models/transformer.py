"""The Transformer (section 3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.models.seq2seq import Seq2Seq
from heedful.nn.attention import CrossAttention, Keys, SelfAttention, Values
from heedful.nn.dropout import Dropout
from heedful.nn.embedding import Embedding
from heedful.nn.feed_forward import FeedForward
from heedful.nn.layout import Layout
from heedful.nn.masks import causal_mask, key_mask
from heedful.nn.positions import LearnedPositions, SinusoidalPositions
from heedful.nn.residual import Residual, Rows, layer_norm

Mask = Bool[Tensor, "*#batch #query key"] | None
SourceMask = Bool[Tensor, "batch 1 1 source"] | None


@dataclass(frozen=True, slots=True)
class Memory:
    """The encoder's output."""

    rows: Float[Tensor, "source_rows d_model"]
    layout: Layout

    @property
    def mask(self) -> Bool[Tensor, "batch 1 1 key"] | None:
        """Which source positions exist; None where all do."""
        return None if self.layout.full else key_mask(self.layout.mask)


@dataclass(frozen=True, slots=True)
class TransformerState:
    """Keys and values of all positions so far and of the source, layer by layer."""

    position: int
    keys: Sequence[Keys]
    values: Sequence[Values]
    source_keys: Sequence[Float[Tensor, "batch heads source d_k"]]
    source_values: Sequence[Float[Tensor, "batch heads source d_v"]]
    source_mask: Bool[Tensor, "batch 1 1 source"]
    sentences: Int[Tensor, " batch"]  # which sentence a row translates

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

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = self_attention(config)
        self.attention_residual = residual(config)
        self.feed_forward = feed_forward(config)
        self.feed_forward_residual = residual(config)

    def forward(self, x: Rows, layout: Layout, mask: Mask) -> Rows:
        x = self.attention_residual(x, lambda y: self.attention(y, layout, mask))
        return self.feed_forward_residual(x, self.feed_forward)

    if TYPE_CHECKING:
        __call__ = forward


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, then the feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = self_attention(config)
        self.attention_residual = residual(config)
        self.cross_attention = CrossAttention(
            config.d_model, config.num_heads, d_key(config), d_value(config), config.attention_dropout
        )
        self.cross_attention_residual = residual(config)
        self.feed_forward = feed_forward(config)
        self.feed_forward_residual = residual(config)

    def forward(self, x: Rows, layout: Layout, mask: Mask, memory: Memory, memory_mask: SourceMask) -> Rows:
        x = self.attention_residual(x, lambda y: self.attention(y, layout, mask))
        x = self.cross_attention_residual(
            x, lambda y: self.cross_attention(y, layout, memory.rows, memory.layout, memory_mask)
        )
        return self.feed_forward_residual(x, self.feed_forward)

    def step(self, x: Rows, layer: int, state: TransformerState) -> tuple[Rows, Keys, Values]:
        """One position, with the caches of this layer; gives the longer keys and values too."""
        grown: list[Tensor] = []

        def look_back(y: Rows) -> Rows:
            y, keys, values = self.attention.step(y, state.keys[layer], state.values[layer])
            grown.extend((keys, values))
            return y

        def look_at_source(y: Rows) -> Rows:
            keys, values = state.source_keys[layer], state.source_values[layer]
            return self.cross_attention.step(y, keys, values, state.source_mask)

        x = self.attention_residual(x, look_back)
        x = self.cross_attention_residual(x, look_at_source)
        return self.feed_forward_residual(x, self.feed_forward), grown[0], grown[1]

    if TYPE_CHECKING:
        __call__ = forward


class Transformer(Seq2Seq[Memory, TransformerState]):
    """Figure 1."""

    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int, pad_id: int) -> None:
        super().__init__()
        self.config = config
        self.pad_id = pad_id
        self.target_embedding = Embedding(target_vocabulary, config.d_model, pad_id)
        # Where matrices are shared, the weight exists once, under the target's name.
        self.own_source = None
        if config.sharing != "all":
            self.own_source = Embedding(source_vocabulary, config.d_model, pad_id)
        self.own_output = None
        if config.sharing == "none":
            self.own_output = Embedding(target_vocabulary, config.d_model, pad_id)
        self.source_positions = positions(config)
        self.target_positions = positions(config)
        self.dropout = Dropout(config.dropout)
        # The casts tell the type checker what the layers are; PyTorch's list does not say.
        encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.encoder, self.decoder = cast(Sequence[EncoderLayer], encoder), cast(Sequence[DecoderLayer], decoder)
        # With the norm inside the residual branch nothing has normalised the end of a stack yet.
        pre = config.norm == "pre"
        self.encoder_norm = layer_norm(config.d_model) if pre else nn.Identity()
        self.decoder_norm = layer_norm(config.d_model) if pre else nn.Identity()

    @property
    def output_weight(self) -> Float[Tensor, "vocabulary d_model"]:
        """The output layer: the target embedding itself unless nothing is shared."""
        return (self.own_output or self.target_embedding).weight

    def encode(self, source: Int[Tensor, " source_rows"], lengths: Int[Tensor, " batch"]) -> Memory:
        layout = Layout.of(lengths)
        embedded = (self.own_source or self.target_embedding)(source)
        x = self.dropout(embedded + self.source_positions(layout.positions, layout.longest))
        mask = None if layout.full else key_mask(layout.mask)
        for layer in self.encoder:
            x = layer(x, layout, mask)
        return Memory(self.encoder_norm(x), layout)

    def features(
        self, target_in: Int[Tensor, " target_rows"], lengths: Int[Tensor, " batch"], memory: Memory
    ) -> Float[Tensor, "target_rows d_model"]:
        layout = Layout.of(lengths)
        embedded = self.target_embedding(target_in)
        x = self.dropout(embedded + self.target_positions(layout.positions, layout.longest))
        # Sentences start at column 0 of the grid, so the causal mask alone keeps every real row from the padding.
        mask, memory_mask = causal_mask(layout.longest, x.device), memory.mask
        for layer in self.decoder:
            x = layer(x, layout, mask, memory, memory_mask)
        return self.decoder_norm(x)

    def start(self, memory: Memory) -> TransformerState:
        batch, config = len(memory.layout.lengths), self.config
        source = [layer.cross_attention.project(memory.rows, memory.layout) for layer in self.decoder]
        no_keys = memory.rows.new_empty(batch, config.num_heads, 0, d_key(config))
        no_values = memory.rows.new_empty(batch, config.num_heads, 0, d_value(config))
        return TransformerState(
            position=0,
            keys=[no_keys] * len(self.decoder),
            values=[no_values] * len(self.decoder),
            source_keys=[keys.contiguous() for keys, _ in source],
            source_values=[values.contiguous() for _, values in source],
            source_mask=key_mask(memory.layout.mask),
            sentences=torch.arange(batch, device=memory.rows.device),
        )

    def step(
        self, tokens: Int[Tensor, " rows"], state: TransformerState
    ) -> tuple[Float[Tensor, "rows vocabulary"], TransformerState]:
        here = tokens.new_tensor([state.position])
        x = self.dropout(self.target_embedding(tokens) + self.target_positions(here, state.position + 1))
        keys, values = [], []
        for index, layer in enumerate(self.decoder):
            x, layer_keys, layer_values = layer.step(x, index, state)
            keys.append(layer_keys)
            values.append(layer_values)
        logits = F.linear(self.decoder_norm(x), self.output_weight)
        grown = TransformerState(
            state.position + 1,
            keys,
            values,
            state.source_keys,
            state.source_values,
            state.source_mask,
            state.sentences,
        )
        return logits, grown


def d_key(config: ModelConfig) -> int:
    """Width of a query and a key in one head."""
    return config.d_k or config.d_model // config.num_heads


def d_value(config: ModelConfig) -> int:
    """Width of a value in one head."""
    return config.d_v or config.d_model // config.num_heads


def self_attention(config: ModelConfig) -> SelfAttention:
    """Attention within one sequence, sized by the configuration."""
    return SelfAttention(config.d_model, config.num_heads, d_key(config), d_value(config), config.attention_dropout)


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
