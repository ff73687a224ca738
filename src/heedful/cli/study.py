"""`heedful study`"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, assert_never, cast, get_args

import typer

from heedful.cli import console
from heedful.cli.common import JsonOption
from heedful.cli.signals import code_of, signals
from heedful.config import load_recipe, merge, parse_setting
from heedful.errors import ConfigError, did_you_mean, require_library

if TYPE_CHECKING:
    from heedful.studies.study import Scale, StudyPlan, StudyResult

Study = Literal["table1", "table2", "table3", "table4", "figures", "ablations", "successors"]
_STUDIES: tuple[Study, ...] = get_args(Study)
_SCALES = ("smoke", "laptop", "paper")
_TRAINED = ("table2", "table3", "table4")


def study(
    name: Annotated[str, typer.Argument(help=f"{', '.join(_STUDIES)}, or all.")],
    recipe: Annotated[
        Path | None, typer.Argument(help="A TOML file with data and training settings; smoke needs none.")
    ] = None,
    scale: Annotated[str, typer.Option(help="smoke (minutes), laptop (hours) or paper (eight GPUs).")] = "smoke",
    out: Annotated[Path | None, typer.Option(help="Folder for rows and results; default studies/NAME-SCALE.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any key of a recipe, such as train.max_steps=200.")
    ] = None,
    rows: Annotated[str, typer.Option(help="Train only these rows, such as base,A-h1.")] = "",
    processes: Annotated[
        int, typer.Option(min=1, help="Number of processes that train a row together, one for each GPU.")
    ] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be trained, and by which commands.")
    ] = False,
    tune: Annotated[
        bool,
        typer.Option(
            "--tune", help="table2: choose optimizer, rate and dropout of every model, and give all the same time."
        ),
    ] = False,
    seeds: Annotated[
        int,
        typer.Option(
            min=1, help="ablations: train each row with this many seeds; from 3 on, small differences can be judged."
        ),
    ] = 1,
    as_json: JsonOption = False,
) -> None:
    """Run one of the paper's comparisons, and show our figures next to the paper's.

    Finished rows are kept. If you interrupt a study, the same command continues it.
    """
    names = _named(name)
    if scale not in _SCALES:
        raise ConfigError(f"--scale must be one of {', '.join(_SCALES)}, but is {scale}{did_you_mean(scale, _SCALES)}")
    if (rows or dry_run or processes > 1) and not set(names) <= set(_TRAINED):
        raise ConfigError(
            f"--rows, --processes and --dry-run are for {', '.join(_TRAINED)}, which train rows; "
            f"leave them out for {name}"
        )
    if tune and name != "table2":
        raise ConfigError(f"--tune is for table2, which compares models; leave it out for {name}")
    if seeds > 1 and "ablations" not in names:
        raise ConfigError(f"--seeds is for ablations, which judges small differences; leave it out for {name}")
    if name == "all" and recipe:
        raise ConfigError(
            f"no recipe fits all studies, so {recipe} cannot be used; name one study, or leave the recipe out"
        )
    tables = merge(load_recipe(recipe) if recipe else {}, *map(parse_setting, settings or []))
    wanted = tuple(part.strip() for part in rows.split(",") if part.strip())
    require_library(f"the study {name}", "torch")  # before there is a folder
    from heedful.studies.study import StudyPlan

    for each in names:
        folder = _folder(name, each, scale, out)
        with signals() as interrupted, console.display() as shown:
            plan = StudyPlan(
                cast("Scale", scale),
                folder,
                tables or None,
                shown,
                wanted,
                processes,
                dry_run,
                interrupted,
                tune,
                seeds,
            )
            code = _run(each, plan, as_json)
        if code:
            raise typer.Exit(code)


def _named(name: str) -> tuple[Study, ...]:
    if name == "all":
        return _STUDIES
    if name == "parts":  # its name in version 0.1
        return ("ablations",)
    if name not in _STUDIES:
        known = (*_STUDIES, "all")
        raise ConfigError(f"unknown study: {name}{did_you_mean(name, known) or '; there are ' + ', '.join(known)}")
    return (name,)


def _folder(asked: str, name: Study, scale: str, out: Path | None) -> Path:
    """The folder of a study; with `all`, each study has its own below `out`."""
    if out is None:
        return Path("studies") / f"{name}-{scale}"
    return out / name if asked == "all" else out


def _run(name: Study, plan: "StudyPlan", as_json: bool) -> int:
    """Run a study, print and write its results; return the exit code."""
    from heedful.studies.study import StudyInterrupted, claim

    claim(plan.folder)
    try:
        outcome = _outcome(name, plan)
    except StudyInterrupted as stopped:
        plan.report.say(f"{stopped}; finished rows are kept, and the same command continues from there")
        return code_of(stopped.signal)
    if as_json:
        console.out(outcome.as_json())
    else:
        _show(outcome)
    if not plan.dry_run:  # its list must not replace results
        plan.report.say(f"written: {', '.join(map(str, outcome.write(plan.folder)))}")
    return 0


def _outcome(name: Study, plan: "StudyPlan") -> "StudyResult":
    """Call the study of this name."""
    match name:
        case "table1":
            from heedful.studies.table1 import table1

            return table1(plan)
        case "table2":
            from heedful.studies.table2 import table2

            return table2(plan)
        case "table3":
            from heedful.studies.table3 import table3

            return table3(plan)
        case "table4":
            from heedful.studies.table4 import table4

            return table4(plan)
        case "figures":
            from heedful.studies.figures import draw_figures

            return draw_figures(plan)
        case "ablations":
            from heedful.studies.ablations import run_ablations

            return run_ablations(plan)
        case "successors":
            from heedful.studies.successors import run_successors

            return run_successors(plan)
        case _:
            assert_never(name)


def _show(outcome: "StudyResult") -> None:
    for table in outcome.tables:
        before = [table.title, *filter(None, [table.caveat])]
        console.out("\n\n".join([*before, console.table(table.cells), *table.notes]) + "\n")
