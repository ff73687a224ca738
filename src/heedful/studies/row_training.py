"""Train a row of a table in its own run folder: start it, resume it, or find it finished."""

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from heedful.config import differences, dump_experiment
from heedful.errors import FolderError, HeedfulError
from heedful.storage.files import write_atomically
from heedful.storage.run_folder import RunFolder
from heedful.studies.rows import TableRow
from heedful.studies.study import StudyInterrupted, StudyPlan
from heedful.tasks import find_task
from heedful.training import run as training_run
from heedful.training.events import STOP_SIGNALS, Event, Finished, StepDone, Validated

# Keys that say where a row is trained; they do not change the row.
_PLACE = ("train.threads", "train.device", "train.timeout_minutes")
_SECONDS_BETWEEN_LOOKS = 0.2


def row_folder(row: TableRow, plan: StudyPlan) -> Path:
    """The run folder of a row."""
    return plan.folder / "rows" / row.name


def train_row(row: TableRow, plan: StudyPlan) -> RunFolder:
    """Train the row to its end unless it is finished. A signal saves a checkpoint and raises `StudyInterrupted`."""
    if came := plan.interrupted():
        raise StudyInterrupted(came)
    run = RunFolder(row_folder(row, plan))
    if (run.path / "experiment.toml").exists():
        _check_same(run, row)
        if "finished" in run.about():
            plan.report.say(f"{row.name}: already trained")
            return run
    plan.report.say(f"{row.name}: training in {run.path}")
    if plan.processes > 1:
        _train_elsewhere(row, plan)
    else:
        _follow(_events(run, row, plan), row, plan)
    return run


def command(row: TableRow, plan: StudyPlan) -> str:
    """The command that trains this row alone, from the recipe that `write_recipe` writes."""
    parts = [*_launcher(plan), *_arguments(row, plan)]
    return shlex.join(parts)


def write_recipe(row: TableRow, plan: StudyPlan) -> Path:
    """Write the complete experiment of a row as a recipe."""
    path = plan.folder / "recipes" / f"{row.name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, dump_experiment(row.experiment))
    return path


def _check_same(run: RunFolder, row: TableRow) -> None:
    for key, before, now in differences(run.experiment(), row.experiment):
        if key not in _PLACE:
            raise FolderError(
                f"{run.path} was trained with {key} = {before}, but now it is {now}; "
                "choose another --out, or remove that folder to train the row again"
            )


def _events(run: RunFolder, row: TableRow, plan: StudyPlan) -> Iterator[Event]:
    train = row.experiment.train
    if (run.path / "experiment.toml").exists():
        here = {"threads": train.threads, "device": train.device, "timeout_minutes": train.timeout_minutes}
        return training_run.resume_run(run.path, {"train": here}, plan.report, plan.interrupted)
    RunFolder.create(run.path)
    total = sum(1 for _ in find_task(row.experiment.task).read_pairs(row.experiment.data))
    return training_run.start_run(run, row.experiment, total, plan.report, plan.interrupted)


def _follow(events: Iterator[Event], row: TableRow, plan: StudyPlan) -> None:
    reason = ""
    for event in events:
        match event:
            case StepDone():
                plan.report.progress(f"training {row.name}", event.step, row.experiment.train.max_steps)
            case Validated():
                score = "" if event.score is None else f", {event.metric} {event.score:.2f}"
                plan.report.say(f"{row.name}, step {event.step}: perplexity {event.perplexity:.2f}{score}")
            case Finished():
                reason = event.reason
    if reason in STOP_SIGNALS:
        raise StudyInterrupted(reason)


def _launcher(plan: StudyPlan) -> list[str]:
    if plan.processes == 1:
        return ["heedful"]
    return ["torchrun", "--standalone", "--nproc-per-node", str(plan.processes), "-m", "heedful"]


def _arguments(row: TableRow, plan: StudyPlan) -> list[str]:
    folder = row_folder(row, plan)
    if (folder / "experiment.toml").exists():
        return ["train", "--resume", str(folder)]
    return ["train", str(plan.folder / "recipes" / f"{row.name}.toml"), "--out", str(folder)]


def _train_elsewhere(row: TableRow, plan: StudyPlan) -> None:
    """Train with torchrun in separate processes, such as one for each GPU."""
    write_recipe(row, plan)
    launcher = [sys.executable, "-m", "torch.distributed.run", *_launcher(plan)[1:]]
    # In their own process group Ctrl-C reaches them once; a second one would stop them before they have saved.
    with subprocess.Popen([*launcher, *_arguments(row, plan)], start_new_session=True) as child:  # noqa: S603
        try:
            while child.poll() is None and not plan.interrupted():
                time.sleep(_SECONDS_BETWEEN_LOOKS)
            came = plan.interrupted()
        finally:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
    if came:
        raise StudyInterrupted(came)
    if "finished" not in RunFolder(row_folder(row, plan)).about():
        raise HeedfulError(
            f"the training of {row.name} ended with exit code {child.returncode}; see above. "
            "The same command resumes it"
        )
