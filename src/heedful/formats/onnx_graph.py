"""Build a Transformer's encoder and decoder as ONNX graphs, node by node, without tracing."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from heedful.config import Activation
from heedful.models.transformer import DecoderLayer, EncoderLayer, Transformer
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.feed_forward import FeedForward
from heedful.nn.multi_head import HeadSizes
from heedful.nn.positions import LearnedPositions, SinusoidalPositions
from heedful.nn.residual import NORM_EPSILON, Residual

OPSET = 17  # the first with LayerNormalization
POSITIONS = 2048  # the longest source and output, in pieces


class Graph:
    """An ONNX graph under construction. Outputs are named by the number of their node."""

    def __init__(self) -> None:
        from onnx import helper, numpy_helper

        self._helper, self._numpy = helper, numpy_helper
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def constant(self, value: Tensor) -> str:
        """Add a constant tensor."""
        name = f"constant.{len(self._constants)}"
        self._constants.append(self._numpy.from_array(value.detach().cpu().contiguous().numpy(), name))
        return name

    def numbers(self, *values: int) -> str:
        """Add a constant list of integers, such as a shape or axes."""
        return self.constant(torch.tensor(values))

    def scalar(self, value: float) -> str:
        """Add a constant number."""
        return self.constant(torch.tensor(value))

    def node(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add an operation and return the name of its output."""
        name = name or f"node.{len(self._nodes)}"
        self._nodes.append(self._helper.make_node(kind, inputs, [name], **attributes))
        return name

    def finished(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Build the ONNX model of this graph."""
        graph = self._helper.make_graph(self._nodes, name, inputs, outputs, self._constants)
        opset = self._helper.make_opsetid("", OPSET)
        return self._helper.make_model(graph, opset_imports=[opset], producer_name="heedful", ir_version=8)


def encoder_graph(model: Transformer) -> Any:
    """Build the encoder: from source tokens to the keys and values for each decoder layer."""
    graph = Graph()
    mask = _source_mask(graph)
    table = graph.constant(model.source_embedding.weight)
    length = graph.node("Shape", "source_ids", start=1, end=2)
    here = graph.node("Slice", _positions(graph, model.source_positions), graph.numbers(0), length)
    x = _embedded(graph, "source_ids", table, model.source_embedding.scale, here)
    for layer in model.encoder:
        x = _encoder_layer(graph, layer, x, mask)
    if isinstance(model.encoder_norm, nn.LayerNorm):
        x = _norm(graph, x, model.encoder_norm)
    outputs = []
    for number, writer in enumerate(model.decoder):
        part = writer.cross_attention
        key, value = _split(graph, _linear(graph, x, part.key_value), part.sizes)
        _heads(graph, key, part.num_heads, name=f"source_keys.{number}")
        _heads(graph, value, part.num_heads, name=f"source_values.{number}")
        outputs += _caches("source", number, part.head_sizes, "source")
    return graph.finished("encoder", [_ids("source_ids", "source"), _ids("source_mask", "source")], outputs)


def decoder_graph(model: Transformer) -> Any:
    """Build the decoder: from target tokens and a key-value cache to the logits of the next tokens."""
    graph = Graph()
    mask = _source_mask(graph)
    table = graph.constant(model.target_embedding.weight)
    before = graph.node("Shape", "keys.0", start=2, end=3)
    after = graph.node("Add", before, graph.node("Shape", "target_ids", start=1, end=2))
    here = graph.node("Slice", _positions(graph, model.target_positions), before, after)
    causal = _causal(graph, before, after)
    x = _embedded(graph, "target_ids", table, model.target_embedding.scale, here)
    inputs, outputs = [_ids("target_ids", "target"), _ids("source_mask", "source")], []
    for number, layer in enumerate(model.decoder):
        x = _decoder_layer(graph, layer, number, x, (causal, mask))
        inputs += _caches("", number, layer.attention.head_sizes, "before")
        inputs += _caches("source", number, layer.cross_attention.head_sizes, "source")
        outputs += _caches("new", number, layer.attention.head_sizes, "after")
    if isinstance(model.decoder_norm, nn.LayerNorm):
        x = _norm(graph, x, model.decoder_norm)
    shared = model.config.sharing != "none"
    output = graph.node("Transpose", table if shared else graph.constant(model.output_weight), perm=[1, 0])
    bias = torch.zeros(1) if model.output_bias is None else model.output_bias
    graph.node("Add", graph.node("MatMul", x, output), graph.constant(bias), name="logits")
    return graph.finished(
        "decoder", inputs, [_value("logits", ["batch", "target", len(model.output_weight)]), *outputs]
    )


def _caches(prefix: str, number: int, sizes: HeadSizes, length: str) -> list[Any]:
    """The keys and values of one layer, as inputs or outputs."""
    names = [f"{prefix}_{kind}.{number}".removeprefix("_") for kind in ("keys", "values")]
    widths = sizes.d_k, sizes.d_v
    return [_value(name, ["batch", sizes.num_heads, length, width]) for name, width in zip(names, widths, strict=True)]


def _value(name: str, shape: Sequence[str | int]) -> Any:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _ids(name: str, length: str) -> Any:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", length])


def _source_mask(graph: Graph) -> str:
    """An additive mask: 0 for source tokens, minus infinity for padding."""
    real = graph.node("Cast", graph.node("Unsqueeze", "source_mask", graph.numbers(1, 2)), to=9)  # to booleans
    return graph.node("Where", real, graph.scalar(0.0), graph.scalar(-torch.inf))


def _causal(graph: Graph, before: str, after: str) -> str:
    """An additive causal mask."""
    zero, one, first = graph.constant(torch.tensor(0)), graph.constant(torch.tensor(1)), graph.numbers(0)
    start, end = (graph.node("Squeeze", limit, first) for limit in (before, after))
    queries = graph.node("Unsqueeze", graph.node("Range", start, end, one), graph.numbers(1))
    seen = graph.node("LessOrEqual", graph.node("Range", zero, end, one), queries)
    return graph.node("Where", seen, graph.scalar(0.0), graph.scalar(-torch.inf))


def _positions(graph: Graph, positions: SinusoidalPositions | LearnedPositions) -> str:
    device = next((parameter.device for parameter in positions.parameters()), torch.device("cpu"))
    return graph.constant(positions(torch.arange(POSITIONS, device=device), POSITIONS))


def _embedded(graph: Graph, ids: str, table: str, scale: float, positions: str) -> str:
    scaled = graph.node("Mul", graph.node("Gather", table, ids), graph.scalar(scale))
    return graph.node("Add", scaled, positions)


def _encoder_layer(graph: Graph, layer: EncoderLayer, x: str, mask: str) -> str:
    def look(y: str) -> str:
        query, keys, values = _project(graph, layer.attention, y)
        return _attend(graph, layer.attention, query, (keys, values), mask)

    x = _around(graph, layer.attention_residual, x, look)
    return _around(graph, layer.feed_forward_residual, x, lambda y: _feed_forward(graph, layer.feed_forward, y))


def _decoder_layer(graph: Graph, layer: DecoderLayer, number: int, x: str, masks: tuple[str, str]) -> str:
    causal, source_mask = masks

    def look_back(y: str) -> str:
        query, key, value = _project(graph, layer.attention, y)
        keys = graph.node("Concat", f"keys.{number}", key, axis=2, name=f"new_keys.{number}")
        values = graph.node("Concat", f"values.{number}", value, axis=2, name=f"new_values.{number}")
        return _attend(graph, layer.attention, query, (keys, values), causal)

    def look_at_source(y: str) -> str:
        part = layer.cross_attention
        query = _heads(graph, _linear(graph, y, part.query), part.num_heads)
        return _attend(graph, part, query, (f"source_keys.{number}", f"source_values.{number}"), source_mask)

    x = _around(graph, layer.attention_residual, x, look_back)
    x = _around(graph, layer.cross_attention_residual, x, look_at_source)
    return _around(graph, layer.feed_forward_residual, x, lambda y: _feed_forward(graph, layer.feed_forward, y))


def _around(graph: Graph, residual: Residual, x: str, sublayer: Any) -> str:
    """Add a residual connection, with post-norm or pre-norm."""
    if residual.place == "post":
        return _norm(graph, graph.node("Add", x, sublayer(x)), residual.norm)
    return graph.node("Add", x, sublayer(_norm(graph, x, residual.norm)))


def _norm(graph: Graph, x: str, norm: nn.LayerNorm) -> str:
    scale, shift = graph.constant(norm.weight), graph.constant(norm.bias)
    return graph.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=NORM_EPSILON)


def _linear(graph: Graph, x: str, linear: nn.Linear) -> str:
    return graph.node("Add", graph.node("MatMul", x, graph.constant(linear.weight.T)), graph.constant(linear.bias))


def _split(graph: Graph, x: str, sizes: Sequence[int]) -> list[str]:
    """Split the joint projection into its parts."""
    ends = torch.tensor(sizes).cumsum(0).tolist()
    last = graph.numbers(2)
    return [
        graph.node("Slice", x, graph.numbers(end - size), graph.numbers(end), last)
        for size, end in zip(sizes, ends, strict=True)
    ]


def _heads(graph: Graph, x: str, count: int, name: str = "") -> str:
    """Reshape (batch, length, columns) to (batch, heads, length, columns per head)."""
    return graph.node(
        "Transpose", graph.node("Reshape", x, graph.numbers(0, 0, count, -1)), perm=[0, 2, 1, 3], name=name
    )


def _project(graph: Graph, part: SelfAttention, x: str) -> list[str]:
    joined = _linear(graph, x, part.query_key_value)
    return [_heads(graph, each, part.num_heads) for each in _split(graph, joined, part.sizes)]


def _attend(
    graph: Graph, part: SelfAttention | CrossAttention, query: str, keys_values: tuple[str, str], mask: str
) -> str:
    """Add equation 1 and the output projection over all heads."""
    keys, values = keys_values
    scaled = graph.node("Mul", query, graph.scalar(part.head_sizes.d_k**-0.5))
    products = graph.node("MatMul", scaled, graph.node("Transpose", keys, perm=[0, 1, 3, 2]))
    weights = graph.node("Softmax", graph.node("Add", products, mask), axis=-1)
    found = graph.node("Transpose", graph.node("MatMul", weights, values), perm=[0, 2, 1, 3])
    joined = graph.node("Reshape", found, graph.numbers(0, 0, -1))
    return _linear(graph, joined, part.output)


def _feed_forward(graph: Graph, part: FeedForward, x: str) -> str:
    return _linear(graph, _activated(graph, _linear(graph, x, part.inner), part.activation), part.outer)


def _activated(graph: Graph, x: str, activation: Activation) -> str:
    match activation:
        case "relu":
            return graph.node("Relu", x)
        case "swish":
            return graph.node("Mul", x, graph.node("Sigmoid", x))
        case "gelu":
            half = graph.node("Erf", graph.node("Mul", x, graph.scalar(0.5**0.5)))
            share = graph.node("Mul", graph.node("Add", half, graph.scalar(1.0)), graph.scalar(0.5))
            return graph.node("Mul", x, share)
