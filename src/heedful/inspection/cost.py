"""What each part of a model costs for one sentence: weights, operations and bytes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from heedful.attention.steps import stacks, sublayers
from heedful.config import ModelConfig
from heedful.models.flops import count_attention_pairs, forward_flops
from heedful.models.transformer import Transformer
from heedful.nn.feed_forward import FeedForward

_BYTES = 4  # float32
_LENGTHS = (10, 100, 1000, 10_000)


@dataclass(frozen=True, slots=True)
class PartCost:
    """A part of figure 1. Operations are floating-point operations of its matrix products: a multiply-add is two."""

    name: str  # such as "encoder.attention", all layers together
    weights: int
    operations: int
    activations: int  # numbers that it computes and passes on

    @property
    def weight_bytes(self) -> int:
        return _BYTES * self.weights

    @property
    def activation_bytes(self) -> int:
        return _BYTES * self.activations


def count_costs(model: Transformer, source: int, target: int) -> list[PartCost]:
    """The costs of reading a source of this many pieces and a translation of this many; each weight counts once."""
    config = model.config
    found = [PartCost("embedding", _count(_embeddings(model)), 0, (source + target) * config.d_model)]
    counted = {id(parameter) for parameter in _embeddings(model)}
    for stack, layers in stacks(model):
        rows = source if stack == "encoder" else target
        parts: dict[str, list[int]] = {}
        for layer in layers:
            for part, sublayer, residual in sublayers(layer):
                # Only the keys and values of attention to the source are made for the source's pieces.
                linear = [
                    (module, source if name == "key_value" else rows)
                    for name, module in sublayer.named_modules()
                    if isinstance(module, nn.Linear)
                ]
                products = sum(module.weight.numel() * count for module, count in linear)
                made = sum(module.out_features * count for module, count in linear)
                if not isinstance(sublayer, FeedForward):
                    keys = source if part == "cross_attention" or stack == "encoder" else target
                    pairs = _pairs(rows, keys, part, stack, config.window)
                    sizes = sublayer.head_sizes
                    products += pairs * sublayer.num_heads * (sizes.d_k + sizes.d_v)
                    made += rows * keys * sublayer.num_heads
                own = [sum(p.numel() for module in (sublayer, residual) for p in module.parameters()), products, made]
                parts[part] = [a + b for a, b in zip(parts.get(part, [0, 0, 0]), own, strict=True)]
            counted |= {id(parameter) for parameter in layer.parameters()}
        found += [
            PartCost(f"{stack}.{part}", weights, 2 * products, made)
            for part, (weights, products, made) in parts.items()
        ]
    rest = [parameter for parameter in model.parameters() if id(parameter) not in counted]
    size, width = model.output_weight.shape
    found.append(PartCost("output", _count(rest), 2 * target * size * width, target * size))
    return found


def _embeddings(model: Transformer) -> list[nn.Parameter]:
    tables = {id(each.weight): each.weight for each in (model.source_embedding, model.target_embedding)}
    positions = [each for each in (model.source_positions, model.target_positions) if each is not None]
    return [*tables.values(), *(parameter for each in positions for parameter in each.parameters())]


def _count(parameters: Iterable[Any]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def _pairs(rows: int, keys: int, part: str, stack: str, window: int) -> int:
    """The pairs of a query and a key that it may look at."""
    if part == "cross_attention":
        return rows * keys
    return count_attention_pairs(np.array([rows]), window, causal=stack == "decoder")


@dataclass(frozen=True, slots=True)
class LengthCost:
    """The cost of a longer text: the share of products between pairs of pieces grows with its length."""

    pieces: int
    operations: int
    pair_share: float


def count_lengths(config: ModelConfig, vocabulary: int) -> list[LengthCost]:
    """Source and translation of the same length, for several lengths."""
    found = []
    for pieces in _LENGTHS:
        lengths = np.array([pieces])
        operations = forward_flops(config, vocabulary, lengths, lengths)
        alone = forward_flops(config, vocabulary, np.array([1] * pieces), np.array([1] * pieces))
        found.append(LengthCost(pieces, operations, (operations - alone) / operations))
    return found
