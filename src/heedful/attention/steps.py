"""Record every step of the Transformer, of GPT or of T5 on one text, by name.

>>> steps = record_steps(model, source, target)                # doctest: +SKIP
>>> steps["encoder.1.attention.scores"].shape                  # doctest: +SKIP
(6, 14, 14)

Names follow the modules: `encoder.2.feed_forward.inner`, `decoder.1.cross_attention.weights`. Layers count from one.
Each of the steps follows from those before it; `tests/attention/test_steps.py` recomputes them all.

| name | what it is |
|---|---|
| `encoder.embedding`, `.scaled`, `.positions`, `.input` | rows of the matrix, times sqrt(d_model), positions, sum |
| `encoder.1.input`, `.output` | what a layer gets and gives |
| `encoder.1.attention.input` | what the projections read; with pre-norm, it is normalised |
| `....query`, `.key`, `.value` | heads x positions x d_k (or d_v) |
| `....scores`, `.scaled`, `.bias`, `.mask`, `.masked`, `.weights` | heads x queries x keys; no bias in the paper |
| `....heads`, `.concat`, `.output` | the weighted sums, side by side, and times W_O |
| `....shares` | how long each head's part of `.output` is: positions x heads |
| `....sum`, `.result` | x + output; with post-norm, `.result` is normalised |
| `encoder.1.feed_forward.input`, `.inner`, `.active`, `.output`, `.sum`, `.result` | equation 2 |
| `encoder.output`, `decoder.output` | the result of a stack; with pre-norm, it is normalised |
| `decoder.1.lens` | log-probabilities if the decoder ended after this layer |
| `decoder.scaled_output` | times 1 / sqrt(d_model), only of a T5 whose embedding is the output layer |
| `logits`, `log_probs` | target positions x vocabulary |

GPT has only the stack `decoder`, without attention to a source. It reads the prompt and the continuation as one text:
`target_in` are all ids but the last, and `target` are all but the first. T5 adds no positions, and `.scaled` are its
scores themselves. `heedful.attention.encoder_steps` records BERT and ViT by the same names.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from heedful.attention.record import record_attention
from heedful.data.batch import pack
from heedful.models.bert import BERT
from heedful.models.gpt import GPT
from heedful.models.seq2seq import AnySeq2Seq
from heedful.models.t5 import T5
from heedful.models.transformer import DecoderLayer, EncoderLayer, Encoding, Transformer
from heedful.models.vit import ViT
from heedful.nn.attention import CrossAttention, SelfAttention, distance_bias
from heedful.nn.embedding import Embedding
from heedful.nn.feed_forward import FeedForward
from heedful.nn.key_values import PackedKeyValues
from heedful.nn.layout import Layout
from heedful.nn.multi_head import Kind, split_heads
from heedful.nn.residual import Residual

Steps = dict[str, np.ndarray]


class Tap:
    """Collects tensors by name."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.several: dict[str, list[Tensor]] = {}  # of modules that run once for each position

    def put(self, name: str, tensor: Tensor) -> None:
        """Keep a copy."""
        self.tensors[name] = tensor.detach().clone()

    def output_as(self, name: str) -> Callable[..., None]:
        """A hook that keeps the output of a module."""
        return lambda module, args, output: self.put(name, output)

    def input_as(self, name: str) -> Callable[..., None]:
        """A hook that keeps the first input of a module."""
        return lambda module, args: self.put(name, args[0])

    def add_output(self, name: str) -> Callable[..., None]:
        """A hook that keeps the output of every call."""
        return lambda module, args, output: self.several.setdefault(name, []).append(output.detach().clone())

    def add_input(self, name: str) -> Callable[..., None]:
        """A hook that keeps the first input of every call."""
        return lambda module, args: self.several.setdefault(name, []).append(args[0].detach().clone())

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def arrays(self) -> Steps:
        """All tensors as arrays of float32, masks as arrays of truth values."""
        return {
            name: (tensor if tensor.dtype == torch.bool else tensor.float()).cpu().numpy()
            for name, tensor in self.tensors.items()
        }


WritingModel = Transformer | GPT | T5
ReadingModel = BERT | ViT  # without a decoder
LayeredModel = WritingModel | ReadingModel  # made of the layers of figure 1


@dataclass(frozen=True, slots=True)
class Stack:
    """Layers on top of each other, with what is below and above them. In a causal one, no position sees later ones."""

    name: Kind
    layers: Sequence[EncoderLayer | DecoderLayer]
    embedding: Embedding | None  # None: what is read are no tokens
    positions: Encoding | None
    norm: nn.Module
    causal: bool


def stacks(model: LayeredModel) -> list[Stack]:
    """The stacks of a model, those first that the others look at."""
    match model:
        case Transformer():
            source, target = model.source_embedding, model.target_embedding
            return [
                Stack(
                    "encoder", tuple(model.encoder), source, model.source_positions, model.encoder_norm, causal=False
                ),
                Stack("decoder", tuple(model.decoder), target, model.target_positions, model.decoder_norm, causal=True),
            ]
        case T5():
            source, target = model.source_embedding, model.target_embedding
            return [
                Stack("encoder", tuple(model.encoder), source, None, model.encoder_norm, causal=False),
                Stack("decoder", tuple(model.decoder), target, None, model.decoder_norm, causal=True),
            ]
        case GPT():
            layers = tuple(model.decoder)
            return [Stack("decoder", layers, model.embedding, model.positions, model.decoder_norm, True)]
        case BERT():
            layers = tuple(model.encoder)
            return [Stack("encoder", layers, model.embedding, model.positions, model.encoder_norm, False)]
        case ViT():
            return [Stack("encoder", tuple(model.encoder), None, None, model.encoder_norm, False)]
        case _:
            assert_never(model)


@torch.inference_mode()
def record_steps(model: WritingModel, source: list[int], target: list[int]) -> Steps:
    """Every step of the model as it reads these source ids and this target; the Transformer's both end in EOS."""
    if isinstance(model, GPT):
        source, target = (text := [*source, *target])[:1], text[1:]
    device = next(model.parameters()).device
    source_ids, source_lengths = (tensor.to(device) for tensor in pack([source]))
    target_in, lengths = (tensor.to(device) for tensor in pack([[model.pad_id, *target[:-1]]]))
    tap = Tap()
    reader: AnySeq2Seq = model
    output_scale = model.output_scale if isinstance(model, T5) else 1.0
    with record_attention(model) as weights, listen(model, tap):
        logits = reader.decode(target_in, lengths, reader.encode(source_ids, source_lengths))
    if isinstance(model, GPT):  # there is no start symbol, but the first token of the text
        target_in = torch.cat([source_ids, target_in[1:]])
    read: dict[Kind, tuple[Tensor, Layout]] = {
        "encoder": (source_ids, Layout.of(source_lengths)),
        "decoder": (target_in, Layout.of(lengths)),
    }
    for stack in stacks(model):
        ids, here = read[stack.name]
        _put_inputs(tap, stack, ids)
        for number, layer in enumerate(stack.layers):
            name = f"{stack.name}.{number + 1}"
            put_attention(tap, f"{name}.attention", layer.attention, here, here, causal=stack.causal)
            tap.put(f"{name}.attention.weights", weights.weights(stack.name, number)[0])
            if isinstance(layer, DecoderLayer):
                cross, there = f"{name}.cross_attention", read["encoder"][1]
                put_attention(tap, cross, layer.cross_attention, here, there, causal=False)
                tap.put(f"{cross}.weights", weights.weights("cross", number)[0])
            if stack.name == "decoder":
                lens = model.output(output_scale * stack.norm(tap[f"{name}.output"]))
                tap.put(f"{name}.lens", lens.float().log_softmax(-1))
    if output_scale != 1.0:
        tap.put("decoder.scaled_output", output_scale * tap["decoder.output"])
    put_sums(model, tap)
    put_logits(tap, logits)
    return tap.arrays() | {"source": np.array(source), "target": np.array(target), "target_in": target_in.cpu().numpy()}


def put_logits(tap: Tap, logits: Tensor) -> None:
    """The last two steps."""
    tap.put("logits", logits)
    tap.put("log_probs", logits.float().log_softmax(-1))


@contextmanager
def listen(model: LayeredModel, tap: Tap) -> Iterator[None]:
    """Within this context, the results of the model's modules go to the tap."""
    with ExitStack() as hooks:

        def after(module: nn.Module, name: str) -> None:
            hooks.callback(module.register_forward_hook(tap.output_as(name)).remove)

        def before(module: nn.Module, name: str) -> None:
            hooks.callback(module.register_forward_pre_hook(tap.input_as(name)).remove)

        for stack in stacks(model):
            after(stack.norm, f"{stack.name}.output")
            for number, layer in enumerate(stack.layers, 1):
                name = f"{stack.name}.{number}"
                before(layer, f"{name}.input")
                after(layer, f"{name}.output")
                for part, sublayer, residual in sublayers(layer):
                    before(sublayer, f"{name}.{part}.input")
                    after(sublayer, f"{name}.{part}.output")
                    before(residual, f"{name}.{part}.before")
                    after(residual, f"{name}.{part}.result")
                    if isinstance(sublayer, FeedForward):
                        after(sublayer.inner, f"{name}.{part}.inner")
                        before(sublayer.outer, f"{name}.{part}.active")
                    else:
                        before(sublayer.output, f"{name}.{part}.concat")
                    for linear in ("query_key_value", "query", "key_value"):
                        if isinstance(projection := getattr(sublayer, linear, None), nn.Module):
                            after(projection, f"{name}.{part}.{linear}")
        yield


def sublayers(
    layer: EncoderLayer | DecoderLayer,
) -> list[tuple[str, SelfAttention | CrossAttention | FeedForward, Residual]]:
    """The sub-layers of figure 1 in their order, each with its name and the residual connection around it."""
    first = ("attention", layer.attention, layer.attention_residual)
    last = ("feed_forward", layer.feed_forward, layer.feed_forward_residual)
    if isinstance(layer, EncoderLayer):
        return [first, last]
    return [first, ("cross_attention", layer.cross_attention, layer.cross_attention_residual), last]


def _put_inputs(tap: Tap, stack: Stack, ids: Tensor) -> None:
    if stack.embedding is None:  # never: what writes reads tokens; this is for the type checker
        return
    rows = stack.embedding.weight[ids]
    tap.put(f"{stack.name}.embedding", rows)
    tap.put(f"{stack.name}.scaled", rows * stack.embedding.scale)
    if stack.positions is not None:
        places = torch.arange(len(ids), device=ids.device)
        tap.put(f"{stack.name}.positions", stack.positions(places, len(ids)))


def put_sums(model: LayeredModel, tap: Tap) -> None:
    """The sum of each residual connection, which the model may fuse with the norm."""
    for stack in stacks(model):
        tap.put(f"{stack.name}.input", tap[f"{stack.name}.1.input"])
        for number, layer in enumerate(stack.layers, 1):
            for part, _, _ in sublayers(layer):
                name = f"{stack.name}.{number}.{part}"
                tap.put(f"{name}.sum", tap[f"{name}.before"] + tap[f"{name}.output"])


def put_attention(
    tap: Tap, name: str, attention: SelfAttention | CrossAttention, here: Layout, there: Layout, *, causal: bool
) -> None:
    """The steps of equation 1 that the model does as one, from the queries, keys and values that it projected."""
    q, k, v = _split_projections(tap, name, attention)
    packed = PackedKeyValues(None, here, there, causal)
    scores = q @ k.transpose(-2, -1)
    scaled = scores * attention.scale
    bias = distance_bias(attention, packed)
    mask = packed.mask(attention.window)
    seen = _all_seen(scores) if mask is None else mask.expand(1, *scores.shape)[0]
    masked = (scaled if bias is None else scaled + bias).masked_fill(~seen, -torch.inf)
    for part, tensor in (("query", q), ("key", k), ("value", v), ("scores", scores), ("scaled", scaled)):
        tap.put(f"{name}.{part}", tensor)
    if bias is not None:
        tap.put(f"{name}.bias", bias)
    tap.put(f"{name}.mask", seen[0])
    tap.put(f"{name}.masked", masked)
    heads = split_heads(tap[f"{name}.concat"][None], attention.num_heads)[0]
    tap.put(f"{name}.heads", heads)
    width = attention.head_sizes.d_v
    parts = [heads[head] @ attention.output.weight[:, head * width :][:, :width].T for head in range(len(heads))]
    tap.put(f"{name}.shares", torch.stack([part.norm(dim=-1) for part in parts], dim=1))


def _all_seen(scores: Float[Tensor, "heads query key"]) -> Bool[Tensor, "heads query key"]:
    return torch.ones_like(scores, dtype=torch.bool)


def _split_projections(tap: Tap, name: str, attention: SelfAttention | CrossAttention) -> list[Any]:
    """Queries, keys and values of each head."""
    if isinstance(attention, SelfAttention):
        parts = list(tap.tensors.pop(f"{name}.query_key_value").split(attention.sizes, dim=1))
    else:
        query = tap.tensors.pop(f"{name}.query")
        parts = [query, *tap.tensors.pop(f"{name}.key_value").split(attention.sizes, dim=1)]
    return [split_heads(part[None], attention.num_heads)[0] for part in parts]
