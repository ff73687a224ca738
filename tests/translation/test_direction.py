"""Models by name, and the choice of a model if none is named; with stand-ins for the built-in models."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy
from builtin_examples import NAMES, stand_ins

from heedful.data.stream import TextStream
from heedful.errors import ConfigError, DataError, FolderError
from heedful.storage import model_names as names
from heedful.storage.model_names import built_in_models, find_model, is_built_in, is_model, looks_like_model
from heedful.storage.run_folder import RunFolder
from heedful.translation.direction import choose_direction
from heedful.translation.result import Alternative
from heedful.translation.translator import Translator

pytest.importorskip("ctranslate2", reason="needs CTranslate2")


@pytest.fixture(scope="module")
def shelf(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four models; tests must not change it."""
    return stand_ins(trained, tmp_path_factory.mktemp("built-in"))


@pytest.fixture
def pointed(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:  # the folder that commands work in
    monkeypatch.setattr(names, "BUILT_IN", shelf)
    for variable in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(variable, raising=False)
    before = {path: path.read_bytes() for path in shelf.rglob("*") if path.is_file()}
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path / "here"
    assert {path: path.read_bytes() for path in shelf.rglob("*") if path.is_file()} == before


# Names


def test_a_folder_that_exists_wins_over_a_name(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(built_in_models(shelf)) == sorted(NAMES)
    assert find_model("en-de", shelf) == shelf / "en-de"
    assert is_built_in("en-de", shelf)
    assert find_model(str(shelf / "en-de"), shelf) == shelf / "en-de"
    assert is_built_in(shelf / "en-de", shelf)
    (tmp_path / "en-de").mkdir()
    with pytest.raises(
        FolderError, match=r"^the folder en-de is not a run folder, but hides the built-in model of that"
    ):
        find_model("en-de", shelf)
    (tmp_path / "en-de" / "config.json").touch()
    assert find_model("en-de", shelf) == Path("en-de")
    assert not is_built_in("en-de", shelf)


def test_an_unknown_name_gets_both_ways_out_and_the_nearest_name(shelf: Path) -> None:
    known = "or name a built-in model: de-en, en-de, en-fr, fr-en"
    with pytest.raises(
        FolderError, match=f"^no run folder en-ed; make one with: .* --out en-ed, {known}; did you mean"
    ):
        find_model("en-ed", shelf)
    with pytest.raises(FolderError, match=f"^no run folder runs/x; make one with: .* --out runs/x, {known}$"):
        find_model("runs/x", shelf)


@pytest.mark.parametrize("text", ["runs/x", "./x", "/none/x", "en-xx", "and/or"])
def test_some_texts_are_meant_as_models(text: str) -> None:
    assert looks_like_model(text)
    assert not is_model(text)


@pytest.mark.parametrize("text", ["", "Hello", "1/2 of it", "x" * 5000, "a/" + "b" * 500 + " c", "nul\0", "well-known"])
def test_other_texts_are_not_meant_as_models(text: str) -> None:
    assert not looks_like_model(text)
    assert not is_model(text)


def test_a_path_with_a_space_is_a_model_if_its_folder_exists(tmp_path: Path) -> None:
    (tmp_path / "my runs").mkdir()
    assert looks_like_model(f"{tmp_path}/my runs/x")
    assert not looks_like_model(f"{tmp_path}/her runs/x")


# The direction


@pytest.mark.parametrize(
    ("text", "given", "name", "why"),
    [
        (
            "Where is the station?",
            ("", "", ""),
            "en-fr",
            "en-fr: the text seems to be English; translating into French; --to",
        ),
        (
            "Where is the station?",
            ("", "", "de"),
            "en-de",
            "translating into German, the language of your locale; --to fr for French",
        ),
        ("Where is the station?", ("", "", "es"), "en-fr", "translating into French; --to de for German"),
        ("Where is the station?", ("", "de", "fr"), "en-de", "en-de: the text seems to be English"),
        ("Wo ist der Bahnhof?", ("", "", "de"), "de-en", "de-en: the text seems to be German"),
        ("Où est la gare ?", ("", "en", ""), "fr-en", "fr-en: the text seems to be French"),
        ("Taxi", ("", "de", ""), "en-de", "seems to be English, which is not certain; name the language with --from"),
        ("Taxi", ("fr", "", ""), "fr-en", ""),
        ("", ("en", "de", ""), "en-de", ""),
    ],
)
def test_the_direction_follows_the_text_and_the_locale(
    text: str, given: tuple[str, str, str], name: str, why: str
) -> None:
    found = choose_direction(NAMES, [text], *given)
    assert found.name == name
    assert why in found.reason if why else not found.reason


@pytest.mark.parametrize(
    ("text", "given", "sentence"),
    [
        ("x", ("en", "en"), "the text is English already"),
        ("x", ("", "es"), "--to es: no built-in model has this language; available: de (German), en (English), fr"),
        ("x", ("es", ""), "--from es: no built-in model has this language"),
        ("123 !", ("", ""), "the text has no letters to detect its language by; name the language"),
        (
            "Где находится вокзал?",
            ("", ""),
            "the text is in no language that heedful knows; the built-in models translate German, English, French; if",
        ),
        ("Gdzie jest dworzec kolejowy?", ("", "en"), "the text seems to be Polish; the built-in models translate"),
        ("¿Dónde está la estación?", ("", ""), "the text seems to be Spanish; the built-in models translate"),
        ("for (let i = 0; i < n; i++) {", ("", ""), "the text seems to be program code; the built-in models"),
    ],
)
def test_a_language_that_no_model_translates_is_reported(text: str, given: tuple[str, str], sentence: str) -> None:
    with pytest.raises((ConfigError, DataError), match=re.escape(sentence)):
        choose_direction(NAMES, [text], *given)


def test_without_built_in_models_you_have_to_name_one() -> None:
    with pytest.raises(ConfigError, match="you named no model, and none is built in; name a run folder"):
        choose_direction([], ["x"])


def test_a_text_in_the_target_language_needs_no_model() -> None:
    found = choose_direction(NAMES, ["Where is the station?"], target="en")
    assert found.models == ()
    assert found.reason.startswith("the text seems to be English already, so it is returned as it is; if it is in")


def test_detecting_the_language_of_a_pipe_loses_no_text() -> None:
    lines = iter(["", " ", "one", "two"])
    arriving = TextStream(lines)
    assert arriving.peek() == ["", " ", "one"]
    assert next(lines) == "two"  # without waiting for more
    assert [text for window in arriving.read_windows() for text in window] == ["", " ", "one"]
    assert TextStream(iter(())).peek() == []


# The command


def test_a_name_translates_as_its_folder_does(pointed: Path, shelf: Path, trained: Path) -> None:
    text, other = toy.lines_of(trained / "test.en")[:2]
    by_name, by_folder = toy.run("translate", "en-de", text, other), toy.run("translate", shelf / "en-de", text, other)
    assert by_name.code == 0, by_name.err
    assert by_name.out == by_folder.out
    assert len(by_name.lines) == 2
    assert "engine" not in by_name.err
    assert Translator.load("en-de").translate([text])[0].text == by_name.lines[0]


def test_a_model_is_chosen_if_none_is_named(pointed: Path) -> None:
    ran = toy.run("translate", "Where is the station?", "How are you?")
    assert (ran.code, len(ran.lines)) == (0, 2)
    assert ran.err.startswith("en-fr: the text seems to be English; translating into French; --to de for German\n")
    toy.write_lines(pointed / "in.de", ["Wo ist der Bahnhof?", "Ich habe ihn noch nie gesehen."])
    ran = toy.run("translate", "--input", "in.de", "--output", "out")
    assert (ran.code, len(toy.lines_of(pointed / "out"))) == (0, 2)
    assert ran.err.startswith("de-en: the text seems to be German\n")
    ran = toy.run("translate", "--json", stdin="\nOù est la gare ?\n".encode())
    assert [json.loads(line)["source"] for line in ran.lines] == ["", "Où est la gare ?"]
    assert ran.err == "fr-en: the text seems to be French\n"
    ran = toy.run("translate", "--from", "en", "--to", "de", "123")
    assert (ran.code, len(ran.lines)) == (0, 1)


def test_a_text_in_the_target_language_is_returned_as_it_is(pointed: Path) -> None:
    text = "Wo ist der  Bahnhof?\nIch habe ihn noch nie gesehen."
    ran = toy.run("translate", "--to", "de", text)
    assert (ran.code, ran.out) == (0, f"{text}\n")
    assert ran.err.startswith("the text seems to be German already, so it is returned as it is")
    lines = ["Wo ist der Bahnhof?", "", "Sie liest ein Buch."]
    toy.write_lines(pointed / "in.de", lines)
    assert toy.run("translate", "--to", "de", "--input", "in.de", "--output", "out").code == 0
    assert toy.lines_of(pointed / "out") == lines
    ran = toy.run("translate", "--to", "de", "--json", "--input", "in.de")
    assert [json.loads(line)["text"] for line in ran.lines] == lines
    assert toy.run("translate", "--to", "de", "--alignments", "Wo ist er?").out == "Wo ist er? ||| 0-0 1-1 2-2\n"
    (pointed / "in.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nWo ist der Bahnhof?\n", encoding="utf-8")
    assert toy.run("translate", "--to", "de", "--input", "in.srt", "--output", "out.srt").code == 0
    assert (pointed / "out.srt").read_bytes() == (pointed / "in.srt").read_bytes()


def test_the_language_of_a_document_is_that_of_its_passages(pointed: Path) -> None:
    (pointed / "in.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nWo ist der Bahnhof?\n", encoding="utf-8")
    ran = toy.run("translate", "--input", "in.srt", "--output", "out.srt")
    assert ran.code == 0, ran.err
    assert ran.err.startswith("de-en: the text seems to be German\n")
    assert "00:00:01,000 --> 00:00:02,000" in (pointed / "out.srt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("runs/x",), "no run folder runs/x; make one with"),
        (("runs/x", "Hello there."), "no run folder runs/x; make one with"),
        (("en-ed",), "did you mean 'en-de'?"),
        (
            ("Where", "is", "it?"),
            "Where is neither a run folder nor a built-in model; put a sentence in quotes; heedful",
        ),
        (
            ("end-e", "Hello there."),
            "end-e is neither a run folder nor a built-in model; put a sentence in quotes; did you mean 'en-de'?",
        ),
        (("en-de", "--to", "de", "x"), "--to de chooses a built-in model, but you named en-de; leave out one of them"),
        (("en-de", "--from", "en", "x"), "--from en chooses a built-in model, but you named en-de"),
        (("Hello.", "--input", "in.en"), "give either texts or --input, not both"),
        (("--to", "xx", "Hello."), "--to xx: no built-in model has this language"),
        ((), "the text has no letters to detect its language by"),
    ],
)
@pytest.mark.usefixtures("pointed")
def test_a_mistyped_model_name_is_not_translated(arguments: tuple[str, ...], sentence: str) -> None:
    ran = toy.run("translate", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err


def test_translating_with_a_built_in_model_imports_no_large_library(shelf: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from heedful.storage import model_names as names
names.BUILT_IN = Path({str(shelf)!r})
sys.argv = ["heedful", "translate", "Where is the station?"]
from heedful.cli import main
try:
    main()
except SystemExit as end:
    print("ENDED", end.code, *sys.modules)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ended, code, *modules = process.stdout.splitlines()[-1].split()
    assert (ended, code) == ("ENDED", "0")
    assert "ctranslate2" in modules
    heavy = {"torch", "numba", "numpy", "sacrebleu", "sacremoses", "rapidfuzz", "transformers", "rich.progress", "lxml"}
    assert heavy.isdisjoint(modules)


# Low confidence


def test_a_translation_is_unsure_if_its_pieces_are_unlikely() -> None:
    from math import log

    for threshold in (0.3, 0.8):
        assert Alternative("", 0.0, 3 * log(0.9 * threshold), ("a", "b", "c"), low_confidence=threshold).unsure
        assert not Alternative("", 0.0, 3 * log(1.1 * threshold), ("a", "b", "c"), low_confidence=threshold).unsure
    assert not Alternative("", 0.0, 0.0, ()).unsure


def test_low_confidence_is_reported_on_standard_error(pointed: Path, trained: Path) -> None:
    known, strange = toy.lines_of(trained / "test.en")[0], "of this it knows no word at all"
    ran = toy.run("translate", "en-de", known, strange)
    assert len(ran.lines) == 2
    assert ran.err == f"low confidence: {ran.lines[1]}\n"
    toy.write_lines(pointed / "in.en", [known, strange, strange])
    ran = toy.run("translate", "en-de", "--input", "in.en")
    assert ran.err == "low confidence in 2 of 3 translations; --json marks them as unsure\n"
    ran = toy.run("translate", "en-de", "--input", "in.en", "--json")
    assert [json.loads(line)["unsure"] for line in ran.lines] == [False, True, True]
    assert ran.err == ""
    assert not Translator.load("en-de").translate([""])[0].unsure
    toy.write_lines(pointed / "in.md", [f"{strange}\n"] * 7)
    ran = toy.run("translate", "en-de", "--input", "in.md", "--output", "out.md")
    *first, rest = ran.err.splitlines()
    assert len(first) == 5
    assert all(line.removeprefix("low confidence: ") in (pointed / "out.md").read_text() for line in first)
    assert rest == "low confidence in 7 of 7 sentences; the first 5 are above"


# The other commands


def unscored(run: Path, copy: Path) -> None:
    """A copy of a run without scores; other tests may have evaluated the original."""
    shutil.copytree(run, copy)
    about = json.loads((copy / "about.json").read_text(encoding="utf-8"))
    about.pop("scores", None)
    (copy / "about.json").write_text(json.dumps(about), encoding="utf-8")


def test_models_lists_all_models(pointed: Path, trained: Path) -> None:
    ran = toy.run("models")
    assert [line.split()[:4] for line in ran.lines[1:]] == [[name, "built-in", *name.split("-")] for name in NAMES]
    (pointed / "runs" / "deeper").mkdir(parents=True)
    unscored(trained / "run", pointed / "runs" / "mine")
    (pointed / "runs" / "deeper" / "other").symlink_to(trained / "run")
    (pointed / "runs" / "broken").mkdir()
    (pointed / "runs" / "broken" / "config.json").write_text("{}")
    (pointed / "runs" / "broken" / "experiment.toml").write_text("")
    (pointed / "runs" / "another-program").mkdir()
    (pointed / "runs" / "another-program" / "config.json").write_text("{}")
    ran = toy.run("models")
    assert [line.split()[0] for line in ran.lines[5:]] == ["runs/deeper/other", "runs/mine"]
    assert ran.err == "runs/broken/config.json was not written by heedful: it has no heedful_format\n"
    found = {one["name"]: one for one in json.loads(toy.run("models", "--json").out)}
    mine = found["runs/mine"]
    assert (mine["kind"], mine["source"], mine["target"], mine["task"]) == ("local", "en", "de", "translation")
    assert mine["bytes"] == (trained / "run" / "model.safetensors").stat().st_size
    best = max(event["score"] for event in toy.events(trained / "run", "Validated"))
    assert (mine["score"]["metric"], mine["score"]["test_set"]) == ("BLEU", "validation")
    assert mine["score"]["value"] == pytest.approx(best, rel=1e-8)  # events keep nine digits
    assert mine["score"]["value"] <= 100
    assert found["en-fr"]["about"] == "exported, int8, 2,000 pairs"
    assert found["en-fr"]["parameters"] == mine["parameters"] > 0
    assert found["runs/broken"]["problem"]
    assert "runs/another-program" not in found


def test_models_says_so_if_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "BUILT_IN", tmp_path / "none")
    monkeypatch.chdir(tmp_path)
    ran = toy.run("models")
    assert (ran.code, ran.out) == (0, "")
    assert "there are no built-in models and no run folders in runs/" in ran.err
    assert "you named no model, and none is built in" in toy.run("translate", "Hello.").err
    assert json.loads(toy.run("models", "--json").out) == []


def test_every_command_takes_a_name_and_leaves_the_model_as_it_is(pointed: Path, trained: Path) -> None:
    source, target = trained / "test.en", trained / "test.de"
    text = toy.lines_of(source)[0]
    for command in (
        ("evaluate", "en-de", "--source", source, "--reference", target),
        ("evaluate", find_model("en-de"), "--source", source, "--reference", target),
        ("score", "en-de", "--source", source, "--target", target),
        ("compare", "en-de", "fr-en", "--source", source, "--reference", target),
        ("info", "en-de"),
        ("heads", "en-de", text, "--out", "heads.json"),
        ("heads", "en-de", "--input", source),
        ("export", "en-de", "out", "--to", "ctranslate2"),
    ):
        ran = toy.run(*command)
        assert ran.code == 0, ran.err
    assert RunFolder.open(pointed / "out").has_fresh_ctranslate2
    ran = toy.run("export", "en-de", "--to", "ctranslate2")
    assert "en-de is a built-in model and cannot be changed; give a folder for the export" in ran.err
    ran = toy.run("compare", "en-ed", "en-de", "--source", source, "--reference", target)
    assert "did you mean 'en-de'?" in ran.err


def test_fine_tuning_can_start_from_a_built_in_model(pointed: Path, trained: Path) -> None:
    settings = ("train.threads=1", "train.max_steps=4", "train.validate_every=2")
    options = [part for setting in settings for part in ("--set", setting)]
    with toy.plain_log():
        files = ("--source", trained / "few.en", "--target", trained / "few.de")
        ran = toy.run("train", "--init", "en-de", *files, "--out", "mine", *options)
    assert ran.code == 0, ran.err
    assert "starting from en-de: its weights, network and vocabulary are kept" in ran.err
    begun = RunFolder.open(find_model("en-de")).experiment()
    assert RunFolder.open(pointed / "mine").experiment().train.learning_rate == begun.train.learning_rate / 10
    facts = RunFolder.open(pointed / "mine").parent().about()["data"]
    assert isinstance(facts, dict)
    assert facts["pieces_a_word"]  # shows whether the vocabulary fits
    assert toy.run("translate", "mine", toy.lines_of(trained / "test.en")[0]).code == 0


def test_serve_takes_the_name_of_a_model_or_none(pointed: Path, shelf: Path) -> None:
    pytest.importorskip("fastapi", reason="needs heedful[serve]")
    from heedful.cli.serve import _find_built_in_models
    from heedful.serve.model_registry import locate_models

    (found,) = locate_models([Path("fr-en")])
    assert (found.folder, found.name, found.source, found.target) == (shelf / "fr-en", "fr-en", "fr", "en")
    assert [location.name for location in locate_models(_find_built_in_models())] == list(NAMES)


def test_an_export_has_a_card_that_info_names(pointed: Path, shelf: Path) -> None:
    card = (shelf / "en-de" / "README.md").read_text(encoding="utf-8")
    assert "# exported: en to de\n" in card
    assert ", as int8 for CTranslate2\n" in card
    assert json.loads(toy.run("info", "en-de", "--json").out)["card"] == str(shelf / "en-de" / "README.md")
