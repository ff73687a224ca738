"""Convert our weights to the names and the order of a Hugging Face Marian model, and back.

Marian's positions are the paper's, with all sines before all cosines. So the dimensions of the residual stream are
reordered everywhere, which does not change what a model computes. Marian's layer normalisation has an epsilon of 1e-5,
ours of 1e-6, which changes the fifth digit at most.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.config import ModelConfig
from heedful.models.transformer import Transformer
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.storage.head_padding import PaddedHeads, pad_heads

_TABLE = "embed_tokens.weight"
_NORMS = {"attention": "self_attn_layer_norm", "cross_attention": "encoder_attn_layer_norm"}


@dataclass(frozen=True, slots=True)
class DimensionOrder:
    """An order of the dimensions of the residual stream."""

    indices: Tensor

    def rows(self, tensor: Tensor) -> Tensor:
        """Reorder the rows of a tensor that writes to the residual stream."""
        return tensor.index_select(0, self.indices)

    def columns(self, tensor: Tensor) -> Tensor:
        """Reorder the columns of a tensor that reads from the residual stream."""
        return tensor.index_select(1, self.indices)


def to_marian(d_model: int) -> DimensionOrder:
    """The order of Marian: all sines, then all cosines."""
    return DimensionOrder(torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)]))


def from_marian(d_model: int) -> DimensionOrder:
    """The reverse order: alternating sines and cosines."""
    return DimensionOrder(to_marian(d_model).indices.argsort())


def marian_weights(model: Transformer) -> dict[str, Tensor]:
    """All weights of a post-norm model whose heads have Marian's width, named as in MarianMTModel."""
    order, config = to_marian(model.config.d_model), model.config
    heads = PaddedHeads(config.num_heads, config.d_model // config.num_heads)
    found = dict(_tables(model, order))
    for side, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(layers):
            prefix = f"model.{side}.layers.{number}"
            for name, part in layer.named_children():
                found |= {f"{prefix}.{theirs}": tensor for theirs, tensor in _part(name, part, order, heads)}
    return {name: tensor.detach().float().contiguous() for name, tensor in found.items()}


def _tables(model: Transformer, order: DimensionOrder) -> Iterator[tuple[str, Tensor]]:
    match model.config.sharing:
        case "all":
            yield "model.shared.weight", order.columns(model.target_embedding.weight)
        case "target" | "none":
            yield "model.encoder.embed_tokens.weight", order.columns(model.source_embedding.weight)
            yield "model.decoder.embed_tokens.weight", order.columns(model.target_embedding.weight)
    if model.config.sharing == "none":
        yield "lm_head.weight", order.columns(model.output_weight)
    bias = model.output_bias
    yield "final_logits_bias", torch.zeros(1, len(model.output_weight)) if bias is None else bias[None]


def _part(name: str, part: torch.nn.Module, order: DimensionOrder, heads: PaddedHeads) -> Iterator[tuple[str, Tensor]]:
    """The weights of one part of a layer."""
    weights = dict(part.named_parameters())
    match name:
        case "attention":
            yield from _attention("self_attn", part, order, heads)
        case "cross_attention":
            yield from _attention("encoder_attn", part, order, heads)
        case "feed_forward":
            yield "fc1.weight", order.columns(weights["inner.weight"])
            yield "fc1.bias", weights["inner.bias"]
            yield "fc2.weight", order.rows(weights["outer.weight"])
            yield "fc2.bias", order.rows(weights["outer.bias"])
        case _:  # a residual connection with its norm
            theirs = _NORMS.get(name.removesuffix("_residual"), "final_layer_norm")
            yield f"{theirs}.weight", order.rows(weights["norm.weight"])
            yield f"{theirs}.bias", order.rows(weights["norm.bias"])


def _attention(
    theirs: str, part: torch.nn.Module, order: DimensionOrder, heads: PaddedHeads
) -> Iterator[tuple[str, Tensor]]:
    if not isinstance(part, SelfAttention | CrossAttention):
        raise TypeError(f"{type(part).__name__} is no attention of a Transformer")
    count = part.num_heads
    for name, weight, bias in zip("qkv", *_projections(part), strict=True):
        yield f"{theirs}.{name}_proj.weight", order.columns(pad_heads(weight, count, heads))
        yield f"{theirs}.{name}_proj.bias", pad_heads(bias, count, heads)
    yield f"{theirs}.out_proj.weight", order.rows(pad_heads(part.output.weight.T, count, heads).T)
    yield f"{theirs}.out_proj.bias", order.rows(part.output.bias)


def _projections(part: SelfAttention | CrossAttention) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """The weights and the biases of queries, keys and values."""
    if isinstance(part, SelfAttention):
        joint, sizes = part.query_key_value, list(part.sizes)
        return joint.weight.split(sizes), joint.bias.split(sizes)
    joint, sizes = part.key_value, list(part.sizes)
    return (part.query.weight, *joint.weight.split(sizes)), (part.query.bias, *joint.bias.split(sizes))


def own_weights(theirs: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Convert Marian's weights to ours."""
    order = from_marian(config.d_model)
    found = dict(_own_tables(theirs, config, order))
    for side, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for number in range(count):
            prefix = f"model.{side}.layers.{number}."
            layer = {name.removeprefix(prefix): x for name, x in theirs.items() if name.startswith(prefix)}
            found |= {f"{side}.{number}.{name}": x for name, x in _own_layer(layer, side == "decoder", order)}
    return {name: tensor.float() for name, tensor in found.items()}


def _own_tables(
    theirs: Mapping[str, Tensor], config: ModelConfig, order: DimensionOrder
) -> Iterator[tuple[str, Tensor]]:
    # A file stores shared tables once, under one of these names.
    source, target, output = (f"model.encoder.{_TABLE}", f"model.decoder.{_TABLE}", "lm_head.weight")
    names = {"all": ("model.shared.weight", target, source, output), "target": (target, output), "none": (target,)}
    known = [name for name in names[config.sharing] if name in theirs]
    yield "target_embedding.weight", order.columns(theirs[known[0] if known else target])
    if config.sharing != "all":
        yield "own_source.weight", order.columns(theirs[source])
    if config.sharing == "none":
        yield "own_output.weight", order.columns(theirs[output])
    if config.output_bias:
        yield "own_bias", theirs["final_logits_bias"][0]


def _own_layer(layer: Mapping[str, Tensor], crosses: bool, order: DimensionOrder) -> Iterator[tuple[str, Tensor]]:
    for end in ("weight", "bias"):

        def read(name: str, ending: str = end) -> Tensor:
            """Reorder a weight that reads from the residual stream; leave biases as they are."""
            tensor = layer[f"{name}.{ending}"]
            return order.columns(tensor) if ending == "weight" else tensor

        def written(name: str, ending: str = end) -> Tensor:
            return order.rows(layer[f"{name}.{ending}"])

        yield f"attention.query_key_value.{end}", torch.cat([read(f"self_attn.{x}_proj") for x in "qkv"])
        yield f"attention.output.{end}", written("self_attn.out_proj")
        yield f"attention_residual.norm.{end}", written("self_attn_layer_norm")
        if crosses:
            yield f"cross_attention.query.{end}", read("encoder_attn.q_proj")
            yield f"cross_attention.key_value.{end}", torch.cat([read(f"encoder_attn.{x}_proj") for x in "kv"])
            yield f"cross_attention.output.{end}", written("encoder_attn.out_proj")
            yield f"cross_attention_residual.norm.{end}", written("encoder_attn_layer_norm")
        yield f"feed_forward.inner.{end}", read("fc1")
        yield f"feed_forward.outer.{end}", written("fc2")
        yield f"feed_forward_residual.norm.{end}", written("final_layer_norm")
