"""`heedful explain`."""

import json
import signal
from pathlib import Path

import pytest
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
    assert {"positions", "scores", "encoder.1.attention.head.2", "encoder.1"} <= printed["without"].keys()
    assert {"reversed", "shuffled"} <= printed["orders"].keys()
    assert len(printed["training"]["loss"]) == len(printed["pieces"])
    assert printed["costs"]["output"]["operations"] > 0
    assert printed["steps"]["encoder.1.attention.scores"][0] == 2


def test_mistakes_are_one_sentence(trained: Path, tmp_path: Path) -> None:
    run = trained / "run"
    ran = toy.run("explain", run, "a", "--out", tmp_path / "a.png")
    assert (ran.code, ran.err) == (2, f"heedful: --out {tmp_path / 'a.png'} must end in .html, but ends in '.png'\n")
    ran = toy.run("explain", run, " ", "--out", tmp_path / "a.html")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "there is nothing to look at in an empty text; give a sentence" in ran.err
    ran = toy.run("explain", run, "a", "--set", "search.method=sample", "--out", tmp_path / "a.html")
    assert ran.code == 2
    assert "set search.method=beam and search.groups=1" in ran.err
    assert not (tmp_path / "a.html").exists()
    for line, message in (
        ([], "give a sentence to explain, or --serve"),
        (["a", "--port", "8000"], "--port goes with --serve; leave it out here"),
        (["--serve", "--json"], "--json goes with a sentence, not with --serve; leave one of them out"),
    ):
        ran = toy.run("explain", run, *line)
        assert (ran.code, ran.out, ran.err) == (2, "", f"heedful: {message}\n")


def test_serve_explains_other_sentences(trained: Path) -> None:
    httpx = pytest.importorskip("httpx", reason="needs httpx")
    first, second = toy.lines_of(trained / "test.en")[:2]
    server = toy.start("explain", trained / "run", first, "--serve")
    assert server.stderr
    url, *rest = server.stderr.readline().decode().split(" ", 1)
    assert (url.startswith("http://127.0.0.1:"), rest) == (True, ["explains every step; stop it with Ctrl-C\n"])
    try:
        page = httpx.get(url, timeout=60).text
        assert f"<title>{first} – explained</title>" in page
        assert "connect-src 'self'" in page
        asked = {"text": second, "translation": "ja"}
        answer = httpx.post(f"{url}explanations", json=asked, headers={"X-Heedful": "1"}, timeout=120).json()
        assert f"<title>{second} – explained</title>" in httpx.get(url.rstrip("/") + answer["page"], timeout=60).text
    finally:
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=30)
    assert (server.returncode, out, err) == (0, b"", b"")
