"""The importance of heads, estimated and measured."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from model_examples import EOS, SMALL, SOURCE_TYPES, TARGET_TYPES, add_gradients, batch_of, fresh, sentences, shaken

from heedful.attention.head_names import Head, all_heads
from heedful.attention.importance import ablate_heads, corpus_loss, estimate_importance
from heedful.attention.pruning import apply_gates, open_gates, switch_off_heads
from heedful.config import ModelConfig
from heedful.data.batch import Batch
from heedful.models.transformer import Transformer
from heedful.nn.multi_head import Kind

SOURCES = sentences([3, 7, 5, 4], SOURCE_TYPES)
TARGETS = sentences([6, 2, 4, 5], TARGET_TYPES, seed=4)
TOKENS = 6 + 2 + 4 + 5
ALONE = [batch_of([source], [target]) for source, target in zip(SOURCES, TARGETS, strict=True)]
BATCHES = [batch_of(SOURCES[:3], TARGETS[:3]), ALONE[3]]
OFF = [Head("decoder", 1, 2), Head("encoder", 0, 0)]


@pytest.mark.parametrize("off", [[], OFF], ids=["all", "some"])
@pytest.mark.parametrize("place", [("encoder", 0), ("decoder", 1), ("cross", 0)])
def test_importance_is_the_mean_slope_of_the_loss_of_each_sentence(place: tuple[Kind, int], off: list[Head]) -> None:
    model = shaken(replace(SMALL, activation="gelu")).double()  # relu is not differentiable everywhere
    gates = open_gates(model)
    for head in off:
        gates[head.kind, head.layer][head.index] = 0.0
    importance = estimate_importance(model, BATCHES, off)
    for head in (head for head in importance if (head.kind, head.layer) == place):
        slopes = []
        for sentence in ALONE:
            losses = []
            for change in (-0.01, 0.01):
                moved = gates[place].clone()
                moved[head.index] += change
                with apply_gates(model, gates | {place: moved}):
                    losses.append(corpus_loss(model, [sentence]) * len(sentence.target_out))
            slopes.append(abs(losses[1] - losses[0]) / 0.02)
        assert importance[head] == pytest.approx(sum(slopes) / TOKENS, abs=1e-3)
        assert importance[head] > 1e-2


def test_importance_leaves_out_heads_that_are_switched_off() -> None:
    model = shaken(SMALL)
    assert list(estimate_importance(model, BATCHES, OFF)) == [head for head in all_heads(model) if head not in OFF]
    assert not any(attention.instrumented for layers in model.attentions.values() for attention in layers)


def test_a_head_that_the_output_layer_ignores_has_no_importance() -> None:
    model, idle = shaken(SMALL), Head("encoder", 0, 1)
    with torch.no_grad():
        model.encoder[0].attention.output.weight[:, 7:14] = 0.0
    assert estimate_importance(model, BATCHES)[idle] == 0.0
    assert ablate_heads(model, BATCHES, [idle])[idle] == pytest.approx(0.0, abs=1e-6)


def test_ablation_is_how_far_the_loss_rises_without_the_head() -> None:
    model, heads = shaken(SMALL), [Head("encoder", 0, 2), Head("cross", 1, 0)]
    found = ablate_heads(model, BATCHES, heads)
    for head in heads:
        with switch_off_heads(model, [head]):
            without = corpus_loss(model, BATCHES)
        assert found[head] == pytest.approx(without - corpus_loss(model, BATCHES), abs=1e-9)
        assert abs(found[head]) > 1e-3
    assert ablate_heads(model, BATCHES, []) == {}


def test_progress_is_reported_to_the_end() -> None:
    model, seen = shaken(SMALL), []
    estimate_importance(model, BATCHES, done=lambda count, total: seen.append((count, total)))
    assert seen == [(1, 2), (2, 2)]
    ablate_heads(model, BATCHES, [*OFF, Head("cross", 0, 0)], done=lambda count, total: seen.append((count, total)))
    assert seen[2:] == [(1, 3), (2, 3), (3, 3)]


# A trained model


def reversed_pairs(count: int, seed: int) -> Batch:
    """Sentences whose translation replaces each word, in reverse order."""
    chance = random.Random(seed)
    words = [[chance.randint(2, 11) for _ in range(chance.randint(1, 5))] for _ in range(count)]
    return batch_of([[*line, EOS] for line in words], [[*(w + 10 for w in reversed(line)), EOS] for line in words])


@pytest.fixture(scope="module")
def learnt() -> Transformer:
    config = ModelConfig(d_model=32, d_ff=48, num_heads=4, encoder_layers=2, decoder_layers=2, dropout=0.0, norm="pre")
    model = fresh(config).train()
    optimizer = torch.optim.Adam(model.parameters(), 0.006)
    for step in range(120):
        optimizer.zero_grad(set_to_none=True)
        add_gradients(model, [reversed_pairs(40, step)])
        optimizer.step()
    return model.eval()


def test_estimated_importance_agrees_with_ablation(learnt: Transformer) -> None:
    batches = [reversed_pairs(150, seed=1001)]
    estimated, real = estimate_importance(learnt, batches), ablate_heads(learnt, batches, all_heads(learnt))
    assert corpus_loss(learnt, batches) < 0.7  # from about 3
    assert list(estimated) == list(real)
    first, second = (np.argsort(np.argsort(list(values.values()))) for values in (estimated, real))
    assert np.corrcoef(first, second)[0, 1] > 0.5  # the rank correlation is 0.81
