"""Shared by the checks of faults.py: a small text, a training of it as a process, and the outcome of a check."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from heedful.config import Experiment, merge, parse_setting
from heedful.progress import SilentReporter
from heedful.storage.run_folder import RunFolder
from heedful.tasks import make_experiment

SETTINGS = (
    *("seed=3", "train.threads=1", "model.preset=modern", "model.d_model=32", "model.d_ff=64", "model.num_heads=4"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "text.vocabulary_size=300", "text.bpe_dropout=0.1"),
    *("text.bpe_variants=2", "train.batch_tokens=512", "train.accumulate=2", "train.validate_every=40"),
    *("train.save_every=10", "train.average_checkpoints=4", "train.patience=0", "train.validate_bleu=false"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The number of attempts, the failures, and a note with other counts."""

    tried: int
    failures: tuple[str, ...]
    note: str
    skipped: str = ""  # why the check could not run at all


Check = Callable[[Path, int, random.Random], Outcome]  # folder to work in, number of attempts, random numbers


def tell(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


# Training


def write_text(folder: Path, lines: int = 1500) -> None:
    """Write sentences of an invented language, and a translation with their words reversed."""
    chance = random.Random(5)
    words = ["".join(chance.choices("abdeiklmnorstu", k=chance.randint(2, 6))) for _ in range(60)]
    text = [chance.choices(words, k=chance.randint(1, 12)) for _ in range(lines)]
    for end, order in (("en", 1), ("de", -1)):
        content = "".join(" ".join(line[::order]) + "\n" for line in text)
        (folder / f"text.{end}").write_text(content, encoding="utf-8")


def experiment(folder: Path, *settings: str) -> Experiment:
    """The same experiment, for a check within this process."""
    data = {"source": [str(folder / "text.en")], "target": [str(folder / "text.de")]}
    return make_experiment(merge({"data": data}, *map(parse_setting, (*SETTINGS, *settings))))


@contextmanager
def plain_log() -> Iterator[None]:
    """Write no TensorBoard files and no pictures, which would take longer than the training itself."""
    with (
        mock.patch("heedful.training.events._open_tensorboard", return_value=None),
        mock.patch("heedful.training.events.draw_curve"),
        mock.patch("heedful.training.run.draw_curve"),
    ):
        yield


def train_here(folder: Path, run: Path, *settings: str, stop: bool = False) -> Path:
    """Train within this process, to the end or to the first step."""
    from heedful.training.run import start_run  # imports PyTorch, which some checks do without

    lines = (folder / "text.en").read_bytes().count(b"\n")
    signal = "SIGTERM" if stop else ""
    for _ in start_run(RunFolder.create(run), experiment(folder, *settings), lines, SilentReporter(), lambda: signal):
        pass
    return run


def train_command(folder: Path, steps: int, *settings: str) -> list[str]:
    """`heedful train` without its folder."""
    files = ["--source", str(folder / "text.en"), "--target", str(folder / "text.de")]
    given = (*SETTINGS, f"train.max_steps={steps}", *settings)
    return [sys.executable, "-m", "heedful", "train", *files, *(part for key in given for part in ("--set", key))]


def train_whole(folder: Path, run: Path, steps: int, *settings: str) -> None:
    """Train without any disturbance."""
    began = time.monotonic()
    subprocess.run([*train_command(folder, steps, *settings), "--out", str(run)], check=True, capture_output=True)
    tell(f"undisturbed: {steps} steps in {time.monotonic() - began:.0f} s")


def start(command: Sequence[str], run: Path) -> "subprocess.Popen[str]":
    """Start the training, or resume it if the run folder exists."""
    begun = (run / "experiment.toml").exists()
    line = [*command[:4], "--resume", str(run)] if begun else [*command, "--out", str(run)]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(command: Sequence[str], run: Path) -> str:
    """Train to the end; returns a failure, or an empty string."""
    process = start(command, run)
    _, err = process.communicate()
    return f"exit code {process.returncode} at the end: {last_line(err)}" if process.returncode else ""


def last_line(text: str) -> str:
    """The last line that is not empty."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


# The results of a training


def wait_for_a_step(run: Path, before: int, process: "subprocess.Popen[str]") -> None:
    """Wait until the log has a later step or the process has ended."""
    while process.poll() is None and last_step(run) <= before:
        time.sleep(0.02)


def last_step(run: Path) -> int:
    """The last complete step in the log."""
    log = run / "events.jsonl"
    lines = log.read_text(encoding="utf-8").split("\n")[:-1] if log.exists() else []
    return max((json.loads(line)["step"] for line in lines), default=0)


def last_saved(run: Path) -> int:
    """The step of the newest checkpoint."""
    latest = run / "checkpoints" / "latest"
    return int(latest.read_text().strip().removeprefix("step-")) if latest.exists() else 0


def differences(whole: Path, run: Path, steps: int) -> list[str]:
    """The names of files and logs that differ from those of the undisturbed training."""
    last = f"checkpoints/step-{steps:08d}/tensors.safetensors"
    found = [name for name in ("model.safetensors", last) if (whole / name).read_bytes() != (run / name).read_bytes()]
    for kind in ("StepDone", "Validated"):
        if losses(whole, kind) != losses(run, kind):
            found.append(f"the log of {kind}")
    return found + [f"{path.name}, left behind" for path in run.rglob(".tmp-*")]


def losses(run: Path, kind: str) -> list[tuple[int, float]]:
    """Every step of the log and its loss."""
    events = map(json.loads, (run / "events.jsonl").read_text(encoding="utf-8").splitlines())
    return [(event["step"], event["loss"]) for event in events if event["event"] == kind]
