"""Parts of the Transformer taken out of a model that is built: the model itself has no switch for any of this.

Each change takes effect in training, in validation and in search alike. Hooks hold no module, so that a model can be
copied with them: each worker of a training has a copy.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.models.seq2seq import SentenceKeys
from heedful.models.transformer import DecoderLayer, EncoderLayer, Memory, Transformer
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.dropout import DropoutKeys
from heedful.nn.fused import Rows, dropout_add
from heedful.nn.layout import Layout
from heedful.nn.linear import Linear
from heedful.nn.positions import SinusoidalPositions
from heedful.nn.residual import Residual

_RESIDUALS = ("attention_residual", "cross_attention_residual", "feed_forward_residual")


def nothing(model: Transformer) -> None:
    """Leave the model whole."""


class NoPositions(SinusoidalPositions):
    """Adds zero to every embedding."""

    def forward(self, positions: Int[Tensor, " rows"], longest: int) -> Float[Tensor, "rows d_model"]:
        return torch.zeros(len(positions), self.d_model, device=positions.device)


def without_positions(model: Transformer) -> None:
    """Section 3.5 left out, on both sides."""
    model.source_positions = NoPositions(model.config.d_model)
    model.target_positions = NoPositions(model.config.d_model)


def without_scale(model: Transformer) -> None:
    """Equation 1 without 1/sqrt(d_k): the queries are made longer by what attention makes them shorter."""
    for attention in _attentions(model):
        queries = attention.query_key_value if isinstance(attention, SelfAttention) else attention.query
        sizes = attention.head_sizes
        factors = torch.ones(queries.out_features)
        factors[: sizes.num_heads * sizes.d_k] = sizes.d_k**0.5
        queries.register_forward_hook(lambda _, __, out, factors=factors: out * factors.to(out))


class SharedKeys(nn.Module):
    """Keys by the projection of the queries, values by their own."""

    def __init__(self, query: Linear, key_value: Linear) -> None:
        super().__init__()
        self.key, self.key_value = query, key_value

    def forward(self, memory: Rows) -> Float[Tensor, "rows all"]:
        keys = self.key(memory)
        return torch.cat([keys, self.key_value(memory)[:, keys.shape[1] :]], dim=-1)


def with_keys_as_queries(model: Transformer) -> None:
    """W^K = W^Q in every head of every attention."""
    for attention in _attentions(model):
        width = attention.head_sizes.num_heads * attention.head_sizes.d_k
        if isinstance(attention, CrossAttention):
            attention.register_module("key_value", SharedKeys(attention.query, attention.key_value))
        else:
            attention.query_key_value.register_forward_hook(
                lambda _, __, out, width=width: torch.cat([out[:, :width], out[:, :width], out[:, 2 * width :]], dim=-1)
            )


class Unconnected(nn.Module):
    """What a sub-layer gives takes the place of what it was given."""

    def __init__(self, residual: Residual) -> None:
        super().__init__()
        self.norm, self.dropout, self.place = residual.norm, residual.dropout, residual.place

    def forward(self, x: Rows, dropout_keys: DropoutKeys, sublayer: Any) -> Rows:
        if self.place == "pre":
            return self.dropout(sublayer(self.norm(x)), dropout_keys)
        return self.norm(self.dropout(sublayer(x), dropout_keys))


def without_residuals(model: Transformer) -> None:
    """Section 3.1 without x + Sublayer(x)."""
    for layer, name, residual in _residuals(model):
        layer.register_module(name, Unconnected(residual))


class Unnormed(nn.Module):
    """x + Dropout(Sublayer(x))."""

    def __init__(self, residual: Residual) -> None:
        super().__init__()
        self.dropout = residual.dropout

    def forward(self, x: Rows, dropout_keys: DropoutKeys, sublayer: Any) -> Rows:
        return dropout_add(x, sublayer(x), self.dropout, dropout_keys)


def without_norm(model: Transformer) -> None:
    """Section 3.1 without LayerNorm, wherever it stood."""
    for layer, name, residual in _residuals(model):
        layer.register_module(name, Unnormed(residual))
    model.encoder_norm, model.decoder_norm = nn.Identity(), nn.Identity()


class Passed(nn.Module):
    """x as it is: a sub-layer that is not there."""

    def forward(self, x: Rows, dropout_keys: DropoutKeys, sublayer: Any) -> Rows:
        return x


def without_feed_forward(model: Transformer) -> None:
    """Section 3.3 left out, with the residual connection and the norm around it."""
    for layer in _layers(model):
        layer.register_module("feed_forward", nn.Identity())
        layer.register_module("feed_forward_residual", Passed())


def without_look_ahead_mask(model: Transformer) -> None:
    """Section 3.2.3 without the mask: in training every position sees the answer that it is to give."""
    for layer in model.decoder:
        layer.attention.register_forward_pre_hook(_unmasked, with_kwargs=True)


def _unmasked(_: nn.Module, given: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    return given, {**named, "causal": False}


class PaddedTransformer(Transformer):
    """Sources filled up with PAD to the longest of their batch, and no mask that hides it.

    Only the sources: the look-ahead mask keeps every target from what follows it.
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
