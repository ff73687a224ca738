"""The comparison of how fast variants learn, without training."""

import json
import math
from pathlib import Path

import pytest
from learn import Point, Variant, parse_variants, seconds_to, summarise, train_in_process

CURVE = [Point(10, 5.0, 4.0, None), Point(20, 10.0, 3.0, 11.5), Point(30, 20.0, 2.5, 17.0)]


@pytest.mark.parametrize(("loss", "seconds"), [(4.5, 5.0), (3.5, 7.5), (3.0, 10.0), (2.75, 15.0), (2.5, 20.0)])
def test_the_time_to_a_loss_is_read_off_the_line_between_two_validations(loss: float, seconds: float) -> None:
    assert seconds_to(CURVE, loss) == pytest.approx(seconds)


def test_a_loss_that_is_not_reached_takes_forever() -> None:
    assert seconds_to(CURVE, 2.4) == math.inf


def test_a_row_compares_each_seed_with_the_first_variant() -> None:
    faster = [Point(10, 6.0, 2.0, 20.0), Point(20, 12.0, 2.1, 21.0)]
    assert summarise("muon", [faster], [CURVE]) == "| muon | 20 | 12 | 2.000 | 21.00 | 3.33 |"
    assert summarise("slow", [CURVE], [faster]).endswith("| not reached |")


def test_several_seeds_have_a_spread() -> None:
    other = [Point(30, 22.0, 2.7, 19.0)]
    assert summarise("adam", [CURVE, other], [CURVE, other]).split(" | ")[2:5] == [
        "21 ± 1",
        "2.600 ± 0.141",
        "18.00 ± 1.41",
    ]


def test_variants_have_different_names() -> None:
    assert parse_variants([["a"], ["b", "train.optimizer=muon"]])[1] == Variant("b", ("train.optimizer=muon",))
    with pytest.raises(SystemExit, match="two variants have the same name"):
        parse_variants([["a"], ["a", "seed=2"]])


def test_a_finished_training_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it is trained again")

    monkeypatch.setattr("subprocess.run", refuse)
    (tmp_path / "adam-1-30.json").write_text(json.dumps([{"step": 10, "seconds": 5.0, "loss": 4.0, "score": None}]))
    assert train_in_process("recipe.toml", tmp_path / "adam-1-30", []) == CURVE[:1]
    with pytest.raises(AssertionError, match="trained again"):
        train_in_process("recipe.toml", tmp_path / "adam-2-30", [])
