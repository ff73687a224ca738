"""The rows of a table as experiments, each a small change to one recipe, and facts about their common corpus."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import Any

from heedful.config import PRESETS, RIVAL_RATE, Experiment, ModelConfig, SearchConfig, TrainConfig, merge
from heedful.errors import ConfigError, DataError, FolderError, did_you_mean
from heedful.models.flops import Lengths
from heedful.models.size import match_size, model_size
from heedful.progress import Reporter
from heedful.storage.run_folder import RunFolder, software_versions
from heedful.studies.study import StudyPlan
from heedful.tasks import Task, find_task, make_experiment
from heedful.tasks.translation import TRANSLATION
from heedful.training.prepare import (
    Prepared,
    check_evaluation_files,
    describe_data,
    load_prepared,
    prepare,
    resolve_files,
)


@dataclass(frozen=True, slots=True)
class CorpusFacts:
    """Vocabulary sizes, and the lengths of all training pairs (None if the text is not on this machine)."""

    source: int
    target: int
    lengths: tuple[Lengths, Lengths] | None


def collect_corpus_facts(experiment: Experiment, plan: StudyPlan) -> CorpusFacts:
    """Prepare the text in the study's folder, or reuse it. A dry run without the text relies on the recipe."""
    data = experiment.data
    if plan.dry_run and not all(Path(name).exists() for name in (*data.source, *data.target, *data.tsv)):
        size = experiment.text.vocabulary_size
        return CorpusFacts(size, size, None)
    prepared = prepare_text(plan.folder / "prepared", experiment, plan.report)
    vocabulary = prepared.tokenizers.vocabulary
    return CorpusFacts(vocabulary.source, vocabulary.target, prepared.train[0].lengths())


def _only_text(experiment: Experiment) -> Experiment:
    """The experiment without everything that does not affect the prepared text."""
    model = ModelConfig(sharing=experiment.model.sharing)
    return replace(experiment, model=model, train=TrainConfig(), search=SearchConfig())


def prepare_text(folder: Path, experiment: Experiment, report: Reporter) -> Prepared:
    """Prepare the text of an experiment in this folder, or reuse it."""
    experiment = _only_text(experiment)
    run = RunFolder(folder)
    with suppress(DataError, FolderError):  # a different text, or a damaged one: prepare it again
        if run.prepared and run.experiment() == experiment:
            return load_prepared(run, experiment, report)
    if folder.exists():
        rmtree(folder)
    task = find_task(experiment.task)
    check_evaluation_files(task, experiment.data)
    total = sum(1 for _ in task.read_pairs(experiment.data))
    run = RunFolder.create(folder)
    run.begin(experiment)
    prepared = prepare(run, experiment, total, report)
    run.write_about({"data": describe_data(run, experiment, prepared), "versions": software_versions()})
    return prepared


_CLIPPED = 1.0


@dataclass(frozen=True, slots=True)
class TableRow:
    """An experiment to train, and the name of its folder."""

    name: str
    experiment: Experiment


def load_experiment(study: str, plan: StudyPlan, smoke: Mapping[str, Any], example: str, *tasks: Task) -> Experiment:
    """Load the experiment that all rows start from: the recipe, or at smoke scale these tables."""
    if plan.scale != "smoke" and not plan.recipe:
        raise ConfigError(
            f"study {study} --scale {plan.scale} needs a recipe with data and training settings; "
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
    """Refuse a recipe for a different task (the default is translation) or without a Transformer."""
    tasks = tasks or (TRANSLATION,)
    if experiment.task not in [task.name for task in tasks]:
        raise ConfigError(
            f"study {study} is about {tasks[0].name}, but task is '{experiment.task}'; give a recipe such as {example}"
        )
    if experiment.model.family != "transformer":
        raise ConfigError(
            f"study {study} needs a Transformer, but model.family is '{experiment.model.family}'; "
            f"give a recipe such as {example}"
        )


def select_rows(rows: Iterable[TableRow], plan: StudyPlan) -> list[TableRow]:
    """Keep the rows that `--rows` names."""
    known = {row.name: row for row in rows}
    for name in plan.rows:
        if name not in known:
            others = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise ConfigError(f"--rows {name}: there is no such row{others}")
    return [row for name, row in known.items() if not plan.rows or name in plan.rows]


def make_row(name: str, experiment: Experiment, changes: Mapping[str, Any]) -> TableRow:
    """Make a row that changes some keys of an experiment."""
    return TableRow(name, make_experiment(merge(asdict(experiment), changes, {"name": name})))


def make_rival_row(name: str, preset: str, experiment: Experiment, material: CorpusFacts, **more: object) -> TableRow:
    """Replace the recipe's Transformer by a rival with as many parameters; everything else stays as in the recipe.

    Only the learning rate is the rival's own. The paper's schedule derives the rate from the width of a Transformer,
    so a rival gets an inverse-square-root schedule with its own peak.
    """
    kept = {key: getattr(experiment.model, key) for key in ("dropout", "sharing", "max_positions")}
    of_preset = {key: value for key, value in PRESETS[preset]["model"].items() if key != "dropout"}
    model = {**asdict(ModelConfig()), "preset": preset, **of_preset, **kept, **more}
    # Positions beyond the longest sentence would be unused parameters.
    model["max_positions"] = min(experiment.model.max_positions, experiment.data.max_length)
    total = model_size(experiment.model, material.source, material.target).total
    schedule = experiment.train.schedule
    train = {
        "learning_rate": RIVAL_RATE,
        "schedule": "inverse-sqrt" if schedule == "paper" else schedule,
        "clip_norm": experiment.train.clip_norm or _CLIPPED,
    }
    unsized = make_row(name, experiment, {"model": model, "train": train})
    sized = match_size(unsized.experiment.model, material.source, material.target, total)
    return TableRow(name, replace(unsized.experiment, model=sized))
