"""Record every step of BERT or of ViT on one text or picture, by the names of `heedful.attention.steps`.

| name | what it is |
|---|---|
| `encoder.patches` | ViT: the pixels of each patch, from -1 to 1 |
| `encoder.embedding` | BERT: rows of the matrix; ViT: the class token, and the linear map of each patch |
| `encoder.types`, `.positions` | BERT: the vector of a first text; learned positions, or none |
| `encoder.summed`, `.input` | the sum of these; BERT normalises it |
| `encoder.1.input`, ..., `encoder.output` | as in the Transformer |
| `encoder.1.lens` | log-probabilities if the encoder ended after this layer |
| `head.input` | what the head reads at each place that is asked about: its vector, or the mean of all |
| `head.dense`, `.active` | BERT: the layer in the head, and tanh or GELU of it; a head for words has none |
| `head.output` | what the output layer reads |
| `logits`, `log_probs` | places x labels, or x vocabulary |
"""

from contextlib import ExitStack

import numpy as np
import torch
from torch import nn

from heedful.attention.record import record_attention
from heedful.attention.steps import ReadingModel, Steps, Tap, listen, put_attention, put_logits, put_sums, stacks
from heedful.data.batch import pack
from heedful.models.bert import BERT, MaskedHead, SequenceHead
from heedful.models.predictor import AnyPredictor
from heedful.models.transformer import Memory
from heedful.models.vit import cut_patches
from heedful.nn.layout import Layout


@torch.inference_mode()
def record_encoder_steps(model: ReadingModel, source: list[int], places: list[int]) -> Steps:
    """Every step as the model reads this source, ids or pixels, and is asked about these places."""
    device = next(model.parameters()).device
    ids, lengths = (tensor.to(device) for tensor in pack([source]))
    asked, counts = (tensor.to(device) for tensor in pack([places]))
    reader: AnyPredictor = model
    tap, (stack,) = Tap(), stacks(model)
    with record_attention(model) as weights, listen(model, tap), ExitStack() as hooks:
        if isinstance(model, BERT):
            _listen_to_head(model, tap, hooks)
        else:
            hooks.callback(model.patches.register_forward_hook(tap.output_as("encoder.embedding")).remove)
        logits = reader.decode(asked, counts, reader.encode(ids, lengths))
    layout = Layout.of(lengths.new_tensor([len(tap["encoder.1.input"])]))
    for number, layer in enumerate(stack.layers):
        name = f"encoder.{number + 1}"
        put_attention(tap, f"{name}.attention", layer.attention, layout, layout, causal=False)
        tap.put(f"{name}.attention.weights", weights.weights("encoder", number)[0])
        memory = Memory(stack.norm(tap[f"{name}.output"]), layout)
        tap.put(f"{name}.lens", reader.decode(asked, counts, memory).float().log_softmax(-1))
    put_sums(model, tap)
    if isinstance(model, BERT):
        tap.put("encoder.embedding", model.embedding.weight[ids])
        tap.put("encoder.types", model.token_types[torch.zeros_like(ids)])
        if model.positions is not None:
            tap.put("encoder.positions", model.positions(torch.arange(len(ids), device=device), len(ids)))
    else:
        tap.put("encoder.patches", cut_patches(ids, 1, model.config))
        tap.put("encoder.embedding", torch.cat([model.class_token[None], tap["encoder.embedding"]]))
        tap.put("encoder.positions", model.positions)
        tap.put("head.input", reader.features(asked, counts, Memory(tap["encoder.output"], layout)))
        tap.put("head.output", tap["head.input"])
    parts = ("encoder.embedding", "encoder.types", "encoder.positions")
    tap.put("encoder.summed", torch.stack([tap[name] for name in parts if name in tap.tensors]).sum(0))
    put_logits(tap, logits)
    return tap.arrays() | {"source": np.array(source), "places": np.array(places)}


def _listen_to_head(model: BERT, tap: Tap, hooks: ExitStack) -> None:
    head = model.head
    hooks.callback(head.register_forward_pre_hook(tap.input_as("head.input")).remove)
    hooks.callback(head.register_forward_hook(tap.output_as("head.output")).remove)
    inner: nn.Module | None = None
    if isinstance(head, MaskedHead):
        inner = head.dense
        hooks.callback(head.norm.register_forward_pre_hook(tap.input_as("head.active")).remove)
    elif isinstance(head, SequenceHead):
        inner = head.pooler
        hooks.callback(head.dropout.register_forward_pre_hook(tap.input_as("head.active")).remove)
    if inner is not None:
        hooks.callback(inner.register_forward_hook(tap.output_as("head.dense")).remove)
