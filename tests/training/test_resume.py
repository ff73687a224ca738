"""A training that is stopped and resumed, however often and in whatever way, ends with the same bits."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

import pytest
import toy
from resume_examples import STEPS, Drive, assert_same, blind, experiment, state, steps_logged


@pytest.fixture(autouse=True)
def no_pictures() -> Iterator[None]:
    with toy.plain_log():
        yield


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    toy.write_pairs(folder, "train", 150, seed=21)
    toy.write_pairs(folder, "valid", 20, seed=22)
    return folder


@pytest.fixture(scope="module")
def whole(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that was never interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with toy.plain_log():
        driven = Drive(folder).start(experiment(pairs))
    assert driven.validated() == [3, 6, 9, 12, 13]
    assert driven.finished.step == STEPS
    epochs = [event["epoch"] for event in toy.events(folder, "StepDone")]
    assert 0 < epochs.count(0) < STEPS  # some steps are in a later epoch, with the other variant of the text
    prepared = sorted(path.name for path in (folder / "data").iterdir())
    assert prepared == ["manifest.json", "train-0", "train-1", "valid", "valid.json"]
    return folder


def test_the_same_experiment_gives_the_same_bits(pairs: Path, whole: Path, tmp_path: Path) -> None:
    Drive(tmp_path / "run").start(experiment(pairs))
    assert_same(tmp_path / "run", whole)


def test_another_seed_gives_other_bits(pairs: Path, whole: Path, tmp_path: Path) -> None:
    Drive(tmp_path / "run").start(experiment(pairs, "seed=8"))
    assert not toy.same_bits(toy.weights(tmp_path / "run"), toy.weights(whole))


@pytest.mark.parametrize(
    ("step", "kill"), [*((step, False) for step in range(1, STEPS)), *((step, True) for step in (1, 4, 6, 12))]
)
def test_a_run_stopped_at_any_step_ends_with_the_same_bits(
    pairs: Path, whole: Path, tmp_path: Path, step: int, kill: bool
) -> None:
    drive = Drive(tmp_path / "run").start(experiment(pairs), until=step, kill=kill)
    assert drive.step == step
    drive.resume()
    assert drive.finished.step == STEPS
    assert_same(tmp_path / "run", whole)
    assert state(tmp_path / "run") == state(whole)


@pytest.mark.parametrize(
    "setting", ["train.optimizer=muon", "train.dropout_warmup=8", "train.r_drop=5.0", "model.positions=relative"]
)
def test_a_run_with_other_parts_ends_with_the_same_bits(pairs: Path, tmp_path: Path, setting: str) -> None:
    other = experiment(pairs, setting)
    Drive(tmp_path / "whole").start(other)
    drive = Drive(tmp_path / "run").start(other, until=5)
    drive.resume(until=7)
    drive.resume()
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_a_run_stopped_at_every_step_ends_with_the_same_bits(pairs: Path, whole: Path, tmp_path: Path) -> None:
    drive = Drive(tmp_path / "run").start(experiment(pairs), until=1)
    for step in range(2, STEPS + 1):
        assert not drive.finished.model
        drive.resume(until=step)
        assert drive.step == step
    drive.resume()
    assert drive.finished.step == STEPS
    assert_same(tmp_path / "run", whole)
    assert steps_logged(tmp_path / "run") == list(range(1, STEPS + 1))


@pytest.fixture(scope="module")
def whole_blind(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blind") / "run"
    with toy.plain_log():
        Drive(folder).start(blind(pairs))
    return folder


@pytest.mark.parametrize("stops", [(2,), (6,), (12,), (3, 4, 6, 7), (10, 11, 12)])
def test_a_checkpoint_written_because_of_a_signal_is_not_in_the_mean(
    pairs: Path, whole_blind: Path, tmp_path: Path, stops: Sequence[int]
) -> None:
    drive = Drive(tmp_path / "run").start(blind(pairs), until=stops[0])
    for step in stops[1:]:
        drive.resume(until=step)
    drive.resume()
    assert drive.finished.model == "mean of the checkpoints of steps 5, 10, 13"
    assert_same(tmp_path / "run", whole_blind)


def test_the_log_has_every_step_once_with_its_numbers(pairs: Path, whole: Path, tmp_path: Path) -> None:
    Drive(tmp_path / "run").start(experiment(pairs), until=6, kill=True).resume()
    logged = toy.events(tmp_path / "run", "StepDone")
    assert [event["step"] for event in logged] == list(range(1, STEPS + 1))
    for event in logged:
        assert {"step", "loss", "learning_rate", "tokens_per_second"} <= event.keys()
        assert event["tokens_per_second"] > 0
    assert [event["step"] for event in toy.events(tmp_path / "run", "Started")] == [0, 4]
    assert len(toy.events(tmp_path / "run", "Finished")) == 1


def test_incomplete_files_of_a_killed_run_are_removed(pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    Drive(run).start(experiment(pairs), until=5, kill=True)
    (run / ".tmp-0123456789ab").write_bytes(b"half a model")
    (run / "checkpoints" / ".tmp-0123456789ab").mkdir()
    Drive(run).resume()
    assert not list(run.rglob(".tmp-*"))


def test_an_incomplete_line_of_the_log_is_dropped(pairs: Path, whole: Path, tmp_path: Path) -> None:
    drive = Drive(tmp_path / "run").start(experiment(pairs), until=6, kill=True)
    with (tmp_path / "run" / "events.jsonl").open("ab") as file:
        file.write(b'7\n{"event": "StepDone", "ste\xff')
    drive.resume()
    assert_same(tmp_path / "run", whole)


# Early stopping


SCRIPT = {2: 5.0, 4: 4.0, 6: 4.5, 8: 4.6, 10: 4.7, 12: 1.0}  # the loss at each validation


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Drive], None]:
    def follow(drive: Drive) -> None:
        monkeypatch.setattr("heedful.training.model_selection.compute_validation_loss", lambda *_: SCRIPT[drive.step])

    return follow


PATIENT = ("train.patience=3", "train.validate_every=2", "train.average_checkpoints=1")


@pytest.mark.parametrize("step", [1, 3, 4, 6, 8, 10])
def test_patience_and_the_best_score_survive_a_stop(
    pairs: Path, tmp_path: Path, step: int, scripted: Callable[[Drive], None]
) -> None:
    drive = Drive(tmp_path / "run")
    scripted(drive)
    drive.start(experiment(pairs, *PATIENT), until=step).resume()
    assert (drive.finished.step, drive.finished.reason) == (10, "no better validation in the last 3")
    assert drive.finished.model == "best validation, step 4"
    assert drive.validated() == [2, 4, 6, 8, 10]
    record = state(tmp_path / "run")["state"]["record"]
    if step < 10:  # if the signal came first, the checkpoint precedes the last validation
        assert record == {"best": 4.0, "best_step": 4, "waited": 3, "validated": 10}


def test_more_patience_lets_a_run_continue(pairs: Path, tmp_path: Path, scripted: Callable[[Drive], None]) -> None:
    drive = Drive(tmp_path / "run")
    scripted(drive)
    drive.start(experiment(pairs, *PATIENT))
    assert drive.finished.step == 10
    drive.resume(patience=4, max_steps=12)
    assert (drive.finished.step, drive.finished.model) == (12, "best validation, step 12")
    assert steps_logged(tmp_path / "run") == list(range(1, 13))


# After the end


def test_a_finished_run_says_so_and_changes_nothing(whole: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    ran = toy.run("train", "--resume", run)
    assert (ran.code, ran.out) == (0, "")
    assert f"done after {STEPS} steps" in ran.err
    assert f"all {STEPS} steps are done" in ran.err
    assert_same(run, whole)


def test_a_finished_run_continues_with_more_steps(pairs: Path, whole: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    drive = Drive(run).resume(max_steps=19)
    assert drive.finished.step == 19
    assert steps_logged(run) == list(range(1, 20))
    Drive(tmp_path / "long").start(experiment(pairs, "train.max_steps=19"))
    # The only difference is a validation where the first run ended.
    assert toy.same_bits(toy.last_checkpoint(run), toy.last_checkpoint(tmp_path / "long"))


def test_settings_of_a_resumed_run_stay_changed(whole: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    drive = Drive(run).resume(max_steps=19, until=15)
    assert drive.step == 15
    drive.resume()
    assert drive.finished.step == 19
    assert toy.run("translate", run, "x").code == 0
    assert json.loads(toy.run("info", run, "--json").out)["resumed_with"] == {"train": {"max_steps": 19}}


def test_a_wrong_setting_changes_nothing(whole: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    ran = toy.run("train", "--resume", run, "--set", "train.max_steps=19", "--set", "train.label_smoothing=0.5")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert Drive(run).resume().finished.step == STEPS


# Damage


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_is_used(
    pairs: Path, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    Drive(run).start(experiment(pairs), until=10)
    damage(run / "checkpoints" / "step-00000010" / "tensors.safetensors")
    ran = toy.run("train", "--resume", run)
    assert ran.code == 0
    told = "checkpoints/step-00000010 is damaged (tensors.safetensors: sha256 differs); resuming from step 8"
    assert told in ran.err
    assert_same(run, whole)


def test_it_is_an_error_if_no_checkpoint_is_intact(whole: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    for path in (run / "checkpoints").glob("step-*/tensors.safetensors"):
        damage(path)
    ran = toy.run("train", "--resume", run)
    assert (ran.code, ran.out) == (2, "")
    assert "no checkpoint is left to resume from: train in a new folder" in ran.err
    assert toy.same_bits(toy.weights(run), toy.weights(whole))


def test_a_damaged_checkpoint_is_left_out_of_the_mean(pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    Drive(run).start(experiment(pairs), until=12)
    damage(run / "checkpoints" / "step-00000008" / "tensors.safetensors")
    ran = toy.run("train", "--resume", run)
    assert ran.code == 0, ran.err
    assert "left out of the mean: " in ran.err
    assert "step-00000008" in ran.err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("data/valid.json", "valid.json"),
        ("data/train-0/corpus.json", "train-0"),
        ("data/train-1/source.ends", "train-1"),
        ("data/train-0/target.ids", "train-0"),
    ],
)
def test_truncated_prepared_data_is_named(whole: Path, tmp_path: Path, name: str, message: str) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    path = run / name
    path.write_bytes(path.read_bytes()[:-1])
    ran = toy.run("train", "--resume", run, "--set", "train.max_steps=14")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.split("\n")[-2].startswith("heedful: ")
    assert message in ran.err


# An interrupted preparation


@pytest.mark.parametrize("place", ["_make_tokenizers", "_write_train_corpora", "_write_valid_corpus", "_summarise"])
def test_a_run_stopped_during_preparation_can_be_resumed(pairs: Path, whole: Path, tmp_path: Path, place: str) -> None:
    run = tmp_path / "run"
    with (
        mock.patch(f"heedful.training.prepare.{place}", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        Drive(run).start(experiment(pairs))
    assert run.exists()
    Drive(run).resume()
    assert_same(run, whole)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)])
def test_a_signal_during_preparation_stops_it_at_once(pairs: Path, tmp_path: Path, number: int, code: int) -> None:
    def stopped(*_: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(10)

    run = tmp_path / "run"
    files = ("--source", pairs / "train.en", "--target", pairs / "train.de", "--out", run)
    began = time.monotonic()
    with mock.patch("heedful.training.prepare._make_tokenizers", side_effect=stopped):
        ran = toy.run("train", *files, *toy.settings("train.max_steps=1", "train.batch_tokens=99"))
    assert (ran.code, ran.out) == (code, "")
    assert time.monotonic() - began < 8
    assert "Traceback" not in ran.err
    assert toy.run("train", "--resume", run).code == 0
