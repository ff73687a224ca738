"""The study of the descendants: its rows, its table, what is kept, and recipes that do not fit."""

import json
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import toy

from heedful.data.pictures import list_pictures
from heedful.errors import ConfigError, FolderError
from heedful.progress import SilentReporter
from heedful.storage.run_folder import RunFolder
from heedful.studies import synthetic
from heedful.studies.study import StudyInterrupted, StudyPlan
from heedful.studies.successors import DESCENDANTS, run_successors

TABLES = ("gpt", "bert-pretraining", "bert", "t5-pretraining", "t5", "vit")
SHORT = {"max_steps": 2, "warmup_steps": 1, "validate_every": 1, "save_every": 1}
TINY = {table: {"train": SHORT, "model": {"d_model": 16, "d_ff": 16, "num_heads": 2}} for table in TABLES}


def a_plan(folder: Path, **more: object) -> StudyPlan:
    return StudyPlan(**{"scale": "smoke", "folder": folder, "recipe": TINY, "report": SilentReporter(), **more})  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _no_pictures() -> Iterator[None]:
    with toy.plain_log():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study; it was stopped in the middle of its fifth row, and then went on."""
    path = tmp_path_factory.mktemp("successors")
    rows: list[str] = []

    def stop() -> str:
        rows[:] = [row.name for row in (path / "rows").glob("*/events.jsonl")]
        return "SIGTERM" if len(rows) == 5 else ""

    with toy.plain_log():
        with pytest.raises(StudyInterrupted, match="SIGTERM"):
            run_successors(a_plan(path, interrupted=stop))
        assert len(list((path / "rows").glob("*/about.json"))) == 5
        run_successors(a_plan(path)).write(path)
    return path


def test_every_model_has_a_row_with_both_scores(folder: Path) -> None:
    (table,) = json.loads((folder / "result.json").read_text(encoding="utf-8"))["tables"]
    assert [row["model"] for row in table["rows"]] == [each.title for each in DESCENDANTS]
    assert [row["measured"] for row in table["rows"]] == ["bits per character", "macro F1", "BLEU", "macro F1"]
    gpt, bert, *_ = table["rows"]
    for row, name, other in ((bert, "bert", "bert-from-nothing"),):
        scores = [RunFolder.open(folder / "rows" / each).validation() for each in (other, name)]
        assert [row["instead"], row["with it"]] == [score and score.score for score in scores]
    losses = [event["loss"] for event in toy.events(folder / "rows" / "gpt", "Validated")]
    assert gpt["with it"] == pytest.approx(min(losses) / np.log(2), rel=1e-4)
    assert "one training with one seed" in table["caveat"]


def test_rows_differ_only_in_what_is_compared(folder: Path) -> None:
    runs = {path.name: RunFolder.open(path).experiment() for path in (folder / "rows").iterdir() if path.is_dir()}
    assert runs["bert"].train.init.endswith("bert-pretraining")
    assert runs["t5"].train.init.endswith("t5-pretraining")
    for name, other in (("bert", "bert-from-nothing"), ("t5", "t5-from-nothing"), ("vit", "vit-one-patch")):
        assert runs[name].data == runs[other].data
        assert runs[name].train.max_steps == runs[other].train.max_steps
        assert runs[name].model.dropout == runs[other].model.dropout
    assert runs["vit-one-patch"].model.patch_size == runs["vit"].model.image_size
    assert (runs["gpt-lines"].model.norm, runs["gpt-lines"].model.positions) == ("post", "sinusoidal")


def test_the_lines_of_the_encoder_decoder_are_those_of_the_gpt(folder: Path) -> None:
    lines = {path.name: path.read_text(encoding="utf-8").split("\n") for path in (folder / "corpus/lines").iterdir()}
    assert lines["source"][1:] == [*lines["target"][:-2], ""]
    assert lines["train"][0] == lines["source"][0]
    assert lines["valid"][1] == lines["valid-target"][0]
    assert not set(lines["train"][-3:-1]) & set(lines["valid"][:2])


def test_finished_rows_are_kept_and_other_settings_refused(folder: Path) -> None:
    with mock.patch("heedful.studies.successors.train", side_effect=AssertionError):
        run_successors(a_plan(folder))
        other = {**TINY, "vit": {**TINY["vit"], "train": {**SHORT, "max_steps": 3}}}
        with pytest.raises(FolderError, match=r"rows/vit was trained with other settings"):
            run_successors(a_plan(folder, recipe=other))


def test_a_recipe_has_rows_for_the_models_that_it_names(tmp_path: Path) -> None:
    synthetic.write_shapes(tmp_path / "shapes", "train", 30, 1)
    recipe = {"vit": {**TINY["vit"], "data": {"images": str(tmp_path / "shapes")}}}
    (table,) = run_successors(a_plan(tmp_path / "study", scale="laptop", recipe=recipe)).tables
    assert [row[0] for row in table.rows] == ["ViT"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"recipe": {"vti": {}}}, "vti is none of gpt, .*; did you mean 'vit'"),
        ({"scale": "laptop", "recipe": None}, "needs a recipe that names data"),
        ({"scale": "paper"}, "has the scales smoke and laptop"),
        ({"scale": "laptop", "recipe": {"bert": {"train": SHORT}}}, r"bert.data.source names no file"),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused(tmp_path: Path, more: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        run_successors(a_plan(tmp_path / "study", **more))


def test_shapes_are_brighter_than_their_ground_and_somewhere_else_each_time(tmp_path: Path) -> None:
    synthetic.write_shapes(tmp_path, "train", 40, 1)
    found = list_pictures(tmp_path)
    bright = [np.argwhere(one.pixels > 160) for one in found if one.pixels is not None]
    assert {one.label for one in found} == {"0", "1", "2"}
    assert {len(places) for places in bright} == {13, 24}  # a cross and a saltire have 13 pixels, a ring has 24
    assert len({tuple(places.min(axis=0)) for places in bright}) > 20


def test_tags_are_those_of_the_words(tmp_path: Path) -> None:
    synthetic.write_tags(tmp_path / "tags", ["the big cat sees a ship", "a man hides"])
    lines = (tmp_path / "tags").read_text(encoding="utf-8").split("\n")
    assert lines[:3] == ["the\tarticle", "big\tadjective", "cat\tnoun"]
    assert lines[6] == ""
    assert lines[9:] == ["hides\tverb", ""]
