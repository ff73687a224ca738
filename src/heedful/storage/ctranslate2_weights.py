"""Read the weights of a model that was exported to CTranslate2 for use in PyTorch: the inverse of the export.

So every command works on a folder that holds nothing but the export. Rounded weights stay rounded: both engines use
the same numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from heedful.errors import FolderError
from heedful.models.transformer import DecoderLayer, EncoderLayer, Transformer
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.storage.ctranslate2_file import KINDS, read_layout
from heedful.storage.files import disk_errors
from heedful.storage.head_padding import PaddedHeads, fit_heads, unpad_heads

_TYPES = {kind: getattr(torch, kind) for kind in KINDS}


def read_ctranslate2_weights(path: Path, model: Transformer) -> dict[str, Tensor]:
    """The weights of this file under the names of `model`, of which only the sizes matter."""
    found = _Variables(_read_variables(path), path)
    reading = fit_heads(layer.attention for layer in model.encoder)
    writing = fit_heads(kind for layer in model.decoder for kind in (layer.attention, layer.cross_attention))
    weights = dict(_tables(model, found))
    for number, layer in enumerate(model.encoder):
        inside = found.under(f"encoder/layer_{number}")
        weights |= {f"encoder.{number}.{name}": tensor for name, tensor in _encoder_layer(layer, inside, reading)}
    for number, own in enumerate(model.decoder):
        inside = found.under(f"decoder/layer_{number}")
        weights |= {f"decoder.{number}.{name}": tensor for name, tensor in _decoder_layer(own, inside, writing)}
    return weights


@dataclass(frozen=True, slots=True)
class _Variables:
    """The variables of a file under some place in its tree."""

    variables: Mapping[str, Tensor]
    path: Path
    place: str = ""

    def under(self, name: str) -> "_Variables":
        return _Variables(self.variables, self.path, f"{self.place}{name}/")

    def __getitem__(self, name: str) -> Tensor:
        """The variable as float32, whatever it was rounded to."""
        tensor, scale = self._get(name), self.variables.get(f"{self.place}{name}_scale")
        return tensor.float() if scale is None else tensor.float() / scale.float().unsqueeze(1)

    def _get(self, name: str) -> Tensor:
        try:
            return self.variables[f"{self.place}{name}"]
        except KeyError as error:
            raise FolderError(f"{self.path} has no {self.place}{name}; it belongs to a different model") from error


def _tables(model: Transformer, found: _Variables) -> Iterator[tuple[str, Tensor]]:
    yield "target_embedding.weight", found["decoder/embeddings/weight"]
    if model.config.sharing != "all":
        yield "own_source.weight", found["encoder/embeddings_0/weight"]
    if model.config.sharing == "none":
        yield "own_output.weight", found["decoder/projection/weight"]
    if model.output_bias is not None:
        yield "own_bias", found["decoder/projection/bias"]
    if model.config.positions == "learned":
        for side in ("source", "target"):
            own = getattr(model, f"{side}_positions").weight
            place = "encoder" if side == "source" else "decoder"
            yield f"{side}_positions.weight", found[f"{place}/position_encodings/encodings"][: len(own)]
    if model.config.norm == "pre":
        for side in ("encoder", "decoder"):
            yield from _norm(f"{side}_norm", found.under(f"{side}/layer_norm"))


def _encoder_layer(layer: EncoderLayer, found: _Variables, heads: PaddedHeads) -> Iterator[tuple[str, Tensor]]:
    yield from _self_attention(layer.attention, found.under("self_attention"), heads)
    yield from _feed_forward(found.under("ffn"))


def _decoder_layer(layer: DecoderLayer, found: _Variables, heads: PaddedHeads) -> Iterator[tuple[str, Tensor]]:
    yield from _self_attention(layer.attention, found.under("self_attention"), heads)
    yield from _cross_attention(layer.cross_attention, found.under("attention"), heads)
    yield from _feed_forward(found.under("ffn"))


def _self_attention(layer: SelfAttention, found: _Variables, heads: PaddedHeads) -> Iterator[tuple[str, Tensor]]:
    yield from _projections("attention.query_key_value", layer.sizes, layer.num_heads, found.under("linear_0"), heads)
    yield from _output("attention.output", layer.sizes[-1], layer.num_heads, found.under("linear_1"), heads)
    yield from _norm("attention_residual.norm", found.under("layer_norm"))
    if layer.bias is not None:
        columns = slice(heads.bias_columns, heads.bias_columns + layer.num_heads)
        yield "attention.bias.weight", found["relative_position_keys"][:, columns].T


def _cross_attention(layer: CrossAttention, found: _Variables, heads: PaddedHeads) -> Iterator[tuple[str, Tensor]]:
    count = layer.num_heads
    yield from _projections("cross_attention.query", layer.sizes[:1], count, found.under("linear_0"), heads)
    yield from _projections("cross_attention.key_value", layer.sizes, count, found.under("linear_1"), heads)
    yield from _output("cross_attention.output", layer.sizes[-1], count, found.under("linear_2"), heads)
    yield from _norm("cross_attention_residual.norm", found.under("layer_norm"))


def _projections(
    name: str, sizes: Sequence[int], count: int, found: _Variables, heads: PaddedHeads
) -> Iterator[tuple[str, Tensor]]:
    for end in ("weight", "bias"):
        parts = found[end].chunk(len(sizes))
        own = [unpad_heads(part, size, count, heads) for part, size in zip(parts, sizes, strict=True)]
        yield f"{name}.{end}", torch.cat(own)


def _output(name: str, size: int, count: int, found: _Variables, heads: PaddedHeads) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}.weight", unpad_heads(found["weight"].T, size, count, heads).T
    yield f"{name}.bias", found["bias"]


def _feed_forward(found: _Variables) -> Iterator[tuple[str, Tensor]]:
    for own, theirs in (("inner", "linear_0"), ("outer", "linear_1")):
        for end in ("weight", "bias"):
            yield f"feed_forward.{own}.{end}", found[f"{theirs}/{end}"]
    yield from _norm("feed_forward_residual.norm", found.under("layer_norm"))


def _norm(name: str, found: _Variables) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}.weight", found["gamma"]
    yield f"{name}.bias", found["beta"]


def _read_variables(path: Path) -> dict[str, Tensor]:
    """All variables of the file by name."""
    layout = read_layout(path)
    with disk_errors(path), path.open("rb") as file:
        tensors: dict[int, Tensor] = {}  # by their place; some variables have two names
        for variable in layout.values():
            if variable.start not in tensors and variable.size:
                file.seek(variable.start)
                content = bytearray(file.read(variable.size))
                tensors[variable.start] = torch.frombuffer(content, dtype=_TYPES[variable.kind]).view(variable.shape)
    return {name: tensors[variable.start] for name, variable in layout.items() if variable.size}
