"""Choose optimizer, learning rate, dropout and number of updates of each row, with the same care for all."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from heedful.config import Experiment, OptimizerKind
from heedful.device import choose_device, use_threads
from heedful.errors import FolderError
from heedful.storage.files import read_json, write_atomically
from heedful.studies.row_training import train_row
from heedful.studies.rows import CorpusFacts, TableRow
from heedful.studies.speed import measure_training_speed
from heedful.studies.study import Cell, Scale, StudyPlan, Table

_RATES: Sequence[tuple[OptimizerKind, float]] = (
    ("adam", 0.001), ("adam", 0.002), ("adam", 0.004), ("muon", 0.001), ("muon", 0.002), ("muon", 0.004),
)  # fmt: skip
_DROPOUTS = (0.2, 0.3, 0.4)
# The best rate shows early. The best dropout does not: the less of it, the faster a model learns at first.
_RATE_SHARE, _DROPOUT_SHARE = 1 / 6, 1 / 2
_REPEATS: Mapping[Scale, int] = {"smoke": 2, "laptop": 9, "paper": 9}
_SPEEDS = "speeds.json"


@dataclass(frozen=True, slots=True)
class Trial:
    """A short training with one choice of the grid, and its lowest validation loss."""

    row: TableRow
    experiment: Experiment
    loss: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """The rows with the settings that were best for each, and the trials that show it."""

    rows: Sequence[TableRow]
    trials: Sequence[Trial]

    def table(self, names: Mapping[str, str]) -> Table:
        """All trials, with these names of the rows."""
        columns = ("model", "updates", "optimizer", "learning rate", "dropout", "validation loss", "lowest")
        rows: list[tuple[Cell, ...]] = []
        for trial in self.trials:
            train, dropout = trial.experiment.train, trial.experiment.model.dropout
            rivals = [other for other in self.trials if _stage(other) == _stage(trial)]
            mark = "yes" if trial.loss == min(rival.loss for rival in rivals) else ""
            rate = f"{train.learning_rate:g}"
            rows.append((names[trial.row.name], train.max_steps, train.optimizer, rate, dropout, trial.loss, mark))
        note = (
            "All models have the same grid: optimizer and learning rate after a sixth of the updates, then dropout "
            "after half of them, where each model has as many updates as fit into the processor time of the first."
        )
        return Table("Tuning", columns, tuple(rows), (note,))


def tune_rows(rows: Sequence[TableRow], found: CorpusFacts, plan: StudyPlan) -> Tuning:
    """Choose the settings of each row by validation loss, and give all rows the same processor time."""
    trials: list[Trial] = []
    with_rates = [_choose(row, _vary_rate(row.experiment), plan, trials) for row in rows]
    timed = _equal_time(with_rates, found, plan)
    return Tuning([_choose(row, _vary_dropout(row.experiment), plan, trials) for row in timed], trials)


def _vary_rate(experiment: Experiment) -> Iterator[tuple[str, Experiment, Experiment]]:
    """The name of a trial, its experiment, and the experiment of the row if the trial is best."""
    for optimizer, rate in _RATES:
        chosen = replace(experiment, train=replace(experiment.train, optimizer=optimizer, learning_rate=rate))
        yield f"{optimizer}-{rate:g}", _shorten(chosen, _RATE_SHARE), chosen


def _vary_dropout(experiment: Experiment) -> Iterator[tuple[str, Experiment, Experiment]]:
    """See `_vary_rate`."""
    for dropout in _DROPOUTS:
        chosen = replace(experiment, model=replace(experiment.model, dropout=dropout))
        yield f"dropout-{dropout:g}", _shorten(chosen, _DROPOUT_SHARE), chosen


def _choose(
    row: TableRow, choices: Iterable[tuple[str, Experiment, Experiment]], plan: StudyPlan, trials: list[Trial]
) -> TableRow:
    """Train all trials of a row, add them to `trials`, and return the row as the best of them has it."""
    kept: list[tuple[float, Experiment]] = []
    for name, short, chosen in choices:
        trial = TableRow(f"{row.name}-{name}", replace(short, name=f"{row.name}-{name}"))
        run = train_row(trial, replace(plan, folder=plan.folder / "tuning"))
        loss = min(look["loss"] for look in run.read_events("Validated"))
        trials.append(Trial(row, short, loss))
        kept.append((loss, chosen))
    _, best = min(kept, key=lambda one: one[0])
    return TableRow(row.name, best)


def _equal_time(rows: Sequence[TableRow], found: CorpusFacts, plan: StudyPlan) -> list[TableRow]:
    """Give all rows the processor time of the first: a faster model has more updates."""
    speeds = _speeds(rows, found, plan)
    return [TableRow(row.name, _shorten(row.experiment, speeds[row.name] / speeds[rows[0].name])) for row in rows]


def _speeds(rows: Sequence[TableRow], found: CorpusFacts, plan: StudyPlan) -> Mapping[str, float]:
    """Tokens per second of each row with its optimizer; measured once, so that an interrupted study can continue."""
    path, names = plan.folder / "tuning" / _SPEEDS, {row.name for row in rows}
    if path.exists():
        kept: Any = read_json(path)
        if not isinstance(kept, dict) or not all(isinstance(kept.get(name), float) for name in names):
            raise FolderError(f"{path} does not have the speed of all rows; delete it, and they will be measured again")
        return kept
    train, lengths = rows[0].experiment.train, found.lengths
    length = max(2, round(float(lengths[1].mean()))) if lengths else 2
    plan.report.say(f"measuring training speed on sentences of {length} pieces")
    use_threads(train.threads)
    measured = measure_training_speed(
        {row.name: row.experiment.model for row in rows}, [length], max(found.source, found.target),
        train.batch_tokens // plan.processes, _REPEATS[plan.scale], choose_device(train.device),
        {row.name: row.experiment.train.optimizer for row in rows},
    )  # fmt: skip
    speeds = {name: speed for (name, _), speed in measured.items()}
    write_atomically(path, json.dumps(speeds, indent=1))
    return speeds


def _shorten(experiment: Experiment, share: float) -> Experiment:
    """The experiment with this share of its updates, and its warm-ups, moving average and validations to match."""
    train = experiment.train
    steps = max(1, round(share * train.max_steps))
    return replace(
        experiment,
        train=replace(
            train,
            max_steps=steps,
            warmup_steps=max(1, round(share * train.warmup_steps)),
            dropout_warmup=round(share * train.dropout_warmup),
            ema_decay=max(0.9, 1.0 - (1.0 - train.ema_decay) / share) if train.ema_decay else 0.0,
            validate_every=max(1, min(steps, round(share * train.validate_every))),
            save_every=max(1, min(steps, train.save_every)),
        ),
    )


def _stage(trial: Trial) -> tuple[str, int]:
    return trial.row.name, trial.experiment.train.max_steps
