"""`heedful.train` and `heedful.resume` do everything that the command does."""

import logging
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toy

import heedful
from heedful.errors import ConfigError, FolderError
from heedful.storage.run_folder import RunFolder
from heedful.training.events import Event, Finished, Saved, Started, StepDone, Validated

# In the form that the command line takes, and in the form that Python takes.
SHORT = ("train.max_steps=6", "train.validate_every=3", "train.save_every=3", "train.batch_tokens=300")
SETTINGS: dict[str, Any] = {
    "model": {"preset": "modern", "d_model": 32, "d_ff": 64, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1},
    "model.dropout": 0.0,
    "text.kind": "words",
    "text.vocabulary_size": 400,
    "train.threads": 1,
    "train": {"max_steps": 6, "validate_every": 3, "save_every": 3},
    "train.batch_tokens": 300,
}


class RecordingReporter:
    """Keeps the sentences of a training."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def progress(self, what: str, done: int, total: int) -> None:
        pass


@pytest.fixture(autouse=True)
def _plain_log() -> Iterator[None]:
    with toy.plain_log():
        yield


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return toy.write_pairs(tmp_path_factory.mktemp("pairs"), "train", 120, seed=1)


def test_six_lines_lead_from_two_files_to_a_translation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    toy.write_pairs(tmp_path, "train", 1500, seed=1)
    rate = {"train.schedule": "cosine", "train.learning_rate": 0.01, "train.warmup_steps": 20}
    tiny = {**SETTINGS, "train": {"max_steps": 200}, "train.batch_tokens": 1000, **rate}
    program = """
from heedful import Translator, train

result = train(source="train.en", target="train.de", out="runs/en-de", settings=tiny)
translator = Translator.load(result.folder)
for translation in translator.translate(sentences):
    print(translation.text)
"""
    sentences = toy.sentences(8, seed=9, longest=2)
    exec(compile(program, "six lines", "exec"), {"tiny": tiny, "sentences": sentences})
    assert len(program.strip().split("\n")) == 6
    translated = capsys.readouterr().out.splitlines()
    right = [ours == toy.translated(given) for ours, given in zip(translated, sentences, strict=True)]
    assert sum(right) >= 7


@pytest.mark.parametrize(
    ("setting", "penalty", "alpha"),
    [
        ({}, "power", 1.0),
        ({"search.alpha": 0.7}, "paper", 0.7),
        ({"search.penalty": "power"}, "power", 0.6),
        ({"model.preset": "tiny"}, "paper", 0.6),
        ({"task": "characters"}, "paper", 0.6),
    ],
)
def test_a_translator_of_your_own_searches_by_the_mean_per_piece(
    pairs: tuple[Path, Path], tmp_path: Path, setting: dict[str, Any], penalty: str, alpha: float
) -> None:
    source, target = pairs
    brief = {"train.max_steps": 1, "train.validate_bleu": False, "train.threads": 1}
    heedful.train(source=source, target=target, out=tmp_path / "run", settings={**brief, **setting})
    search = RunFolder.open(tmp_path / "run").experiment().search
    assert (search.penalty, search.alpha) == (penalty, alpha)


def test_python_and_the_command_train_the_same_bits(pairs: tuple[Path, Path], tmp_path: Path) -> None:
    source, target = pairs
    by_command = toy.run(
        *("train", "--source", source, "--target", target, "--out", tmp_path / "command"), *toy.settings(*SHORT)
    )
    assert by_command.code == 0
    result = heedful.train(source=[str(source)], target=target, out=str(tmp_path / "python"), settings=SETTINGS)
    assert toy.same_bits(toy.weights(tmp_path / "python"), toy.weights(tmp_path / "command"))
    assert result.folder == tmp_path / "python"
    assert (result.steps, result.reason, result.interrupted) == (6, "all 6 steps are done", False)
    best = min(toy.events(result.folder, "Validated"), key=lambda event: float(event["loss"]))
    assert result.perplexity == pytest.approx(best["perplexity"])
    assert result.score == pytest.approx(best["score"])
    assert result.metric == "BLEU"
    assert result.weights == toy.events(result.folder, "Finished")[0]["model"] != ""


def test_every_event_is_passed_on_and_sentences_are_reported(pairs: tuple[Path, Path], tmp_path: Path) -> None:
    heard, seen = RecordingReporter(), list[Event]()
    source, target = pairs
    heedful.train(
        source=source,
        target=target,
        valid_source=source,
        valid_target=target,
        out=tmp_path / "run",
        settings=SETTINGS,
        reporter=heard,
        on_event=seen.append,
    )
    kinds = [type(event) for event in seen]
    assert kinds[:2] == [Started, StepDone]
    assert kinds[-4:] == [StepDone, Validated, Saved, Finished]
    assert any(sentence.startswith("data: 120 pairs to train on, 120 for validation") for sentence in heard.sentences)
    assert any(sentence.startswith("step 3: validation perplexity") for sentence in heard.sentences)
    assert heard.sentences[-1].startswith("done after 6 steps and ")


def test_sentences_are_logged_unless_a_reporter_is_given(
    pairs: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="heedful"):
        heedful.train(source=pairs[0], target=pairs[1], out=tmp_path / "run", settings=SETTINGS)
    assert "done after 6 steps" in caplog.text


def test_a_recipe_names_the_folder(pairs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(f'[data]\nsource = "{pairs[0]}"\ntarget = "{pairs[1]}"\n')
    result = heedful.train(tmp_path / "small.toml", settings={**SETTINGS, "train": {"max_steps": 1}})
    assert (result.folder, result.steps) == (Path("runs/small"), 1)
    assert (result.metric, result.weights) == ("BLEU", "best validation, step 1")


def test_a_model_is_fine_tuned(pairs: tuple[Path, Path], tmp_path: Path) -> None:
    first = heedful.train(source=pairs[0], target=pairs[1], out=tmp_path / "first", settings=SETTINGS)
    two = {"train.max_steps": 2, "train.threads": 1}
    second = heedful.train(source=pairs[0], target=pairs[1], init=first.folder, out=tmp_path / "second", settings=two)
    assert toy.events(second.folder, "Validated")[0]["step"] == 0


# Stopping and resuming


def test_ctrl_c_saves_a_checkpoint_which_resume_continues_from(pairs: tuple[Path, Path], tmp_path: Path) -> None:
    def press(event: Event) -> None:
        if isinstance(event, StepDone) and event.step == 2:
            signal.raise_signal(signal.SIGINT)

    source, target = pairs
    heedful.train(source=source, target=target, out=tmp_path / "whole", settings=SETTINGS)
    message = r"saved at step 2; continue with heedful\.resume\('.*stopped'\)"
    with pytest.raises(KeyboardInterrupt, match=message):
        heedful.train(source=source, target=target, out=tmp_path / "stopped", settings=SETTINGS, on_event=press)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert (tmp_path / "stopped" / "checkpoints" / "step-00000002").is_dir()
    result = heedful.resume(tmp_path / "stopped")
    assert (result.steps, result.reason) == (6, "all 6 steps are done")
    assert toy.same_bits(toy.weights(tmp_path / "stopped"), toy.weights(tmp_path / "whole"))


def test_a_second_ctrl_c_stops_at_once_and_frees_the_folder(pairs: tuple[Path, Path], tmp_path: Path) -> None:
    def press(event: Event) -> None:
        if isinstance(event, StepDone) and event.step == 4:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    try:
        heedful.train(source=pairs[0], target=pairs[1], out=tmp_path / "run", settings=SETTINGS, on_event=press)
    except KeyboardInterrupt:
        result = heedful.resume(str(tmp_path / "run"), settings={"train.max_steps": 7})
    assert toy.events(tmp_path / "run", "Started")[-1]["step"] == 3
    assert result.steps == 7


def test_ctrl_c_before_the_first_step_stops_at_once(pairs: tuple[Path, Path], tmp_path: Path) -> None:
    class Presses(RecordingReporter):
        def say(self, sentence: str) -> None:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        heedful.train(source=pairs[0], target=pairs[1], out=tmp_path / "run", settings=SETTINGS, reporter=Presses())
    assert heedful.resume(tmp_path / "run").steps == 6


def test_the_caller_can_stop_it(pairs: tuple[Path, Path], tmp_path: Path) -> None:
    steps: list[Event] = []
    result = heedful.train(
        source=pairs[0],
        target=pairs[1],
        out=tmp_path / "run",
        settings=SETTINGS,
        on_event=lambda event: steps.append(event) if isinstance(event, StepDone) else None,
        stop_requested=lambda: "SIGTERM" if steps else "",
    )
    assert (result.steps, result.reason, result.interrupted, result.weights) == (1, "SIGTERM", True, "")
    assert (result.perplexity, result.score, result.metric) == (None, None, "")


def test_it_trains_outside_the_main_thread(pairs: tuple[Path, Path], tmp_path: Path) -> None:
    results: list[heedful.TrainingResult] = []

    def work() -> None:
        results.append(heedful.train(source=pairs[0], target=pairs[1], out=tmp_path / "run", settings=SETTINGS))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results[0].steps == 6


# Mistakes


def test_mistakes_are_named_before_any_work(pairs: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^source and target go together; give both, or choose a task"):
        heedful.train(source=pairs[0], out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"^unknown key: train\.max_step; did you mean 'max_steps'\?"):
        heedful.train(source=pairs[0], target=pairs[1], out=tmp_path / "run", settings={"train.max_step": 3})
    with pytest.raises(ConfigError, match=r"^no training data; give source and target"):
        heedful.train(out=tmp_path / "run")
    with pytest.raises(FolderError, match=r"^no run folder"):
        heedful.resume(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    with pytest.raises(FolderError, match="already exists"):
        heedful.train(source=pairs[0], target=pairs[1], out=tmp_path / "run")


def test_a_path_is_a_setting_too(pairs: tuple[Path, Path], tmp_path: Path) -> None:
    first = heedful.train(source=pairs[0], target=pairs[1], out=tmp_path / "first", settings=SETTINGS)
    again = {**SETTINGS, "text.tokenizer_file": first.folder / "tokenizer.json"}
    second = heedful.train(source=pairs[0], target=pairs[1], out=tmp_path / "second", settings=again)
    assert RunFolder.open(second.folder).experiment().text.tokenizer_file == str(first.folder / "tokenizer.json")
