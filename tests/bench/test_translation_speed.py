"""The benchmark of translators: all of them do the same work, and the counts are right."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from contender import Lap
from engine_examples import POST
from peers import PEERS
from race import HERE, Contender, Result
from random_run import random_run, random_texts, words
from translation_contenders import Job, Make, Setting, Translated, by_length, laps, read_lines, seconds_of
from translation_cost import AXES, markdown, points
from translation_speed import latencies, race_source, source_table, summary, table
from translators import FLOAT, INT8, TORCH, Entrant, Tuned, entrants, spelled, tune

from heedful.formats.export import export
from heedful.storage.run_folder import RunFolder
from heedful.text import Tokenizer

VOCABULARY, LENGTH = 300, 6
JOEYNMT = next(peer for peer in PEERS if peer.name == "joeynmt")
ENGINE: Setting = {"engine": "ctranslate2"}
PLAIN: Setting = {"inter_threads": 1, "intra_threads": 1, "max_batch_size": 64, "batch_type": "tokens"}
QUICK = f"""
import sys, time
sys.path.insert(0, {str(HERE)!r})
from translation_contenders import Translated, compete
compete(lambda job, setting: lambda texts: time.sleep(0.02 * sum(setting.values())) or [Translated("", 1)] * len(texts))
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model in the formats of both engines, and texts for it."""
    pytest.importorskip("ctranslate2", reason="needs CTranslate2")
    folder = tmp_path_factory.mktemp("models")
    random_run(folder / "torch", POST, VOCABULARY)
    export(RunFolder.open(folder / "torch"), "ctranslate2", folder / "float32")
    (folder / "texts.txt").write_text("\n".join(random_texts(VOCABULARY, LENGTH, 5)) + "\n", encoding="utf-8")
    return folder


def job_for(models: Path, format: str, beam: int = 1) -> Job:
    model, source = str(models / format), str(models / "texts.txt")
    return Job(model=model, source=source, report=str(models / "report.json"), beam=beam, limit=LENGTH)


def raced(speed: float, texts: list[str], pieces: int) -> tuple[Result, Tuned, dict[str, object]]:
    result = Result(Contender("", "shipped", []), [Lap(speed, 1.0)], 5_000_000, [0.0])
    return result, Tuned({"batch": 4}), {"texts": texts, "pieces": pieces, "turns": [n / 1000 for n in range(1, 101)]}


def test_texts_of_a_random_run_have_the_requested_length(models: Path) -> None:
    tokenizer = Tokenizer.from_json((models / "torch" / "tokenizer.json").read_text(), "")
    assert tokenizer.vocabulary_size == VOCABULARY
    assert len(set(words(VOCABULARY))) == VOCABULARY - 258
    assert [len(ids) for ids in tokenizer.encode_all(random_texts(VOCABULARY, LENGTH, 5))] == [LENGTH] * 5


@pytest.mark.parametrize("beam", [1, 3])
def test_every_contender_gives_the_same_translations(models: Path, beam: int) -> None:
    import translation_contenders

    if not (models / "huggingface").exists():
        export(RunFolder.open(models / "torch"), "huggingface", models / "huggingface")
    makes: list[tuple[Make, str, Setting]] = [
        (translation_contenders.heedful, "torch", {"engine": "torch"}),
        (translation_contenders.heedful, "float32", ENGINE),
        (translation_contenders.ctranslate2, "float32", PLAIN),
        (translation_contenders.huggingface, "huggingface", {"batch": 2, "threads": torch.get_num_threads()}),
    ]
    found = []
    for make, format, setting in makes:
        job = job_for(models, format, beam)
        found.append(make(job, setting)(job.lines()))
    assert len({one.text for one in found[0]}) > 1
    assert all(one.pieces == LENGTH for several in found for one in several)
    assert found[1] == found[2] == found[3] == found[0]


@pytest.mark.slow
@pytest.mark.skipif(not JOEYNMT.installed, reason="needs JoeyNMT: python bench/peers.py install joeynmt")
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_joeynmt_with_our_weights_gives_our_translations(tmp_path: Path, norm: str) -> None:
    import translation_contenders
    from joeynmt_model import write_joeynmt

    random_run(tmp_path / "torch", replace(POST, norm=norm), VOCABULARY)  # type: ignore[arg-type]
    run = RunFolder.open(tmp_path / "torch")
    (tmp_path / "joeynmt").mkdir()
    write_joeynmt(run.seq2seq(), run.tokenizers(), tmp_path / "joeynmt")
    (tmp_path / "texts.txt").write_text("\n".join(random_texts(VOCABULARY, LENGTH, 5)) + "\n", encoding="utf-8")
    job = replace(job_for(tmp_path, "joeynmt", beam=2), settings=[{"batch": 2, "threads": 1}])
    job.write(tmp_path / "job.json")
    entrant = next(one for one in entrants() if one.name == "JoeyNMT")
    command = entrant.contender(tmp_path / "job.json", "race").command
    subprocess.run(command, input="0\n", text=True, check=True, capture_output=True, cwd=tmp_path)
    theirs = json.loads(Path(job.report).read_text())["texts"]
    ours = translation_contenders.heedful(job_for(tmp_path, "torch", beam=2), {"engine": "torch"})(job.lines())
    assert theirs == [one.text for one in ours]


def test_a_benchmark_with_real_processes_gives_all_figures(models: Path) -> None:
    entered = [
        Entrant(FLOAT, "heedful", ("translation_contenders.py", "heedful"), "float32", [[ENGINE]], [ENGINE]),
        Entrant("CTranslate2", "shipped", ("translation_contenders.py", "ctranslate2"), "float32", [[PLAIN]], [PLAIN]),
        Entrant("broken", "shipped", ("translation_contenders.py", "ctranslate2"), "none", [[PLAIN]], [PLAIN]),
    ]
    found = json.loads(json.dumps(race_source(entered, job_for(models, ""), models, 0.05, 1)))
    names = [FLOAT, "CTranslate2"]
    for key in ("texts_per_second", "pieces_per_second", "rounds", "alone", "peak_megabytes", "outputs"):
        assert list(found[key]) == names, key
    assert found["texts"] == 5 and found["outputs"][FLOAT] == found["outputs"]["CTranslate2"]
    assert list(found["ratio"]) == [FLOAT] and list(found["ratio"][FLOAT]) == ["CTranslate2"]
    assert list(found["skipped"]) == ["broken"]
    facts = {"sources": {"a/texts.txt": {**found, "bleu": {}}}, "start_seconds": {FLOAT: 0.5}, "skipped": {}}
    lines = table(facts).splitlines()
    assert lines[0] == "texts.txt, 5 texts"
    assert [line.split("  ")[0] for line in lines[2:4]] == names
    assert lines[-1].startswith("skipped: broken: ")


def test_a_summary_has_speeds_ratios_and_the_number_of_equal_translations() -> None:
    found = summary(
        {
            **{TORCH: raced(10.0, ["a", "b", "c", "d"], 20), FLOAT: raced(40.0, ["a", "b", "c", "e"], 20)},
            **{INT8: raced(50.0, ["a", "b", "x", "e"], 16), "peer": raced(20.0, ["x", "x", "x", "d"], 24)},
        }
    )
    assert found["texts"] == 4
    assert found["pieces_per_second"] == {TORCH: 50, FLOAT: 200, INT8: 200, "peer": 120}
    assert found["ratio"][TORCH]["peer"] == 0.5 and found["ratio"][FLOAT]["peer"] == 2.0
    assert found["ratio"][INT8] == {TORCH: 5.0, FLOAT: 1.25, "peer": 2.5}
    assert found["same_as_torch"] == {TORCH: 4, FLOAT: 3, INT8: 2, "peer": 1}
    assert found["peak_megabytes"]["peer"] == 5 and found["setting"]["peer"] == "batch 4"
    alone = latencies({"peer": raced(1.0, ["a"], 1)})
    assert alone == {"peer": {"p50": 50.5, "p95": 96.0, "setting": "batch 4"}}
    shown = source_table("a.en", {**found, "bleu": {"peer": 41.5}, "alone": alone})
    (row,) = (line for line in shown.splitlines() if line.startswith("peer "))
    assert " ".join(row.split()) == "peer 20.0 120 0.50 x 2.00 x 2.50 x 41.5 1 50.5 96.0 5 MB"


def test_a_lap_translates_whole_files_and_keeps_the_order(tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("a\u2028b\nbb\nccc\ndd\ne\n", encoding="utf-8")
    job = Job(model="", source=str(tmp_path / "texts"), report=str(tmp_path / "report"), together=2, texts=3)
    given: list[list[str]] = []

    def translate(texts: list[str]) -> list[Translated]:
        given.append(list(texts))
        return [Translated(text.upper(), len(text)) for text in texts]

    lap = laps(translate, job)  # type: ignore[arg-type]
    assert given == [["a\u2028b", "bb"]]  # the rest of each file has already been read
    assert lap(0.0).work == 3
    assert given[1:] == [["a\u2028b", "bb"], ["ccc"]]
    assert lap(0.001).work % 3 == 0
    report = json.loads((tmp_path / "report").read_text())
    assert report["texts"] == ["A\u2028B", "BB", "CCC"] and report["pieces"] == 8
    assert len(report["turns"]) == len(given) - 1
    assert 0.0 < seconds_of(translate, replace(job, trial=0.0)) < 1.0  # type: ignore[arg-type]
    assert read_lines(tmp_path / "texts")[3:] == ["dd", "e"]


def test_settings_are_chosen_stage_by_stage(tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("a\n")
    (tmp_path / "quick.py").write_text(QUICK)
    entrant = Entrant(
        "quick", "shipped", [str(tmp_path / "quick.py")], "", [[{"a": 3}, {"a": 0}], [{"b": 2}, {"b": 1}]], []
    )
    job = Job(model="", source=str(tmp_path / "texts"), report="", trial=0.0)
    tuned = tune(entrant, job, tmp_path / "job.json")
    assert tuned.best == {"a": 0, "b": 1}
    assert list(tuned.seconds) == ["a 3", "a 0", "a 0, b 2", "a 0, b 1"]
    assert spelled(tuned.best) == "a 0, b 1"


def test_batches_hold_texts_of_about_the_same_length() -> None:
    assert by_length(["aaa", "a", "aaaa", "aa", "aaaaa"], 2) == [[4, 2], [0, 3], [1]]


@pytest.mark.parametrize("axis", AXES)
def test_an_axis_changes_only_its_own_size(axis: str) -> None:
    assert [getattr(point, axis) for point in points(axis)] == list(AXES[axis])
    rows = [{axis: value, TORCH: 10.0, FLOAT: 20.0, INT8: 40.0} for value in AXES[axis]]
    last = markdown(axis, rows).splitlines()[-1]
    pieces = 10 * points(axis)[-1].length
    assert last.startswith(f"| {AXES[axis][-1]:,} | 100.0 ms, {pieces:,}/s | 50.0 ms, ")
