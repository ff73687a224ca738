"""Experiments on one sentence: each changes what it says it changes, and leaves the model as it was."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from model_examples import EOS, FAMILIES, SMALL, SOURCE_TYPES, TARGET_TYPES, sentences, shaken, shaken_of_family

from heedful.attention.head_names import Head, all_heads
from heedful.attention.pruning import switch_off_heads
from heedful.attention.record import force_decode
from heedful.attention.steps import record_steps
from heedful.config import ModelConfig, SearchConfig
from heedful.inspection import counterfactuals
from heedful.inspection.counterfactuals import (
    Counterfactual,
    CounterfactualRunner,
    compare_without_positions,
    list_changes,
    search_by,
)
from heedful.models.gpt import GPT
from heedful.models.transformer import Transformer

SOURCE = sentences([7], SOURCE_TYPES)[0]
TARGET = sentences([5], TARGET_TYPES, seed=4)[0]
SEARCH = SearchConfig(beam=3, max_extra=4)
CONFIGS = [SMALL, replace(SMALL, norm="pre"), FAMILIES["relative"]]


def runner_on(model: Transformer, source: list[int] = SOURCE, target: list[int] = TARGET) -> CounterfactualRunner:
    return CounterfactualRunner(model, source, target, search_by(model, SEARCH, EOS))


def all_of(model: Transformer) -> dict[str, Counterfactual]:
    return runner_on(model).run_all(list_changes(model))


@contextmanager
def unchanged(model: Transformer) -> Iterator[None]:
    """The model has the same weights to the bit afterwards, and no hook."""
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    yield
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("config", CONFIGS)
def test_all_experiments_run_and_leave_the_model_as_it_was(config: ModelConfig) -> None:
    model = shaken(config)
    runner = runner_on(model)
    whole = runner.run()
    with unchanged(model):
        found = runner.run_all(list_changes(model))
        runner.run_without_mask()
        compare_without_positions(model, SOURCE)
    assert len([name for name in found if ".head." in name]) == len(all_heads(model))
    assert runner.run() == whole
    assert all(abs(one.log_prob - whole.log_prob) > 1e-4 for one in found.values())


def test_a_head_is_off_and_no_other() -> None:
    model = shaken(SMALL)
    found = all_of(model)
    for name, head in (
        ("decoder.2.cross_attention.head.3", Head("cross", 1, 2)),
        ("encoder.1.attention.head.1", Head("encoder", 0, 0)),
    ):
        with switch_off_heads(model, [head]):
            log_probs = force_decode(model, [SOURCE], [TARGET])[0].log_probs
        assert found[name].log_prob == pytest.approx(float(log_probs.sum()), abs=1e-4)


@pytest.mark.parametrize("config", CONFIGS[:2])
def test_without_scores_every_key_has_the_same_weight(config: ModelConfig) -> None:
    model = shaken(config)
    with unchanged(model), counterfactuals._scaled_queries(model, lambda d_k: 0.0):
        steps = record_steps(model, SOURCE, TARGET)
    assert steps["encoder.1.attention.weights"] == pytest.approx(1 / len(SOURCE))
    assert steps["decoder.2.cross_attention.weights"] == pytest.approx(1 / len(SOURCE))


def test_without_the_scale_scores_are_larger_by_the_root_of_d_k() -> None:
    model = shaken(SMALL)
    before = record_steps(model, SOURCE, TARGET)["encoder.1.attention.scores"]
    with unchanged(model), counterfactuals._scaled_queries(model, lambda d_k: d_k**0.5):
        after = record_steps(model, SOURCE, TARGET)["encoder.1.attention.scaled"]
    assert after == pytest.approx(before, abs=1e-4)


@pytest.mark.parametrize("config", CONFIGS)
def test_without_positions_the_encoder_cannot_tell_the_order(config: ModelConfig) -> None:
    assert compare_without_positions(shaken(config), SOURCE) < 1e-5


@pytest.mark.parametrize("config", CONFIGS)
def test_without_x_the_residual_is_the_sub_layer_alone(config: ModelConfig) -> None:
    model = shaken(config)
    residual = model.encoder[0].attention_residual
    with unchanged(model), counterfactuals._without_input(residual):
        steps = record_steps(model, SOURCE, TARGET)
    output = torch.from_numpy(steps["encoder.1.attention.output"])
    expected = output if config.norm == "pre" else residual.norm(output)
    assert steps["encoder.1.attention.result"] == pytest.approx(expected.detach().numpy(), abs=1e-4)


def test_without_the_mask_only_a_decoder_that_has_a_future_changes() -> None:
    model = shaken(SMALL)
    runner = runner_on(model)
    with unchanged(model):
        assert sum(runner.run_without_mask()) != pytest.approx(runner.run().log_prob, abs=1e-4)
    alone = runner_on(model, target=[EOS])
    assert sum(alone.run_without_mask()) == pytest.approx(alone.run().log_prob, abs=1e-5)


def test_another_source_is_searched_and_scored() -> None:
    model = shaken(SMALL)
    turned = runner_on(model, [*SOURCE[-2::-1], EOS])
    assert runner_on(model).run([*SOURCE[-2::-1], EOS]) == turned.run()


def test_a_layer_is_off_if_both_of_its_sub_layers_are() -> None:
    model = shaken(replace(SMALL, norm="pre"))
    runner = runner_on(model)
    found = all_of(model)["encoder.1"]
    del model.encoder[0]  # type: ignore[attr-defined]  # pre-norm: without its sub-layers, a layer passes x on
    assert found.log_prob == pytest.approx(runner.run().log_prob, abs=1e-4)


def gpt() -> GPT:
    model = shaken_of_family(FAMILIES["gpt"])
    assert isinstance(model, GPT)
    return model


def test_a_gpt_has_the_experiments_that_fit_it() -> None:
    model, prompt, rest = gpt(), TARGET[:3], [5, 2, 8]
    runner = CounterfactualRunner(model, prompt, rest, search_by(model, SEARCH, EOS))
    whole = runner.run()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = runner.run_all(list_changes(model))
    assert len([name for name in found if ".head." in name]) == len(all_heads(model))
    assert not {"cross_attention", "scale-of-embeddings", "encoder.1"} & found.keys()
    assert {"positions", "scores", "feed_forward", "decoder.3", "decoder.3.feed_forward.residual"} <= found.keys()
    assert all(abs(one.log_prob - whole.log_prob) > 1e-5 for one in found.values())
    assert sum(runner.run_without_mask()) != pytest.approx(whole.log_prob, abs=1e-4)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert runner.run() == whole


def test_without_its_mask_a_gpt_sees_the_future() -> None:
    model = gpt()
    with counterfactuals.unmasked(model):
        steps = record_steps(model, [3, 4], [5, 2, 8])
    assert (steps["decoder.1.attention.weights"] > 0).all()
    assert (np.triu(record_steps(model, [3, 4], [5, 2, 8])["decoder.1.attention.weights"], 1) == 0).all()
