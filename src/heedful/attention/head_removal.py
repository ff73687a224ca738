"""Heads removed for real: their rows and columns are cut out of the matrices, which are smaller afterwards."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from heedful.attention.head_names import Head
from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.models.transformer import Transformer
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.linear import Linear
from heedful.nn.multi_head import Kind


def least_important(importance: Mapping[Head, float], count: int) -> list[Head]:
    """At most so many heads that matter least. Each layer of each attention keeps one of those that are named."""
    left = Counter((head.kind, head.layer) for head in importance)
    chosen: list[Head] = []
    for head in sorted(importance, key=lambda head: importance[head]):
        if len(chosen) < count and left[head.kind, head.layer] > 1:
            left[head.kind, head.layer] -= 1
            chosen.append(head)
    return chosen


def pruned(model: Transformer, heads: Collection[Head]) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Configuration and weights of the model without these heads: it computes what `heads_off` makes of this one."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    names = {module: name for name, module in model.named_modules()}
    counts: dict[Kind, list[int]] = defaultdict(list)
    for kind, layers in model.attentions.items():
        for layer, attention in enumerate(layers):
            kept = [index for index in range(attention.num_heads) if Head(kind, layer, index) not in heads]
            if not kept:
                raise ConfigError(f"layer {layer + 1} of {kind} attention would lose all its heads; leave it one")
            counts[kind].append(len(kept))
            if isinstance(attention, SelfAttention | CrossAttention):
                weights |= _cut(attention, kept, names[attention])
    own, writing, looking = (tuple(counts[kind]) for kind in ("encoder", "decoder", "cross"))
    return replace(model.config, encoder_heads=own, decoder_heads=writing, cross_heads=looking), weights


def _cut(attention: SelfAttention | CrossAttention, kept: Sequence[int], name: str) -> dict[str, Tensor]:
    """The weights of one attention, with these heads alone."""
    sizes = attention.head_sizes
    keys, values = sizes.d_k, sizes.d_v
    projections: dict[str, tuple[Linear, Sequence[int]]]
    match attention:
        case SelfAttention():
            projections = {"query_key_value": (attention.query_key_value, (keys, keys, values))}
        case CrossAttention():
            projections = {"query": (attention.query, (keys,)), "key_value": (attention.key_value, (keys, values))}
    cut = {f"{name}.output.weight": attention.output.weight.detach()[:, _places(kept, sizes.num_heads, (values,))]}
    for part, (linear, widths) in projections.items():
        rows = _places(kept, sizes.num_heads, widths)
        cut |= {
            f"{name}.{part}.weight": linear.weight.detach()[rows],
            f"{name}.{part}.bias": linear.bias.detach()[rows],
        }
    return cut


def _places(kept: Sequence[int], heads: int, widths: Sequence[int]) -> Int[Tensor, " places"]:
    """Where these heads are in matrices side by side, in each of which a head is so wide."""
    places: list[int] = []
    start = 0
    for width in widths:
        for head in kept:
            places += range(start + head * width, start + (head + 1) * width)
        start += heads * width
    return torch.tensor(places)
