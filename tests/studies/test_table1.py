"""Table 1: its counts equal PyTorch's, its exponents and crossings equal known ones, and its results are written."""

import json
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from heedful.progress import SilentReporter
from heedful.studies import table1 as study
from heedful.studies.study import StudyPlan, StudyResult
from heedful.studies.table1 import KINDS, Kind, Sizes, crossing, exponent, flops_crossing, kept_bytes, layer_flops

CPU = torch.device("cpu")
SIZES = Sizes(lengths=(8, 16, 32, 64), width=8, widths=(6, 12, 24), length=16, window=2, repeats=1)
WHOLE: tuple[Kind, ...] = ("self-attention", "self-attention, whole layer", "convolutional")


@pytest.fixture(scope="module")
def outcome() -> StudyResult:
    return study.measured(SIZES, CPU, SilentReporter())


class TestCounts:
    @pytest.mark.parametrize("kind", WHOLE)
    @pytest.mark.parametrize("d", [12, 128])
    def test_the_flops_of_a_layer_match_pytorchs_count(self, kind: Kind, d: int) -> None:
        work = study._work(kind, 9, d, 2, CPU)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            work.run()
        assert counter.get_total_flops() == layer_flops(kind, 9, d, window=2)

    def test_the_flops_of_an_lstm_match_its_weights(self) -> None:
        weights = sum(weight.numel() for weight in torch.nn.LSTM(6, 6, bias=False).parameters())
        assert layer_flops("recurrent", 5, 6, window=2) == 2 * 5 * weights

    def test_a_window_leaves_out_distant_positions(self) -> None:
        # Five positions see 3, 4, 5, 4 and 3 keys.
        assert layer_flops("restricted self-attention", 5, 6, window=2) == 2 * 19 * 2 * 6
        assert layer_flops("restricted self-attention, whole layer", 5, 6, window=2) == 2 * (19 * 2 * 6 + 5 * 4 * 36)
        assert layer_flops("restricted self-attention", 5, 6, window=4) == layer_flops("self-attention", 5, 6, window=4)

    @pytest.mark.parametrize(("kind", "of_n", "of_d"), [("self-attention", 2, 1), ("recurrent", 1, 2)])
    def test_exponents_of_flops_are_the_papers(self, kind: Kind, of_n: int, of_d: int) -> None:
        sizes = (3, 5, 8, 13, 21)
        assert exponent(sizes, [layer_flops(kind, n, 7, 2) for n in sizes]) == pytest.approx(of_n)
        assert exponent(sizes, [layer_flops(kind, 7, d, 2) for d in sizes]) == pytest.approx(of_d)

    def test_attention_keeps_queries_keys_values_and_weights(self) -> None:
        n, d = 9, 12
        assert kept_bytes(study._work("self-attention", n, d, 2, CPU)) == 4 * (3 * n * d + n * n)

    def test_a_whole_layer_also_keeps_its_input_and_the_outputs_of_its_heads(self) -> None:
        n, d = 9, 12
        assert kept_bytes(study._work("self-attention, whole layer", n, d, 2, CPU)) == 4 * (5 * n * d + n * n)


class TestFits:
    def test_only_the_larger_half_counts(self) -> None:
        assert exponent((1, 2, 4, 8), (9.0, 1.0, 16.0, 128.0)) == pytest.approx(3.0)

    def test_costs_cross_between_two_sizes(self) -> None:
        sizes = (1, 2, 4, 8, 16)
        found = crossing(sizes, [n**2.0 for n in sizes], [5.0 * n for n in sizes])
        assert found == pytest.approx(5.0)

    def test_costs_that_never_cross_have_no_crossing(self) -> None:
        assert crossing((1, 2), (1.0, 2.0), (3.0, 3.0)) is None
        assert crossing((1, 2), (4.0, 5.0), (3.0, 3.0)) is None

    @pytest.mark.parametrize("d", [6, 64])
    def test_attention_takes_as_many_flops_as_an_lstm_at_four_times_the_width(self, d: int) -> None:
        assert flops_crossing("self-attention", d, window=2) == 4 * d
        assert flops_crossing("self-attention, whole layer", d, window=2) == 2 * d


class TestOutcome:
    def test_every_layer_has_a_row_in_each_table(self, outcome: StudyResult) -> None:
        growth, steps, crossings, by_n, by_d = outcome.tables
        assert [row[0] for row in growth.rows] == list(KINDS)
        assert [row[0] for row in steps.rows] == [kind for kind in KINDS if "whole" not in kind]
        assert [row[2] for row in crossings.rows] == [32, 16]
        assert [row[:3] for row in by_n.rows] == [(kind, n, 8) for kind in KINDS for n in SIZES.lengths]
        assert [row[:3] for row in by_d.rows] == [(kind, 16, d) for kind in KINDS for d in SIZES.widths]

    def test_all_costs_are_above_zero(self, outcome: StudyResult) -> None:
        for table in outcome.tables[3:]:
            assert all(isinstance(cell, float | int) and cell > 0 for row in table.rows for cell in row[1:])

    def test_only_recurrence_takes_sequential_steps(self, outcome: StudyResult) -> None:
        steps = {row[0]: (row[2], row[4]) for row in outcome.tables[1].rows}
        assert steps["recurrent"] == (64, 64)
        assert steps["self-attention"] == (1, 1)
        assert steps["convolutional"] == (1, 63)
        assert steps["restricted self-attention"] == (1, 32)

    def test_exponents_are_shown_next_to_the_papers(self, outcome: StudyResult) -> None:
        rows = {row[0]: row for row in outcome.tables[0].rows}
        assert rows["self-attention"][1:3] == ("n² · d", 2)
        assert rows["self-attention"][3] == pytest.approx(2.0)
        assert rows["convolutional"][6] == 2
        assert rows["convolutional"][7] == pytest.approx(2.0)
        assert rows["self-attention, whole layer"][1:3] == (None, None)

    def test_table_1_is_written_with_pictures(self, outcome: StudyResult, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        outcome.write(tmp_path)
        assert len(json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))["tables"]) == 5
        assert "n = d = 8" in (tmp_path / "time-n.svg").read_text(encoding="utf-8")
        assert (tmp_path / "time-d.svg").stat().st_size > 0

    def test_the_scale_sets_the_sizes_and_the_recipe_the_device(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = []
        monkeypatch.setattr(study, "measured", lambda sizes, device, _: asked.append((sizes.width, device)))
        study.table1(StudyPlan("paper", tmp_path, {"train": {"device": "cpu"}}, SilentReporter()))
        assert asked == [(512, CPU)]


def test_layers_take_turns_and_the_median_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[object] = []

    def seconds(times: Iterator[int], work: object, device: torch.device) -> float:
        turns.append(work)
        return [9.0, 1.0, 3.0, 2.0][next(times) // (2 * len(KINDS))]

    monkeypatch.setattr(study, "seconds", partial(seconds, count()))
    sizes = Sizes((2, 3), 4, (4,), 2, window=1, repeats=3)
    points = study.measure([(2, 4), (3, 4)], sizes, CPU, "lengths", SilentReporter())
    assert {point.seconds for point in points} == {2.0}
    once = 2 * len(KINDS)
    assert len(set(turns[:once])) == once
    assert turns == turns[:once] * 4
    assert points[0].flops == 2 * 2 * 2 * 2 * 4
