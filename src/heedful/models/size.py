"""The number of parameters of a model, counted exactly and without building it."""

import math
from dataclasses import dataclass, replace
from typing import assert_never

from heedful.config import ModelConfig

T5_BUCKETS = 32  # of distances, which share a bias

_BYTES = 4  # float32
_STEP = 8  # widths are multiples of this, where matrix products are fastest


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The sizes and special ids of the tokenizers, as far as a model needs them."""

    source: int
    target: int
    pad_id: int
    eos_id: int


@dataclass(frozen=True, slots=True)
class Size:
    """Numbers of parameters, by part."""

    embeddings: int
    encoder: int
    decoder: int

    @property
    def total(self) -> int:
        """The number of all parameters."""
        return self.embeddings + self.encoder + self.decoder

    @property
    def training_bytes(self) -> int:
        """The bytes of weights, gradients and Adam's two moments, without activations."""
        return 4 * _BYTES * self.total


def model_size(config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> Size:
    """The parameters of a model, including every bias and norm."""
    shared = {
        "all": target_vocabulary,
        "target": source_vocabulary + target_vocabulary,
        "inputs": 2 * target_vocabulary,
    }
    rows = shared.get(config.sharing, source_vocabulary + 2 * target_vocabulary)
    bias = target_vocabulary if config.output_bias else 0
    match config.family:
        case "transformer":
            learned = 2 * config.max_positions if config.positions == "learned" else 0
            return Size((rows + learned) * config.d_model + bias, *_transformer(config))
        case "recurrent":
            return Size(rows * config.d_model + bias, *_recurrent(config))
        case "convolutional":
            return Size((rows + 2 * config.max_positions) * config.d_model + bias, *_convolutional(config))
        case "gpt":
            learned = config.max_positions if config.positions == "learned" else 0
            return Size((target_vocabulary + learned) * config.d_model + bias, 0, _gpt(config))
        case "bert":
            learned = config.max_positions if config.positions == "learned" else 0
            tables = (target_vocabulary + learned + 2) * config.d_model + 2 * config.d_model  # two types and the norm
            return Size(tables, _transformer(config)[0], _bert_head(config, target_vocabulary))
        case "t5":
            return Size(rows * config.d_model, *_t5(config))
        case "vit":
            patches = (config.image_size // config.patch_size) ** 2
            first = _linear(config.patch_size**2 * config.channels, config.d_model) + (patches + 2) * config.d_model
            plain = replace(config, positions="learned", norm="pre")
            return Size(first, _transformer(plain)[0], _linear(config.d_model, len(config.labels)))
        case _:
            assert_never(config.family)


def match_size(config: ModelConfig, source_vocabulary: int, target_vocabulary: int, total: int) -> ModelConfig:
    """The same model at the width that brings its number of parameters closest to `total`.

    `d_model` is a multiple of 8, and of the number of heads if their width follows from it; `d_ff` stays in proportion.
    """
    divided = config.family in ("transformer", "gpt", "bert", "t5", "vit") and not (config.d_k and config.d_v)
    step = math.lcm(_STEP, config.num_heads) if divided else _STEP

    def widen(d_model: int) -> ModelConfig:
        return replace(config, d_model=d_model, d_ff=max(1, round(config.d_ff * d_model / config.d_model)))

    def difference(it: ModelConfig) -> int:
        return model_size(it, source_vocabulary, target_vocabulary).total - total

    below = above = widen(step)
    while difference(above) < 0:
        below, above = above, widen(above.d_model + step)
    return min(below, above, key=lambda it: abs(difference(it)))


def _transformer(config: ModelConfig) -> tuple[int, int]:
    """The parameters of the encoder and of the decoder."""
    d = config.d_model
    d_k, d_v = config.d_k or d // config.num_heads, config.d_v or d // config.num_heads
    head = _linear(d, d_k) * 2 + _linear(d, d_v) + d_v * d

    def attention(layers: int, heads: tuple[int, ...], distances: int = 0) -> int:
        # The output projection has one bias, however many heads there are.
        return (head + distances) * (sum(heads) or config.num_heads * layers) + d * layers

    feed_forward = _linear(d, config.d_ff) + _linear(config.d_ff, d)
    norm = 2 * d
    last_norm = norm if config.norm == "pre" else 0
    distances = 2 * config.max_distance + 1 if config.positions == "relative" else 0
    encoder = attention(config.encoder_layers, config.encoder_heads, distances)
    decoder = attention(config.decoder_layers, config.decoder_heads, distances)
    cross = attention(config.decoder_layers, config.cross_heads)
    return (
        encoder + config.encoder_layers * (feed_forward + 2 * norm) + last_norm,
        decoder + cross + config.decoder_layers * (feed_forward + 3 * norm) + last_norm,
    )


def _gpt(config: ModelConfig) -> int:
    """The parameters of the blocks, which are encoder layers, and of the final norm."""
    return _transformer(replace(config, encoder_layers=config.decoder_layers, encoder_heads=config.decoder_heads))[0]


def _bert_head(config: ModelConfig, vocabulary: int) -> int:
    d = config.d_model
    match config.head:
        case "masked":
            return _linear(d, d) + 2 * d + vocabulary
        case "sequence":
            return _linear(d, d) + _linear(d, len(config.labels))
        case "tokens":
            return _linear(d, len(config.labels))
        case "none":
            return 0
        case _:
            assert_never(config.head)


def _t5(config: ModelConfig) -> tuple[int, int]:
    """The parameters of either stack: no biases, but one vector a norm and the bias by distance of all its layers."""
    d, heads = config.d_model, config.num_heads
    attention = heads * 2 * d * ((config.d_k or d // heads) + (config.d_v or d // heads))
    feed_forward = (count_inner_matrices(config) + 1) * d * config.d_ff
    once = d + T5_BUCKETS * heads
    return (
        config.encoder_layers * (attention + feed_forward + 2 * d) + once,
        config.decoder_layers * (2 * attention + feed_forward + 3 * d) + once,
    )


def count_inner_matrices(config: ModelConfig) -> int:
    """The number of matrices of d_model x d_ff in front of the activation: a gated one takes two."""
    return 2 if config.activation == "gated-gelu-tanh" else 1


def _recurrent(config: ModelConfig) -> tuple[int, int]:
    d, more = config.d_model, config.decoder_layers - 1
    gates, states = {"lstm": (4, 2), "gru": (3, 1)}[config.cell]

    def layer(inputs: int) -> int:
        # PyTorch has one bias for the input and one for the state.
        return gates * (_linear(inputs, d) + _linear(d, d))

    bidirectional = 2 * layer(d) + (config.encoder_layers - 1) * 2 * layer(2 * d)
    bridge = _linear(d, config.decoder_layers * states * d)
    keys = 2 * d * d
    match config.attention:
        case "none":
            return config.encoder_layers * layer(d), config.decoder_layers * layer(d)
        case "additive":
            attention = _linear(d, d) + keys + d
            return bidirectional, bridge + attention + layer(3 * d) + more * layer(d) + _linear(4 * d, 2 * d)
        case "multiplicative":
            return bidirectional, bridge + keys + config.decoder_layers * layer(d) + _linear(3 * d, d)
        case _:
            assert_never(config.attention)


def _convolutional(config: ModelConfig) -> tuple[int, int]:
    d = config.d_model
    convolution = _linear(config.kernel_width * d, 2 * d)
    ends = attention = 2 * _linear(d, d)
    return config.encoder_layers * convolution + ends, config.decoder_layers * (convolution + attention) + ends


def _linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs
