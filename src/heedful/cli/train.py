"""`heedful train`"""

import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, assert_never

import typer

from heedful.cli import console
from heedful.cli.signals import Signals, code_of, signals
from heedful.config import Experiment, load_recipe, merge, parse_setting
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.storage.run_folder import RunFolder
    from heedful.training.autoconfig import CorpusStatistics
    from heedful.training.events import Event, Finished, Started, StepDone
    from heedful.training.process_group import ProcessGroup

_STEPS_BEFORE_A_GUESS = 10

Files = Annotated[list[str] | None, typer.Option(help="Text, one sentence a line; .gz too. Can be repeated.")]


def train(
    recipe: Annotated[Path | None, typer.Argument(help="A complete experiment as a TOML file.")] = None,
    source: Files = None,
    target: Files = None,
    tsv: Annotated[list[str] | None, typer.Option(help="Source TAB target, one pair a line.")] = None,
    corpus: Annotated[
        str, typer.Option(help="PREFIX,SRC,TRG: the files PREFIX.SRC and PREFIX.TRG, such as data/train,en,de.")
    ] = "",
    valid_source: Annotated[
        list[str] | None, typer.Option(help="Pairs to validate on; else some are held out.")
    ] = None,
    valid_target: Annotated[list[str] | None, typer.Option(help="Their other side.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to make; default runs/NAME.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run folder.")] = None,
    init: Annotated[str, typer.Option(help="Begin with a model: a built-in one, a run, an export, a checkpoint.")] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any key of a recipe, such as train.max_steps=200.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every event as a line of JSON.")] = False,
) -> None:
    """Train a model from two text files, a recipe, or where an earlier run stopped; or go on training another."""
    given = merge(*map(parse_setting, settings or []), {"train": {"init": init}} if init else {})
    files = _files(source, target, tsv, corpus, valid_source, valid_target)
    if not recipe and not init and "task" not in given:
        _check_both_sides(files)
    if resume and (recipe or files or out or init):
        raise ConfigError("--resume goes on with what its folder says; leave out recipe, files, --init and --out")
    with signals() as interrupted:
        raise typer.Exit(_run(recipe, files, given, out, resume, interrupted, as_json))


def _run(
    recipe: Path | None,
    files: dict[str, Any],
    given: dict[str, Any],
    out: Path | None,
    resume: Path | None,
    interrupted: Signals,
    as_json: bool,
) -> int:
    """Train as one of the processes that torchrun has started, or alone; give the exit code."""
    from heedful.training import run as fit
    from heedful.training.process_group import join_process_group

    folder = resume or out or _default_out(recipe, files)
    with join_process_group() as group:
        if not group.is_first:
            nobody, interrupted.told = console.Nobody(), False
            return _follow(fit.follow(folder, nobody, interrupted, group), nobody, False, folder)
        with console.display() as shown:
            if not resume and group.has_claimed(folder) and (folder / "experiment.toml").exists():
                shown.say(f"torchrun has started again: going on with {folder}")
                resume, given = folder, {}
            if resume:
                group.claim(folder)
                return _follow(fit.resume(folder, given, shown, interrupted, group), shown, as_json, folder)
            tables = merge(load_recipe(recipe) if recipe else {}, {"data": files} if files else {}, given)
            return _start(tables, folder, bool(recipe), shown, interrupted, as_json, group)


def _start(
    tables: dict[str, Any],
    folder: Path,
    recipe: bool,
    shown: console.Display,
    interrupted: Signals,
    as_json: bool,
    group: "ProcessGroup",
) -> int:
    from dataclasses import replace

    from heedful.progress import report_progress
    from heedful.storage.run_folder import RunFolder, check_free
    from heedful.tasks import find_task, make_experiment
    from heedful.training.autoconfig import measure_corpus
    from heedful.training.finetune import inherit_languages
    from heedful.training.prepare import check_evaluation_files, resolve_files
    from heedful.training.run import train as fit

    check_free(folder)  # before a look through the data, which may take minutes
    parent, under = _parent(tables)
    asked: Experiment = make_experiment(tables, under)
    data = resolve_files(asked.data)
    if parent:
        data, warning = inherit_languages(data, parent)
        shown.say(warning or f"beginning with {asked.train.init}: its weights, network and vocabulary are taken over")
    device = group.device(asked.train.device)
    task = find_task(asked.task)
    check_evaluation_files(task, data)
    pairs = (task.symbols(pair) for pair in task.read_pairs(data))
    found = measure_corpus(report_progress(pairs, "reading", 0, shown))
    experiment = asked
    if parent or not recipe:
        experiment = _chosen(asked, tables, under, parent, found, device.type, shown)
    data = replace(data, hold_out=experiment.data.hold_out)
    experiment = replace(experiment, data=data, name=experiment.name or folder.resolve().name)
    run = RunFolder.create(folder)
    group.claim(folder)
    return _follow(fit(run, experiment, found.pairs, shown, interrupted, group), shown, as_json, folder)


def _parent(tables: dict[str, Any]) -> "tuple[RunFolder | None, dict[str, Any]]":
    """The model that training begins with, if there is one, and what is taken over from it."""
    from heedful.training.finetune import inherit_settings, open_parent

    train = tables.get("train")
    init = train.get("init") if isinstance(train, dict) else ""
    if not isinstance(init, str) or not init:
        return None, {}
    parent = open_parent(init)
    return parent, inherit_settings(parent, tables)


def _chosen(
    asked: Experiment,
    tables: dict[str, Any],
    under: dict[str, Any],
    parent: "RunFolder | None",
    found: "CorpusStatistics",
    device: str,
    shown: console.Display,
) -> Experiment:
    """The experiment, with what the tables leave out chosen by the data, and told."""
    from heedful.tasks import find_task, make_experiment
    from heedful.training.autoconfig import choose_finetuning_settings, choose_settings

    given = tables.get("train", {})
    if parent:
        hold_out = not tables.get("data", {}).get("valid_source")
        choice = choose_finetuning_settings(found, parent.experiment(), device, given, hold_out=hold_out)
    else:
        symbols = set(find_task(asked.task).tokenizer_kinds(asked.text.kind)) == {"symbols"}
        choice = choose_settings(found, device, given, model="preset" not in tables.get("model", {}), symbols=symbols)
    for key, reason in choice.reasons.items():
        table, _, name = key.partition(".")
        if name not in tables.get(table, {}):
            shown.say(reason)
    return make_experiment(tables, merge(under, choice.tables))


def _follow(events: "Iterator[Event]", shown: console.Display, as_json: bool, folder: Path) -> int:
    """Show what happens until it is over; give the exit code."""
    from heedful.training import events as kinds

    steps = _Steps()
    for event in events:
        if as_json:
            console.out(kinds.event_to_json(event))
            sys.stdout.flush()  # whoever follows a training wants to see it now
        match event:
            case kinds.Started():
                steps.begin(event)
            case kinds.StepDone():
                steps.show(event, shown)
            case kinds.Validated():
                score = "" if event.score is None else f", {event.metric} {event.score:.2f}"
                best = " (best so far)" if event.best and event.step else ""
                when = f"step {event.step}" if event.step else "before the first step"
                shown.say(f"{when}: validation perplexity {event.perplexity:.2f}{score}{best}")
            case kinds.Saved():
                pass
            case kinds.Finished():
                return _ended(event, shown, folder)
            case _:
                assert_never(event)
    return 1


class _Steps:
    """Shows the loss as a running mean, the rate and the time left."""

    def __init__(self) -> None:
        self._total = 0
        self._device = "cpu"
        self._until = math.inf  # when time is over
        self._seen = 0
        self._loss = 0.0
        self._seconds = 0.0  # of one step

    def begin(self, event: "Started") -> None:
        """Hear how far it is to go."""
        self._total = event.max_steps
        self._device = event.device
        if event.minutes_left is not None:
            self._until = time.monotonic() + 60.0 * event.minutes_left

    def show(self, event: "StepDone", shown: console.Display) -> None:
        """One update more."""
        self._seen += 1
        keep = min(0.98, 1.0 - 1.0 / self._seen)
        self._loss = keep * self._loss + (1.0 - keep) * event.loss
        self._seconds = keep * self._seconds + (1.0 - keep) * event.tokens / event.tokens_per_second
        seconds = min((self._total - event.step) * self._seconds, max(0.0, self._until - time.monotonic()))
        left = _minutes(seconds)
        rate = f"{event.tokens_per_second:,.0f}"
        if self._seen == _STEPS_BEFORE_A_GUESS:
            shown.say(f"{rate} tokens a second, {_memory(self._device)}; it takes about {left} from here")
        shown.show("training", event.step, self._total, f"loss {self._loss:.3f}  {rate} tokens/s  {left} left")


def _memory(device: str) -> str:
    from heedful.device import measure_memory

    used = measure_memory(device)
    return f"{used.now:,} MiB of memory ({used.peak:,} at the most)"


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _ended(event: "Finished", shown: console.Display, folder: Path) -> int:
    if event.reason in ("SIGINT", "SIGTERM", "SIGUSR1"):
        shown.say(f"stopped by {event.reason} at step {event.step}, saved; go on with: heedful train --resume {folder}")
        return code_of(event.reason)
    shown.say(f"done after {event.step} steps and {event.minutes:.1f} minutes: {event.reason}; model: {event.model}")
    shown.say(f'translate with: heedful translate {folder} "..."')
    return 0


def _files(
    source: list[str] | None,
    target: list[str] | None,
    tsv: list[str] | None,
    corpus: str,
    valid_source: list[str] | None,
    valid_target: list[str] | None,
) -> dict[str, Any]:
    """The data table that the options make, only with what was given."""
    if corpus:
        parts = corpus.split(",")
        if len(parts) != 3 or source or target:
            raise ConfigError(f"--corpus {corpus}: write it as PREFIX,SRC,TRG and without --source and --target")
        source, target = [f"{parts[0]}.{parts[1]}"], [f"{parts[0]}.{parts[2]}"]
    named = {"source": source, "target": target, "tsv": tsv, "valid_source": valid_source, "valid_target": valid_target}
    return {key: files for key, files in named.items() if files}


def _check_both_sides(files: dict[str, Any]) -> None:
    """Only other tasks than translation have files with both sides in one."""
    for prefix in ("", "valid_"):
        if (f"{prefix}source" in files) != (f"{prefix}target" in files):
            option = f"--{prefix}source and --{prefix}target".replace("_", "-")
            raise ConfigError(
                f"{option} go together; give both, or name a task whose files hold both sides, such as "
                "--set task=pronunciation"
            )


def _default_out(recipe: Path | None, files: dict[str, Any]) -> Path:
    if recipe:
        return Path("runs") / recipe.stem
    first = (files.get("source") or files.get("tsv") or ["model"])[0]
    return Path("runs") / Path(first).name.split(".")[0]
