"""Whole runs of tasks other than translation, from their own files to their own scores."""

import json
from pathlib import Path
from typing import Any

import pytest
import toy

from heedful.storage.run_folder import RunFolder
from heedful.tasks import find_task
from heedful.text.trees import read_tree

TREES = ["(S (NP-SBJ-1 (DT the) (NN cat)) (VP (VBZ sees) (NP (-NONE- *T*-1) (PRP me))) (. .))", "( (X (Y a)))"]
FILES: dict[str, list[str]] = {
    "parsing": TREES,
    "lexical-parsing": TREES,
    "pronunciation": ["READ  R EH D", "READ(1)  R IY D", "SEA  S IY", "DEAR  D IY R"],
    "characters": ["gehen\tging\tV;PST;3;SG", "a b\tb a", "sehen\tsah\tV;PST;3;SG"],
    "copy": ["a b c", "b a", "c"],
    "reverse": ["a b c", "b a", "c"],
}
METRICS = {
    "parsing": ["F1", "precision", "recall", "complete"],
    "lexical-parsing": ["F1", "precision", "recall", "complete"],
    "pronunciation": ["WER", "PER"],
    "characters": ["accuracy", "CER"],
    "copy": ["accuracy", "token"],
    "reverse": ["accuracy", "token"],
}
TEXTS = {
    "parsing": "the cat sees a (strange) dog .",
    "lexical-parsing": "the cat sees a (strange) dog .",
    "pronunciation": "READ",
    "characters": "gehen\tV;PST;3;SG",
    "copy": "a b c",
    "reverse": "a b c",
}
SCORE = {"parsing": "F1", "lexical-parsing": "F1"}


def trained(folder: Path, task: str, *more: str) -> Path:
    """A run of a few steps, from one file that holds both sides."""
    name = toy.write_lines(folder / "train", FILES[task] * 8)
    test = toy.write_lines(folder / "test", FILES[task])
    separate = ("text.vocabularies=separate", "model.sharing=target") if task == "parsing" else ()
    settings = toy.settings(
        *(f"task={task}", "train.max_steps=2", "train.batch_tokens=64", "train.warmup_steps=1", "data.hold_out=0"),
        *(f"data.valid_source={test}", f"data.test_source={test}", *separate, *more),
    )
    with toy.plain_log():
        ran = toy.run("train", "--source", name, "--out", folder / "run", *settings)
    assert ran.code == 0, ran.err
    return folder / "run"


@pytest.fixture(scope="module", params=list(FILES))
def task(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def run(task: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp(task), task)


def scores(*arguments: object) -> dict[str, Any]:
    ran = toy.run("evaluate", *arguments, "--json")
    assert ran.code == 0, ran.err
    return {score["metric"]: score["value"] for score in json.loads(ran.out)["scores"]}


def test_a_run_is_scored_by_the_metrics_of_its_task(task: str, run: Path) -> None:
    named = scores(run)  # on the test set that the run names
    assert [metric.partition(" ")[0] for metric in named][: len(METRICS[task])] == METRICS[task]
    assert named == scores(run, "--source", run.parent / "test")


def test_validation_names_its_score(task: str, run: Path) -> None:
    validated = toy.events(run, "Validated")[-1]
    assert validated["metric"] == SCORE.get(task, "accuracy")
    assert 0.0 <= validated["score"] <= 100.0


def test_validation_pairs_are_stored_as_people_write_them(task: str, run: Path) -> None:
    kept = json.loads((run / "data/valid.json").read_text())
    tree = ["the cat sees me .", "(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (PRP me))) (. .)))"]
    first = {
        "parsing": tree,
        "lexical-parsing": tree,
        "pronunciation": ["READ", "R EH D"],
        "characters": ["gehen\tV;PST;3;SG", "ging"],
        "copy": ["a b c", "a b c"],
        "reverse": ["a b c", "c b a"],
    }
    assert kept[0] == first[task]


def test_outputs_have_the_form_of_the_task(task: str, run: Path) -> None:
    ran = toy.run("translate", run, TEXTS[task])
    assert ran.code == 0, ran.err
    (line,) = ran.lines
    if find_task(task).writes_trees:
        assert read_tree(line).texts() == tuple(TEXTS[task].split())
    else:
        assert "  " not in line and "\t" not in line


def test_a_parser_that_writes_words_copies_those_of_the_sentence(tmp_path: Path) -> None:
    run = trained(tmp_path, "lexical-parsing", "text.kind=bpe", "text.vocabulary_size=284")
    text = "the (strange) dog sees ᐳ ."  # after two steps, a model knows nothing of trees
    ran = toy.run("translate", run, text, "--json", "--n-best", "3")
    assert ran.code == 0, ran.err
    for one in json.loads(ran.out)["alternatives"]:
        symbols = "".join(one["pieces"]).removesuffix("</s>").replace("▁", " ").split()
        assert [symbol for symbol in symbols if symbol == "ᐳ" or symbol[0] not in "ᐸᐳ"] == text.split()
        assert sorted(s[1:] for s in symbols if s[0] == "ᐸ") == sorted(s[1:] for s in symbols if s[0] == "ᐳ" and s[1:])


def test_heads_can_be_inspected(task: str, run: Path) -> None:
    page = run.parent / "page.html"
    ran = toy.run("heads", run, TEXTS[task], "--out", page)
    assert (ran.code, page.exists()) == (0, True), ran.err


def test_alignments_link_symbols_but_not_brackets(task: str, run: Path) -> None:
    ran = toy.run("translate", run, TEXTS[task], "--alignments")
    if find_task(task).writes_trees:
        assert (ran.code, "whose outputs do not come from single words" in ran.err) == (2, True)
    else:
        assert (ran.code, " ||| " in ran.out) == (0, True), ran.err


def test_the_reversing_task_is_learnt(tmp_path: Path) -> None:
    words = toy.write_lines(tmp_path / "words", toy.sentences(1500, seed=3))
    test = toy.write_lines(tmp_path / "test", toy.sentences(40, seed=4))
    process = toy.start(
        *("train", "--source", words, "--out", tmp_path / "run"),
        *toy.settings(
            *("task=reverse", f"data.test_source={test}", "model.d_model=32", "model.d_ff=64", "model.num_heads=4"),
            *("train.max_steps=400", "train.batch_tokens=384", "train.learning_rate=0.01", "train.warmup_steps=40"),
            *("train.validate_every=400", "train.save_every=400", "data.hold_out=30"),
        ),
    )
    _, err = process.communicate()
    assert process.returncode == 0, err.decode()
    assert scores(tmp_path / "run")["accuracy"] > 90.0


def test_files_may_be_given_as_patterns(tmp_path: Path) -> None:
    for number in range(12):
        toy.write_lines(tmp_path / f"part{number:02}", [f"A{number}  X{number}"])
    pattern = f'data.valid_source="{tmp_path}/part1?"'
    run = trained(tmp_path, "pronunciation", pattern, "data.test_source=[]")
    kept = json.loads((run / "data/valid.json").read_text())
    assert kept == [["A10", "X10"], ["A11", "X11"]]


def test_without_a_recipe_every_symbol_is_one_piece(tmp_path: Path) -> None:
    letters = [f"{first}{second}" for first in "AB" for second in "CDEFGH"]
    lines = [f"{word}  {word[0]}{number} {word[1]}0" for number, word in enumerate(letters)]
    source = toy.write_lines(tmp_path / "dict", lines * 4)
    steps = [part for one in ("task=pronunciation", "train.max_steps=1") for part in ("--set", one)]
    ran = toy.run("train", "--source", source, "--out", tmp_path / "run", *steps)
    assert "different symbols" in ran.err
    target = RunFolder.open(tmp_path / "run").tokenizers().target
    symbols = {symbol for line in lines for symbol in line.split("  ")[1].split()}
    for symbol in symbols:
        assert target.pieces(target.encode(symbol)) == [f"▁{symbol}", "</s>"]


def test_a_pattern_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    ran = toy.run("train", "--source", f"{tmp_path}/none*", "--set", "task=copy", "--out", tmp_path / "run")
    assert (ran.code, f"no file matches {tmp_path}/none*" in ran.err) == (2, True)


def test_a_translation_needs_both_sides_in_a_test(tmp_path: Path) -> None:
    source, target = toy.write_pairs(tmp_path, "train", 20, seed=1)
    out = tmp_path / "run"
    with toy.plain_log():
        toy.run("train", "--source", source, "--target", target, "--out", out, *toy.settings("train.max_steps=1"))
    ran = toy.run("evaluate", out, "--source", source)
    assert (ran.code, f"--source {source} needs --reference" in ran.err) == (2, True)
    ran = toy.run("evaluate", out, "--reference", target)
    assert (ran.code, f"--reference {target} needs --source" in ran.err) == (2, True)


def test_a_missing_test_set_is_reported_before_any_work(tmp_path: Path) -> None:
    words = toy.write_lines(tmp_path / "words", ["a b"] * 20)
    ran = toy.run(
        *("train", "--source", words, "--set", "task=copy", "--set", f"data.test_source={tmp_path}/gone"),
        *("--out", tmp_path / "run"),
    )
    assert (ran.code, f"there is no file {tmp_path}/gone" in ran.err) == (2, True)
    assert not (tmp_path / "run").exists()


def test_words_and_brackets_do_not_share_a_vocabulary(tmp_path: Path) -> None:
    trees = toy.write_lines(tmp_path / "trees", FILES["parsing"])
    ran = toy.run(
        *("train", "--source", trees, "--set", "task=parsing", "--set", "text.kind=bpe"),
        *("--set", "text.vocabularies=joint", "--out", tmp_path / "run"),
    )
    assert (ran.code, "have nothing in common" in ran.err) == (2, True)
