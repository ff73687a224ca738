"""The figures study: its numbers equal formulas and plain loops, and its pictures are SVG."""

import math
from collections.abc import Callable
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import numpy as np
import pytest
import toy

from heedful.attention.head_names import Head
from heedful.config import merge
from heedful.errors import ConfigError
from heedful.inspection.paper_figures import FIGURES, FigureLinks, Link
from heedful.progress import SilentReporter
from heedful.storage.run_folder import RunFolder
from heedful.studies import figures
from heedful.studies.figures import FigureTable
from heedful.studies.study import Scale, StudyPlan, StudyResult, Table
from heedful.studies.synthetic import comes_from, pairs

LENGTHS, WINDOW = (7, 5, 3), 2


def column(table: Table, name: str) -> list[object]:
    return [row[table.columns.index(name)] for row in table.rows]


def plan(folder: Path, scale: Scale = "smoke", recipe: dict[str, object] | None = None) -> StudyPlan:
    return StudyPlan(scale, folder, recipe, SilentReporter())


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyPlan, StudyResult]:
    """The whole study, with a training of a few steps."""
    smoke = plan(tmp_path_factory.mktemp("figures"))
    few = {"train": {"max_steps": 2, "validate_every": 2, "save_every": 2}, "search": {"beam": 1, "max_extra": 1}}
    recipe = merge(figures._small_recipe(smoke), few)
    with (
        toy.plain_log(),
        mock.patch.object(figures, "_small_recipe", return_value=recipe),
        mock.patch.object(figures, "_SIZES", (800, 5, 6)),
    ):
        return smoke, figures.draw_figures(smoke)


def test_all_pictures_are_svg(outcome: tuple[StudyPlan, StudyResult]) -> None:
    _, found = outcome
    assert list(found.pictures) == ["masks.svg", "positions.svg", "schedule.svg", "smoothing.svg", "heads.svg"]
    for picture in found.pictures.values():
        assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"


def allowed(rule: Callable[[int, int], bool]) -> int:
    """Count the pairs that the rule allows, one by one."""
    return sum(rule(i, j) for length in LENGTHS for i in range(length) for j in range(length))


def test_masks_match_their_definitions_and_the_model_obeys_them() -> None:
    table = figures.show_masks().table
    assert column(table, "allowed pairs") == [
        allowed(lambda i, j: True),
        allowed(lambda i, j: j <= i),
        allowed(lambda i, j: abs(i - j) <= WINDOW),
        allowed(lambda i, j: 0 <= i - j <= WINDOW),
    ]
    assert set(column(table, "of")) == {sum(LENGTHS) * max(LENGTHS)}
    assert set(column(table, "largest weight elsewhere")) == {0.0}


def test_a_model_that_attends_past_a_mask_is_detected() -> None:
    import torch

    least = torch.eye(max(LENGTHS), dtype=torch.bool).expand(len(LENGTHS), -1, -1)
    assert figures._seen("decoder", 0, least)[2] > 0.1


def test_the_pictures_of_masks_show_the_masks() -> None:
    with mock.patch.object(figures, "heat_maps") as drawn:
        figures.show_masks().pictures["masks.svg"]()
    maps = {field.title: field.values for field in drawn.call_args.args[1]}
    for i, j in np.ndindex(7, 7):
        assert maps["padding, a sentence of 3"][i, j] == (j < 3)
        assert maps["look-ahead, decoder"][i, j] == (j <= i)
        assert maps["window of 2, encoder"][i, j] == (abs(i - j) <= WINDOW)
        assert maps["window of 2, decoder"][i, j] == (0 <= i - j <= WINDOW)


def test_dot_products_of_positions_depend_only_on_their_distance() -> None:
    for distance, product, formula, deviation in figures.show_positions().table.rows:
        assert isinstance(distance, int)
        by_hand = math.fsum(math.cos(distance / 10_000 ** (2 * i / 512)) for i in range(256))
        assert product == pytest.approx(by_hand, abs=1e-5)
        assert formula == pytest.approx(by_hand, abs=1e-9)
        assert isinstance(deviation, float)
        assert 0.0 < deviation < 1e-5


def test_the_deviation_compares_products_at_the_same_distance() -> None:
    assert figures._deviation(np.array([[5.0, 2.0], [2.0, 4.5]])) == 0.5


def test_the_rate_is_highest_at_the_end_of_the_warm_up() -> None:
    table = figures.show_schedules().table
    assert [row[:3] for row in table.rows] == [
        (512, 4000, 4000),
        (512, 8000, 8000),
        (256, 4000, 4000),
        (1024, 4000, 4000),
    ]
    peaks = [6.98771e-4, 4.94106e-4, 9.88212e-4, 4.94106e-4]
    assert column(table, "peak") == pytest.approx(peaks, rel=1e-5)
    assert column(table, "(d_model x warm-up)^-0.5") == pytest.approx(peaks, rel=1e-5)


@pytest.fixture(scope="module")
def smoothings() -> FigureTable:
    return figures.show_smoothings()


@pytest.mark.parametrize(("row", "smoothing"), [(0, 0.0), (1, 0.1), (2, 0.2)])
def test_a_smoothed_loss_is_lowest_where_the_model_equals_its_target(
    smoothings: FigureTable, row: int, smoothing: float
) -> None:
    other = smoothing / 36_999

    def loss(right: float) -> float:
        wrong = (1 - right) / 36_999
        return -(1 - smoothing) * math.log(right) - (smoothing * math.log(wrong) if smoothing else 0.0)

    least = min(0.995, 1 - smoothing)
    name, right, wrong, where, value, last = smoothings.table.rows[row]
    assert (name, where) == (f"{smoothing:g}", f"{least:g}")
    assert right == pytest.approx(1 - smoothing, abs=1e-9)
    assert wrong == pytest.approx(other, abs=1e-12)
    assert value == pytest.approx(loss(least), abs=1e-9)
    assert last == pytest.approx(loss(0.995), abs=1e-9)


def test_the_small_language_knows_its_word_translations() -> None:
    for pair in pairs(20, 5):
        english, invented = pair.source.split(), pair.target.split()
        meant = {word for word in english for other in invented if comes_from(other, word)}
        assert meant == set(english) - {"the", "a"}


def test_heads_are_measured_on_the_correct_words(outcome: tuple[StudyPlan, StudyResult]) -> None:
    """Every word is one piece, so rows of attention correspond to words."""
    smoke, found = outcome
    tokenizers = RunFolder(smoke.folder / "rows" / "heads").tokenizers()
    for pair in pairs(6, 2, (1,)):
        assert len(tokenizers.source.encode(pair.source)) == len(pair.source.split()) + 1
        assert len(tokenizers.target.encode(pair.target)) == len(pair.target.split()) + 1
    table = found.tables[-1]
    assert column(table, "head") == [f"cross.{layer}.{head}" for layer in (1, 2) for head in (1, 2, 3, 4)]
    chances = column(table, "by chance %")
    for share, chance in zip(column(table, "on the right word %"), chances, strict=True):
        assert isinstance(share, float)
        assert isinstance(chance, float)
        assert 0.3 * chance < share < 3 * chance  # it has learnt nothing in two steps


def test_the_papers_sentences_have_a_picture_and_their_strongest_heads() -> None:
    look = mock.Mock(inside=[mock.Mock(attention="weights")])
    links = tuple(Link(Head("encoder", 4, index), 0.5 - index / 10) for index in range(4))
    found = [FigureLinks(figure, look, links, 0.0625) for figure in FIGURES]
    with (
        mock.patch.object(figures, "find_figures", return_value=found),
        mock.patch.object(figures, "draw_attention", return_value=b"<svg/>") as drawn,
    ):
        table, pictures = figures.show_paper_sentences(mock.Mock(run="runs/en-de"))
    assert list(pictures) == ["figure-3.svg", "figures-4-5.svg"]
    assert drawn.call_args.args[0] == "weights"
    assert table.rows[:2] == (
        ("figure-3", "making", "more difficult", "encoder.5.1", 50.0, 6.25),
        ("figure-3", "making", "more difficult", "encoder.5.2", 40.0, 6.25),
    )
    assert column(table, "from") == ["making"] * 3 + ["its"] * 3
    assert table.notes == ("To see them on pages, type: heedful heads runs/en-de --paper FOLDER",)


def test_a_larger_scale_needs_a_recipe_from_english(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="study figures --scale laptop needs a recipe"):
        figures.show_heads(plan(tmp_path, "laptop"))
    recipe: dict[str, object] = {"data": {"source": "a.de", "target": "a.en"}}
    with pytest.raises(ConfigError, match="are English, but the recipe translates from 'de'"):
        figures.show_heads(plan(tmp_path, "laptop", recipe))
