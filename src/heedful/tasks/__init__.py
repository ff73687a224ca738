"""The tasks that a model can be trained for; each has one file, and one line in `TASKS`."""

from collections.abc import Mapping
from typing import Any

from heedful.config.experiment import Experiment
from heedful.config.recipe import merge, parse_experiment
from heedful.errors import ConfigError, did_you_mean
from heedful.tasks import (
    characters,
    completion,
    copying,
    denoising,
    labelling,
    parsing,
    picture_labelling,
    pronunciation,
    translation,
)
from heedful.tasks.task import Question, ScoringOptions, Task

__all__ = ["TASKS", "Question", "ScoringOptions", "Task", "find_task", "make_experiment"]

TASKS: tuple[Task, ...] = (
    translation.TRANSLATION,
    *parsing.TREE_TASKS,
    pronunciation.PRONUNCIATION,
    characters.CHARACTERS,
    completion.COMPLETION,
    labelling.CLASSIFICATION,
    labelling.TAGGING,
    labelling.MASKED,
    labelling.EMBEDDING,
    picture_labelling.PICTURES,
    denoising.DENOISING,
    copying.COPY,
    copying.REVERSE,
)


def find_task(name: str) -> Task:
    """The task with the name that `Experiment.task` holds."""
    for task in TASKS:
        if task.name == name:
            return task
    known = [task.name for task in TASKS]
    raise ConfigError(f"task must be one of {', '.join(known)}, but is {name!r} instead{did_you_mean(name, known)}")


def make_experiment(tables: Mapping[str, Any], under: Mapping[str, Any] | None = None) -> Experiment:
    """Check a recipe's tables; missing keys come from `under`, then the task, the preset, and the paper."""
    under = under or {}
    task = find_task(str(merge(under, tables).get("task", Experiment().task)))
    experiment = parse_experiment(tables, merge(task.defaults, under))
    if task.continues_text and experiment.model.family != "gpt":
        raise ConfigError(
            f"task is '{task.name}' but model.family is '{experiment.model.family}', which needs a source; "
            "leave out model.family, or set it to 'gpt'"
        )
    if task.reads_pictures and experiment.model.family != "vit":
        raise ConfigError(
            f"task is '{task.name}' but model.family is '{experiment.model.family}', which reads no pictures; "
            "leave out model.family, or set it to 'vit'"
        )
    if bool(experiment.data.images) and not task.reads_pictures:
        raise ConfigError(f"data.images are pictures, but task is '{task.name}', which reads text; leave out one")
    if (
        task.encoder
        and not task.reads_pictures
        and (experiment.model.family != "bert" or experiment.model.head != task.encoder)
    ):
        raise ConfigError(
            f"task is '{task.name}' but model.family is '{experiment.model.family}' and model.head is "
            f"'{experiment.model.head}'; leave both out, or set them to 'bert' and '{task.encoder}'"
        )
    if experiment.data.text and not (task.reads_stream or task.denoises):
        raise ConfigError(f"data.text is plain text, but task is '{task.name}', which learns from pairs; leave out one")
    source, target = task.tokenizer_kinds(experiment.text.kind)
    if source != target and experiment.text.vocabularies == "joint":
        raise ConfigError(
            f"task is '{task.name}', whose source ({source}) and target ({target}) have nothing in common, but "
            "text.vocabularies is 'joint'; set text.vocabularies = 'separate' and model.sharing = 'target'"
        )
    return experiment
