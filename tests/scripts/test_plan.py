"""The cost plan: its counts compared with PyTorch's counter and with numbers by hand."""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import plan
import pytest
import torch
from model_examples import SMALL, TARGET_TYPES, example, fresh
from torch.utils.flop_counter import FlopCounterMode

from heedful.config import Experiment, load_recipe
from heedful.tasks import make_experiment

ROOT = Path(__file__).resolve().parents[2]


def recipe(kind: str) -> Experiment:
    return make_experiment(load_recipe(ROOT / "recipes" / f"{plan.NAMES[kind]}.toml"))


def test_the_forward_pass_has_as_many_flops_as_pytorch_counts() -> None:
    model, length, pairs = fresh(replace(SMALL, encoder_layers=3)).eval(), 7, 4
    batch = example([length] * pairs, [length] * pairs)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        memory = model.encode(batch.source, batch.source_lengths)
        model.decode(batch.target_in, batch.target_lengths, memory)
    cost = plan.forward_cost(model.config, TARGET_TYPES, length)
    assert counter.get_total_flops() == length * pairs * (cost.source + cost.target)


def test_the_base_model_by_hand() -> None:
    """d_model 512, d_ff 2048, six layers, 28 pieces a sentence, a vocabulary of 37 000; a multiply-add is two FLOPs."""
    square, inner, look = 512 * 512, 2 * 512 * 2048, 28 * 1024
    source = 6 * (4 * square + look + inner) + 6 * 2 * square
    target = 6 * (6 * square + 2 * look + inner) + 512 * 37_000
    assert plan.step_flops(recipe("base")) == 2 * 3 * 25_000 * (source + target)
    assert plan.step_flops(recipe("base")) == pytest.approx(9.53e12, rel=1e-3)


@pytest.mark.parametrize(("kind", "parameters"), [("base", 63_082_496), ("big", 214_245_376)])
def test_an_update_is_about_six_flops_a_parameter_and_pair_of_tokens(kind: str, parameters: int) -> None:
    """Nearly every weight is used once, on one of the two sides; only attention itself adds to that."""
    assert plan.parameters(recipe(kind)) == parameters
    assert plan.step_flops(recipe(kind)) == pytest.approx(6 * 25_000 * parameters, rel=0.02)


def test_network_traffic_by_hand() -> None:
    """In a ring of eight, each process sends seven eighths of all gradients twice."""
    assert plan.ring_bytes(1000, 8) == 2 * 7 / 8 * 4000
    assert plan.ring_bytes(1000, 1) == 0.0


def test_at_the_break_even_point_both_take_equally_long() -> None:
    flops, values, speed, bandwidth = 9.5e12, 63_000_000, 1e14, 3e11
    count = plan.break_even(flops, values, speed, bandwidth)
    sent = 2.0 * (count - 1) / count * values * 4
    assert flops / (count * speed) == pytest.approx(sent / bandwidth)


def test_the_papers_flops_are_hours_times_peak() -> None:
    for kind, flops in plan.PAPER_FLOPS.items():
        assert plan.PAPER_HOURS[kind] * 3600 * 8 * 9.5e12 == pytest.approx(flops, rel=0.01)


def test_the_page_holds_what_the_script_prints(capsys: pytest.CaptureFixture[str]) -> None:
    sys.modules.pop("plan", None)
    runpy.run_path(str(ROOT / "scripts/plan.py"), run_name="__main__")
    page = (ROOT / "docs/paper-scale.md").read_text(encoding="utf-8")
    tables = capsys.readouterr().out.strip().split("\n\n")
    assert len(tables) == 4
    assert [table for table in tables if table not in page] == []
