"""The table of labelled outputs, and the errors of a threshold."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from confidence import SOURCES, Output, choose_threshold, keep_labels, rate, read_table, write_table

from heedful.storage.model_names import BUILT_IN
from heedful.storage.run_folder import RunFolder

OUTPUTS = [
    Output("en-de", "word", "dog", "Hund", 0.8, "good"),
    Output("en-de", "word", "knee", "Knie", 0.5, "good"),
    Output("en-de", "news", "a b", "x y", 0.6, "nonsense"),
    Output("en-de", "news", "c d", "z", 0.3, "nonsense"),
    Output("en-de", "news", "e f", "w", 0.2, "fair"),
]


def test_there_are_two_hundred_different_texts_of_six_kinds() -> None:
    with SOURCES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len({row["text"] for row in rows}) == len(rows) == 200
    assert {row["kind"] for row in rows} == {"everyday", "software", "news", "word", "gibberish", "other language"}


def test_the_rates_count_both_errors_and_fair_outputs_are_no_error() -> None:
    found = rate(OUTPUTS, 0.55)
    assert (found.unmarked_nonsense, found.marked_good, found.marked) == (50, 50, 60)
    assert rate(OUTPUTS, 0.4).mean == 25
    assert rate(OUTPUTS[:2], 0.9).unmarked_nonsense == 0


def test_the_threshold_has_the_fewest_errors() -> None:
    least = rate(OUTPUTS, choose_threshold(OUTPUTS)).mean
    assert least == min(rate(OUTPUTS, step / 100).mean for step in range(10, 91))
    assert choose_threshold(OUTPUTS) == pytest.approx(0.32)


def test_the_built_in_models_have_the_thresholds_of_their_labels() -> None:
    table = read_table(SOURCES.with_name("confidence_labels.tsv"))
    for model in ("en-de", "en-fr", "en-es"):
        own = [one for one in table if one.model == model]
        assert len(own) == 200
        assert all(one.label for one in own)
        chosen = RunFolder.open(BUILT_IN / model).experiment().search.low_confidence
        assert chosen == pytest.approx(choose_threshold(own))


def test_labels_are_kept_for_the_same_outputs_only(tmp_path: Path) -> None:
    path = tmp_path / "labels.tsv"
    write_table(path, OUTPUTS)
    assert read_table(path) == OUTPUTS
    new = [replace(OUTPUTS[0], confidence=0.7, label=""), replace(OUTPUTS[1], output="Bein", label="")]
    other = replace(OUTPUTS[2], model="en-fr")
    table = keep_labels([*read_table(path), other], new)
    assert [(one.model, one.output, one.label) for one in table] == [
        ("en-fr", "x y", "nonsense"),
        ("en-de", "Hund", "good"),
        ("en-de", "Bein", ""),
    ]


def test_an_unknown_label_is_named(tmp_path: Path) -> None:
    path = tmp_path / "labels.tsv"
    write_table(path, [replace(OUTPUTS[0], label="god")])
    with pytest.raises(SystemExit, match="line 2: 'god' is no label; write good, fair, nonsense"):
        read_table(path)
