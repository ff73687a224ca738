"""The commands that look at text and models, and the program's help."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import toy

from heedful.config import PRESETS
from heedful.models.size import model_size
from heedful.tasks import make_experiment

# The doctor


def test_the_doctor_finds_nothing_in_sound_text(tmp_path: Path) -> None:
    source = toy.write_lines(tmp_path / "a.en", ["a dog runs over the field", "the house is red"])
    target = toy.write_lines(tmp_path / "a.de", ["ein Hund läuft über das Feld", "das Haus ist rot"])
    ran = toy.run("doctor", "--source", source, "--target", target)
    assert (ran.code, ran.lines) == (0, ["2 pairs, 10 source and 10 target words", "no problems found"])


@pytest.fixture
def sick(tmp_path: Path) -> tuple[Path, Path]:
    """Line 2 is not UTF-8, line 4 is empty, and line 5 is line 1 again."""
    source = [b"a dog runs", b"the \xff is red", b"we sing", b"", b"a dog runs"]
    target = ["ein Hund läuft", "das Haus ist rot", "wir singen", "nichts", "ein Hund läuft"]
    (tmp_path / "a.en").write_bytes(b"".join(line + b"\n" for line in source))
    return tmp_path / "a.en", toy.write_lines(tmp_path / "a.de", target)


def test_the_doctor_names_lines_and_fails_on_errors(sick: tuple[Path, Path]) -> None:
    ran = toy.run("doctor", "--source", sick[0], "--target", sick[1])
    assert ran.code == 1
    assert "error: 1 of 5 pairs holds bytes that are not UTF-8 (line 2)" in ran.lines
    assert "warning: 1 of 5 pairs has an empty side (line 4)" in ran.lines
    assert "warning: 1 of 5 pairs repeats an earlier pair (line 5)" in ran.lines


def test_the_doctor_cleans_on_request(sick: tuple[Path, Path], tmp_path: Path) -> None:
    clean = tmp_path / "clean"
    ran = toy.run("doctor", "--source", sick[0], "--target", sick[1], "--clean", clean)
    assert f"cleaned copies are in {clean}: 2 of 5 pairs, 0 of them tidied; dropped: 1 " in ran.out
    again = toy.run("doctor", "--source", sick[0], "--target", sick[1], "--clean", tmp_path / "again", "--json")
    assert json.loads(again.out)["cleaned"]["files"] == [str(tmp_path / "again" / name) for name in ("a.en", "a.de")]
    assert toy.lines_of(clean / "a.en") == ["a dog runs", "we sing"]
    assert toy.lines_of(clean / "a.de") == ["ein Hund läuft", "wir singen"]
    assert toy.run("doctor", "--source", clean / "a.en", "--target", clean / "a.de").code == 0


def test_the_doctor_speaks_json_and_knows_test_sets(sick: tuple[Path, Path], tmp_path: Path) -> None:
    source = toy.write_lines(tmp_path / "test.en", ["we sing"])
    target = toy.write_lines(tmp_path / "test.de", ["wir singen"])
    ran = toy.run("doctor", "--source", sick[0], "--target", sick[1], "--test", source, target, "--json")
    found: dict[str, Any] = json.loads(ran.out)
    assert (ran.code, found["pairs"]) == (1, 5)
    by_kind = {finding["kind"]: finding for finding in found["findings"]}
    assert by_kind["encoding"]["lines"] == [2]
    assert by_kind["overlap-pair"]["lines"] == [3]


# Information


def test_a_run_tells_what_it_is(trained: Path) -> None:
    facts = json.loads(toy.run("info", trained / "run", "--json").out)
    assert facts["parameters"]["total"] == sum(tensor.numel() for tensor in toy.weights(trained / "run").values())
    assert facts["vocabulary"] == {"kind": "words", "joint": True, "source": 298, "target": 298}
    assert (facts["steps"], facts["weights"]) == (350, "best validation, step 350")
    assert [point["step"] for point in facts["curve"]] == [175, 350]
    assert facts["data"]["source_language"] == "en"
    page = toy.run("info", trained / "run").out
    assert f"total: {facts['parameters']['total']:,}" in page
    assert "validation loss  █▁" in page
    assert "differences from the paper's base model" in page


@pytest.mark.parametrize("name", ["paper", "base", "big", "table3-E-learned", "modern"])
def test_a_preset_tells_its_exact_size(name: str) -> None:
    facts = json.loads(toy.run("info", "--preset", name, "--vocabulary", "500", "--json").out)
    assert (
        facts["parameters"]["total"] == model_size(make_experiment({"model": {"preset": name}}).model, 500, 500).total
    )
    changed = PRESETS[name]
    told = {key: change["here"] for key, change in facts["differences_from_paper"].items()}
    assert told == {f"{table}.{key}": value for table, values in changed.items() for key, value in values.items()}


def test_the_sizes_of_base_and_big_are_the_papers() -> None:
    """Table 3 gives 65 and 213 million, with a vocabulary of about 37 000."""
    base, big = (
        json.loads(toy.run("info", "--preset", name, "--json").out)["parameters"]["total"] for name in ("base", "big")
    )
    # By hand from section 3, with all biases: V d + 6 (4 a + 2 n + f) + 6 (8 a + 3 n + f), a = d d + d, n = 2 d.
    for total, d, d_ff in ((base, 512, 2048), (big, 1024, 4096)):
        a, n, f = d * d + d, 2 * d, 2 * d * d_ff + d_ff + d
        assert total == 37_000 * d + 6 * (4 * a + 2 * n + f) + 6 * (8 * a + 3 * n + f)
    assert math.isclose(base, 65e6, rel_tol=0.04)
    assert math.isclose(big, 213e6, rel_tol=0.01)


def test_the_page_of_modern_shows_what_it_changes() -> None:
    page = toy.run("info", "--preset", "modern").out
    for row in (["model.norm", "post", "pre"], ["train.schedule", "paper", "cosine"], ["train.ema_decay", "0.0"]):
        assert any(line.split()[: len(row)] == row for line in page.splitlines()), row
    assert "no difference from the paper's base model" in toy.run("info", "--preset", "base").out


# The program itself


def test_a_version_and_help_are_shown() -> None:
    version = toy.run("--version")
    assert (version.code, version.out.split()[0]) == (0, "heedful")
    for name in ("train", "translate", "evaluate", "doctor", "info"):
        assert "Usage: heedful" in toy.run(name, "--help").out


def test_without_arguments_it_shows_its_help() -> None:
    ran = toy.run()
    assert (ran.code, ran.out) == (2, "")
    assert "translate  Translate texts, files of lines, documents." in ran.err
