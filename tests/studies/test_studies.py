"""The studies of tables 2, 3 and 4: rows are trained, kept, resumed and compared with the paper's."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import toy

from heedful.config import PRESETS, Experiment, ModelConfig, load_recipe
from heedful.errors import ConfigError, FolderError, HeedfulError
from heedful.models.size import model_size
from heedful.progress import SilentReporter
from heedful.storage.run_folder import RunFolder
from heedful.studies import row_training as trained
from heedful.studies import table2, table3, table4, tuning
from heedful.studies.row_training import (
    FinishedRow,
    RowScores,
    TrainingCost,
    count_training_cost,
    read_validation_questions,
    score_row,
    train_row,
)
from heedful.studies.rows import CorpusFacts, TableRow, make_rival_row, make_row, select_rows
from heedful.studies.study import StudyInterrupted, StudyPlan
from heedful.studies.synthetic import trees, write_treebank
from heedful.tasks import Question, make_experiment
from heedful.text.trees import read_tree, write_tree
from heedful.training.prepare import resolve_files

ROOT = Path(__file__).resolve().parents[2]
SHORT = ("train.max_steps=4", "train.warmup_steps=2", "train.validate_every=4", "train.save_every=2")


@pytest.fixture(autouse=True)
def _no_pictures_of_every_row() -> Iterator[None]:
    with toy.plain_log():
        yield


def recipe(name: str) -> Experiment:
    return make_experiment(load_recipe(ROOT / "recipes" / f"{name}.toml"))


def tiny_row(folder: Path) -> TableRow:
    """An experiment of four steps on two dozen words."""
    folder.mkdir(exist_ok=True)
    files = [*toy.write_pairs(folder, "train", 40, 1), *toy.write_pairs(folder, "valid", 5, 2)]
    data = dict(zip(("source", "target", "valid_source", "valid_target"), map(str, files), strict=True))
    model = {"d_model": 16, "d_ff": 32, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.1}
    train = {"max_steps": 4, "batch_tokens": 64, "save_every": 1, "validate_every": 4, "threads": 1}
    text = {"kind": "words", "vocabulary_size": 400}
    experiment = make_experiment({"data": data, "text": text})
    return make_row("tiny", replace(experiment, data=resolve_files(experiment.data)), {"model": model, "train": train})


def a_plan(folder: Path, **more: Any) -> StudyPlan:
    return replace(StudyPlan("smoke", folder, None, SilentReporter()), **more)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[TableRow, StudyPlan, RunFolder]:
    """A trained row, which tests must not change."""
    folder = tmp_path_factory.mktemp("finished")
    one, plan = tiny_row(folder), a_plan(folder / "study")
    with toy.plain_log():
        return one, plan, train_row(one, plan)


Finished = tuple[TableRow, StudyPlan, RunFolder]


def studied(*arguments: object) -> toy.Ran:
    return toy.run("study", *arguments, *(part for setting in SHORT for part in ("--set", setting)))


# Rows


def test_a_row_that_was_interrupted_ends_with_the_same_bits(tmp_path: Path, finished: Finished) -> None:
    (one, _, whole), asked = finished, iter(["", "", "", "SIGTERM"])
    with pytest.raises(StudyInterrupted, match="stopped by SIGTERM"):
        train_row(one, a_plan(tmp_path, interrupted=lambda: next(asked)))
    halfway = toy.events(tmp_path / "rows/tiny", "StepDone")[-1]["step"]
    resumed = train_row(one, a_plan(tmp_path))
    assert 0 < halfway < 4
    assert toy.same_bits(toy.weights(resumed.path), toy.weights(whole.path))
    assert toy.same_bits(toy.last_checkpoint(resumed.path), toy.last_checkpoint(whole.path))


def test_a_finished_row_is_neither_trained_nor_scored_again(finished: Finished) -> None:
    one, plan, run = finished
    first = score_row(run, read_validation_questions(run), plan)
    with (
        mock.patch("heedful.training.run.start_run", side_effect=AssertionError),
        mock.patch("heedful.training.run.resume_run", side_effect=AssertionError),
        mock.patch("heedful.studies.row_training.evaluate_translator", side_effect=AssertionError),
    ):
        again = train_row(one, plan)
        assert score_row(again, read_validation_questions(again), plan) == first
    assert len(first.outputs) == 5
    assert first.perplexity == pytest.approx(toy.events(run.path, "Validated")[-1]["perplexity"], rel=1e-4)


def test_a_new_test_set_is_scored_again(finished: Finished) -> None:
    _, plan, run = finished
    asked = read_validation_questions(run)
    assert len(score_row(run, asked, plan).outputs) == 5
    assert len(score_row(run, asked[:3], plan).outputs) == 3


def test_a_row_with_different_settings_is_refused(finished: Finished) -> None:
    one, plan, _ = finished
    other = make_row("tiny", one.experiment, {"train": {"label_smoothing": 0.2}})
    with pytest.raises(FolderError, match=r"rows/tiny was trained with train.label_smoothing = 0.1, but now it is 0.2"):
        train_row(other, plan)
    with pytest.raises(FolderError, match="another --out, or remove that folder"):
        train_row(other, plan)


def test_a_row_does_not_depend_on_where_it_is_trained(finished: Finished) -> None:
    one, plan, run = finished
    assert train_row(make_row("tiny", one.experiment, {"train": {"threads": 2}}), plan).path == run.path


def test_training_flops_follow_the_number_of_tokens(finished: Finished) -> None:
    run = finished[2]
    took, steps = count_training_cost(run), toy.events(run.path, "StepDone")
    weights = sum(tensor.numel() for tensor in toy.weights(run.path).values())
    tokens = sum(step["tokens"] for step in steps)
    assert took.parameters == weights
    assert (
        2 * tokens * weights < took.flops < 6 * tokens * weights
    )  # six per weight and token, but each token uses only the weights of its side
    assert [flops for flops, _ in took.curve] == [pytest.approx(took.flops)]


class Launched:
    """Run the command in this process instead of starting several."""

    def __init__(self, command: list[str], code: int | None = None, **_: object) -> None:
        self.command = command
        self.returncode = toy.run(*command[command.index("heedful") + 1 :]).code if code is None else code

    def __enter__(self) -> "Launched":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def poll(self) -> int:
        return self.returncode


def test_several_processes_train_a_row_with_torchrun(tmp_path: Path) -> None:
    one, plan = tiny_row(tmp_path), a_plan(tmp_path / "study", processes=3)
    with mock.patch.object(subprocess, "Popen", side_effect=Launched) as popen:
        run = train_row(one, plan)
    command = popen.call_args.args[0]
    assert command[1:7] == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "-m"]
    assert run.experiment() == one.experiment
    assert "finished" in run.about()


def test_failing_processes_are_reported(tmp_path: Path) -> None:
    with (
        mock.patch.object(subprocess, "Popen", side_effect=lambda command, **_: Launched(command, 3)),
        pytest.raises(HeedfulError, match="the training of tiny ended with exit code 3"),
    ):
        train_row(tiny_row(tmp_path), a_plan(tmp_path / "study", processes=2))


def test_only_the_requested_rows_are_trained(tmp_path: Path) -> None:
    rows = [TableRow(name, Experiment()) for name in ("base", "A-h1", "big")]
    assert [one.name for one in select_rows(rows, a_plan(tmp_path, rows=("big", "base")))] == ["base", "big"]
    with pytest.raises(ConfigError, match="--rows A-h2: there is no such row; did you mean 'A-h1'"):
        select_rows(rows, a_plan(tmp_path, rows=("A-h2",)))


# Rows of the tables


@pytest.mark.parametrize("name", ["lstm", "gru", "bahdanau", "luong", "convs2s"])
def test_rivals_have_as_many_parameters_and_the_rest_of_the_recipe(name: str) -> None:
    ours, material = recipe("multi30k-de-en"), CorpusFacts(10_000, 10_000, None)
    theirs = make_rival_row(name, name, ours, material).experiment
    sizes = [model_size(one.model, 10_000, 10_000).total for one in (ours, theirs)]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.032)  # half the distance to the next width, which is 8 larger
    assert theirs.model.family == PRESETS[name]["model"]["family"]
    assert theirs.model.dropout == ours.model.dropout
    assert (theirs.data, theirs.text, theirs.search) == (ours.data, ours.text, ours.search)
    assert replace(theirs.train, learning_rate=ours.train.learning_rate) == ours.train


def test_a_rival_under_the_papers_schedule_gets_inverse_square_root() -> None:
    theirs = make_rival_row(
        "lstm", "lstm", recipe("paper-base-en-de"), CorpusFacts(37_000, 37_000, None)
    ).experiment.train
    assert (theirs.schedule, theirs.learning_rate, theirs.clip_norm) == ("inverse-sqrt", 0.002, 1.0)


def test_rows_of_table_3_at_paper_scale_are_the_papers() -> None:
    rows = list(table3.scaled_rows(recipe("paper-base-en-de"), Fraction(1)))
    assert len(rows) == 20
    for one in rows:
        preset = one.name if one.name in PRESETS else f"table3-{one.name}"
        paper = make_experiment({"model": {"preset": preset}})
        assert one.experiment.model == paper.model
        assert one.experiment.train.max_steps == paper.train.max_steps
        assert one.experiment.train.label_smoothing == paper.train.label_smoothing
        assert one.experiment.train.average_checkpoints == 1


def test_rows_of_table_3_scale_all_widths_by_one_factor() -> None:
    rows = {one.name: one.experiment for one in table3.scaled_rows(recipe("multi30k-de-en"), Fraction(1, 4))}
    models = {name: one.model for name, one in rows.items()}
    assert (models["base"].d_model, models["base"].d_ff, models["base"].num_heads) == (128, 512, 8)
    assert (models["big"].d_model, models["big"].d_ff, models["big"].num_heads) == (256, 1024, 16)
    assert (models["B-dk16"].d_k, models["B-dk32"].d_k, models["A-h32"].num_heads) == (4, 8, 32)
    assert (models["C-N8"].encoder_layers, models["C-d256"].d_model, models["C-ff4096"].d_ff) == (8, 64, 1024)
    assert rows["big"].train.max_steps == 3 * rows["base"].train.max_steps == 12_000
    assert rows["D-smoothing0"].train.label_smoothing == 0.0


@pytest.mark.parametrize(
    ("name", "given", "parameters"),
    [
        ("table2", "paper-base-en-de", {"transformer": 63_082_496, "transformer-big": 214_245_376}),
        ("table3", "paper-base-en-de", {"base": 63_082_496, "big": 214_245_376}),
        ("table4", "paper-parsing-wsj", {"transformer": 116_768_768}),
    ],
)
def test_a_dry_run_at_paper_scale_lists_every_row(
    tmp_path: Path, name: str, given: str, parameters: dict[str, int]
) -> None:
    paths = (ROOT / f"recipes/{given}.toml", "--scale", "paper", "--processes", "8", "--dry-run", "--json")
    ran = toy.run("study", name, *paths, "--out", tmp_path / "study")
    assert ran.code == 0, ran.err
    costs, commands = (table["rows"] for table in json.loads(ran.out)["tables"])
    found = {one["row"]: one for one in costs}
    assert parameters.items() <= {key: one["parameters"] for key, one in found.items()}.items()
    assert all(one["training FLOPs"] > 4 * one["tokens"] / 2 * one["parameters"] for one in costs)
    for one in commands:
        file, folder = tmp_path / f"study/recipes/{one['row']}.toml", tmp_path / f"study/rows/{one['row']}"
        launched = "torchrun --standalone --nproc-per-node 8 -m heedful train"
        assert one["command"] == f"{launched} {file} --out {folder}"
        experiment = make_experiment(load_recipe(file))
        assert experiment.train.max_steps == found[one["row"]]["steps"]
    assert not (tmp_path / "study/rows").exists()
    assert not (tmp_path / "study/README.md").exists()


def test_a_dry_run_counts_actual_lengths_if_the_text_is_there(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, recipe={"train": {"max_steps": 30}}, rows=("base", "C-N2"), dry_run=True)
    table = table3.table3(plan).tables[0]
    assert [one[0] for one in table.rows] == ["base", "C-N2"]
    assert "actual lengths of all 60 pairs" in table.notes[0]
    assert table.rows[0][4] > 2 * table.rows[1][4] > 0  # type: ignore[operator]


# Tables


def test_table_2_shows_the_papers_figures_and_is_written(tmp_path: Path) -> None:
    ran = studied("table2", "--rows", "transformer,gru", "--out", tmp_path / "study")
    assert ran.code == 0, ran.err
    quality, speed, by_length = json.loads((tmp_path / "study/result.json").read_text())["tables"]
    ours, gru = quality["rows"]
    assert (ours["its BLEU"], ours["its FLOPs"], ours["notebooks on Multi30k de-en"]) == (27.3, 3.3e18, 36.52)
    assert (gru["its BLEU"], gru["notebooks on Multi30k de-en"]) == (None, 20.6)
    assert ours["training FLOPs"] > 0 < ours["tokens/s"]
    assert speed["rows"][0]["Transformer / this at 32"] == 1.0
    assert sum(bucket["sentences"] for bucket in by_length["rows"]) == 40
    page = (tmp_path / "study/README.md").read_text()
    assert "| Transformer | " in page
    assert page.index("figures mean nothing") < page.index("| model |")
    assert "Training speed against sentence length" in ran.out
    assert {path.name for path in (tmp_path / "study").glob("*.svg")} == {"by-flops.svg", "speed.svg", "by-length.svg"}


def test_table_2_tunes_every_model_in_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {"transformer": 100.0, "gru": 150.0}

    def measure(models: Mapping[str, ModelConfig], lengths: Sequence[int], *_: object) -> dict[tuple[str, int], float]:
        return {(name, length): speeds[name] for name in models for length in lengths}

    for module in (table2, tuning):
        monkeypatch.setattr(module, "measure_training_speed", measure)
    arguments = ("table2", "--tune", "--rows", "transformer,gru", "--out", tmp_path / "study")
    steps = ("--set", "train.max_steps=12", "--set", "train.validate_every=6", "--set", "train.warmup_steps=2")
    ran = toy.run("study", *arguments, *steps)
    assert ran.code == 0, ran.err
    quality, *_, tuned = json.loads((tmp_path / "study/result.json").read_text())["tables"]
    assert "chosen on the validation set out of the same grid" in quality["notes"][1]
    grids = {name: [row for row in tuned["rows"] if row["model"] == name] for name in ("Transformer", "GRU")}
    of_one, of_other = ([(row["optimizer"], row["learning rate"]) for row in rows[:6]] for rows in grids.values())
    assert of_one == of_other
    assert len(set(of_one)) == 6
    for name, updates in (("transformer", 12), ("gru", 18)):  # the GRU is faster, so it has more updates
        *rates, low, middle, high = grids[table2._NAMES[name]]
        assert {row["updates"] for row in rates} == {2}
        assert [row["dropout"] for row in (low, middle, high)] == [0.2, 0.3, 0.4]
        best_rate = min(rates, key=lambda row: row["validation loss"])
        best = min((low, middle, high), key=lambda row: row["validation loss"])
        assert best_rate["lowest"] == best["lowest"] == "yes"
        trained = RunFolder(tmp_path / "study/rows" / name).experiment()
        assert (trained.train.optimizer, f"{trained.train.learning_rate:g}") == (
            best_rate["optimizer"], best_rate["learning rate"],
        )  # fmt: skip
        assert trained.model.dropout == best["dropout"]
        assert trained.train.max_steps == updates == 2 * best["updates"]
    speeds["gru"] = 300.0  # an interrupted study continues with the speeds it measured
    again = toy.run("study", *arguments, *steps)
    assert again.code == 0, again.err
    assert "gru: already trained" in again.err
    (tmp_path / "study/tuning/speeds.json").write_text('{"gru": 1.0}')
    damaged = toy.run("study", *arguments, *steps)
    assert damaged.code == 2
    assert "does not have the speed of all rows" in damaged.err


def test_table_3_shows_the_papers_figures(tmp_path: Path) -> None:
    ran = studied("table3", "--rows", "A-h32", "--out", tmp_path / "study", "--json")
    assert ran.code == 0, ran.err
    (ours,) = json.loads(ran.out)["tables"][0]["rows"]
    assert (ours["row"], ours["the paper's PPL"], ours["its BLEU"]) == ("A-h32", 5.01, 25.4)
    assert 1.0 < ours["PPL"] < 1000.0
    assert ours["parameters"] == sum(t.numel() for t in toy.weights(tmp_path / "study/rows/A-h32").values())


def test_table_4_has_only_valid_trees(tmp_path: Path) -> None:
    ran = studied("table4", "--rows", "lstm", "--out", tmp_path / "study", "--json")
    assert ran.code == 0, ran.err
    ours, paper = json.loads(ran.out)["tables"]
    assert ours["rows"][0]["valid trees"] == "40 of 40"
    assert ours["rows"][0]["the paper's F1, WSJ only"] == 88.3
    assert 0.0 <= ours["rows"][0]["F1"] <= 100.0
    assert len(paper["rows"]) == 12


def test_only_a_tree_over_the_same_words_is_valid() -> None:
    asked = [Question("a dog sees", ("",))] * 4
    outputs = ["(TOP (S (XX a) (XX dog) (XX sees)))", "(TOP (S (XX a) (XX dog)))", "(TOP (XX a)", ""]
    assert table4.valid_trees(outputs, asked) == 1


def test_bleu_by_length_uses_the_sentences_of_that_length() -> None:
    asked = [Question("a b", ("u v w x",)), Question("a b c d e f g", ("u v w x",)), Question("a b c", ("u v w x",))]
    scored = RowScores(("u v w x", "z", "u v w x"), (), None)
    done = FinishedRow(
        TableRow("gru", recipe("multi30k-de-en")), RunFolder(Path()), scored, TrainingCost(0, 0.0, 0.0, ())
    )
    table = table2._by_length([done], asked)
    assert [one[:3] for one in table.rows] == [("up to 5", 2, 2.5), ("6 to 10", 1, 7.0)]
    assert table.rows[0][3] == pytest.approx(100.0)
    assert table.rows[1][3] == 0.0


# Synthetic trees


def test_synthetic_trees_are_reproducible_with_3_to_12_words() -> None:
    found = trees(50, 1)
    assert found == trees(50, 1) != trees(50, 2)
    assert {len(tree.texts()) for tree in found} <= set(range(3, 13))
    assert [read_tree(write_tree(tree)) for tree in found] == found


def test_the_preposition_decides_what_a_phrase_belongs_to() -> None:
    below: dict[str, set[str]] = {}
    for tree in trees(200, 3):
        stack = [tree]
        while stack:
            node = stack.pop()
            phrases = [child for child in node.children if not hasattr(child, "text")]
            stack += phrases
            for phrase in phrases:
                if getattr(phrase, "label", "") == "PP":
                    below.setdefault(phrase.texts()[0], set()).add(node.label)
    assert below == {"near": {"VP"}, "under": {"VP"}, "with": {"NP"}, "of": {"NP"}}


def test_a_treebank_has_the_requested_sizes(tmp_path: Path) -> None:
    write_treebank(tmp_path, (5, 3, 2))
    assert [len(toy.lines_of(tmp_path / f"{name}.mrg")) for name in ("train", "valid", "test")] == [5, 3, 2]


# The command


@contextmanager
def a_signal(name: str, after: int) -> Iterator[Any]:
    left = iter([""] * after)
    yield lambda: next(left, name)


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 75)])
def test_a_signal_stops_a_study_as_it_stops_a_training(tmp_path: Path, name: str, code: int) -> None:
    with mock.patch("heedful.cli.study.signals", lambda: a_signal(name, 3)):
        ran = studied("table3", "--rows", "C-N2", "--out", tmp_path / "study")
    assert ran.code == code
    assert f"stopped by {name}; finished rows are kept, and the same command continues from there" in ran.err
    assert not (tmp_path / "study/result.json").exists()
    ran = studied("table3", "--rows", "C-N2", "--out", tmp_path / "study")
    assert ran.code == 0
    assert "resuming at step" in ran.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("tabel2",), "unknown study: tabel2; did you mean 'table2'?"),
        (
            ("nonsense",),
            "unknown study: nonsense; there are table1, table2, table3, table4, figures, ablations, successors, all",
        ),
        (("table2", "--scale", "laptpo"), "--scale must be one of smoke, laptop, paper, but is laptpo; did you mean"),
        (("table2", "--scale", "laptop"), "study table2 --scale laptop needs a recipe"),
        (
            ("table3", "--seeds", "3"),
            "--seeds is for ablations, which judges small differences; leave it out for table3",
        ),
        (("table3", "--tune"), "--tune is for table2, which compares models; leave it out for table3"),
        (("table4", "--scale", "paper"), "such as recipes/paper-parsing-wsj.toml"),
        (("table1", "--dry-run"), "--rows, --processes and --dry-run are for table2, table3, table4"),
        (("all", "--rows", "base"), "leave them out for all"),
        (("table4", ROOT / "recipes/paper-base-en-de.toml", "--scale", "paper", "--dry-run"), "task is 'translation'"),
        (
            ("table3", ROOT / "recipes/cmudict.toml", "--scale", "laptop"),
            "but task is 'pronunciation'",
        ),
        (
            ("parts", ROOT / "recipes/cmudict.toml", "--scale", "laptop"),
            "but task is 'pronunciation'",
        ),
        (("table2", "--set", "model.preset=gru"), "needs a Transformer, but model.family is 'recurrent'"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, arguments: tuple[object, ...], sentence: str) -> None:
    ran = toy.run("study", *arguments, "--out", tmp_path / "study")
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("name", ["table2", "parts"])
def test_a_folder_with_the_users_files_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/train.en").write_text("mine\n")
    ran = toy.run("study", name, "--out", tmp_path)
    assert ran.code == 2
    assert "contains files that do not belong to a study; choose another --out" in ran.err
    assert (tmp_path / "data/train.en").read_text() == "mine\n"


def test_a_missing_test_set_is_reported_before_training(tmp_path: Path) -> None:
    ran = studied("table2", "--set", "data.test_source=[]", "--set", "data.test_target=[]", "--out", tmp_path / "study")
    assert ran.code == 2
    assert "study table2 needs a test set, but the recipe names none; set data.test_source" in ran.err
    assert not (tmp_path / "study/rows").exists()


def test_all_runs_the_studies_one_after_another(tmp_path: Path) -> None:
    with mock.patch("heedful.cli.study._run", return_value=0) as run:
        assert toy.run("study", "all", "--out", tmp_path).code == 0
    assert [call.args[0] for call in run.call_args_list] == [
        "table1",
        "table2",
        "table3",
        "table4",
        "figures",
        "ablations",
        "successors",
    ]
    assert [call.args[1].folder.name for call in run.call_args_list] == [call.args[0] for call in run.call_args_list]


def test_the_command_of_an_unfinished_row_resumes_it(tmp_path: Path, finished: Finished) -> None:
    one, plan, run = finished
    assert trained.command(one, plan) == f"heedful train --resume {run.path}"
    new = f"heedful train {tmp_path}/recipes/tiny.toml --out {tmp_path}/rows/tiny"
    assert trained.command(one, a_plan(tmp_path)) == new
