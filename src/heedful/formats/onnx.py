"""Write a Transformer as two ONNX graphs, with everything a program needs to translate with them.

The graphs are built node by node, without tracing.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from heedful.config import Activation, SearchConfig
from heedful.decoding.hypothesis import Hypothesis
from heedful.errors import ConfigError, extra
from heedful.models.seq2seq import AnySeq2Seq
from heedful.models.transformer import DecoderLayer, EncoderLayer, Encoding, Transformer
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.feed_forward import FeedForward
from heedful.nn.multi_head import HeadSizes
from heedful.nn.positions import DistanceBias
from heedful.nn.residual import NORM_EPSILON, Residual
from heedful.storage.files import write_atomically
from heedful.storage.run_folder import Tokenizers, tokenizer_files

OPSET = 17  # the first with LayerNormalization
POSITIONS = 2048  # the longest source and output, in pieces

README = """# A Transformer for ONNX Runtime

- `encoder.onnx` takes `source_ids` and `source_mask` (batch x source; 1 for a token, 0 for padding). It returns
  `source_keys.N` and `source_values.N` for each decoder layer N.
- `decoder.onnx` takes these, `source_mask`, `target_ids` (batch x target), and the cache `keys.N` and `values.N`. It
  returns `logits` (batch x target x vocabulary), `new_keys.N` and `new_values.N`. Begin with the token `start` and a
  cache of length 0. Then pass `new_keys.N` and `new_values.N` back as `keys.N` and `values.N` with the next tokens,
  one or more at a time.
- `heedful.json` has the ids `start`, `eos` and `pad`, the inputs and outputs with their shapes, the search settings,
  and `longest`, the most pieces of a text. Set the logit of `pad` to minus infinity, because it must not be generated.
- The tokenizers are for the library `tokenizers`. They add the `eos` that every source ends with.
"""


def export_onnx(model: AnySeq2Seq, tokenizers: Tokenizers, search: SearchConfig, folder: Path) -> None:
    """Write the model, its tokenizers and its search settings into an existing folder."""
    transformer = _require_exportable(model)
    import onnx

    described: dict[str, object] = {}
    for name, graph in (("encoder", encoder_graph(transformer)), ("decoder", decoder_graph(transformer))):
        onnx.checker.check_model(graph, full_check=True)
        write_atomically(folder / f"{name}.onnx", graph.SerializeToString())
        described[name] = {"inputs": _shapes(graph.graph.input), "outputs": _shapes(graph.graph.output)}
    for file, tokenizer in tokenizer_files(tokenizers).items():
        write_atomically(folder / file, tokenizer.to_plain_json())
    target = tokenizers.target
    symbols = {"start": target.pad_id, "eos": target.eos_id, "pad": target.pad_id, "longest": POSITIONS}
    content = symbols | described | {"search": dataclasses.asdict(search)}
    write_atomically(folder / "heedful.json", json.dumps(content, indent=1) + "\n")
    write_atomically(folder / "README.md", README)


def _require_exportable(model: AnySeq2Seq) -> Transformer:
    if not isinstance(model, Transformer):
        raise ConfigError(
            f"only Transformers are exported to ONNX, but this model is a {type(model).__name__}; "
            "translate with the model as it is"
        )
    if model.config.window:
        raise ConfigError(
            f"restricted self-attention is not exported to ONNX, but model.window is {model.config.window}; "
            "translate with the model as it is"
        )
    if not (find_spec("onnx") and find_spec("onnxruntime")):
        raise ConfigError(f"the export needs onnx and onnxruntime, which are not installed; {extra('onnx')}")
    return model


def _shapes(values: Sequence[Any]) -> dict[str, list[str | int]]:
    return {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim] for value in values
    }


class OnnxCopy:
    """An exported folder in ONNX Runtime, for comparison; greedy search."""

    def __init__(self, folder: Path) -> None:
        from onnxruntime import InferenceSession

        self._encoder, self._decoder = (
            InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
            for name in ("encoder", "decoder")
        )
        self._about = json.loads((folder / "heedful.json").read_text(encoding="utf-8"))

    def decode(self, sources: Sequence[Sequence[int]], search: SearchConfig, n_best: int) -> list[list[Hypothesis]]:
        """The greedy translation of each sentence, as a list of one; beam and penalty are ignored."""
        start, eos = self._about["start"], self._about["eos"]
        state = self._start(sources)
        limits = [len(source) + search.max_extra for source in sources]
        found: list[list[int]] = [[] for _ in sources]
        tokens = np.full((len(sources), 1), start)
        for length in range(1, max(limits) + 1):
            logits = self._step(tokens, state)[:, -1]
            logits[:, self._about["pad"]] = -np.inf
            tokens = logits.argmax(axis=1, keepdims=True)
            for several, limit, token in zip(found, limits, tokens[:, 0].tolist(), strict=True):
                if several[-1:] != [eos] and length <= limit:
                    several.append(token)
            if all(several[-1] == eos or length >= limit for several, limit in zip(found, limits, strict=True)):
                break
        return [[Hypothesis(tuple(several), 0.0, 0.0, finished=several[-1] == eos)] for several in found]

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """The log-probability of every token of each target, including EOS."""
        shifted = _pad([[self._about["start"], *target[:-1]] for target in targets], self._about["pad"])
        logits = self._step(shifted, self._start(sources)).astype(np.float64)
        logits -= logits.max(axis=-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return [row[np.arange(len(target)), target].tolist() for row, target in zip(logits, targets, strict=False)]

    def _start(self, sources: Sequence[Sequence[int]]) -> dict[str, Any]:
        """The inputs of the decoder except the tokens."""
        mask = _pad([[1] * len(source) for source in sources], 0)
        given = {"source_ids": _pad(sources, self._about["pad"]), "source_mask": mask}
        names = [output.name for output in self._encoder.get_outputs()]
        state = {"source_mask": mask} | dict(zip(names, self._encoder.run(names, given), strict=True))
        for entry in self._decoder.get_inputs():
            if entry.name.startswith(("keys.", "values.")):
                _, heads, _, width = entry.shape
                state[entry.name] = np.zeros((len(sources), heads, 0, width), np.float32)
        return state

    def _step(self, tokens: Any, state: dict[str, Any]) -> Any:
        """Run the decoder on these tokens, update the state, and return the logits."""
        names = [output.name for output in self._decoder.get_outputs()]
        logits, *new = self._decoder.run(names, state | {"target_ids": tokens})
        state |= {name.removeprefix("new_"): value for name, value in zip(names[1:], new, strict=True)}
        return logits


def _pad(rows: Sequence[Sequence[int]], value: int) -> Any:
    """Pad rows of unequal length to a matrix."""
    longest = max(map(len, rows))
    return np.array([[*row, *[value] * (longest - len(row))] for row in rows], dtype=np.int64)


# The graphs


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

    def build(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
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
    x = _embed(graph, "source_ids", table, model.source_embedding.scale)
    x = _add_positions(graph, x, model.source_positions, graph.numbers(0), length)
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
    return graph.build("encoder", [_ids("source_ids", "source"), _ids("source_mask", "source")], outputs)


def decoder_graph(model: Transformer) -> Any:
    """Build the decoder: from target tokens and a key-value cache to the logits of the next tokens."""
    graph = Graph()
    mask = _source_mask(graph)
    table = graph.constant(model.target_embedding.weight)
    before = graph.node("Shape", "keys.0", start=2, end=3)
    after = graph.node("Add", before, graph.node("Shape", "target_ids", start=1, end=2))
    causal = _causal(graph, before, after)
    x = _embed(graph, "target_ids", table, model.target_embedding.scale)
    x = _add_positions(graph, x, model.target_positions, before, after)
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
    return graph.build("decoder", inputs, [_value("logits", ["batch", "target", len(model.output_weight)]), *outputs])


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


def _embed(graph: Graph, ids: str, table: str, scale: float) -> str:
    return graph.node("Mul", graph.node("Gather", table, ids), graph.scalar(scale))


def _add_positions(graph: Graph, x: str, encoding: Encoding | None, before: str, after: str) -> str:
    """Add the encodings of the positions from `before` to `after`."""
    if encoding is None:
        return x
    device = next((parameter.device for parameter in encoding.parameters()), torch.device("cpu"))
    table = graph.constant(encoding(torch.arange(POSITIONS, device=device), POSITIONS))
    return graph.node("Add", x, graph.node("Slice", table, before, after))


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
    if part.bias is not None:
        products = graph.node("Add", products, _distance_bias(graph, part.bias, query, keys))
    weights = graph.node("Softmax", graph.node("Add", products, mask), axis=-1)
    found = graph.node("Transpose", graph.node("MatMul", weights, values), perm=[0, 2, 1, 3])
    joined = graph.node("Reshape", found, graph.numbers(0, 0, -1))
    return _linear(graph, joined, part.output)


def _distance_bias(graph: Graph, bias: DistanceBias, query: str, keys: str) -> str:
    """The bias of each head for each query and key; the last query is at the position of the last key."""
    first, one = graph.numbers(0), graph.constant(torch.tensor(1))
    queries, end = (graph.node("Squeeze", graph.node("Shape", x, start=2, end=3), first) for x in (query, keys))
    there = graph.node("Range", graph.constant(torch.tensor(0)), end, one)
    here = graph.node("Range", graph.node("Sub", end, queries), end, one)
    distances = graph.node("Sub", there, graph.node("Unsqueeze", here, graph.numbers(1)))
    far = bias.max_distance
    clipped = graph.node("Clip", distances, graph.constant(torch.tensor(-far)), graph.constant(torch.tensor(far)))
    columns = graph.node("Add", clipped, graph.constant(torch.tensor(far)))
    return graph.node("Gather", graph.constant(bias.table()), columns, axis=1)


def _feed_forward(graph: Graph, part: FeedForward, x: str) -> str:
    return _linear(graph, _activate(graph, _linear(graph, x, part.inner), part.activation), part.outer)


def _activate(graph: Graph, x: str, activation: Activation) -> str:
    match activation:
        case "relu":
            return graph.node("Relu", x)
        case "swish":
            return graph.node("Mul", x, graph.node("Sigmoid", x))
        case "gelu":
            half = graph.node("Erf", graph.node("Mul", x, graph.scalar(0.5**0.5)))
            share = graph.node("Mul", graph.node("Add", half, graph.scalar(1.0)), graph.scalar(0.5))
            return graph.node("Mul", x, share)
        case "gated-gelu-tanh" | "quick-gelu":
            raise ConfigError(f"activation '{activation}', which only T5 or CLIP has, is not exported to ONNX")
        case "gelu-tanh":
            cube = graph.node("Mul", graph.node("Mul", x, graph.node("Mul", x, x)), graph.scalar(0.044715))
            half = graph.node("Tanh", graph.node("Mul", graph.node("Add", x, cube), graph.scalar((2 / math.pi) ** 0.5)))
            share = graph.node("Mul", graph.node("Add", half, graph.scalar(1.0)), graph.scalar(0.5))
            return graph.node("Mul", x, share)
