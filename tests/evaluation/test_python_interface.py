"""Python does what the commands do: evaluate, compare and doctor, with names or paths, one file or several."""

import json
import shutil
from pathlib import Path

import pytest
import toy

import heedful
from heedful.metrics import bleu, comparison


@pytest.fixture(autouse=True)
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few trials, which take no time."""
    monkeypatch.setattr(bleu, "_MAX_RESAMPLED_SENTENCES", 600)
    monkeypatch.setattr(comparison, "_MAX_SHUFFLED_SENTENCES", 600)


class RecordingReporter:
    """A reporter that records what it hears."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.works: set[str] = set()

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def progress(self, what: str, done: int, total: int) -> None:
        self.works.add(what)


def test_evaluate_returns_what_the_command_prints_and_stores_it(trained: Path, tmp_path: Path) -> None:
    run, source, reference = tmp_path / "run", trained / "test.en", trained / "test.de"
    shutil.copytree(trained / "run", run)
    found = heedful.evaluate(run, source, reference, search={"beam": 1})
    printed = toy.run(
        *("evaluate", trained / "run", "--source", source, "--reference", reference, "--json", "--beam", "1")
    )
    scores = json.loads(printed.out)["scores"]
    assert [(score.metric, score.value, score.signature) for score in found.scores] == [
        (score["metric"], score["value"], score["signature"]) for score in scores
    ]
    assert list(found.outputs) == toy.run("translate", run, "--input", source, "--beam", "1").lines
    stored = json.loads((run / "about.json").read_text(encoding="utf-8"))["scores"][str(source)]
    assert (stored["beam"], stored["scores"]) == (1, scores)


def test_evaluate_takes_names_and_several_references(trained: Path) -> None:
    heard, source, reference = RecordingReporter(), str(trained / "test.en"), str(trained / "test.de")
    found = heedful.evaluate(str(trained / "run"), source, [reference, reference], tokenize="none", reporter=heard)
    assert "nrefs:2" in found.scores[0].signature
    assert "tok:none" in found.scores[0].signature
    assert heard.works == {"translating"}


def test_an_ensemble_is_evaluated_but_not_stored(trained: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained / "run", tmp_path / "run"))
    before = (run / "about.json").read_bytes()
    assert heedful.evaluate(run, trained / "test.en", trained / "test.de", others=[trained / "run"]).scores
    assert (run / "about.json").read_bytes() == before


def test_an_unknown_search_key_is_named(trained: Path) -> None:
    with pytest.raises(heedful.ConfigError, match=r"unknown key: search\.bean; did you mean 'beam'"):
        heedful.evaluate(trained / "run", trained / "test.en", trained / "test.de", search={"bean": 2})


def test_compare_returns_what_the_command_prints(trained: Path, tmp_path: Path) -> None:
    source, reference = trained / "test.en", trained / "test.de"
    half = toy.write_lines(tmp_path / "half.de", [line[: len(line) // 2] for line in toy.lines_of(reference)])
    found = heedful.compare([trained / "run", str(half)], reference, source)
    printed = json.loads(
        toy.run("compare", trained / "run", half, "--source", source, "--reference", reference, "--json").out
    )
    assert list(found.names) == printed["names"] == ["run", "half.de"]
    assert [test.systems[1].difference for test in found.tests] == [
        test["systems"][1]["difference"] for test in printed["tests"]
    ]
    assert found.wins(1).worse == printed["wins"][0]["worse"] > 0
    assert "half.de" in heedful.comparison_page(found)


def test_compare_needs_two_systems(tmp_path: Path) -> None:
    with pytest.raises(heedful.ConfigError, match="give two or more systems to compare, not only x"):
        heedful.compare(["x"], tmp_path)
    with pytest.raises(heedful.ConfigError, match=r"give two or more systems to compare$"):
        heedful.compare([], tmp_path)


def test_doctor_takes_one_file_or_several(tmp_path: Path) -> None:
    first, second = (toy.write_lines(tmp_path / f"{n}.en", ["a b c", "d e f", ""]) for n in (1, 2))
    others = [toy.write_lines(tmp_path / f"{n}.de", ["x y z", "u v w", "t"]) for n in (1, 2)]
    one, both = heedful.doctor(first, str(others[0])), heedful.doctor([first, second], others)
    assert (one.pairs, both.pairs) == (3, 6)
    assert {finding.kind for finding in one.findings} == {"empty"}
    assert {finding.kind for finding in both.findings} == {"empty", "duplicate"}
    cleaned = heedful.clean_corpus([first, second], others, tmp_path / "clean", tests=[(first, others[0])])
    assert (cleaned.kept, cleaned.dropped) == (0, {"empty": 2, "overlap-pair": 4})
    assert [path.name for path in cleaned.files] == ["1.en", "2.en", "1.de", "2.de"]
