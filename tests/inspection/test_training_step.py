"""One training step on one sentence: it is the step that training makes."""

from dataclasses import replace

import pytest
import torch
from model_examples import EOS, FAMILIES, SMALL, SOURCE_TYPES, TARGET_TYPES, sentences, shaken

from heedful.attention.steps import record_steps
from heedful.config import ModelConfig, TrainConfig
from heedful.inspection.training_step import take_training_step

SOURCE = sentences([7], SOURCE_TYPES)[0]
TARGET = sentences([5], TARGET_TYPES, seed=4)[0]
CONFIG = TrainConfig(max_steps=300, warmup_steps=40, label_smoothing=0.2, learning_rate=0.5)


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, norm="pre"), FAMILIES["relative"]])
def test_a_training_step_has_the_loss_and_gradients_of_training(config: ModelConfig) -> None:
    model = shaken(config)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    step = take_training_step(model, SOURCE, TARGET, CONFIG)
    log_probs = torch.from_numpy(record_steps(model, SOURCE, TARGET)["log_probs"]).double()
    gold = torch.tensor(TARGET)
    expected = torch.nn.functional.cross_entropy(log_probs, gold, reduction="none")
    assert step.plain == pytest.approx(expected.tolist(), abs=1e-4)
    size = log_probs.shape[1]
    wanted = torch.full_like(log_probs, 0.2 / (size - 1)).scatter_(1, gold[:, None], 0.8)
    assert step.smoothed == pytest.approx((-wanted * log_probs).sum(1).tolist(), abs=1e-4)
    assert (step.gold, step.other) == pytest.approx((0.8, 0.2 / (size - 1)))
    assert step.best == pytest.approx(float(-(wanted[0] * wanted[0].log()).sum()))
    assert all(torch.equal(before[name], weight) for name, weight in model.named_parameters())
    assert all(weight.grad is None for weight in model.parameters())


def test_the_lengths_of_the_parts_make_up_the_whole_gradient() -> None:
    model = shaken(SMALL)
    step = take_training_step(model, SOURCE, TARGET, CONFIG)
    source, target_in = torch.tensor(SOURCE), torch.tensor([model.pad_id, *TARGET[:-1]])
    memory = model.encode(source, torch.tensor([len(SOURCE)]))
    logits = model.decode(target_in, torch.tensor([len(TARGET)]), memory).log_softmax(-1)
    other = 0.2 / (logits.shape[1] - 1)
    wanted = torch.full_like(logits, other).scatter_(1, torch.tensor(TARGET)[:, None], 0.8)
    loss = -(wanted * logits).sum(1).mean()
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    whole = sum(float(gradient.square().sum()) for gradient in gradients) ** 0.5
    assert sum(length**2 for length in step.gradients.values()) ** 0.5 == pytest.approx(whole, rel=1e-3)
    assert set(step.gradients) == {"embedding", "encoder.1", "decoder.1", "decoder.2"}


def test_a_small_step_helps_and_a_huge_one_harms() -> None:
    model = shaken(SMALL)
    config = replace(CONFIG, schedule="constant", learning_rate=0.02)
    step = take_training_step(model, SOURCE, [*TARGET[:-1], EOS], config)
    assert step.after[0.1] < step.loss
    assert step.after[100.0] > step.loss
    assert (step.step, step.rate) == (150, 0.02)
    assert max(rate for _, rate in step.rates) == pytest.approx(0.02)
