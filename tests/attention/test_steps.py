"""Every recorded step follows from the steps before it."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch
from model_examples import (
    FAMILIES,
    SMALL,
    SOURCE_TYPES,
    TARGET_TYPES,
    VARIANTS,
    label,
    sentences,
    shaken,
    shaken_of_family,
)
from step_examples import array, check_layer, close, norm, softmax

from heedful.attention.record import force_decode
from heedful.attention.steps import Steps, WritingModel, record_steps, stacks
from heedful.config import ModelConfig
from heedful.data.batch import pack
from heedful.models.gpt import GPT
from heedful.models.t5 import T5
from heedful.models.transformer import Transformer
from heedful.nn.positions import LearnedPositions, sinusoids
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder

SOURCE = sentences([7], SOURCE_TYPES)[0]
TARGET = sentences([5], TARGET_TYPES, seed=4)[0]
PRESETS = {
    "paper": ModelConfig(d_model=24, d_ff=40, num_heads=3, encoder_layers=2, decoder_layers=3),
    "modern": ModelConfig(
        d_model=24, d_ff=40, num_heads=3, encoder_layers=2, decoder_layers=3, norm="pre", positions="relative"
    ),
}


def check_steps(model: WritingModel, steps: Steps) -> None:
    """Recompute every step from the numbers of those before it."""
    config = model.config
    checked = {"source", "target", "target_in"}
    factor = sqrt(config.d_model) if isinstance(model, Transformer) else 1.0
    for each in stacks(model):
        stack, layers, ids = each.name, each.layers, "source" if each.name == "encoder" else "target_in"
        assert each.embedding is not None
        close(steps[f"{stack}.embedding"], array(each.embedding.weight)[steps[ids]])
        close(steps[f"{stack}.scaled"], steps[f"{stack}.embedding"] * factor)
        x = steps[f"{stack}.scaled"]
        if config.positions == "sinusoidal":
            close(steps[f"{stack}.positions"], sinusoids(torch.arange(len(x)), config.d_model).numpy())
        if config.positions == "relative":
            assert f"{stack}.positions" not in steps
        else:
            if config.positions == "learned":
                assert isinstance(each.positions, LearnedPositions)
                close(steps[f"{stack}.positions"], array(each.positions.weight)[: len(x)])
            x = x + steps[f"{stack}.positions"]
            checked.add(f"{stack}.positions")
        close(steps[f"{stack}.input"], x)
        for number, layer in enumerate(layers, 1):
            x = check_layer(steps, f"{stack}.{number}", layer, x, 1.0 if isinstance(model, T5) else None)
            checked |= {step for step in steps if step.startswith(f"{stack}.{number}.") and not step.endswith(".lens")}
        close(steps[f"{stack}.output"], norm(each.norm, x))
        checked |= {f"{stack}.{part}" for part in ("embedding", "scaled", "input", "output")}
    bias = np.float32(0) if model.output_bias is None else array(model.output_bias)
    scale = 1.0
    if isinstance(model, T5) and config.sharing != "inputs":
        scale = config.d_model**-0.5
        close(steps["decoder.scaled_output"], steps["decoder.output"] * scale)
        checked.add("decoder.scaled_output")
    close(steps["logits"], scale * steps["decoder.output"] @ array(model.output_weight).T + bias)
    close(np.exp(steps["log_probs"]), softmax(steps["logits"]))
    for number in range(1, 1 + len(model.decoder)):
        rows = scale * norm(model.decoder_norm, steps[f"decoder.{number}.output"])
        close(np.exp(steps[f"decoder.{number}.lens"]), softmax(rows @ array(model.output_weight).T + bias))
        checked.add(f"decoder.{number}.lens")
    close(steps[f"decoder.{len(model.decoder)}.lens"], steps["log_probs"])
    assert steps.keys() - checked == {"logits", "log_probs"}


@pytest.mark.parametrize("config", [*PRESETS.values(), FAMILIES["window"], FAMILIES["output-bias"], SMALL])
def test_every_step_follows_from_the_steps_before_it(config: ModelConfig) -> None:
    model = shaken(config)
    check_steps(model, record_steps(model, SOURCE, TARGET))


@pytest.mark.parametrize("config", VARIANTS[::5], ids=label)
def test_so_it_does_in_every_variant(config: ModelConfig) -> None:
    model = shaken(replace(config, encoder_layers=2))
    check_steps(model, record_steps(model, SOURCE, TARGET))


@pytest.mark.parametrize("family", ["gpt", "gpt-relative"])
def test_every_step_of_a_gpt_follows_from_the_steps_before_it(family: str) -> None:
    model = shaken_of_family(FAMILIES[family])
    assert isinstance(model, GPT)
    prompt, rest = TARGET[:3], [5, 2, 8, 4]
    steps = record_steps(model, prompt, rest)
    assert steps["target_in"].tolist() == [*prompt, *rest[:-1]]
    assert steps["target"].tolist() == [*prompt[1:], *rest]
    check_steps(model, steps)


@pytest.mark.parametrize("family", ["t5", "t5-v1.1", "t5-separate"])
def test_every_step_of_a_t5_follows_from_the_steps_before_it(family: str) -> None:
    model = shaken_of_family(FAMILIES[family])
    assert isinstance(model, T5)
    check_steps(model, record_steps(model, SOURCE, TARGET))


def test_the_steps_of_a_gpt_are_those_of_reading_the_prompt_and_then_writing() -> None:
    model = shaken_of_family(FAMILIES["gpt"])
    assert isinstance(model, GPT)
    prompt, rest = TARGET[:3], [5, 2, 8, 4]
    steps, forced = record_steps(model, prompt, rest), force_decode(model, [prompt], [rest])[0]
    close(steps["log_probs"][np.arange(2, 6), rest], forced.log_probs)
    close(steps["decoder.2.attention.weights"], forced.attention.decoder[1])
    with torch.inference_mode():
        logits, state = model.step(torch.tensor([0]), model.start(model.encode(*pack([prompt]))))
        close(steps["logits"][2], array(logits[0]))
        for place, token in enumerate(rest[:-1], 3):
            logits, state = model.step(torch.tensor([token]), state)
            close(steps["logits"][place], array(logits[0]))


def test_every_step_of_a_built_in_model_follows_from_the_steps_before_it() -> None:
    run = RunFolder.open(find_model("en-de"))
    model, tokenizers = run.model(), run.tokenizers()
    assert isinstance(model, Transformer)
    source = tokenizers.source.encode("Where is the station?")
    check_steps(model, record_steps(model, source, tokenizers.target.encode("Wo ist der Bahnhof?")))


def test_the_recorded_steps_end_in_the_probabilities_of_forced_decoding() -> None:
    model = shaken(SMALL)
    steps, forced = record_steps(model, SOURCE, TARGET), force_decode(model, [SOURCE], [TARGET])[0]
    close(steps["log_probs"][np.arange(len(TARGET)), TARGET], forced.log_probs)
    close(steps["decoder.2.cross_attention.weights"], forced.attention.cross[1])


def test_no_position_may_see_later_ones_and_the_mask_says_so() -> None:
    steps = record_steps(shaken(SMALL), SOURCE, TARGET)
    mask = steps["decoder.1.attention.mask"]
    assert (mask == np.tri(len(TARGET), dtype=bool)).all()
    assert (np.isneginf(steps["decoder.1.attention.masked"]) == ~mask).all()
    assert steps["encoder.1.attention.mask"].all()
    assert steps["decoder.2.cross_attention.mask"].shape == (len(TARGET), len(SOURCE))


def test_recording_leaves_no_hook_behind() -> None:
    model = shaken(SMALL)
    record_steps(model, SOURCE, TARGET)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not any(part.instrumented for layers in model.attentions.values() for part in layers)
