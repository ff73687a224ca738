"""The importance of each head: how far the loss on a corpus would rise without it."""

from collections.abc import Callable, Collection, Sequence

import torch

from heedful.attention.head_names import Head, all_heads
from heedful.attention.pruning import apply_gates, open_gates, switch_off_heads
from heedful.data.batch import Batch
from heedful.models.predictor import AnyPredictor
from heedful.nn.loss import Loss, smoothed_loss

Progress = Callable[[int, int], None]  # called with the number done, and the total


def estimate_importance(
    model: AnyPredictor,
    batches: Sequence[Batch],
    off: Collection[Head] = (),
    done: Progress = lambda count, total: None,
) -> dict[Head, float]:
    """How far the loss per target token depends on each head, to first order; heads in `off` are switched off already.

    Each head has a gate of one in each sentence, and the derivative of the loss by a gate says what happens when it
    closes. One forward and backward pass gives all derivatives. We add their absolute values, sentence by sentence
    (Michel et al., 2019): without the absolute value, training makes their sum over a corpus about zero for every head.
    """
    opened = open_gates(model)
    for head in off:
        opened[head.kind, head.layer][head.index] = 0.0
    moved = {place: torch.zeros_like(gate) for place, gate in opened.items()}
    for count, batch in enumerate(batches, 1):
        sentences = len(batch.target_lengths)
        gates = {place: gate.repeat(sentences, 1).requires_grad_() for place, gate in opened.items()}
        with apply_gates(model, gates):
            slopes = torch.autograd.grad(_loss(model, batch).smoothed, list(gates.values()))
        for place, slope in zip(gates, slopes, strict=True):
            moved[place] += slope.abs().sum(0)
        done(count, len(batches))
    tokens = _tokens(batches)
    return {
        head: moved[head.kind, head.layer][head.index].item() / tokens for head in all_heads(model) if head not in off
    }


def ablate_heads(
    model: AnyPredictor,
    batches: Sequence[Batch],
    heads: Collection[Head],
    done: Progress = lambda count, total: None,
) -> dict[Head, float]:
    """The actual rise of the loss per target token without each head; this takes one pass over the batches per head."""
    whole = corpus_loss(model, batches)
    rises: dict[Head, float] = {}
    for head in heads:
        with switch_off_heads(model, [head]):
            rises[head] = corpus_loss(model, batches) - whole
        done(len(rises), len(heads))
    return rises


@torch.no_grad()
def corpus_loss(model: AnyPredictor, batches: Sequence[Batch]) -> float:
    """The loss per target token, without label smoothing."""
    return sum(_loss(model, batch).plain.item() for batch in batches) / _tokens(batches)


def _loss(model: AnyPredictor, batch: Batch) -> Loss:
    memory = model.encode(batch.source, batch.source_lengths)
    features = model.features(batch.target_in, batch.target_lengths, memory)
    return smoothed_loss(features, model.output_weight, batch.target_out, 0.0, model.output_bias)


def _tokens(batches: Sequence[Batch]) -> int:
    return sum(len(batch.target_out) for batch in batches)
