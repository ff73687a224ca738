"""What each part of a model costs for one sentence: weights, operations and bytes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from heedful.attention.steps import LayeredModel, stacks, sublayers
from heedful.config import ModelConfig
from heedful.models.flops import count_attention_pairs, forward_flops
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


def count_costs(model: LayeredModel, source: int, target: int) -> list[PartCost]:
    """The costs of reading a source of this many pieces and an output of this many; each weight counts once.

    A model without an encoder reads no source: all that it reads is in `target`.
    """
    config = model.config
    read = {"encoder": source, "decoder": target}
    rows_read = sum(read[stack.name] for stack in stacks(model))
    found = [PartCost("embedding", _count(_embeddings(model)), 0, rows_read * config.d_model)]
    counted = {id(parameter) for parameter in _embeddings(model)}
    for stack in stacks(model):
        rows = read[stack.name]
        parts: dict[str, list[int]] = {}
        for layer in stack.layers:
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
                    keys = source if part == "cross_attention" else rows
                    pairs = (
                        rows * keys
                        if part == "cross_attention"
                        else count_attention_pairs(np.array([rows]), config.window, stack.causal)
                    )
                    sizes = sublayer.head_sizes
                    products += pairs * sublayer.num_heads * (sizes.d_k + sizes.d_v)
                    made += rows * keys * sublayer.num_heads
                own = [sum(p.numel() for module in (sublayer, residual) for p in module.parameters()), products, made]
                parts[part] = [a + b for a, b in zip(parts.get(part, [0, 0, 0]), own, strict=True)]
            counted |= {id(parameter) for parameter in layer.parameters()}
        found += [
            PartCost(f"{stack.name}.{part}", weights, 2 * products, made)
            for part, (weights, products, made) in parts.items()
        ]
    rest = [parameter for parameter in model.parameters() if id(parameter) not in counted]
    size, width = model.output_weight.shape
    found.append(PartCost("output", _count(rest), 2 * target * size * width, target * size))
    return found


def _embeddings(model: LayeredModel) -> list[nn.Parameter]:
    tables = {id(stack.embedding.weight): stack.embedding.weight for stack in stacks(model)}
    positions = [stack.positions for stack in stacks(model) if stack.positions is not None]
    return [*tables.values(), *(parameter for each in positions for parameter in each.parameters())]


def _count(parameters: Iterable[Any]) -> int:
    return sum(parameter.numel() for parameter in parameters)


@dataclass(frozen=True, slots=True)
class LengthCost:
    """The cost of a longer text: the share of products between pairs of pieces grows with its length."""

    pieces: int
    operations: int
    pair_share: float


def count_lengths(config: ModelConfig, vocabulary: int) -> list[LengthCost]:
    """Texts of several lengths; with a source, it is as long as what is written."""
    found = []
    for pieces in _LENGTHS:
        whole, single = np.array([pieces]), np.array([1] * pieces)
        # GPT reads a prompt of one piece and what follows it as one text.
        sources = (np.array([1]), single) if config.family == "gpt" else (whole, single)
        operations = forward_flops(config, vocabulary, sources[0], whole)
        alone = forward_flops(config, vocabulary, sources[1], single)
        found.append(LengthCost(pieces, operations, (operations - alone) / operations))
    return found
