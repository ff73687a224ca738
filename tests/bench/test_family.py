"""The benchmark of descendants: its loops learn the same task, and its table shows their ratios."""

from pathlib import Path

import pytest
import torch
from contender import Lap
from family import NAMES, make_contenders, summarise, table
from family_gpt import GPT_SHAPES, GPTShape, heedful_step, laps, make_model, plain_step
from race import Contender, Result

from heedful.config import PrecisionKind

SMALL = GPTShape(layers=1, d_model=8, num_heads=2, context=6, windows=5)


def count_weights(name: str) -> int:
    return sum(parameter.numel() for parameter in make_model(name, SMALL).parameters())


@pytest.mark.parametrize("name", ["nanoGPT", "transformers"])
def test_a_plain_loop_makes_updates_of_the_shape(name: str) -> None:
    if name == "transformers":
        pytest.importorskip("transformers")
    model = make_model(name, SMALL)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    assert plain_step(model, SMALL)() == 30
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("precision", ["auto", "float32"])
def test_the_loop_of_heedful_makes_updates_of_the_shape(tmp_path: Path, precision: PrecisionKind) -> None:
    step = heedful_step(tmp_path, SMALL, precision)
    assert [step() for _ in range(3)] == [30, 30, 30]


def test_the_models_have_the_same_sizes() -> None:
    pytest.importorskip("transformers")
    embeddings, block = (258 + 6) * 8, 12 * 8 * 8
    assert count_weights("nanoGPT") == embeddings + block + 3 * 8  # no biases
    assert count_weights("transformers") == embeddings + block + 13 * 8 + 2 * 8  # with biases


def test_a_lap_counts_tokens_by_its_clock() -> None:
    ticks = iter([0.0, 0.5, 1.0, 2.5])
    assert laps(lambda: 7, lambda: next(ticks))(2.0) == Lap(14, 2.5)


def test_the_table_has_the_ratios() -> None:
    results = [
        Result(Contender(NAMES[key], "shipped", []), [Lap(speed, 1.0) for speed in speeds])
        for key, speeds in {"heedful": (30, 50), "nanoGPT": (20, 20), "transformers": (10, 10)}.items()
    ]
    facts = {**summarise(results), "skipped": {}}
    assert facts["ratio"] == {"nanoGPT's loop": 2.0, "Hugging Face GPT-2": 4.0}
    assert facts["rounds"]["nanoGPT's loop"] == [1.5, 2.5]
    assert "nanoGPT's loop                 20    2.00 x   1.5, 2.5" in table(facts)


def test_every_shape_has_its_contenders(tmp_path: Path) -> None:
    for shape in GPT_SHAPES:
        assert [contender.command[-2:] for contender in make_contenders(tmp_path, shape, 1)] == [
            ["1", "heedful"],
            ["1", "float32"],
            ["1", "nanoGPT"],
            ["1", "transformers"],
        ]
