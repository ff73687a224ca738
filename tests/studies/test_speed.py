"""Measuring the speed of training: the updates, and the order in which models take turns."""

import time
from itertools import count

import pytest
import torch
from model_examples import FAMILIES

from heedful.studies import speed
from heedful.studies.speed import measure_training_speed, one_thread, seconds
from heedful.training.gradients import Update

CPU = torch.device("cpu")
MODELS = {name: FAMILIES[name] for name in ("transformer", "gru-additive", "convolutional")}


def test_every_model_has_a_speed_at_every_length() -> None:
    speeds = measure_training_speed(MODELS, [3, 8], vocabulary=11, batch_tokens=24, repeats=1, device=CPU)
    assert speeds.keys() == {(name, length) for name in MODELS for length in (3, 8)}
    assert min(speeds.values()) > 0.0


def test_speed_is_tokens_of_both_sides_over_the_median_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = count()
    monkeypatch.setattr(speed, "seconds", lambda *_: [1000.0, 2.0, 4.0, 1.0][next(rounds)])
    found = measure_training_speed(
        {"one": MODELS["transformer"]}, [5], vocabulary=11, batch_tokens=23, repeats=3, device=CPU
    )
    assert found == {("one", 5): 2 * 20 / 2.0}


def test_models_take_turns_at_each_length(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[tuple[str, int]] = []

    class Learns:
        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, update: Update, step: int) -> float:
            turns.append((self.name, int(update.parts[0].source_lengths[0])))
            return 0.0

    monkeypatch.setattr(speed, "SequentialGradients", lambda model, *_: Learns(type(model).__name__))
    measure_training_speed(MODELS, [3, 8], vocabulary=11, batch_tokens=24, repeats=1, device=CPU)
    names = ["Transformer", "Recurrent", "Convolutional"]
    assert turns == [(name, length) for length in (3, 8) for name in names] * 2


def test_an_update_has_as_many_sentences_as_the_budget_allows() -> None:
    update = speed._update(4, 11, 30, CPU)
    (batch,) = update.parts
    assert batch.source_lengths.tolist() == batch.target_lengths.tolist() == [4] * 7
    assert (update.target_tokens, update.tokens) == (28, 56)
    out, given = batch.target_out.view(-1, 4), batch.target_in.view(-1, 4)
    assert (out[:, -1] == 1).all()
    assert (given[:, 0] == 0).all()
    assert torch.equal(given[:, 1:], out[:, :-1])
    assert batch.source.max() < 11


def test_on_a_cpu_the_clock_counts_one_threads_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread(CPU):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    worked = iter((5.0, 7.5))
    monkeypatch.setattr(time, "thread_time", lambda: next(worked))
    assert seconds(list, CPU) == 2.5


def test_a_sentence_longer_than_the_budget_is_its_own_update() -> None:
    assert speed._update(40, 11, 30, CPU).tokens == 80
