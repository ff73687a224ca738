"""`train --text` beside pairs: plain text is read first, in the same run folder, and stopping changes nothing."""

import shutil
from pathlib import Path

import pytest
import toy

from heedful.errors import ConfigError
from heedful.storage.run_folder import RunFolder
from heedful.training.autoconfig import CorpusStatistics, choose_settings, judge_few_pairs_by_score
from heedful.training.train import resume, train

TINY = {
    **{"seed": 3, "train.threads": 1, "model.d_model": 16, "model.d_ff": 32, "model.num_heads": 2},
    **{"model.encoder_layers": 1, "model.decoder_layers": 1, "model.dropout": 0.0},
    **{"text.vocabulary_size": 300, "text.kind": "words"},
}
STEPS = {"train.max_steps": 4, "train.save_every": 2, "train.validate_every": 2}


@pytest.fixture(autouse=True)
def no_pictures() -> object:
    with toy.plain_log():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text-first")
    toy.write_pairs(path, "mono", 30, seed=11)
    toy.write_pairs(path, "train", 30, seed=12)
    toy.write_pairs(path, "valid", 5, seed=13)
    return path


def files(folder: Path) -> dict[str, object]:
    names = {"source": "train.en", "target": "train.de", "valid_source": "valid.en", "valid_target": "valid.de"}
    return {key: folder / name for key, name in names.items()} | {"text": [folder / "mono.en", folder / "mono.de"]}


@pytest.fixture(scope="module")
def whole(folder: Path) -> toy.Ran:
    """The run by the command line, beside a model from nothing."""
    named = files(folder)
    pairs = [part for key, value in named.items() if key != "text" for part in (f"--{key.replace('_', '-')}", value)]
    text = [part for value in (folder / "mono.en", folder / "mono.de") for part in ("--text", value)]
    settings = [part for key, value in {**TINY, **STEPS}.items() for part in ("--set", f"{key}={value}")]
    with toy.plain_log():
        ran = toy.run("train", *pairs, *text, "--compare", "--out", folder / "run", *settings)
    assert ran.code == 0, ran.err
    return ran


def test_one_command_reads_the_text_and_then_the_pairs(whole: toy.Ran, folder: Path) -> None:
    run, before = RunFolder.open(folder / "run"), RunFolder.open(folder / "run" / "pretraining")
    assert "the model first learns to restore spans of it, then the pairs" in whole.err
    assert "other spans of the 60 passages are left out in each epoch" in whole.err
    assert [one.experiment().task for one in (before, run)] == ["denoising", "translation"]
    assert toy.same_bits(toy.weights(run.path / "parent"), toy.weights(before.path))
    assert (run.path / "tokenizer.json").read_bytes() == (before.path / "tokenizer.json").read_bytes()
    assert toy.run("translate", run.path, "a").code == 0


def test_both_scores_are_printed(whole: toy.Ran, folder: Path) -> None:
    without = RunFolder.open(folder / "run" / "without")
    assert (without.has_parent, without.experiment().data.text) == (False, ())
    assert f"starting from {folder / 'run' / 'pretraining'}, " in whole.err
    assert f"from nothing ({without.path})" in whole.err


def test_it_is_the_same_as_two_commands(whole: toy.Ran, folder: Path) -> None:
    named = files(folder)
    train(text=named.pop("text"), objective="spans", out=folder / "pre", settings=TINY)  # type: ignore[arg-type]
    settings = {key: value for key, value in {**TINY, **STEPS}.items() if not key.startswith(("text.",))}
    train(**named, init=folder / "pre", out=folder / "two", settings=settings)  # type: ignore[arg-type]
    for one, other in (("pre", "run/pretraining"), ("two", "run")):
        assert toy.same_bits(toy.weights(folder / one), toy.weights(folder / other))


@pytest.mark.parametrize("stop", [3, 202])  # while it reads the text, of which there are 200 updates, and the pairs
def test_a_stopped_run_ends_with_the_same_bits_even_elsewhere(
    whole: toy.Ran, folder: Path, tmp_path: Path, stop: int
) -> None:
    updates = 0

    def count(event: object) -> None:
        nonlocal updates
        updates += type(event).__name__ == "StepDone"

    stopped = train(
        **files(folder),  # type: ignore[arg-type]
        out=tmp_path / "run",
        settings={**TINY, **STEPS},
        on_event=count,
        stop_requested=lambda: "SIGTERM" if updates == stop else "",
    )
    assert (stopped.interrupted, stopped.folder) == (True, tmp_path / "run")
    shutil.move(tmp_path / "run", tmp_path / "moved")
    assert not resume(tmp_path / "moved").interrupted
    for name in ("", "pretraining"):
        assert toy.same_bits(toy.weights(tmp_path / "moved" / name), toy.weights(folder / "run" / name))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"objective": "masked"}, "objective is 'masked', but before pairs a model restores spans"),
        ({"init": "en-de"}, "text beside pairs is for a new model, but init is en-de"),
        ({"settings": {"task": "completion"}}, "task is 'completion', which does not learn from pairs"),
        ({"settings": {"task": "captions"}}, "task is 'captions', which does not learn from pairs"),
    ],
)
def test_what_does_not_go_together_is_refused(
    folder: Path, tmp_path: Path, more: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        train(**files(folder), out=tmp_path / "run", **more)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_few_pairs_are_judged_by_their_score() -> None:
    for pairs, wanted in ((100, "loss"), (1000, "bleu"), (5000, "loss")):
        corpus = CorpusStatistics(pairs, 13 * pairs, 3000)
        chosen = judge_few_pairs_by_score(choose_settings(corpus, "cpu", {}, model=True), corpus.pairs)
        assert chosen.tables["train"].get("best_by", "loss") == wanted
