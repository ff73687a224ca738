"""Write a Transformer as a CTranslate2 model."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from heedful.config import Activation
from heedful.errors import ConfigError
from heedful.models.seq2seq import AnySeq2Seq
from heedful.models.transformer import DecoderLayer, EncoderLayer, Encoding, Transformer
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.feed_forward import FeedForward
from heedful.nn.positions import DistanceBias
from heedful.nn.residual import NORM_EPSILON
from heedful.storage.head_padding import PaddedHeads, fit_heads, pad_heads

Numbers = Literal["float32", "float16", "int8"]

POSITIONS = 2048  # the longest source and output, in pieces


@dataclass(frozen=True, slots=True)
class Pieces:
    """The vocabularies of both sides and the two special pieces."""

    source: Sequence[str]
    target: Sequence[str]
    pad: str
    eos: str


def export_ctranslate2(model: AnySeq2Seq, pieces: Pieces, folder: Path, numbers: Numbers, weights: str) -> None:
    """Write the model into an existing folder, with weights of this type."""
    if not isinstance(model, Transformer):
        raise ConfigError(
            f"heedful exports only Transformers to CTranslate2, but this model is a {type(model).__name__}; "
            "translate with the model as it is"
        )
    if model.config.window:
        raise ConfigError(
            f"CTranslate2 has no restricted self-attention, but model.window is {model.config.window}; "
            "translate with the model as it is"
        )
    if not find_spec("ctranslate2"):
        raise ConfigError("the export needs CTranslate2, which is not installed; install ctranslate2")
    spec = _spec(model)
    spec.config.unk_token = spec.config.bos_token = spec.config.decoder_start_token = pieces.pad
    spec.config.eos_token = pieces.eos
    spec.config.layer_norm_epsilon = NORM_EPSILON
    spec.config.add_attribute("heedful", {"numbers": numbers, "positions": POSITIONS, "weights": weights})
    spec.register_source_vocabulary(list(pieces.source))
    spec.register_target_vocabulary(list(pieces.target))
    spec.validate()
    spec.optimize(quantization=numbers)
    spec.save(str(folder))


def _spec(model: Transformer) -> Any:
    """Place all weights in a CTranslate2 specification."""
    from ctranslate2.specs import TransformerSpec, transformer_spec

    config, device = model.config, model.target_embedding.weight.device
    reading = fit_heads(layer.attention for layer in model.encoder)
    writing = fit_heads(kind for layer in model.decoder for kind in (layer.attention, layer.cross_attention))
    pre = config.norm == "pre"
    kind = {
        "pre_norm": pre,
        "activation": _activation(config.activation),
        "relative_position": config.positions == "relative",
    }
    encoder = transformer_spec.TransformerEncoderSpec(len(model.encoder), reading.count, head_dim=reading.width, **kind)
    decoder = transformer_spec.TransformerDecoderSpec(len(model.decoder), writing.count, head_dim=writing.width, **kind)
    encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    decoder.embeddings.weight = _array(model.target_embedding.weight)
    decoder.projection.weight = _array(model.output_weight)
    if model.output_bias is not None:
        decoder.projection.bias = _array(model.output_bias)
    if model.source_positions is not None and model.target_positions is not None:
        encoder.position_encodings.encodings = _array(_positions(model.source_positions, device))
        decoder.position_encodings.encodings = _array(_positions(model.target_positions, device))
    for ours, theirs in zip(model.encoder, encoder.layer, strict=True):
        _fill_encoder_layer(theirs, ours, reading)
    for layer, theirs in zip(model.decoder, decoder.layer, strict=True):
        _fill_decoder_layer(theirs, layer, writing)
    if pre:
        _fill_norm(encoder.layer_norm, model.encoder_norm)
        _fill_norm(decoder.layer_norm, model.decoder_norm)
    return TransformerSpec(encoder, decoder)


def _activation(activation: Activation) -> Any:
    from ctranslate2.specs.common_spec import Activation as Theirs

    return {"relu": Theirs.RELU, "gelu": Theirs.GELU, "gelu-tanh": Theirs.GELUTanh, "swish": Theirs.SWISH}[activation]


def _positions(encoding: Encoding, device: torch.device) -> Tensor:
    """Write our table of positions: CTranslate2's own sinusoids have other wavelengths."""
    return encoding(torch.arange(POSITIONS, device=device), POSITIONS)


def _fill_encoder_layer(theirs: Any, ours: EncoderLayer, heads: PaddedHeads) -> None:
    _fill_self_attention(theirs.self_attention, ours.attention, heads)
    _fill_norm(theirs.self_attention.layer_norm, ours.attention_residual.norm)
    _fill_feed_forward(theirs.ffn, ours.feed_forward)
    _fill_norm(theirs.ffn.layer_norm, ours.feed_forward_residual.norm)


def _fill_decoder_layer(theirs: Any, ours: DecoderLayer, heads: PaddedHeads) -> None:
    _fill_self_attention(theirs.self_attention, ours.attention, heads)
    _fill_norm(theirs.self_attention.layer_norm, ours.attention_residual.norm)
    _fill_cross_attention(theirs.attention, ours.cross_attention, heads)
    _fill_norm(theirs.attention.layer_norm, ours.cross_attention_residual.norm)
    _fill_feed_forward(theirs.ffn, ours.feed_forward)
    _fill_norm(theirs.ffn.layer_norm, ours.feed_forward_residual.norm)


def _fill_self_attention(theirs: Any, ours: SelfAttention, heads: PaddedHeads) -> None:
    theirs.queries_scale = np.float32(ours.head_sizes.d_k**-0.5)
    _fill_projections(theirs.linear[0], ours.query_key_value, ours.sizes, ours.num_heads, heads)
    _fill_output(theirs.linear[1], ours.output, ours.num_heads, heads)
    if ours.bias is not None:
        _fill_distance_bias(theirs, ours.bias, heads)


def _fill_distance_bias(theirs: Any, ours: DistanceBias, heads: PaddedHeads) -> None:
    """Write our bias by distance as relative keys (Shaw et al., 2018), which CTranslate2 has in each layer.

    A relative key is a vector that all heads share, and each query is multiplied by it. So each head has a column of
    its own after its d_k columns. Its queries are constant there and 0 in the columns of other heads, and the relative
    keys hold its weights there.
    """
    from ctranslate2.specs.model_spec import OPTIONAL

    number, first = len(ours.weight), heads.bias_columns
    queries = theirs.linear[0].bias[: heads.count * heads.width].reshape(heads.count, heads.width)  # a view
    keys = np.zeros((2 * ours.max_distance + 1, heads.width), np.float32)
    for head in range(number):
        queries[head, first + head] = ours.GAIN / theirs.queries_scale
    keys[:, first : first + number] = _array(ours.weight.T)
    theirs.relative_position_keys, theirs.relative_position_values = keys, OPTIONAL  # no values


def _fill_cross_attention(theirs: Any, ours: CrossAttention, heads: PaddedHeads) -> None:
    theirs.queries_scale = np.float32(ours.head_sizes.d_k**-0.5)
    _fill_projections(theirs.linear[0], ours.query, ours.sizes[:1], ours.num_heads, heads)
    _fill_projections(theirs.linear[1], ours.key_value, ours.sizes, ours.num_heads, heads)
    _fill_output(theirs.linear[2], ours.output, ours.num_heads, heads)


def _fill_projections(theirs: Any, ours: nn.Linear, sizes: Sequence[int], count: int, heads: PaddedHeads) -> None:
    """Join several projections of `count` heads each into one matrix."""
    for name in ("weight", "bias"):
        parts = getattr(ours, name).split(list(sizes))
        setattr(theirs, name, _array(torch.cat([pad_heads(part, count, heads) for part in parts])))


def _fill_output(theirs: Any, ours: nn.Linear, count: int, heads: PaddedHeads) -> None:
    theirs.weight = _array(pad_heads(ours.weight.T, count, heads).T)
    theirs.bias = _array(ours.bias)


def _fill_feed_forward(theirs: Any, ours: FeedForward) -> None:
    theirs.linear_0.weight, theirs.linear_0.bias = _array(ours.inner.weight), _array(ours.inner.bias)
    theirs.linear_1.weight, theirs.linear_1.bias = _array(ours.outer.weight), _array(ours.outer.bias)


def _fill_norm(theirs: Any, ours: nn.Module) -> None:
    if isinstance(ours, nn.LayerNorm):  # always true; this is for the type checker
        theirs.gamma, theirs.beta = _array(ours.weight), _array(ours.bias)


def _array(tensor: Tensor) -> "np.ndarray[Any, np.dtype[np.float32]]":
    # Copy, because CTranslate2 rounds in place.
    return tensor.detach().cpu().float().numpy().copy()
