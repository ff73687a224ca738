"""The floating-point operations of a model, counted exactly from its architecture and the lengths of sentences.

The count includes all matrix products: those with weights, those of queries with keys and of attention weights with
values, and the output layer. A multiply-add is two operations. The backward pass has two products for each one of the
forward pass, one for the gradient of each factor, so training takes three times as much as a forward pass.

It leaves out look-ups, biases, softmax, norms, gates, dropout and other element-wise work, and the optimizer.

It is the work that the mathematics needs. Batches are packed, so linear layers see no padding. Attention runs on a
padded grid, but a product counts only where a query may attend to a key: not to padding, not to later positions, not
beyond a window. A convolution counts its whole window everywhere, including the zeros beyond the ends of a sentence.
"""

from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np
from jaxtyping import Integer

from heedful.config import ModelConfig
from heedful.models.size import count_inner_matrices

Lengths = Integer[np.ndarray, " pairs"]


def training_flops(
    config: ModelConfig, target_vocabulary: int, source_lengths: Lengths, target_lengths: Lengths
) -> int:
    """The operations of training once on pairs of these lengths, EOS included."""
    return 3 * forward_flops(config, target_vocabulary, source_lengths, target_lengths)


def forward_flops(config: ModelConfig, target_vocabulary: int, source_lengths: Lengths, target_lengths: Lengths) -> int:
    """The operations of the forward pass alone."""
    counts = _Counts.of(source_lengths, target_lengths, config.window)
    output = counts.target * config.d_model * target_vocabulary
    match config.family:
        case "transformer" | "t5":
            return 2 * (_transformer(config, counts) + output)
        case "recurrent":
            return 2 * (_recurrent(config, counts) + output)
        case "convolutional":
            return 2 * (_convolutional(config, counts) + output)
        case "gpt":
            return 2 * (_gpt(config, source_lengths, target_lengths) + output)
        case "bert":
            return 2 * _bert(config, counts, target_vocabulary)
        case "vit":
            return 2 * _vit(config, len(source_lengths))
        case _:
            assert_never(config.family)


def count_attention_pairs(lengths: Lengths, window: int = 0, causal: bool = False) -> int:
    """The number of (query, key) pairs of self-attention in sentences of these lengths.

    A position attends to itself and to `window` positions on either side, or to all if it is 0; if `causal`, to no
    later ones.
    """
    n = lengths.astype(np.int64)
    reach = np.minimum(window or n - 1, n - 1)
    # At each end of a sentence, 1 + 2 + ... + reach pairs are missing.
    missing = reach * (reach + 1) // 2
    pairs = n * (reach + 1) - missing if causal else n * (2 * reach + 1) - 2 * missing
    return int(pairs.sum())


@dataclass(frozen=True, slots=True)
class _Counts:
    """The numbers of sentence pairs, of tokens, and of (query, key) pairs in each kind of attention."""

    sentences: int
    source: int
    target: int
    source_pairs: int
    target_pairs: int
    cross_pairs: int

    @classmethod
    def of(cls, source: Lengths, target: Lengths, window: int) -> "_Counts":
        source, target = source.astype(np.int64), target.astype(np.int64)
        return cls(
            len(source),
            int(source.sum()),
            int(target.sum()),
            count_attention_pairs(source, window),
            count_attention_pairs(target, window, causal=True),
            int((source * target).sum()),
        )


# The functions below count multiply-adds: inputs x outputs for each row of a linear layer.


def _transformer(config: ModelConfig, counts: _Counts) -> int:
    d = config.d_model
    d_k, d_v = config.d_k or d // config.num_heads, config.d_v or d // config.num_heads
    # All layers together, because every head costs the same.
    encoder_heads = sum(config.encoder_heads) or config.num_heads * config.encoder_layers
    decoder_heads = sum(config.decoder_heads) or config.num_heads * config.decoder_layers
    cross_heads = sum(config.cross_heads) or config.num_heads * config.decoder_layers
    head = 2 * d * (d_k + d_v)  # query and key, value and output
    pair = d_k + d_v
    encoder = encoder_heads * (counts.source * head + counts.source_pairs * pair)
    decoder = decoder_heads * (counts.target * head + counts.target_pairs * pair)
    # Query and output are on the target side, key and value on the source side.
    cross = cross_heads * ((counts.target + counts.source) * d * (d_k + d_v) + counts.cross_pairs * pair)
    rows = counts.source * config.encoder_layers + counts.target * config.decoder_layers
    inner = (count_inner_matrices(config) + 1) * d * config.d_ff * rows
    return encoder + decoder + cross + inner


def _gpt(config: ModelConfig, source: Lengths, target: Lengths) -> int:
    """The prompt and all of its continuation but the last token pass through the blocks as one text."""
    lengths = source.astype(np.int64) + target - 1
    d, heads = config.d_model, sum(config.decoder_heads) or config.num_heads * config.decoder_layers
    d_k, d_v = config.d_k or d // config.num_heads, config.d_v or d // config.num_heads
    rows, pairs = int(lengths.sum()), count_attention_pairs(lengths, causal=True)
    return heads * (rows * 2 * d + pairs) * (d_k + d_v) + 2 * d * config.d_ff * rows * config.decoder_layers


def _bert(config: ModelConfig, counts: _Counts, vocabulary: int) -> int:
    """The source passes through the encoder, and each place that the model is asked about through the head."""
    dense = 0 if config.head in ("tokens", "none") else config.d_model**2
    outputs = vocabulary if config.head == "masked" else len(config.labels)
    return _transformer(replace(config, decoder_layers=0), counts) + counts.target * (dense + config.d_model * outputs)


def _vit(config: ModelConfig, pictures: int) -> int:
    """The patches pass through their map, with the class token through the encoder, and a summary through the head."""
    patches = (config.image_size // config.patch_size) ** 2
    lengths = np.full(pictures, patches + 1)
    first = pictures * patches * config.patch_size**2 * config.channels * config.d_model
    encoder = _transformer(replace(config, decoder_layers=0), _Counts.of(lengths, 0 * lengths, 0))
    return first + encoder + pictures * config.d_model * len(config.labels)


def _recurrent(config: ModelConfig, counts: _Counts) -> int:
    d, more = config.d_model, config.decoder_layers - 1
    gates, states = {"lstm": (4, 2), "gru": (3, 1)}[config.cell]

    def layer(inputs: int) -> int:
        return gates * (inputs + d) * d

    bidirectional = counts.source * (2 * layer(d) + (config.encoder_layers - 1) * 2 * layer(2 * d))
    bridge = counts.sentences * d * config.decoder_layers * states * d
    keys = counts.source * 2 * d * d
    values = counts.cross_pairs * 2 * d
    match config.attention:
        case "none":
            return counts.source * config.encoder_layers * layer(d) + counts.target * config.decoder_layers * layer(d)
        case "additive":
            scores = counts.target * d * d + counts.cross_pairs * d
            decoder = counts.target * (layer(3 * d) + more * layer(d) + 4 * d * 2 * d)
            return bidirectional + bridge + keys + scores + values + decoder
        case "multiplicative":
            scores = counts.cross_pairs * d
            decoder = counts.target * (config.decoder_layers * layer(d) + 3 * d * d)
            return bidirectional + bridge + keys + scores + values + decoder
        case _:
            assert_never(config.attention)


def _convolutional(config: ModelConfig, counts: _Counts) -> int:
    d = config.d_model
    convolution = config.kernel_width * d * 2 * d  # twice the width: half of it is the gate
    ends = attention = 2 * d * d
    encoder = counts.source * (config.encoder_layers * convolution + ends)
    decoder = counts.target * (config.decoder_layers * (convolution + attention) + ends)
    return encoder + decoder + config.decoder_layers * counts.cross_pairs * 2 * d
