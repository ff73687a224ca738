"""A real training that is killed or gets a signal continues where it stopped."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import toy
from resume_examples import WHOLE, assert_same, steps_logged


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


SLOW = ("train.max_steps=60", "train.save_every=7", "train.validate_every=25")


def launch(*arguments: object) -> "subprocess.Popen[bytes]":
    """`heedful` without the imports for plots, which would take most of the time."""
    code = "import sys, toy\nfrom heedful.cli.commands import main\nwith toy.plain_log():\n    main()"
    environment = {"PYTHONPATH": str(Path(__file__).resolve().parents[1] / "examples")}
    return toy.start(*arguments, program=[sys.executable, "-c", code], environment=environment)


def options(pairs: Path, run: Path, settings: Sequence[str]) -> list[object]:
    """Arguments of `heedful train` for a run of `experiment`."""
    files = ("--source", pairs / "train.en", "--target", pairs / "train.de")
    valid = ("--valid-source", pairs / "valid.en", "--valid-target", pairs / "valid.de")
    given = (part for setting in (*WHOLE, *settings) for part in ("--set", setting))
    return ["train", *files, *valid, "--out", run, "--set", "model.preset=paper", *given]


def wait_for_step(run: Path, step: int, process: "subprocess.Popen[bytes]") -> None:
    """Wait until the log has this step or the process has ended."""
    needle = f'"event": "StepDone", "step": {step},'
    until = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        if (run / "events.jsonl").exists() and needle in (run / "events.jsonl").read_text():
            return
        time.sleep(0.01)


def test_a_process_killed_three_times_ends_with_the_same_bits(pairs: Path, tmp_path: Path) -> None:
    chance, run, kills = random.Random(4), tmp_path / "run", 0
    assert toy.run(*options(pairs, tmp_path / "whole", SLOW)).code == 0
    process = launch(*options(pairs, run, SLOW))
    while kills < 3:
        wait_for_step(run, 8 + 16 * kills, process)
        time.sleep(chance.uniform(0.0, 0.05))
        if process.poll() is not None:  # on a busy machine it may have finished before the last kill
            break
        process.kill()
        process.communicate()
        kills += 1
        process = launch("train", "--resume", run)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, b""), err
    assert kills > 0
    assert b"resuming at step" in err
    assert_same(run, tmp_path / "whole")
    assert not list(run.rglob(".tmp-*"))
    assert len(toy.events(run, "Started")) >= 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_saves_and_ends_within_seconds(pairs: Path, tmp_path: Path, number: int, code: int) -> None:
    run = tmp_path / "run"
    process = launch(*options(pairs, run, ["train.max_steps=100000"]))
    wait_for_step(run, 5, process)
    # Meanwhile the folder is locked.
    ran = toy.run("train", "--resume", run)
    assert (ran.code, ran.out) == (2, "")
    assert f"{run} is being trained by process {process.pid}; wait for it, stop it" in ran.err
    began = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 10
    assert (process.returncode, out) == (code, b""), err
    step = json.loads((run / "events.jsonl").read_text().splitlines()[-1])["step"]
    name = signal.Signals(number).name
    assert f"stopped by {name} at step {step}, saved; continue with: heedful train --resume {run}" in err.decode()
    assert step >= 5
    ran = toy.run("train", "--resume", run, "--set", f"train.max_steps={step + 2}")
    assert ran.code == 0, ran.err
    assert f"resuming at step {step}" in ran.err
    assert steps_logged(run) == list(range(1, step + 3))
