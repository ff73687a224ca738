"""What it gained to start from another model: a second training on the same data that starts from nothing.

Its run folder is `without/` in that of the first. It is there from the beginning, so a resumed run goes on with it.
"""

from dataclasses import replace
from pathlib import Path

from heedful.config import Experiment
from heedful.errors import ConfigError
from heedful.storage.run_folder import RunFolder
from heedful.tasks import find_task

WITHOUT = "without"


def check_comparable(experiment: Experiment) -> None:
    """Refuse a comparison that would have no start to leave out, or no score that both models have."""
    if not experiment.train.init:
        raise ConfigError(
            "compare trains a second model without the one to start from, but none is named; give one with init"
        )
    task = find_task(experiment.task)
    if task.continues_text or not experiment.train.validate_bleu:
        raise ConfigError(
            f"compare needs scores that do not depend on the vocabulary, but a training for {task.name} is validated "
            "by its loss alone; leave compare out"
        )


def begin_comparison(folder: Path, experiment: Experiment, without: Experiment) -> RunFolder:
    """Write down how the second model is trained: on the data of the first, validated on the same part of it."""
    run = RunFolder.create(folder / WITHOUT)
    run.begin(replace(without, name=f"{experiment.name}-{WITHOUT}", seed=experiment.seed, data=experiment.data))
    return run


def find_comparison(folder: Path) -> RunFolder | None:
    """The run folder of the second model, if one was asked for."""
    path = folder / WITHOUT
    return RunFolder(path) if (path / "experiment.toml").exists() else None


def describe_comparison(run: RunFolder, without: RunFolder) -> str:
    """Both scores in validation, and what they can show."""
    ours, theirs = run.validation(), without.validation()
    parent = run.experiment().train.init
    if not ours or not theirs or ours.score is None or theirs.score is None:
        return (
            f"there was nothing to validate on, so nothing compares them yet; score both on the same test set with: "
            f"heedful evaluate {run.path}, heedful evaluate {without.path}"
        )
    return (
        f"{ours.metric} in validation: {ours.score:.2f} starting from {parent}, {theirs.score:.2f} from nothing "
        f"({without.path}); one training each, so a small difference may be chance"
    )
