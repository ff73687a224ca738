"""Problems of labelled texts, by hand-made files that have one each."""

import json
from pathlib import Path

import label_examples
import pytest
import toy

from heedful import doctor_labels

GOOD = [f"{('ham', 'spam')[number % 2]}\ttext number {number}" for number in range(40)]


def found(path: Path, *lines: str) -> dict[str, tuple[int, tuple[int, ...], str]]:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return {one.kind: (one.count, one.lines, one.severity) for one in doctor_labels(path).findings}


def test_good_texts_have_no_problems(tmp_path: Path) -> None:
    assert found(tmp_path / "text", *GOOD) == {}
    diagnosis = doctor_labels(tmp_path / "text")
    assert (diagnosis.texts, diagnosis.words, diagnosis.labels) == (40, 120, (("ham", 20), ("spam", 20)))


@pytest.mark.parametrize(
    ("line", "kind", "severity"),
    [
        ("ham\tschÃ¶n", "mojibake", "warning"),
        ("ham\tlost \ufffd text", "replacement", "warning"),
        ("ham\ta\x07b", "control", "warning"),
        ("ham\t ", "empty", "warning"),
        ("ham\ttext number 2", "duplicate", "note"),
        ("ham\ttext number 1", "many-targets", "warning"),
    ],
)
def test_a_bad_text_is_named(tmp_path: Path, line: str, kind: str, severity: str) -> None:
    assert found(tmp_path / "text", *GOOD[:4], line, *GOOD[4:]) == {kind: (1, (5,), severity)}


def messages(path: Path, *lines: str) -> list[str]:
    found(path, *lines)
    return [one.message for one in doctor_labels(path).findings]


def test_labels_that_cannot_be_learnt_are_named(tmp_path: Path) -> None:
    path = tmp_path / "text"
    assert messages(path, *GOOD, "odd\tone") == ["odd has fewer than 10 examples, too few to learn"]
    twice = [*GOOD, *(f"Ham \tother {number}" for number in range(10))]
    assert messages(path, *twice) == ["Ham and ham have the same letters, so they may be one label written in two ways"]
    alone = [line for line in GOOD if line.startswith("ham")]
    assert messages(path, *alone) == ["ham has no other label beside it, so there is nothing to tell apart"]


def test_a_line_without_a_tab_is_an_error_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("ham\tx\nspam y\n", encoding="utf-8")
    ran = toy.run("doctor", "--labels", tmp_path / "text")
    assert ran.code == 1
    assert "line 2: no tab; a line must be label, tab, text" in ran.out


def test_the_command_counts_labels(tmp_path: Path) -> None:
    file = label_examples.write_conllu(tmp_path / "a.conllu", 50)
    ran = toy.run("doctor", "--labels", file, "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["texts"] == 50
    assert "50 texts" in toy.run("doctor", "--labels", file).out
    refused = toy.run("doctor", "--labels", file, "--text", file)
    assert refused.code == 2
    assert "--labels is examined alone" in refused.err
