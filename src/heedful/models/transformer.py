"""The Transformer (section 3)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, assert_never, cast

from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.models.kv_cache import KVCache, PooledKVCache, start_cache
from heedful.models.predictor import SentenceKeys
from heedful.models.seq2seq import EncoderDecoder
from heedful.nn.attention import CrossAttention, KeepKeyValues, SelfAttention
from heedful.nn.dropout import Dropout, number_sites
from heedful.nn.feed_forward import FeedForward
from heedful.nn.key_values import HeadRows, KeyValues
from heedful.nn.layout import Layout, Rows
from heedful.nn.multi_head import Kind, MultiHeadAttention
from heedful.nn.positions import DistanceBias, LearnedPositions, SinusoidalPositions
from heedful.nn.residual import NORM_EPSILON, Residual, layer_norm

Encoding = SinusoidalPositions | LearnedPositions


@dataclass(frozen=True, slots=True)
class Memory:
    """The encoder's output."""

    rows: Float[Tensor, "source_rows d_model"]
    layout: Layout


@dataclass(frozen=True, slots=True)
class LayerStyle:
    """What a descendant changes in all parts of its layers; the defaults are the paper's."""

    make_norm: Callable[[int, float], nn.LayerNorm] = layer_norm
    biases: bool = True
    scale: float | None = None  # of attention; None: 1 / sqrt(d_k)


PAPER_STYLE = LayerStyle()


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network. If it is causal, no position attends to later ones."""

    def __init__(
        self,
        config: ModelConfig,
        heads: int,
        causal: bool = False,
        norm_epsilon: float = NORM_EPSILON,
        style: LayerStyle = PAPER_STYLE,
    ) -> None:
        super().__init__()
        self.causal = causal
        self.attention = make_self_attention(config, heads, style)
        self.attention_residual = make_residual(config, norm_epsilon, style)
        self.feed_forward = make_feed_forward(config, style)
        self.feed_forward_residual = make_residual(config, norm_epsilon, style)

    def forward(self, x: Rows, layout: Layout, keep: KeepKeyValues | None = None) -> Rows:
        dropout_keys = layout.dropout_keys
        x = self.attention_residual(x, dropout_keys, lambda y: self.attention(y, layout, self.causal, keep))
        return self.feed_forward_residual(x, dropout_keys, lambda y: self.feed_forward(y, dropout_keys))

    def step(self, x: Rows, cache: Callable[[HeadRows, HeadRows], KeyValues]) -> Rows:
        """One more position of each row of a causal layer; see `SelfAttention.step`."""
        x = self.attention_residual(x, None, lambda y: self.attention.step(y, cache))
        return self.feed_forward_residual(x, None, self.feed_forward)

    if TYPE_CHECKING:
        __call__ = forward


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, then the feed-forward network."""

    def __init__(self, config: ModelConfig, heads: int, cross_heads: int, style: LayerStyle = PAPER_STYLE) -> None:
        super().__init__()
        self.attention = make_self_attention(config, heads, style)
        self.attention_residual = make_residual(config, style=style)
        widths = d_key(config), d_value(config)
        self.cross_attention = CrossAttention(
            config.d_model, cross_heads, *widths, config.attention_dropout, style.scale, style.biases
        )
        self.cross_attention_residual = make_residual(config, style=style)
        self.feed_forward = make_feed_forward(config, style)
        self.feed_forward_residual = make_residual(config, style=style)

    def forward(self, x: Rows, layout: Layout, memory: Memory) -> Rows:
        dropout_keys = layout.dropout_keys
        x = self.attention_residual(x, dropout_keys, lambda y: self.attention(y, layout, causal=True))
        x = self.cross_attention_residual(
            x, dropout_keys, lambda y: self.cross_attention(y, layout, memory.rows, memory.layout)
        )
        return self.feed_forward_residual(x, dropout_keys, lambda y: self.feed_forward(y, dropout_keys))

    def step(self, x: Rows, layer: int, cache: KVCache | PooledKVCache) -> Rows:
        """One more position of each hypothesis, whose keys and values go into the cache of this layer."""
        x = self.attention_residual(x, None, lambda y: self.attention.step(y, partial(cache.append, layer)))
        x = self.cross_attention_residual(x, None, lambda y: self.cross_attention.step(y, cache.source(layer)))
        return self.feed_forward_residual(x, None, self.feed_forward)

    if TYPE_CHECKING:
        __call__ = forward


class Transformer(EncoderDecoder[Memory, KVCache | PooledKVCache]):
    """The model of figure 1."""

    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int, pad_id: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary, pad_id, scale=config.d_model**0.5)
        self.source_positions = make_positions(config)
        self.target_positions = make_positions(config)
        self.dropout, self.target_dropout = Dropout(config.dropout), Dropout(config.dropout)
        encoder_heads = config.encoder_heads or (config.num_heads,) * config.encoder_layers
        decoder_heads = config.decoder_heads or (config.num_heads,) * config.decoder_layers
        cross_heads = config.cross_heads or (config.num_heads,) * config.decoder_layers
        # The casts tell the type checker the class of the layers, which PyTorch's list does not.
        encoder = nn.ModuleList(EncoderLayer(config, heads) for heads in encoder_heads)
        decoder = nn.ModuleList(DecoderLayer(config, *heads) for heads in zip(decoder_heads, cross_heads, strict=True))
        self.encoder, self.decoder = cast(Sequence[EncoderLayer], encoder), cast(Sequence[DecoderLayer], decoder)
        # With pre-norm, the output of a stack has not been normalised yet.
        pre = config.norm == "pre"
        self.encoder_norm = layer_norm(config.d_model) if pre else nn.Identity()
        self.decoder_norm = layer_norm(config.d_model) if pre else nn.Identity()
        number_sites(self)

    @property
    def layers(self) -> Iterable[nn.Module]:
        """Encoder, then decoder."""
        return (*cast(nn.ModuleList, self.encoder), *cast(nn.ModuleList, self.decoder))

    @property
    def attentions(self) -> Mapping[Kind, Sequence[MultiHeadAttention]]:
        """The three kinds of attention in figure 1, layer by layer."""
        return {
            "encoder": [layer.attention for layer in self.encoder],
            "decoder": [layer.attention for layer in self.decoder],
            "cross": [layer.cross_attention for layer in self.decoder],
        }

    def encode(
        self, source: Int[Tensor, " source_rows"], lengths: Int[Tensor, " batch"], sentence_keys: SentenceKeys = None
    ) -> Memory:
        layout = Layout.of(lengths, sentence_keys)
        embedded = add_positions(self.source_embedding(source), self.source_positions, layout.positions, layout.longest)
        x = self.dropout(embedded, layout.dropout_keys)
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
        layout = Layout.of(lengths, sentence_keys)
        embedded = self.target_embedding(target_in)
        embedded = add_positions(embedded, self.target_positions, layout.positions, layout.longest)
        x = self.target_dropout(embedded, layout.dropout_keys)
        for layer in self.decoder:
            x = self.run_layer(layer, layout.dropout_keys, x, layout, memory)
        return self.decoder_norm(x)

    def start(self, memory: Memory) -> KVCache | PooledKVCache:
        attentions = [(layer.attention, layer.cross_attention) for layer in self.decoder]
        return start_cache(memory.rows, memory.layout, attentions, self.config.window)

    def step(
        self, tokens: Int[Tensor, " rows"], state: KVCache | PooledKVCache
    ) -> tuple[Float[Tensor, "rows vocabulary"], KVCache | PooledKVCache]:
        here, cache = tokens.new_tensor([state.position]), state.grow()
        embedded = add_positions(self.target_embedding(tokens), self.target_positions, here, state.position + 1)
        x = self.target_dropout(embedded, None)
        for index, layer in enumerate(self.decoder):
            x = layer.step(x, index, cache)
        return self.output(self.decoder_norm(x)), cache


def add_positions(
    embedded: Rows, encoding: Encoding | None, positions: Int[Tensor, " positions"], longest: int
) -> Rows:
    """The sum of embedding and positional encoding (section 3.5); all rows may share a single position."""
    return embedded if encoding is None else embedded + encoding(positions, longest)


def d_key(config: ModelConfig) -> int:
    """The width of a query and a key in one head."""
    return config.d_k or config.d_model // config.num_heads


def d_value(config: ModelConfig) -> int:
    """The width of a value in one head."""
    return config.d_v or config.d_model // config.num_heads


def make_self_attention(config: ModelConfig, heads: int, style: LayerStyle = PAPER_STYLE) -> SelfAttention:
    """Self-attention of the configured sizes."""
    widths = d_key(config), d_value(config)
    bias = DistanceBias(heads, config.max_distance) if config.positions == "relative" else None
    dropout = config.attention_dropout
    return SelfAttention(config.d_model, heads, *widths, dropout, config.window, bias, style.scale, style.biases)


def make_feed_forward(config: ModelConfig, style: LayerStyle = PAPER_STYLE) -> FeedForward:
    """The feed-forward network of the configured sizes."""
    return FeedForward(config.d_model, config.d_ff, config.activation, config.activation_dropout, style.biases)


def make_residual(config: ModelConfig, norm_epsilon: float = NORM_EPSILON, style: LayerStyle = PAPER_STYLE) -> Residual:
    """The residual connection around a sub-layer, with its norm and dropout."""
    return Residual(config.d_model, config.dropout, config.norm, norm_epsilon, style.make_norm)


def make_positions(config: ModelConfig) -> Encoding | None:
    """The configured positional encoding; None: self-attention knows the distances instead."""
    match config.positions:
        case "sinusoidal":
            return SinusoidalPositions(config.d_model)
        case "learned":
            return LearnedPositions(config.d_model, config.max_positions)
        case "relative":
            return None
        case _:
            assert_never(config.positions)
