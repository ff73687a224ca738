"""What is measured of each trained model: how well it translates, and which laws it keeps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from heedful.config import BleuTokens, Experiment
from heedful.data.batch import pack
from heedful.data.stream import batches_by_length
from heedful.errors import Diverged
from heedful.metrics.bleu import bleu
from heedful.metrics.breakdown import bleu_in, buckets
from heedful.models.seq2seq import AnySeq2Seq
from heedful.studies.ablation_row import finite
from heedful.training.prepare import Prepared
from heedful.translation.translator import Translator

_MOST_PAIRS = 1000  # of the validation pairs that are translated
_TOGETHER = 50  # of them that are translated once more, beside a longer one
_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Material:
    """What every row is trained and measured on."""

    prepared: Prepared
    digest: str  # of the prepared data
    orders: tuple[list[int], list[int]]  # the same source pieces in two orders
    limits: tuple[int, ...]  # source pieces at which the scores by length are cut


def measure(model: AnySeq2Seq, experiment: Experiment, material: Material) -> dict[str, Any]:
    """All of a `Row` that does not come from its training."""
    pairs, tokenize = material.prepared.valid_pairs[:_MOST_PAIRS], experiment.evaluate.tokenize
    translator = Translator.with_model(model, material.prepared.tokenizers, replace(experiment.search, beam=1))
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    ids = material.prepared.tokenizers.source.encode_all(sources)
    outputs = _by_batches(translator, ids)
    few = min(_TOGETHER, len(pairs))
    # A source so long that beside it most of a batch of others is padding.
    longest = max(ids, key=len)
    together = _together(translator, [*ids[:few], longest[:-1] + longest])[:few]
    alone = outputs[:few]  # in batches of about the same length
    return {
        "bleu": bleu(outputs, [references], tokenize),
        "exact": _share(outputs, references),
        "by_length": _by_length(list(map(len, ids)), outputs, references, material.limits, tokenize),
        **_orders(translator, material.orders),
        "alone_bleu": bleu(alone, [references[:few]], tokenize),
        "together_bleu": bleu(together, [references[:few]], tokenize),
        "together_changed": 100.0 - _share(together, alone),
        "examples": [list(example) for example in zip(sources, references, outputs, strict=True)][:_EXAMPLES],
    }


def _by_batches(translator: Translator, ids: Sequence[Sequence[int]]) -> list[str]:
    """Translations, of about the same length together."""
    found: dict[int, str] = {}
    for batch in batches_by_length(range(len(ids)), ids, 1, translator.engine.batch_tokens):
        found |= zip(batch, _together(translator, [ids[index] for index in batch]), strict=True)
    return [found[index] for index in range(len(ids))]


def _together(translator: Translator, ids: Sequence[Sequence[int]]) -> list[str]:
    """Translations of one batch; empty ones of a model whose numbers are none."""
    try:
        hypotheses = translator.decode(ids, translator.search, 1)
    except Diverged:
        return [""] * len(ids)
    return [translator.tokenizers.target.decode(best.tokens) for best, *_ in hypotheses]


def _orders(translator: Translator, orders: tuple[list[int], list[int]]) -> dict[str, Any]:
    """What becomes of the same pieces in two orders."""
    first, second = (_memory(translator, ids) for ids in orders)
    texts = [translator.tokenizers.source.decode(ids) for ids in orders]
    translations = _together(translator, orders)
    return {
        "orders_differ": finite((first - second).abs().max().item()),
        "orders": [list(pair) for pair in zip(texts, translations, strict=True)],
    }


@torch.inference_mode()
def _memory(translator: Translator, ids: list[int]) -> Tensor:
    """What the encoder makes of each piece, by the id of the piece: without positions equal pieces are equal."""
    device = next(translator.model.parameters()).device
    source, lengths = (tensor.to(device) for tensor in pack([ids]))
    rows: Tensor = translator.model.encode(source, lengths).rows
    return rows[source.argsort(stable=True)]


def _by_length(
    lengths: Sequence[int],
    outputs: Sequence[str],
    references: Sequence[str],
    limits: Sequence[int],
    tokenize: BleuTokens,
) -> list[list[float]]:
    """Longest source, number and BLEU of the sentences between each limit and the one before."""
    return [
        [bucket.limit, len(bucket.places), bleu_in(bucket.places, outputs, [references], tokenize)]
        for bucket in buckets(lengths, limits)
    ]


def _share(left: Sequence[str], right: Sequence[str]) -> float:
    """How many % are the same."""
    return 100.0 * sum(a == b for a, b in zip(left, right, strict=True)) / max(1, len(left))
