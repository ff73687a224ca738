"""What each part of a model costs for one sentence: weights, operations and bytes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from heedful.attention.steps import LayeredModel, stacks, sublayers
from heedful.config import ModelConfig
from heedful.models.bert import BERT
from heedful.models.flops import count_attention_pairs, forward_flops
from heedful.models.vit import ViT, count_patches
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

    A model without an encoder reads no source: all that it reads is in `target`. Of one without a decoder, `target` is
    the number of places that it is asked about.
    """
    config = model.config
    read = {"encoder": source, "decoder": target}
    rows_read = sum(read[stack.name] for stack in stacks(model))
    first = 0  # only the map of patches is a product
    if isinstance(model, ViT):
        first = 2 * count_patches(config) * model.patches.weight.numel()
    found = [PartCost("embedding", _count(_embeddings(model)), first, rows_read * config.d_model)]
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
                # Layers may share a weight, such as T5's numbers for distances.
                held = {id(p): p.numel() for module in (sublayer, residual) for p in module.parameters()}
                own = [sum(size for name, size in held.items() if name not in counted), products, made]
                counted |= held.keys()
                parts[part] = [a + b for a, b in zip(parts.get(part, [0, 0, 0]), own, strict=True)]
        found += [
            PartCost(f"{stack.name}.{part}", weights, 2 * products, made)
            for part, (weights, products, made) in parts.items()
        ]
    rest = [parameter for parameter in model.parameters() if id(parameter) not in counted]
    size, width = model.output_weight.shape
    dense = 2 * target * width * width if isinstance(model, BERT) and not _answers_directly(model) else 0
    found.append(PartCost("output", _count(rest), dense + 2 * target * size * width, target * size))
    return found


def _answers_directly(model: BERT) -> bool:
    """Whether its head has no layer of its own in front of the output."""
    return model.config.head in ("tokens", "none")


def _embeddings(model: LayeredModel) -> list[nn.Parameter]:
    if isinstance(model, ViT):
        return [model.class_token, model.positions, *model.patches.parameters()]
    own: list[nn.Parameter] = []
    if isinstance(model, BERT):
        own = [model.token_types, *model.embedding_norm.parameters()]
    tables = {
        id(stack.embedding.weight): stack.embedding.weight for stack in stacks(model) if stack.embedding is not None
    }
    positions = [stack.positions for stack in stacks(model) if stack.positions is not None]
    return [*own, *tables.values(), *(parameter for each in positions for parameter in each.parameters())]


def _count(parameters: Iterable[Any]) -> int:
    return sum(parameter.numel() for parameter in parameters)


@dataclass(frozen=True, slots=True)
class LengthCost:
    """The cost of a longer text: the share of products between pairs of pieces grows with its length."""

    pieces: int
    operations: int
    pair_share: float


def count_lengths(config: ModelConfig, vocabulary: int) -> list[LengthCost]:
    """Texts of several lengths; with a source, it is as long as what is written. Pictures have one length."""
    if config.family == "vit":
        return []
    found = []
    for pieces in _LENGTHS:
        whole, single = np.array([pieces]), np.array([1] * pieces)
        # GPT reads a prompt of one piece and what follows it as one text.
        sources = (np.array([1]), single) if config.family == "gpt" else (whole, single)
        targets = (np.array([1]), np.arange(pieces) < 1) if config.family == "bert" else (whole, single)
        operations = forward_flops(config, vocabulary, sources[0], targets[0])
        alone = forward_flops(config, vocabulary, sources[1], targets[1].astype(np.int64))
        found.append(LengthCost(pieces, operations, (operations - alone) / operations))
    return found
