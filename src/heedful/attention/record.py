"""Record attention weights while a model runs.

>>> with record_attention(model) as record:                    # doctest: +SKIP
...     logits = model.decode(target_in, lengths, model.encode(source, source_lengths))
>>> record.weights("cross", 0)  # layer 1: batch x heads x query x key; rows past the end of a sentence mean nothing

`force_decode` runs a model on finished translations. Given a whole target, a decoder computes exactly what it computed
step by step during the search (law 1 of `heedful.models.seq2seq`), so the record shows what happened in the hypothesis
that the search returned.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.attention.head_names import Head
from heedful.data.batch import pack
from heedful.errors import ConfigError
from heedful.models.predictor import AnyPredictor
from heedful.models.seq2seq import AnySeq2Seq
from heedful.nn.multi_head import Kind, WeightsHook


class AttentionRecord:
    """The recorded weights of every call."""

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
def record_attention(model: AnyPredictor, only: Kind | None = None) -> Iterator[AttentionRecord]:
    """Within this context, record what every head attends to, in `only` one kind of attention or in all.

    Fused kernels never compute the weights, so meanwhile the model takes the plain path, with the same results up to
    rounding.
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


START_PIECE = "<s>"  # how we show the symbol that a decoder starts from
HeadWeights = Float[np.ndarray, "_heads _query _key"]  # sizes depend on the kind


@dataclass(frozen=True, slots=True)
class Attention:
    """All attention weights of one sentence pair, one array per layer. Kinds that the model does not have are empty.

    Each row of `decoder` and `cross` belongs to the position that produced a target piece. The columns of `decoder` are
    the inputs: the start symbol, then all target pieces except the last. A model without an encoder reads source and
    target as one text, so both its rows and its columns begin with the source; it has no start symbol.
    """

    encoder: tuple[HeadWeights, ...]
    decoder: tuple[HeadWeights, ...]
    cross: tuple[HeadWeights, ...]

    def of(self, kind: Kind) -> tuple[HeadWeights, ...]:
        """The layers of one kind of attention."""
        match kind:
            case "encoder":
                return self.encoder
            case "decoder":
                return self.decoder
            case "cross":
                return self.cross

    def __getitem__(self, head: Head) -> Float[np.ndarray, "_query _key"]:
        return self.of(head.kind)[head.layer][head.index]


@dataclass(frozen=True, slots=True)
class ForcedDecoding:
    """The attention weights and probabilities of a model as it reads a given target."""

    attention: Attention
    log_probs: Float[np.ndarray, " target"]  # of each target piece
    best: Int[np.ndarray, "target ranks"]  # the likeliest pieces at each position
    best_log_probs: Float[np.ndarray, "target ranks"]


@torch.inference_mode()
def force_decode(
    model: AnySeq2Seq, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], ranks: int = 5
) -> list[ForcedDecoding]:
    """Run the model on these targets; all ids end in EOS, except targets that were cut off."""
    device = next(model.parameters()).device
    source, source_lengths = (tensor.to(device) for tensor in pack(sources))
    target_in, lengths = (tensor.to(device) for tensor in pack([[model.pad_id, *target[:-1]] for target in targets]))
    with record_attention(model) as record:
        logits = model.decode(target_in, lengths, model.encode(source, source_lengths))
    log_probs = logits.float().log_softmax(-1)
    target_out, _ = pack(targets)
    own = log_probs.gather(1, target_out.to(device)[:, None])[:, 0].cpu().numpy()
    top = log_probs.topk(min(ranks, log_probs.shape[1]))
    best, best_log_probs = top.indices.cpu().numpy(), top.values.cpu().numpy()
    ends = np.cumsum(lengths.cpu().numpy())
    parts = zip(*(np.split(rows, ends[:-1]) for rows in (own, best, best_log_probs)), strict=True)
    return [
        ForcedDecoding(_extract_sentence(record, number, len(sources[number]), len(targets[number])), *part)
        for number, part in enumerate(parts)
    ]


@dataclass(frozen=True, slots=True)
class RecordedAnswers:
    """The attention weights of an encoder as it reads one source, and its answers at the places it is asked about."""

    attention: Attention  # of the encoder only
    log_probs: Float[np.ndarray, "places outputs"]


@torch.inference_mode()
def record_answers(model: AnyPredictor, source: Sequence[int], places: Sequence[int]) -> RecordedAnswers:
    """Run a model without a decoder on one source: ids, or the pixels of a picture."""
    device = next(model.parameters()).device
    ids, lengths = (tensor.to(device) for tensor in pack([source]))
    asked, counts = (tensor.to(device) for tensor in pack([places]))
    with record_attention(model) as record:
        logits = model.decode(asked, counts, model.encode(ids, lengths))
    layers = [record.weights(kind, layer)[0].float().cpu().numpy() for kind, layer in sorted(record.calls)]
    return RecordedAnswers(Attention(tuple(layers), (), ()), logits.float().log_softmax(-1).cpu().numpy())


def _extract_sentence(record: AttentionRecord, sentence: int, source: int, target: int) -> Attention:
    """The weights of one sentence, without padding."""
    read = target if any(kind == "cross" for kind, _ in record.calls) else source + target - 1
    sizes: dict[Kind, tuple[int, int]] = {
        "encoder": (source, source),
        "decoder": (read, read),
        "cross": (target, source),
    }
    layers: dict[Kind, list[HeadWeights]] = {kind: [] for kind in sizes}
    for kind, layer in sorted(record.calls):
        queries, keys = sizes[kind]
        weights = record.weights(kind, layer)[sentence, :, :queries, :keys]
        layers[kind].append(weights.float().cpu().numpy())
    return Attention(tuple(layers["encoder"]), tuple(layers["decoder"]), tuple(layers["cross"]))
