"""`heedful explain`."""

import json
from pathlib import Path

import toy


def test_it_writes_a_page_and_prints_the_translation(trained: Path, tmp_path: Path) -> None:
    text = toy.lines_of(trained / "test.en")[0]
    ran = toy.run("explain", trained / "run", text, "--out", tmp_path / "a.html")
    translated = toy.run("translate", trained / "run", text)
    assert (ran.code, ran.out) == (0, translated.out)
    assert ran.err.endswith(f"{tmp_path / 'a.html'} explains every step; open it in a browser\n")
    assert (tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_given_translation_is_explained_and_json_has_every_experiment(trained: Path, tmp_path: Path) -> None:
    text, other = toy.lines_of(trained / "test.en")[0], toy.lines_of(trained / "test.de")[1]
    ran = toy.run("explain", trained / "run", text, "--target", other, "--json", "--out", tmp_path / "a.html")
    printed = json.loads(ran.out)
    assert (ran.code, printed["text"], printed["out"]) == (0, other, str(tmp_path / "a.html"))
    assert {"positions", "scores", "encoder.1.attention.head.2", "reversed"} <= printed["without"].keys()
    assert printed["steps"]["encoder.1.attention.scores"][0] == 2


def test_mistakes_are_one_sentence(trained: Path, tmp_path: Path) -> None:
    run = trained / "run"
    ran = toy.run("explain", run, "a", "--out", tmp_path / "a.png")
    assert (ran.code, ran.err) == (2, f"heedful: --out {tmp_path / 'a.png'} must end in .html, but ends in '.png'\n")
    ran = toy.run("explain", run, " ", "--out", tmp_path / "a.html")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "there is nothing to explain in an empty text; give a sentence" in ran.err
    ran = toy.run("explain", run, "a", "--set", "search.method=sample", "--out", tmp_path / "a.html")
    assert ran.code == 2
    assert "set search.method=beam and search.groups=1" in ran.err
    assert not (tmp_path / "a.html").exists()
