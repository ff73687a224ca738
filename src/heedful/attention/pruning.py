"""Switch heads off temporarily, or remove them for good.

A gate switches a head off: it multiplies the head's result by zero before the output layer adds up the heads. Removing
a head cuts its rows and columns out of the matrices, which become smaller.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.attention.head_names import Head
from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.models.predictor import AnyPredictor
from heedful.models.transformer import Transformer
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.linear import Linear
from heedful.nn.multi_head import Kind

HeadGates = dict[tuple[Kind, int], Float[Tensor, "*sentences heads"]]  # for each kind of attention and layer
GatesNow = dict[tuple[Kind, int], Float[Tensor, "*sentences heads"] | None]


def open_gates(model: AnyPredictor) -> HeadGates:
    """A gate of one for each head."""
    device = next(model.parameters()).device
    return {
        (kind, layer): torch.ones(attention.num_heads, device=device)
        for kind, layers in model.attentions.items()
        for layer, attention in enumerate(layers)
    }


def read_gates(model: AnyPredictor) -> GatesNow:
    """The gates as they are; None where every head of a layer is on."""
    return {
        (kind, layer): attention.gates
        for kind, layers in model.attentions.items()
        for layer, attention in enumerate(layers)
    }


@contextmanager
def apply_gates(model: AnyPredictor, gates: HeadGates | GatesNow) -> Iterator[None]:
    """Within this context, the result of each head is multiplied by its gate; gradients reach the gates."""
    touched = [(model.attentions[kind][layer], gate) for (kind, layer), gate in gates.items()]
    before = [attention.gates for attention, _ in touched]
    try:
        for attention, gate in touched:
            attention.gates = gate
        yield
    finally:
        for (attention, _), old in zip(touched, before, strict=True):
            attention.gates = old


@contextmanager
def switch_off_heads(model: AnyPredictor, heads: Iterable[Head]) -> Iterator[None]:
    """Within this context, the model runs without these heads; gates that are already set stay.

    Layers that keep all their heads run as fast as before.
    """
    opened, gates = open_gates(model), HeadGates()
    for head in heads:
        place = head.kind, head.layer
        before = model.attentions[head.kind][head.layer].gates
        gate = gates.setdefault(place, opened[place] if before is None else before.clone())
        gate[..., head.index] = 0.0
    with apply_gates(model, gates):
        yield


def choose_least_important(importance: Mapping[Head, float], count: int) -> list[Head]:
    """The `count` least important heads, or fewer: each layer of each attention keeps at least one."""
    left = Counter((head.kind, head.layer) for head in importance)
    chosen: list[Head] = []
    for head in sorted(importance, key=lambda head: importance[head]):
        if len(chosen) < count and left[head.kind, head.layer] > 1:
            left[head.kind, head.layer] -= 1
            chosen.append(head)
    return chosen


def remove_heads(model: Transformer, heads: Collection[Head]) -> tuple[ModelConfig, dict[str, Tensor]]:
    """The configuration and weights without these heads; the model computes the same as with `switch_off_heads`."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    names = {module: name for name, module in model.named_modules()}
    counts: dict[Kind, list[int]] = defaultdict(list)
    for kind, layers in model.attentions.items():
        for layer, attention in enumerate(layers):
            kept = [index for index in range(attention.num_heads) if Head(kind, layer, index) not in heads]
            if not kept:
                raise ConfigError(
                    f"layer {layer + 1} of {kind} attention would lose all its heads; keep at least one of them"
                )
            counts[kind].append(len(kept))
            if isinstance(attention, SelfAttention | CrossAttention):
                weights |= _keep_heads(attention, kept, names[attention])
    config = replace(
        model.config,
        encoder_heads=tuple(counts["encoder"]),
        decoder_heads=tuple(counts["decoder"]),
        cross_heads=tuple(counts["cross"]),
    )
    return config, weights


def _keep_heads(attention: SelfAttention | CrossAttention, kept: Sequence[int], name: str) -> dict[str, Tensor]:
    """The weights of one attention with only these heads."""
    sizes = attention.head_sizes
    keys, values = sizes.d_k, sizes.d_v
    projections: dict[str, tuple[Linear, Sequence[int]]]
    match attention:
        case SelfAttention():
            projections = {"query_key_value": (attention.query_key_value, (keys, keys, values))}
        case CrossAttention():
            projections = {"query": (attention.query, (keys,)), "key_value": (attention.key_value, (keys, values))}
    cut = {
        f"{name}.output.weight": attention.output.weight.detach()[:, _find_indices(kept, sizes.num_heads, (values,))]
    }
    if attention.bias is not None:
        cut[f"{name}.bias.weight"] = attention.bias.weight.detach()[list(kept)]
    for part, (linear, widths) in projections.items():
        rows = _find_indices(kept, sizes.num_heads, widths)
        cut |= {
            f"{name}.{part}.weight": linear.weight.detach()[rows],
            f"{name}.{part}.bias": linear.bias.detach()[rows],
        }
    return cut


def _find_indices(kept: Sequence[int], heads: int, widths: Sequence[int]) -> Int[Tensor, " indices"]:
    """The rows of these heads in several stacked matrices, whose heads may differ in width."""
    indices: list[int] = []
    start = 0
    for width in widths:
        for head in kept:
            indices += range(start + head * width, start + (head + 1) * width)
        start += heads * width
    return torch.tensor(indices)
