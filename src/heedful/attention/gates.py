"""Heads switched off: what a head finds is multiplied by zero before the output layer adds it up."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.attention.head_names import Head
from heedful.models.seq2seq import AnySeq2Seq
from heedful.nn.multi_head import Kind

Gates = dict[tuple[Kind, int], Float[Tensor, "*sentences heads"]]  # of each layer of each attention


def open_gates(model: AnySeq2Seq) -> Gates:
    """A one for each head."""
    device = next(model.parameters()).device
    return {
        (kind, layer): torch.ones(attention.num_heads, device=device)
        for kind, layers in model.attentions.items()
        for layer, attention in enumerate(layers)
    }


@contextmanager
def gated(model: AnySeq2Seq, gates: Gates) -> Iterator[None]:
    """Multiply what each head finds by its gate, for a while; gradients reach the gates."""
    touched = [(model.attentions[kind][layer], gate) for (kind, layer), gate in gates.items()]
    before = [attention.gates for attention, _ in touched]
    try:
        for attention, gate in touched:
            attention.gates = gate
        yield
    finally:
        for (attention, _), old in zip(touched, before, strict=True):
            attention.gates = old


@contextmanager
def heads_off(model: AnySeq2Seq, heads: Iterable[Head]) -> Iterator[None]:
    """Use a model without these heads, for a while; what is gated already stays so.

    Layers that keep all of theirs run as fast as ever.
    """
    opened, gates = open_gates(model), Gates()
    for head in heads:
        place = head.kind, head.layer
        before = model.attentions[head.kind][head.layer].gates
        gate = gates.setdefault(place, opened[place] if before is None else before.clone())
        gate[..., head.index] = 0.0
    with gated(model, gates):
        yield
