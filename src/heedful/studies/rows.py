"""The rows of a table as experiments: one recipe, of which each changes only what it is about."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from heedful.config import PRESETS, RIVAL_RATE, Experiment, ModelConfig, merge
from heedful.errors import ConfigError, DataError, did_you_mean
from heedful.models.size import match_size, model_size
from heedful.studies.corpus_facts import CorpusFacts
from heedful.studies.study import StudyPlan
from heedful.tasks import Task, make_experiment
from heedful.tasks.translation import TRANSLATION
from heedful.training.prepare import resolve_files

_CLIPPED = 1.0


@dataclass(frozen=True, slots=True)
class TableRow:
    """A model to train, under the name of its folder."""

    name: str
    experiment: Experiment


def load_experiment(study: str, plan: StudyPlan, smoke: Mapping[str, Any], example: str, *tasks: Task) -> Experiment:
    """What all rows begin with: the recipe; for smoke these tables, and what is given on top of them."""
    if plan.scale != "smoke" and not plan.recipe:
        raise ConfigError(
            f"study {study} --scale {plan.scale} needs a recipe that names the data and how to train; "
            f"give one, such as {example}"
        )
    given = plan.recipe or {}
    experiment = make_experiment(merge(smoke, given) if plan.scale == "smoke" else given)
    check_recipe(study, experiment, example, *tasks)
    try:
        return replace(experiment, name="", data=resolve_files(experiment.data))
    except DataError:
        if plan.dry_run:  # the files may be on another machine
            return replace(experiment, name="")
        raise


def check_recipe(study: str, experiment: Experiment, example: str, *tasks: Task) -> None:
    """A study compares by one score, and with a Transformer; it is of translation unless other tasks are named."""
    tasks = tasks or (TRANSLATION,)
    if experiment.task not in [task.name for task in tasks]:
        raise ConfigError(
            f"study {study} is of {tasks[0].name}, but task is '{experiment.task}'; give a recipe such as {example}"
        )
    if experiment.model.family != "transformer":
        raise ConfigError(
            f"study {study} begins with a Transformer, but model.family is '{experiment.model.family}'; "
            f"give a recipe such as {example}"
        )


def select_rows(rows: Iterable[TableRow], plan: StudyPlan) -> list[TableRow]:
    """Those that were asked for."""
    known = {row.name: row for row in rows}
    for name in plan.rows:
        if name not in known:
            others = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise ConfigError(f"--rows {name}: there is no such row{others}")
    return [row for name, row in known.items() if not plan.rows or name in plan.rows]


def row(name: str, experiment: Experiment, changes: Mapping[str, Any]) -> TableRow:
    """An experiment with some keys changed, checked as any other."""
    return TableRow(name, make_experiment(merge(asdict(experiment), changes, {"name": name})))


def make_rival_row(name: str, preset: str, experiment: Experiment, material: CorpusFacts, **more: object) -> TableRow:
    """Another family in place of the recipe's Transformer, of as many parameters; all else is the recipe's.

    Only the rate is its own, that of the rivals' presets. The paper's schedule gives a rate by the width of a
    Transformer, so a rival's falls in the same way from its own.
    """
    kept = {key: getattr(experiment.model, key) for key in ("dropout", "sharing", "max_positions")}
    of_preset = {key: value for key, value in PRESETS[preset]["model"].items() if key != "dropout"}
    model = {**asdict(ModelConfig()), "preset": preset, **of_preset, **kept, **more}
    # Rows of positions that no sentence reaches would be parameters without a use.
    model["max_positions"] = min(experiment.model.max_positions, experiment.data.max_length)
    total = model_size(experiment.model, material.source, material.target).total
    schedule = experiment.train.schedule
    train = {
        "learning_rate": RIVAL_RATE,
        "schedule": "inverse-sqrt" if schedule == "paper" else schedule,
        "clip_norm": experiment.train.clip_norm or _CLIPPED,
    }
    unsized = row(name, experiment, {"model": model, "train": train})
    sized = match_size(unsized.experiment.model, material.source, material.target, total)
    return TableRow(name, replace(unsized.experiment, model=sized))
