"""Steps of a model, recomputed with NumPy from the steps before them."""

from math import sqrt

import numpy as np
import torch

from heedful.attention.steps import Steps, sublayers
from heedful.models.transformer import DecoderLayer, EncoderLayer
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.feed_forward import FeedForward, activate
from heedful.nn.linear import Linear
from heedful.nn.residual import RMSNorm


def close(left: np.ndarray, right: np.ndarray) -> None:
    """Equal up to the rounding of float32, and infinite in the same places."""
    np.testing.assert_allclose(left, right, rtol=1e-4, atol=2e-4)


def array(tensor: torch.Tensor) -> np.ndarray:
    values: np.ndarray = tensor.detach().numpy()
    return values


def linear(layer: Linear, rows: np.ndarray) -> np.ndarray:
    product: np.ndarray = rows @ array(layer.weight).T
    return product if layer.bias is None else product + array(layer.bias)


def norm(layer: torch.nn.Module, rows: np.ndarray) -> np.ndarray:
    if isinstance(layer, torch.nn.Identity):
        return rows
    assert isinstance(layer, torch.nn.LayerNorm)
    if isinstance(layer, RMSNorm):
        return np.asarray(rows / np.sqrt((rows**2).mean(-1, keepdims=True) + layer.eps) * array(layer.weight))
    normal = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + layer.eps)
    return np.asarray(normal * array(layer.weight) + array(layer.bias))


def softmax(rows: np.ndarray) -> np.ndarray:
    powers = np.exp(rows - rows.max(-1, keepdims=True))
    shares: np.ndarray = powers / powers.sum(-1, keepdims=True)
    return shares


def check_attention(
    steps: Steps, name: str, attention: SelfAttention | CrossAttention, keys: np.ndarray, scale: float | None = None
) -> None:
    """From what a sub-layer reads to its output; the scale of scores is 1 / sqrt(d_k) if there is no other."""
    rows = steps[f"{name}.input"]
    if isinstance(attention, SelfAttention):
        parts = np.split(linear(attention.query_key_value, rows), np.cumsum(attention.sizes)[:-1], axis=1)
    else:
        both = np.split(linear(attention.key_value, keys), np.cumsum(attention.sizes)[:-1], axis=1)
        parts = [linear(attention.query, rows), *both]
    heads = attention.num_heads
    for part, whole in zip(("query", "key", "value"), parts, strict=True):
        close(steps[f"{name}.{part}"], whole.reshape(len(whole), heads, -1).transpose(1, 0, 2))
    q, k, v = (steps[f"{name}.{part}"] for part in ("query", "key", "value"))
    close(steps[f"{name}.scores"], np.einsum("hqd,hkd->hqk", q, k))
    close(steps[f"{name}.scaled"], steps[f"{name}.scores"] * (scale or 1 / sqrt(q.shape[-1])))
    biased = steps[f"{name}.scaled"] + steps.get(f"{name}.bias", np.float32(0))
    close(steps[f"{name}.masked"], np.where(steps[f"{name}.mask"], biased, -np.inf))
    close(steps[f"{name}.weights"], softmax(steps[f"{name}.masked"]))
    close(steps[f"{name}.weights"].sum(-1), np.ones(q.shape[:2]))
    close(steps[f"{name}.heads"], steps[f"{name}.weights"] @ v)
    close(steps[f"{name}.concat"], steps[f"{name}.heads"].transpose(1, 0, 2).reshape(len(rows), -1))
    close(steps[f"{name}.output"], linear(attention.output, steps[f"{name}.concat"]))
    weight = array(attention.output.weight).reshape(rows.shape[1], heads, -1)
    parts_of_output = np.einsum("hqv,dhv->qhd", steps[f"{name}.heads"], weight)
    close(steps[f"{name}.shares"], np.linalg.norm(parts_of_output, axis=-1))
    bias = np.float32(0) if attention.output.bias is None else array(attention.output.bias)
    close(parts_of_output.sum(1) + bias, steps[f"{name}.output"])


def check_feed_forward(steps: Steps, name: str, network: FeedForward) -> None:
    close(steps[f"{name}.inner"], linear(network.inner, steps[f"{name}.input"]))
    active = activate(torch.from_numpy(steps[f"{name}.inner"]), network.activation)
    close(steps[f"{name}.active"], array(active))
    close(steps[f"{name}.output"], linear(network.outer, steps[f"{name}.active"]))


def check_layer(
    steps: Steps, name: str, layer: EncoderLayer | DecoderLayer, x: np.ndarray, scale: float | None = None
) -> np.ndarray:
    """From what a layer gets to its result."""
    close(steps[f"{name}.input"], x)
    for part, sublayer, residual in sublayers(layer):
        own = f"{name}.{part}"
        close(steps[f"{own}.before"], x)
        pre = residual.place == "pre"
        close(steps[f"{own}.input"], norm(residual.norm, x) if pre else x)
        if isinstance(sublayer, FeedForward):
            check_feed_forward(steps, own, sublayer)
        else:
            memory = steps["encoder.output"] if isinstance(sublayer, CrossAttention) else x
            check_attention(steps, own, sublayer, memory, scale)
        close(steps[f"{own}.sum"], x + steps[f"{own}.output"])
        x = steps[f"{own}.result"]
        close(x, steps[f"{own}.sum"] if pre else norm(residual.norm, steps[f"{own}.sum"]))
    close(steps[f"{name}.output"], x)
    return x
