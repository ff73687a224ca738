"""Record what the Transformer's rivals have in common with figure 1, by the same names as `heedful.attention.steps`.

| name | what it is |
|---|---|
| `encoder.embedding`, `.scaled`, `decoder.embedding`, `.scaled` | rows of the matrix, and times the model's factor |
| `encoder.positions`, `decoder.positions` | learned positions; recurrent models have none |
| `encoder.output` | what the encoder passes on for each piece of the source |
| `decoder.1.cross_attention.query`, `.key`, `.value` | one head; of additive attention, after their projections |
| `....scores`, `.weights`, `.heads` | scores, shares of a row, weighted sums: the context |
| `....concat` | what the layer behind the attention reads |
| `decoder.1.hidden`, `.input`, `.output` | ConvS2S: the result of the convolution, and what a layer gets and gives |
| `decoder.output`, `logits`, `log_probs` | as in the Transformer |
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from heedful.attention.record import record_attention
from heedful.attention.steps import Steps, Tap
from heedful.data.batch import pack
from heedful.models.convolutional import Convolutional
from heedful.models.recurrent import AdditiveDecoder, AttentiveDecoder, Recurrent
from heedful.nn.embedding import Embedding
from heedful.nn.positions import LearnedPositions
from heedful.nn.source_attention import SourceAttention, SourceKeyValues

Rival = Recurrent | Convolutional


@torch.inference_mode()
def record_rival_steps(model: Rival, source: list[int], target: list[int]) -> Steps:
    """The steps of a rival as it reads these source ids and this target; both end in EOS."""
    device = next(model.parameters()).device
    source_ids, source_lengths = (tensor.to(device) for tensor in pack([source]))
    target_in, lengths = (tensor.to(device) for tensor in pack([[model.pad_id, *target[:-1]]]))
    tap = Tap()
    with record_attention(model) as weights, _listen(model, tap):
        read: SourceKeyValues | None
        if isinstance(model, Recurrent):
            recurrent = model.encode(source_ids, source_lengths)
            read, features = recurrent.source, model.features(target_in, lengths, recurrent)
        else:
            memory = model.encode(source_ids, source_lengths)
            read, features = memory.source, model.features(target_in, lengths, memory)
    positions = (None, None) if isinstance(model, Recurrent) else (model.source_positions, model.target_positions)
    _put_inputs(tap, "encoder", model.source_embedding, positions[0], source_ids)
    _put_inputs(tap, "decoder", model.target_embedding, positions[1], target_in)
    tap.put("decoder.output", features)
    for number, attention in enumerate(model.attentions.get("cross", ()), 1):
        if not isinstance(attention, SourceAttention) or read is None:
            continue
        name = f"decoder.{number}.cross_attention"
        tap.put(f"{name}.query", torch.cat(tap.several[f"{name}.query"], dim=-2).reshape(1, len(target_in), -1))
        tap.put(f"{name}.key", read.keys)
        tap.put(f"{name}.value", read.values)
        tap.put(f"{name}.weights", weights.weights("cross", number - 1)[0])
        tap.put(f"{name}.scores", attention.compare(tap[f"{name}.query"], read.keys))
        tap.put(f"{name}.heads", tap[f"{name}.weights"] @ read.values)
    logits = model.output(features)
    tap.put("logits", logits)
    tap.put("log_probs", logits.float().log_softmax(-1))
    steps = {name: tensor.float().cpu().numpy() for name, tensor in tap.tensors.items()}
    return steps | {"source": np.array(source), "target": np.array(target), "target_in": target_in.cpu().numpy()}


def _put_inputs(tap: Tap, side: str, embedding: Embedding, positions: LearnedPositions | None, ids: Tensor) -> None:
    rows = embedding.weight[ids]
    tap.put(f"{side}.embedding", rows)
    tap.put(f"{side}.scaled", rows * embedding.scale)
    if positions is not None:
        tap.put(f"{side}.positions", positions(torch.arange(len(ids), device=ids.device), len(ids)))


@contextmanager
def _listen(model: Rival, tap: Tap) -> Iterator[None]:
    """Within this context, the results of the model's modules go to the tap."""
    with ExitStack() as hooks:

        def after(module: nn.Module, name: str) -> None:
            hooks.callback(module.register_forward_hook(tap.output_as(name)).remove)

        def before(module: nn.Module, name: str) -> None:
            hooks.callback(module.register_forward_pre_hook(tap.input_as(name)).remove)

        def each_input(module: nn.Module, name: str) -> None:
            hooks.callback(module.register_forward_pre_hook(tap.add_input(name)).remove)

        def each_output(module: nn.Module, name: str) -> None:
            hooks.callback(module.register_forward_hook(tap.add_output(name)).remove)

        if isinstance(model, Convolutional):
            after(model.source_out, "encoder.output")
            for number, layer in enumerate(model.decoder, 1):
                name = f"decoder.{number}"
                before(layer, f"{name}.input")
                after(layer, f"{name}.output")
                after(layer.convolution, f"{name}.hidden")
                each_input(layer.attention, f"{name}.cross_attention.query")
                before(layer.output, f"{name}.cross_attention.concat")
                after(layer.output, f"{name}.cross_attention.output")
        elif isinstance(decoder := model.decoder, AttentiveDecoder):
            name = "decoder.1.cross_attention"
            before(decoder.attention.key, "encoder.output")
            before(decoder.output, f"{name}.concat")
            if isinstance(decoder, AdditiveDecoder):
                each_output(decoder.first.attention.query, f"{name}.query")
            else:
                each_input(decoder.attention, f"{name}.query")
        yield
