"""How much arithmetic a model takes, counted exactly from its architecture and from the lengths of sentences.

Counted are all matrix products: those with weights, those of queries with keys and of attention's weights with values,
and the output layer. A multiply-add is two operations. The backward pass has two products for each one of the forward
pass, one for the gradient of each factor, so training takes three times as much as a forward pass.

Left out are look-ups, biases, softmax, norms, gates, dropout and other work on single elements, and the optimizer.

It is the work that the mathematics needs. Batches are packed, so linear parts see no padding. Attention runs on a
padded grid, but a product is counted only where a query may look at a key: not with padding, not at later positions,
not past a window. A convolution has its whole window everywhere, though zeros stand in it at the ends of a sentence.
"""

from dataclasses import dataclass
from typing import assert_never

import numpy as np
from jaxtyping import Integer

from heedful.config import ModelConfig

Lengths = Integer[np.ndarray, " pairs"]


def training_flops(
    config: ModelConfig, target_vocabulary: int, source_lengths: Lengths, target_lengths: Lengths
) -> int:
    """Operations of training once on pairs of these lengths, EOS included."""
    return 3 * forward_flops(config, target_vocabulary, source_lengths, target_lengths)


def forward_flops(config: ModelConfig, target_vocabulary: int, source_lengths: Lengths, target_lengths: Lengths) -> int:
    """Operations of the forward pass alone."""
    work = _Work.of(source_lengths, target_lengths, config.window)
    output = work.target * config.d_model * target_vocabulary
    match config.family:
        case "transformer":
            return 2 * (_transformer(config, work) + output)
        case "recurrent":
            return 2 * (_recurrent(config, work) + output)
        case "convolutional":
            return 2 * (_convolutional(config, work) + output)
        case _:
            assert_never(config.family)


def looks(lengths: Lengths, window: int = 0, causal: bool = False) -> int:
    """How often, within all sentences, a position may look at one: at itself, and `window` to either side; 0: at all.

    If `causal`, not at later ones.
    """
    n = lengths.astype(np.int64)
    reach = np.minimum(window or n - 1, n - 1)
    # What is missing at an end of the sentence is 1 + 2 + ... + reach.
    missing = reach * (reach + 1) // 2
    seen = n * (reach + 1) - missing if causal else n * (2 * reach + 1) - 2 * missing
    return int(seen.sum())


@dataclass(frozen=True, slots=True)
class _Work:
    """What sentences ask of a model: numbers of pairs and tokens, and how often one position looks at another."""

    pairs: int
    source: int
    target: int
    source_looks: int
    target_looks: int
    cross_looks: int

    @classmethod
    def of(cls, source: Lengths, target: Lengths, window: int) -> "_Work":
        source, target = source.astype(np.int64), target.astype(np.int64)
        return cls(
            len(source),
            int(source.sum()),
            int(target.sum()),
            looks(source, window),
            looks(target, window, causal=True),
            int((source * target).sum()),
        )


# From here on in multiply-adds: inputs x outputs for each row of a linear map.


def _transformer(config: ModelConfig, work: _Work) -> int:
    d = config.d_model
    d_k, d_v = config.d_k or d // config.num_heads, config.d_v or d // config.num_heads
    # Heads of all layers together: each costs the same.
    reading = sum(config.encoder_heads) or config.num_heads * config.encoder_layers
    writing = sum(config.decoder_heads) or config.num_heads * config.decoder_layers
    looking = sum(config.cross_heads) or config.num_heads * config.decoder_layers
    head = 2 * d * (d_k + d_v)  # query and key, value and output
    look = d_k + d_v
    encoder = reading * (work.source * head + work.source_looks * look)
    decoder = writing * (work.target * head + work.target_looks * look)
    # The decoder brings query and output, the source key and value.
    cross = looking * ((work.target + work.source) * d * (d_k + d_v) + work.cross_looks * look)
    inner = 2 * d * config.d_ff * (work.source * config.encoder_layers + work.target * config.decoder_layers)
    return encoder + decoder + cross + inner


def _recurrent(config: ModelConfig, work: _Work) -> int:
    d, more = config.d_model, config.decoder_layers - 1
    gates, states = {"lstm": (4, 2), "gru": (3, 1)}[config.cell]

    def layer(inputs: int) -> int:
        return gates * (inputs + d) * d

    both_ways = work.source * (2 * layer(d) + (config.encoder_layers - 1) * 2 * layer(2 * d))
    begins = work.pairs * d * config.decoder_layers * states * d
    keys = work.source * 2 * d * d
    values = work.cross_looks * 2 * d
    match config.attention:
        case "none":
            return work.source * config.encoder_layers * layer(d) + work.target * config.decoder_layers * layer(d)
        case "additive":
            scores = work.target * d * d + work.cross_looks * d
            decoder = work.target * (layer(3 * d) + more * layer(d) + 4 * d * 2 * d)
            return both_ways + begins + keys + scores + values + decoder
        case "multiplicative":
            scores = work.cross_looks * d
            decoder = work.target * (config.decoder_layers * layer(d) + 3 * d * d)
            return both_ways + begins + keys + scores + values + decoder
        case _:
            assert_never(config.attention)


def _convolutional(config: ModelConfig, work: _Work) -> int:
    d = config.d_model
    convolution = config.kernel_width * d * 2 * d  # twice the width: half of it is the gate
    ends = attention = 2 * d * d
    encoder = work.source * (config.encoder_layers * convolution + ends)
    decoder = work.target * (config.decoder_layers * (convolution + attention) + ends)
    return encoder + decoder + config.decoder_layers * work.cross_looks * 2 * d
