"""The commands as a person uses them, from two text files to a scored translation."""

import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import toy

from heedful.errors import UserError

SHORT = toy.settings("train.max_steps=2", "train.batch_tokens=128", "train.validate_bleu=false")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder with 90 pairs."""
    toy.write_pairs(tmp_path, "few", 90, seed=3)
    return tmp_path


# Training


def test_a_model_learns_a_language_from_two_files(trained: Path) -> None:
    ran = toy.run(
        *("evaluate", trained / "run", "--source", trained / "test.en", "--reference", trained / "test.de", "--json")
    )
    scores = {score["metric"]: score["value"] for score in json.loads(ran.out)["scores"]}
    assert scores["BLEU"] > 80, scores
    assert scores["TER"] < 20, scores


def test_training_prints_nothing_on_standard_output(trained: Path) -> None:
    assert (trained / "stdout").read_text() == ""


def test_training_tells_a_person_what_happens(trained: Path) -> None:
    said = (trained / "stderr").read_text(encoding="utf-8")
    assert "data: 2000 pairs to train on, 60 for validation; none left out" in said
    assert "tokens a second" in said
    assert "step 350: validation perplexity" in said
    assert f'translate with: heedful translate {trained / "run"} "..."' in said


def test_what_is_not_given_is_chosen_by_the_data_and_told(small: Path) -> None:
    files = ("--source", small / "few.en", "--target", small / "few.de", "--out", small / "run")
    with toy.plain_log():
        ran = toy.run("train", *files, "--set", "train.max_steps=1", "--set", "train.validate_bleu=false")
    assert ran.code == 0, ran.err
    assert "model: tiny, pre-norm, dropout 0.4: 90 pairs would soon be memorised" in ran.err
    assert "vocabulary: 278 pieces, for 40 different words" in ran.err
    assert "batch: 256 tokens a side" in ran.err
    assert "schedule:" not in ran.err  # that one was given
    facts = json.loads(toy.run("info", small / "run", "--json").out)
    assert (facts["model"]["model.preset"], facts["vocabulary"]["target"]) == ("modern", 278)


def test_events_go_to_standard_output_on_request(small: Path) -> None:
    files = ("--source", small / "few.en", "--target", small / "few.de", "--out", small / "run")
    with toy.plain_log():
        ran = toy.run("train", *files, *SHORT, "--json")
    shown = [json.loads(line) for line in ran.lines]
    assert [event["event"] for event in shown] == [
        *("Started", "StepDone", "StepDone", "Validated", "Saved", "Finished")
    ]
    assert shown == [json.loads(line) for line in toy.lines_of(small / "run" / "events.jsonl")]


def test_a_recipe_is_trained_and_single_keys_are_overruled(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small)
    recipe = "[data]\nfolder = '.'\nsource = 'few.en'\ntarget = ['few.de']\nhold_out = 7\n[train]\nmax_steps = 9000\n"
    (small / "my.toml").write_text(recipe)
    with toy.plain_log():
        ran = toy.run("train", "my.toml", *SHORT)
    assert ran.code == 0, ran.err
    facts = json.loads(toy.run("info", "runs/my", "--json").out)
    assert facts["finished"]["step"] == 2
    assert facts["data"]["pairs"] + facts["data"]["validation_pairs"] == 90
    assert facts["data"]["validation_pairs"] > 0


def written(small: Path, how: str) -> list[object]:
    """The 90 pairs in another form, and the options to read them by."""
    source, target = small / "few.en", small / "few.de"
    match how:
        case "corpus":
            return ["--corpus", f"{small / 'few'},en,de"]
        case "tsv":
            pairs = zip(toy.lines_of(source), toy.lines_of(target), strict=True)
            return ["--tsv", toy.write_lines(small / "few.tsv", [f"{s}\t{t}" for s, t in pairs])]
        case "gz":
            for path in (source, target):
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            return ["--source", f"{source}.gz", "--target", f"{target}.gz"]
        case "two files":
            for path in (source, target):
                lines = toy.lines_of(path)
                toy.write_lines(path.with_name("a" + path.suffix), lines[:40])
                toy.write_lines(path.with_name("b" + path.suffix), lines[40:])
            sides = [("--source", "en"), ("--target", "de")]
            return [part for option, end in sides for name in "ab" for part in (option, small / f"{name}.{end}")]
        case _:
            return ["--source", source, "--target", target]


@pytest.mark.parametrize("how", ["corpus", "tsv", "gz", "two files"])
def test_the_same_pairs_in_another_form_are_the_same_data(small: Path, how: str) -> None:
    with toy.plain_log():
        plain = toy.run("train", *written(small, "plain"), "--out", small / "plain", *SHORT)
        ran = toy.run("train", *written(small, how), "--out", small / "other", *SHORT)
    assert (plain.code, ran.code) == (0, 0), ran.err
    for file in ("model.safetensors", "tokenizer.json", "data/train-0/source.ids", "data/valid.json"):
        assert (small / "plain" / file).read_bytes() == (small / "other" / file).read_bytes(), file


def test_no_pair_of_the_validation_files_is_trained_on(small: Path) -> None:
    toy.write_pairs(small, "valid", 5, seed=4)
    with toy.plain_log():
        ran = toy.run(
            *("train", "--source", small / "few.en", "--target", small / "few.de", "--out", small / "run", *SHORT),
            *("--valid-source", small / "valid.en", "--valid-target", small / "valid.de"),
        )
    assert "data: 90 pairs to train on, 5 for validation" in ran.err
    kept = json.loads((small / "run" / "data" / "valid.json").read_text())
    assert [pair[0] for pair in kept] == toy.lines_of(small / "valid.en")


# Translation


def test_texts_of_the_command_line_are_translated(trained: Path) -> None:
    texts = toy.lines_of(trained / "train.en")[:3]
    ran = toy.run("translate", trained / "run", *texts)
    assert (ran.code, ran.lines) == (0, [toy.translated(text) for text in texts])


def test_a_file_standard_input_and_a_file_of_output_are_the_same(trained: Path, tmp_path: Path) -> None:
    run, test, output = trained / "run", trained / "test.en", tmp_path / "out.de"
    from_file = toy.run("translate", run, "--input", test)
    from_stdin = toy.run("translate", run, stdin=test.read_bytes())
    dash = toy.run("translate", run, "--input", "-", stdin=test.read_bytes())
    to_file = toy.run("translate", run, "--input", test, "--output", output)
    assert from_file.code == from_stdin.code == to_file.code == 0
    assert len(from_file.lines) == 50
    assert from_file.out == from_stdin.out == dash.out == output.read_text(encoding="utf-8")
    assert toy.run("translate", run, "--input", test, "--output", "-").out == from_file.out
    assert to_file.out == ""


def test_an_empty_line_stays_an_empty_line(trained: Path) -> None:
    first, second = toy.lines_of(trained / "train.en")[:2]
    ran = toy.run("translate", trained / "run", stdin=f"\n{first}\n   \n\n{second}\n\n".encode())
    assert ran.lines == ["", toy.translated(first), "", "", toy.translated(second), ""]


def test_input_without_lines_gives_output_without_lines(trained: Path) -> None:
    ran = toy.run("translate", trained / "run", stdin=b"")
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_the_last_line_needs_no_line_feed(trained: Path) -> None:
    text = toy.lines_of(trained / "train.en")[0]
    ran = toy.run("translate", trained / "run", stdin=text.encode())
    assert ran == toy.Ran(0, toy.translated(text) + "\n", "")


def test_no_text_whatever_gives_more_than_its_one_line(trained: Path) -> None:
    """Breaks of every kind come in, and bytes that the model has never seen may make it answer with any of them."""
    texts = ["a\rb", "x\u2028y", "\x0b\x0c\x85", "\x00"[:0] + "\t", "🙂 ü", "</s> <pad>"]
    ran = toy.run("translate", trained / "run", stdin="".join(text + "\n" for text in texts).encode())
    assert ran.code == 0, ran.err
    assert len(ran.lines) == len(texts)
    assert not any("\r" in line for line in ran.lines)


def test_a_line_break_that_a_model_made_becomes_a_space(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.text.Tokenizer.decode", lambda *_: "a\nb\r\nc\rd")
    run = trained / "run"
    assert toy.run("translate", run, "x", "y").lines == ["a b  c d"] * 2
    assert all(len(line.split(" ||| ")) == 3 for line in toy.run("translate", run, "x", "--n-best", "3").lines)


def test_several_translations_are_listed_best_first(trained: Path) -> None:
    texts = toy.lines_of(trained / "train.en")[:2]
    ran = toy.run("translate", trained / "run", *texts, "--beam", "4", "--n-best", "3")
    fields = [line.split(" ||| ") for line in ran.lines]
    assert [int(number) for number, _, _ in fields] == [0, 0, 0, 1, 1, 1]
    assert [fields[0][1], fields[3][1]] == [toy.translated(text) for text in texts]
    scores = [float(score) for _, _, score in fields]
    assert scores[:3] == sorted(scores[:3], reverse=True)
    assert scores[3:] == sorted(scores[3:], reverse=True)
    assert all(-20 < score < 0 for score in scores)
    assert len({text for _, text, _ in fields[:3]}) == 3


def test_an_empty_line_has_its_place_among_several_translations(trained: Path) -> None:
    ran = toy.run("translate", trained / "run", "", "x", "--n-best", "2")
    assert [line.split(" ||| ")[0] for line in ran.lines] == ["0", "1", "1"]
    assert ran.lines[0] == "0 |||  ||| 0.0000"


def test_json_holds_the_source_the_pieces_and_every_alternative(trained: Path) -> None:
    text = toy.lines_of(trained / "train.en")[0]
    ran = toy.run("translate", trained / "run", text, "", "--json", "--n-best", "2")
    found, empty = map(json.loads, ran.lines)
    assert (found["index"], found["source"], found["text"]) == (0, text, toy.translated(text))
    assert len(found["alternatives"]) == 2
    best = found["alternatives"][0]
    assert (best["text"], best["score"], best["finished"]) == (found["text"], found["score"], True)
    assert best["log_prob"] < 0
    assert best["pieces"] == [*(f"▁{word}" for word in best["text"].split()), "</s>"]
    assert found["source_pieces"] == [*(f"▁{word}" for word in text.split()), "</s>"]
    assert (empty["index"], empty["text"], empty["alternatives"]) == (1, "", [])


def test_the_search_can_be_changed_for_once(trained: Path) -> None:
    text = toy.lines_of(trained / "train.en")[0]
    wide = json.loads(toy.run("translate", trained / "run", text, "--json", "--set", "search.alpha=0").out)
    assert wide["score"] == pytest.approx(wide["alternatives"][0]["log_prob"])
    long = toy.run("translate", trained / "run", text, "--set", "search.min_length=9", "--beam", "2")
    assert len(long.lines[0].split()) >= 9


# Evaluation


def test_scores_in_json_have_exactly_this_form(trained: Path) -> None:
    run, source, reference = trained / "run", trained / "test.en", trained / "test.de"
    ran = toy.run("evaluate", run, "--source", source, "--reference", reference, "--json", "--beam", "1")
    found = json.loads(ran.out)
    assert list(found) == ["scores"]
    assert [score["metric"] for score in found["scores"]] == ["BLEU", "chrF", "TER", "BLEU (paper)"]
    for score in found["scores"]:
        assert list(score) == ["metric", "value", "low", "high", "signature", "brevity_penalty"]
        assert score["low"] <= score["value"] <= score["high"]
        assert "nrefs:1" in score["signature"]


def test_scores_are_a_table_and_stay_in_the_folder(trained: Path, tmp_path: Path) -> None:
    run = copied(trained, tmp_path)
    common = ("--reference", trained / "test.de", "--output", tmp_path / "out.de")
    ran = toy.run("evaluate", run, "--source", trained / "test.en", *common)
    table = [line.split()[0] for line in ran.lines]
    assert table == ["metric", "BLEU", "chrF", "TER", "BLEU"]
    assert toy.lines_of(tmp_path / "out.de") == toy.run("translate", run, "--input", trained / "test.en").lines
    other = toy.write_lines(tmp_path / "other.en", toy.lines_of(trained / "test.en"))
    assert toy.run("evaluate", run, "--source", other, *common).code == 0
    kept = json.loads((run / "about.json").read_text(encoding="utf-8"))["scores"]
    assert {str(trained / "test.en"), str(other)} <= set(kept)
    assert "BLEU (paper)" in toy.run("info", run).out


def test_any_of_several_references_counts(trained: Path, tmp_path: Path) -> None:
    right = toy.lines_of(trained / "test.de")
    one = toy.write_lines(tmp_path / "one.de", [line if n % 2 else "?" for n, line in enumerate(right)])
    two = toy.write_lines(tmp_path / "two.de", ["?" if n % 2 else line for n, line in enumerate(right)])

    def bleu(*references: Path) -> float:
        options = [part for path in references for part in ("--reference", path)]
        ran = toy.run("evaluate", trained / "run", "--source", trained / "test.en", *options, "--json")
        score = json.loads(ran.out)["scores"][0]
        assert f"nrefs:{len(references)}" in score["signature"]
        return score["value"]

    assert bleu(one, two) == pytest.approx(bleu(trained / "test.de"))
    assert bleu(one) < 60


def test_scores_are_shown_even_if_the_folder_cannot_keep_them(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UserError("it is locked away")

    monkeypatch.setattr("heedful.storage.run_folder.RunFolder.write_about", refuse)
    ran = toy.run("evaluate", trained / "run", "--source", trained / "test.en", "--reference", trained / "test.de")
    assert (ran.code, len(ran.lines)) == (0, 5)
    assert ran.err == "the scores are not stored in the run folder: it is locked away\n"


def copied(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained / "run", tmp_path / "run"))


# The process


def test_the_command_speaks_utf_8_whatever_the_locale(trained: Path) -> None:
    """The model of this file was trained by a process of the C locale, too."""
    assert (trained / "run" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((trained / "run" / "tensorboard").iterdir())
    text = toy.lines_of(trained / "train.en")[0] + " ü 🙂"
    process = toy.start("translate", trained / "run", "--json", environment=toy.PLAIN_LOCALE)
    out, err = process.communicate(text.encode() + b"\n", timeout=120)
    assert (process.returncode, err) == (0, b"")
    assert json.loads(out)["source"] == text
    assert text.encode() in out


def test_help_names_kinds_in_words_and_not_as_python_types() -> None:
    names = re.findall(r"^  ([a-z]+)  ", toy.run("--help").out.partition("Commands:")[2], re.MULTILINE)
    assert {"translate", "train", "import"} <= set(names)
    for name in names:
        said = toy.run(name, "--help").out
        assert not re.search(r"<\w|list\[| range", said), said
    assert re.search(r"--input PATH +File", toy.run("translate", "--help").out)


def test_a_program_that_uses_heedful_decides_what_is_logged() -> None:
    code = "import heedful, logging; logging.getLogger('heedful.serve').error('x'); logging.getLogger('o').error('y')"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stderr == "y\n"


# Message catalogues


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    pytest.importorskip("polib", reason="needs polib")
    path = tmp_path / "strings.po"
    words = list(toy.dictionary())
    path.write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        f'msgid "{words[0]} {words[1]}"\nmsgstr ""\n\n#, fuzzy\nmsgid "{words[2]}"\nmsgstr "old"\n\n'
        f'msgid "{words[3]}"\nmsgstr "kept"\n',
        encoding="utf-8",
    )
    return path


def test_new_entries_of_a_catalogue_are_fuzzy_unless_they_are_final(trained: Path, catalogue: Path) -> None:
    import polib

    words, out = list(toy.dictionary()), catalogue.with_name("out.po")
    command = ("translate", trained / "run", "--input", catalogue, "--output", out)
    entries = {}
    for options in ((), ("--final",)):
        ran = toy.run(*command, *options)
        assert ran.code == 0, ran.err
        entries[options] = {entry.msgid: (entry.msgstr, entry.fuzzy) for entry in polib.pofile(str(out))}
    both, other, kept = f"{words[0]} {words[1]}", words[2], words[3]
    assert entries[()] == {
        both: (toy.translated(both), True),
        other: (toy.translated(other), True),
        kept: ("kept", False),
    }
    assert entries[("--final",)] == {
        both: (toy.translated(both), False),
        other: (toy.translated(other), False),
        kept: ("kept", False),
    }


@pytest.mark.parametrize("arguments", [("--input", "{d}/test.en"), ("--input", "{d}/a.md", "--output", "{o}"), ("ba",)])
def test_only_entries_of_a_catalogue_can_be_final(trained: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    page = tmp_path / "a.md"
    page.write_text("ba\n", encoding="utf-8")
    given = [one.format(d=tmp_path if "a.md" in one else trained, o=tmp_path / "b.md") for one in arguments]
    ran = toy.run("translate", trained / "run", *given, "--final")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "heedful: --final is for .po and .pot files, which have fuzzy entries; leave it out\n"
    assert not (tmp_path / "b.md").exists()
