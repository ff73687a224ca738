"""T5 (Raffel et al., 2020): the Transformer, simplified where that costs nothing, and pre-trained to fill in text.

What differs from figure 1, as Google's code and that of `transformers` have it:

- Each norm is in front of its sub-layer and one more is behind each stack. It is RMS normalisation: it subtracts no
  mean and adds no bias.
- No linear layer has a bias.
- No position is added. Self-attention adds a learned number for each head and each of 32 buckets of distances to its
  scores; the layers of a stack share these numbers. In the encoder, half of the buckets are for keys to the right.
- Scores have no factor 1 / sqrt(d_k). It is a part of the weights: queries start from N(0, 1 / sqrt(d_model d_k)).
- Embeddings start from N(0, 1) and are used as they are. Where they are the output layer too (version 1.0), the
  decoder's result is multiplied by 1 / sqrt(d_model) before it; version 1.1 has an output layer of its own.
- Version 1.1 has a gated GELU instead of ReLU.
- The decoder starts with PAD, whose row is learned.
- Dropout is also on attention weights, inside the feed-forward networks and behind each stack.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.models.kv_cache import KVCache, PooledKVCache, start_cache
from heedful.models.predictor import SentenceKeys
from heedful.models.seq2seq import EncoderDecoder
from heedful.models.size import T5_BUCKETS
from heedful.models.transformer import DecoderLayer, EncoderLayer, LayerStyle, Memory, d_key, d_value
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.dropout import Dropout, number_sites
from heedful.nn.feed_forward import FeedForward
from heedful.nn.layout import Layout, Rows
from heedful.nn.multi_head import Kind, MultiHeadAttention
from heedful.nn.positions import BucketBias
from heedful.nn.residual import NORM_EPSILON, rms_norm

STYLE = LayerStyle(rms_norm, biases=False, scale=1.0)


class T5(EncoderDecoder[Memory, KVCache | PooledKVCache]):
    """A distribution over target texts, whose self-attention knows the distance to each key."""

    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int, pad_id: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary, pad_id, scale=1.0)
        heads, distance = config.num_heads, config.max_distance
        encoder = nn.ModuleList(
            EncoderLayer(config, heads, False, NORM_EPSILON, STYLE) for _ in range(config.encoder_layers)
        )
        decoder = nn.ModuleList(DecoderLayer(config, heads, heads, STYLE) for _ in range(config.decoder_layers))
        self.encoder, self.decoder = cast(Sequence[EncoderLayer], encoder), cast(Sequence[DecoderLayer], decoder)
        for stack, causal in ((self.encoder, False), (self.decoder, True)):
            bias = BucketBias(heads, T5_BUCKETS, distance, causal)
            for layer in stack:  # the same one; its weight has the name that it has in the first layer
                layer.attention.bias = bias
        self.encoder_norm, self.decoder_norm = rms_norm(config.d_model), rms_norm(config.d_model)
        self.source_dropout, self.memory_dropout = Dropout(config.dropout), Dropout(config.dropout)
        self.target_dropout, self.output_dropout = Dropout(config.dropout), Dropout(config.dropout)
        # Where the embedding is the output layer, logits would be too large without this.
        self.output_scale = 1.0 if self.own_output else config.d_model**-0.5
        self._draw_weights()
        number_sites(self)

    def _draw_weights(self) -> None:
        d_model, d_k, d_v = self.config.d_model, d_key(self.config), d_value(self.config)
        for part in self.modules():
            match part:
                case SelfAttention(query_key_value=matrix, output=output):
                    nn.init.normal_(matrix.weight, std=d_model**-0.5)
                    nn.init.normal_(matrix.weight.detach()[: part.sizes[0]], std=(d_model * d_k) ** -0.5)
                    nn.init.normal_(output.weight, std=(part.num_heads * d_v) ** -0.5)
                case CrossAttention(query=query, key_value=matrix, output=output):
                    nn.init.normal_(query.weight, std=(d_model * d_k) ** -0.5)
                    nn.init.normal_(matrix.weight, std=d_model**-0.5)
                    nn.init.normal_(output.weight, std=(part.num_heads * d_v) ** -0.5)
                case FeedForward(inner=inner, outer=outer):
                    nn.init.normal_(inner.weight, std=d_model**-0.5)
                    nn.init.normal_(outer.weight, std=self.config.d_ff**-0.5)
                case BucketBias(weight=weight):
                    nn.init.normal_(weight, std=d_model**-0.5)
        for embedding in filter(None, (self.target_embedding, self.own_source, self.own_output)):
            embedding.zero_row = None
            nn.init.normal_(embedding.weight)

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
        x = self.source_dropout(self.source_embedding(source), layout.dropout_keys)
        for layer in self.encoder:
            x = self.run_layer(layer, layout.dropout_keys, x, layout)
        return Memory(self.memory_dropout(self.encoder_norm(x), layout.dropout_keys), layout)

    def features(
        self,
        target_in: Int[Tensor, " target_rows"],
        lengths: Int[Tensor, " batch"],
        memory: Memory,
        sentence_keys: SentenceKeys = None,
    ) -> Float[Tensor, "target_rows d_model"]:
        layout = Layout.of(lengths, sentence_keys)
        x = self.target_dropout(self.target_embedding(target_in), layout.dropout_keys)
        for layer in self.decoder:
            x = self.run_layer(layer, layout.dropout_keys, x, layout, memory)
        return self._finish(x, layout)

    def _finish(self, x: Rows, layout: Layout | None) -> Rows:
        keys = None if layout is None else layout.dropout_keys
        return self.output_scale * self.output_dropout(self.decoder_norm(x), keys)

    def start(self, memory: Memory) -> KVCache | PooledKVCache:
        attentions = [(layer.attention, layer.cross_attention) for layer in self.decoder]
        return start_cache(memory.rows, memory.layout, attentions, self.config.window)

    def step(
        self, tokens: Int[Tensor, " rows"], state: KVCache | PooledKVCache
    ) -> tuple[Float[Tensor, "rows vocabulary"], KVCache | PooledKVCache]:
        cache, x = state.grow(), self.target_dropout(self.target_embedding(tokens), None)
        for index, layer in enumerate(self.decoder):
            x = layer.step(x, index, cache)
        return self.output(self._finish(x, None)), cache
