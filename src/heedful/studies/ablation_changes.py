"""Take parts out of a Transformer that is already built; the model itself has no switches for this.

Each change applies to training, validation and search alike. The hooks refer to no module, so a model can be copied
with them: every training worker has its own copy.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.models.predictor import SentenceKeys
from heedful.models.transformer import DecoderLayer, EncoderLayer, Memory, Transformer
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.dropout import DropoutKeys
from heedful.nn.layout import Layout, Rows
from heedful.nn.linear import Linear
from heedful.nn.positions import SinusoidalPositions
from heedful.nn.residual import Residual, dropout_add

_RESIDUALS = ("attention_residual", "cross_attention_residual", "feed_forward_residual")


def nothing(model: Transformer) -> None:
    """Leave the model unchanged."""


class NoPositions(SinusoidalPositions):
    """Adds zero to every embedding."""

    def forward(self, positions: Int[Tensor, " rows"], longest: int) -> Float[Tensor, "rows d_model"]:
        return torch.zeros(len(positions), self.d_model, device=positions.device)


def without_positions(model: Transformer) -> None:
    """Leave out the positional encoding (section 3.5) on both sides."""
    model.source_positions = NoPositions(model.config.d_model)
    model.target_positions = NoPositions(model.config.d_model)


def without_scale(model: Transformer) -> None:
    """Undo the 1/sqrt(d_k) of equation 1 by scaling the queries up by sqrt(d_k)."""
    for attention in _attentions(model):
        queries = attention.query_key_value if isinstance(attention, SelfAttention) else attention.query
        sizes = attention.head_sizes
        factors = torch.ones(queries.out_features)
        factors[: sizes.num_heads * sizes.d_k] = sizes.d_k**0.5
        queries.register_forward_hook(lambda _, __, out, factors=factors: out * factors.to(out))


class SharedKeys(nn.Module):
    """Compute keys with the projection of the queries, and values with their own."""

    def __init__(self, query: Linear, key_value: Linear) -> None:
        super().__init__()
        self.key, self.key_value = query, key_value

    def forward(self, memory: Rows) -> Float[Tensor, "rows all"]:
        keys = self.key(memory)
        return torch.cat([keys, self.key_value(memory)[:, keys.shape[1] :]], dim=-1)


def with_keys_as_queries(model: Transformer) -> None:
    """Set W^K = W^Q in every head of every attention."""
    for attention in _attentions(model):
        width = attention.head_sizes.num_heads * attention.head_sizes.d_k
        if isinstance(attention, CrossAttention):
            attention.register_module("key_value", SharedKeys(attention.query, attention.key_value))
        else:
            attention.query_key_value.register_forward_hook(
                lambda _, __, out, width=width: torch.cat([out[:, :width], out[:, :width], out[:, 2 * width :]], dim=-1)
            )


class Unconnected(nn.Module):
    """Replace the input of a sub-layer by its output, without a residual connection."""

    def __init__(self, residual: Residual) -> None:
        super().__init__()
        self.norm, self.dropout, self.place = residual.norm, residual.dropout, residual.place

    def forward(self, x: Rows, dropout_keys: DropoutKeys, sublayer: Any) -> Rows:
        if self.place == "pre":
            return self.dropout(sublayer(self.norm(x)), dropout_keys)
        return self.norm(self.dropout(sublayer(x), dropout_keys))


def without_residuals(model: Transformer) -> None:
    """Remove the residual connections, x + Sublayer(x), of section 3.1."""
    for layer, name, residual in _residuals(model):
        layer.register_module(name, Unconnected(residual))


class Unnormed(nn.Module):
    """Compute x + Dropout(Sublayer(x)), without a norm."""

    def __init__(self, residual: Residual) -> None:
        super().__init__()
        self.dropout = residual.dropout

    def forward(self, x: Rows, dropout_keys: DropoutKeys, sublayer: Any) -> Rows:
        return dropout_add(x, sublayer(x), self.dropout, dropout_keys)


def without_norm(model: Transformer) -> None:
    """Remove every LayerNorm of section 3.1."""
    for layer, name, residual in _residuals(model):
        layer.register_module(name, Unnormed(residual))
    model.encoder_norm, model.decoder_norm = nn.Identity(), nn.Identity()


class Passed(nn.Module):
    """Return x unchanged, as if the sub-layer did not exist."""

    def forward(self, x: Rows, dropout_keys: DropoutKeys, sublayer: Any) -> Rows:
        return x


def without_feed_forward(model: Transformer) -> None:
    """Remove the feed-forward networks (section 3.3) with their residual connection and norm."""
    for layer in _layers(model):
        layer.register_module("feed_forward", nn.Identity())
        layer.register_module("feed_forward_residual", Passed())


def without_look_ahead_mask(model: Transformer) -> None:
    """Remove the look-ahead mask (section 3.2.3): in training every position sees the answer it should predict."""
    for layer in model.decoder:
        layer.attention.register_forward_pre_hook(_unmasked, with_kwargs=True)


def _unmasked(_: nn.Module, given: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    return given, {**named, "causal": False}


class PaddedTransformer(Transformer):
    """A Transformer whose sources are padded to the longest of their batch, without a mask that hides the padding.

    Targets need no such change: the look-ahead mask hides what follows them.
    """

    def encode(
        self, source: Int[Tensor, " source_rows"], lengths: Int[Tensor, " batch"], sentence_keys: SentenceKeys = None
    ) -> Memory:
        layout = Layout.of(lengths)
        grid = source.new_full((len(lengths), layout.longest), self.pad_id)
        grid[layout.mask] = source
        return super().encode(grid.flatten(), torch.full_like(lengths, layout.longest), sentence_keys)


def _layers(model: Transformer) -> list[EncoderLayer | DecoderLayer]:
    return [*model.encoder, *model.decoder]


def _attentions(model: Transformer) -> list[SelfAttention | CrossAttention]:
    own = [layer.attention for layer in _layers(model)]
    return [*own, *(layer.cross_attention for layer in model.decoder)]


def _residuals(model: Transformer) -> list[tuple[EncoderLayer | DecoderLayer, str, Residual]]:
    found = [(layer, name, getattr(layer, name, None)) for layer in _layers(model) for name in _RESIDUALS]
    return [(layer, name, residual) for layer, name, residual in found if residual is not None]
