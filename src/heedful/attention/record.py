"""Attention weights as they are computed.

>>> with record_attention(model) as record:                    # doctest: +SKIP
...     logits = model.decode(target_in, lengths, model.encode(source, source_lengths))
>>> record.weights("cross", 0)  # of layer 1: batch x heads x query x key; rows past a sentence's end mean nothing
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from jaxtyping import Float
from torch import Tensor

from heedful.errors import ConfigError
from heedful.models.seq2seq import AnySeq2Seq
from heedful.nn.multi_head import Kind, WeightsHook


class AttentionRecord:
    """The recorded weights, call by call."""

    def __init__(self) -> None:
        self.calls: dict[tuple[Kind, int], list[Float[Tensor, "batch heads query key"]]] = defaultdict(list)

    def hook(self, kind: Kind, layer: int) -> WeightsHook:
        """A hook that records the weights of one layer, before dropout."""
        calls = self.calls[kind, layer]
        return lambda weights: calls.append(weights.detach())

    def weights(self, kind: Kind, layer: int) -> Float[Tensor, "batch heads query key"]:
        """The weights of the last call."""
        if not self.calls.get((kind, layer)):
            raise ConfigError(f"nothing was recorded for layer {layer + 1} of {kind} attention; run the model first")
        return self.calls[kind, layer][-1]


@contextmanager
def record_attention(model: AnySeq2Seq, only: Kind | None = None) -> Iterator[AttentionRecord]:
    """Within this context, record what every head attends to; `only` one kind of attention, or all.

    Fused kernels never form the weights, so the model takes the plain path meanwhile: the same results up to rounding.
    """
    record = AttentionRecord()
    watched = [
        (attention, record.hook(kind, layer))
        for kind, layers in model.attentions.items()
        for layer, attention in enumerate(layers)
        if only in (None, kind)
    ]
    before = [attention.weights_hook for attention, _ in watched]
    try:
        for attention, hook in watched:
            attention.weights_hook = hook
        yield record
    finally:
        for (attention, _), old in zip(watched, before, strict=True):
            attention.weights_hook = old
