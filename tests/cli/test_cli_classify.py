"""`heedful train --labels`, `classify` and `evaluate`: from a file of labels to labels, scores and a picture."""

import json
from pathlib import Path
from xml.etree import ElementTree

import label_examples
import pytest
import torch
import toy

from heedful.metrics.label_scores import report_labels
from heedful.storage.checkpoint import Checkpoints
from heedful.storage.run_folder import RunFolder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    return label_examples.train_bert(folder, label_examples.write_labels(folder / "train.tsv"))


def test_training_says_what_it_chooses_and_how_well_it_finds_labels(tmp_path: Path) -> None:
    file = label_examples.write_labels(tmp_path / "train.tsv")
    with toy.plain_log():
        ran = toy.run("train", "--labels", file, "--out", tmp_path / "run", *label_examples.options())
    assert ran.code == 0, ran.err
    for part in (
        "classification: 3 labels of 300 texts, from Lob (",
        "held out: about 30 texts to validate on",
        "model: the moving average with the best macro F1",
        "validation loss",
        "macro F1",
        f'classify with: heedful classify {tmp_path / "run"} "..."',
    ):
        assert part in ran.err
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: text-classification" in card
    assert "- 3 labels: `Frage nach Geld`, `Lob`, `weg`" in card
    assert "- validation macro F1 of these weights:" in card


def test_a_line_has_label_probability_and_text(run: Path) -> None:
    ran = toy.run("classify", run, "hallo was kostet das", "schön")
    assert ran.code == 0, ran.err
    rows = [line.split("\t") for line in ran.out.splitlines()]
    assert [(row[0], row[2]) for row in rows] == [("Frage nach Geld", "hallo was kostet das"), ("Lob", "schön")]
    assert all(1 / 3 < float(row[1]) <= 1.0 for row in rows)


def test_texts_come_from_a_file_or_standard_input_too(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "texts"
    file.write_bytes("schön\nkündigen\n".encode())
    from_file, from_pipe = (
        toy.run("classify", run, "--file", file),
        toy.run("classify", run, stdin="schön\nkündigen\n".encode()),
    )
    assert from_file.code == from_pipe.code == 0, from_file.err + from_pipe.err
    assert from_file.out == from_pipe.out
    assert [line.split("\t")[0] for line in from_file.out.splitlines()] == ["Lob", "weg"]


def test_json_has_the_probabilities_of_all_labels(run: Path) -> None:
    ran = toy.run("classify", run, "schön", "--json")
    (found,) = map(json.loads, ran.out.splitlines())
    assert (found["index"], found["text"], found["label"]) == (0, "schön", "Lob")
    assert next(iter(found["probabilities"])) == "Lob"
    assert len(found["probabilities"]) == 3


def test_an_evaluation_has_scores_by_label_and_a_picture(run: Path, tmp_path: Path) -> None:
    test = label_examples.write_labels(tmp_path / "test.tsv", 50, seed=5)
    ran = toy.run("evaluate", run, "--labels", test, "--output", tmp_path / "found.txt")
    assert ran.code == 0, ran.err
    gold = [label for label, _ in label_examples.labelled(50, seed=5)]
    found = (tmp_path / "found.txt").read_text(encoding="utf-8").splitlines()
    names = sorted(set(gold))
    texts = [([names.index(right)], [names.index(ours)]) for right, ours in zip(gold, found, strict=True)]
    report = report_labels(texts, names)
    assert f"accuracy{report.scores[0].value:>9.2f}".split() == ran.out.splitlines()[1].split()[:2]
    for label in report.by_label:
        assert any(line.startswith(label.label) and line.endswith(str(label.count)) for line in ran.out.splitlines())
    picture = ElementTree.parse(run / "confusion.svg")
    titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    for row, right in enumerate(report.labels):
        for column, ours in enumerate(report.labels):
            assert f"{right} taken for {ours}: {report.confusion[row][column]}" in titles
    as_json = json.loads(toy.run("evaluate", run, "--source", test, "--json").out)
    assert as_json["confusion"] == [list(row) for row in report.confusion]
    assert "macro F1" in toy.run("info", run).out


def test_a_tagger_prints_words_with_tags(tmp_path: Path) -> None:
    file = label_examples.write_conllu(tmp_path / "train.conllu", 60)
    more = ("text.vocabulary_size=262", "train.max_steps=3")
    run = label_examples.train_bert(tmp_path, file, *more)
    ran = toy.run("classify", run, "the cat")
    assert ran.code == 0, ran.err
    assert [pair.split("/")[0] for pair in ran.out.split()] == ["the", "cat"]
    scored = toy.run("evaluate", run, "--source", file)
    assert scored.code == 0, scored.err
    assert "accuracy" in scored.out


def test_a_resumed_training_is_the_same_to_the_bit(tmp_path: Path) -> None:
    file = label_examples.write_labels(tmp_path / "train.tsv")
    settings = ("train.schedule=constant", "train.ema_decay=0.9", "train.validate_every=6", "train.save_every=6")
    for name, last in (("whole", 18), ("halves", 12)):
        options = label_examples.options(*settings, f"train.max_steps={last}")
        assert toy.run("train", "--labels", file, "--out", tmp_path / name, *options).code == 0
    assert toy.run("train", "--resume", tmp_path / "halves", "--set", "train.max_steps=18").code == 0
    whole, halves = RunFolder.open(tmp_path / "whole"), RunFolder.open(tmp_path / "halves")
    for kind, value in (("StepDone", "loss"), ("Validated", "score")):
        first, second = ([event[value] for event in run.read_events(kind)] for run in (whole, halves))
        assert first == second
    checkpoints = [Checkpoints(run.checkpoints, keep=0).load_model(18, "model.") for run in (whole, halves)]
    assert checkpoints[0].keys() == checkpoints[1].keys()
    assert all(torch.equal(weight, checkpoints[1][name]) for name, weight in checkpoints[0].items())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"ham\thello\nham\tyou\n", "every text has the label 'ham', so there is nothing to tell apart"),
        (b"ham\thello\nspam\tyou\n\tx\n", "line 3: the label is empty"),
        (b"ham hello\n", "line 1: no tab; a line must be label, tab, text"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "line 1: not UTF-8"),
        (b"", "is empty"),
        (b"\n\n", "the files hold no texts; give texts with at least two labels"),
    ],
)
def test_a_file_that_teaches_nothing_is_refused_in_one_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "bad.tsv"
    file.write_bytes(content)
    ran = toy.run("train", "--labels", file, "--out", tmp_path / "run")
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_label_that_only_validation_has_is_refused(tmp_path: Path) -> None:
    train, valid = label_examples.write_labels(tmp_path / "train.tsv", 60), tmp_path / "valid.tsv"
    valid.write_text("neu\tetwas\n", encoding="utf-8")
    ran = toy.run("train", "--labels", train, "--valid-labels", valid, "--out", tmp_path / "run")
    assert ran.code == 2
    assert "the validation texts have the label 'neu', which no training text has" in ran.err


def test_a_label_that_the_model_does_not_know_cannot_be_evaluated(run: Path, tmp_path: Path) -> None:
    test = tmp_path / "test.tsv"
    test.write_text("neu\tetwas\n", encoding="utf-8")
    ran = toy.run("evaluate", run, "--source", test)
    assert ran.code == 2
    assert "has the label 'neu', which the model does not know; it knows Frage nach Geld, Lob, weg" in ran.err


def test_a_file_without_texts_cannot_be_evaluated(run: Path, tmp_path: Path) -> None:
    test = tmp_path / "test.tsv"
    test.write_text("\n\n", encoding="utf-8")
    ran = toy.run("evaluate", run, "--labels", test)
    assert ran.code == 2
    assert "holds no labelled texts, so there is nothing to score" in ran.err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("translate {run} x", "is a model for classification, which cannot translate; use: heedful classify"),
        ("complete {run} x", "is a model for classification, which cannot continue a text"),
        ("classify en-de x", "is a model for translation, which knows no labels; train one with"),
        ("classify {run} x --file y", "--file y and texts on the command line; leave out one of them"),
        ("evaluate {run} --source x --labels y", "--source, --labels, --images and --captions all name the test set"),
        ("evaluate {run} --images x", "--images x is for a model that labels pictures, which"),
        ("evaluate en-de --labels x", "--labels x is for a model that labels texts, which en-de does not"),
        ("train --labels x --text y --out {run}/new", "text and labels are for different models"),
        ("train --valid-labels x --out {run}/new", "valid_labels needs labels"),
        ("train --labels nowhere --out {run}/new", "there is no file nowhere"),
    ],
)
def test_other_uses_are_refused(run: Path, command: str, message: str) -> None:
    ran = toy.run(*command.format(run=run).split())
    assert ran.code == 2
    assert message in ran.err
