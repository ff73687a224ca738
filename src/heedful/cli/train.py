"""`heedful train`"""

import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, assert_never, cast, get_args

import typer

from heedful.cli import console
from heedful.cli.signals import code_of, signals
from heedful.config import merge, parse_setting
from heedful.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from heedful.training.events import Event, Started, StepDone
    from heedful.training.train import Objective, TrainingResult

_STEPS_BEFORE_A_GUESS = 10

TextFiles = Annotated[
    list[str] | None, typer.Option(help="Text file, one sentence a line, plain or .gz; can be repeated.")
]


def train(
    recipe: Annotated[Path | None, typer.Argument(help="A complete experiment as a TOML file.")] = None,
    more: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="More plain text: a shell writes all files for --text *.txt."),
    ] = None,
    source: TextFiles = None,
    target: TextFiles = None,
    tsv: Annotated[list[str] | None, typer.Option(help="File with one pair a line: source TAB target.")] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            help="Plain text to learn from, or to read before pairs; a file or a pattern like '*.txt'. Can be repeated."
        ),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            help="Lines of label TAB text, to learn to classify texts; or words with tags, as CoNLL-U or WORD TAB TAG. "
            "Can be repeated."
        ),
    ] = None,
    images: Annotated[
        list[str] | None,
        typer.Option(
            help="A folder with one sub-folder of PNG or JPEG pictures a class, or IDX files such as MNIST's, to learn "
            "to classify pictures. Can be repeated."
        ),
    ] = None,
    captions: Annotated[
        list[str] | None,
        typer.Option(
            help="Lines of PICTURE TAB CAPTION, to learn to find pictures by words; a name is relative to its file. "
            "Can be repeated."
        ),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            help="What to learn from --text: the 'next' token, tokens that are 'masked', or 'spans' that are left out."
        ),
    ] = "next",
    corpus: Annotated[
        str,
        typer.Option(help="PREFIX,SRC,TRG for the files PREFIX.SRC and PREFIX.TRG, such as data/train,en,de."),
    ] = "",
    valid_source: Annotated[
        list[str] | None, typer.Option(help="Text file to validate on; by default some pairs are held out.")
    ] = None,
    valid_target: Annotated[list[str] | None, typer.Option(help="Its translation.")] = None,
    valid_text: Annotated[
        list[str] | None, typer.Option(help="Plain text to validate on; by default the end of the text is held out.")
    ] = None,
    valid_labels: Annotated[
        list[str] | None, typer.Option(help="Labelled texts to validate on; by default some are held out.")
    ] = None,
    valid_images: Annotated[
        list[str] | None, typer.Option(help="Such pictures to validate on; by default some are held out.")
    ] = None,
    valid_captions: Annotated[
        list[str] | None, typer.Option(help="Such lines to validate on; by default some pictures are held out.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to make; default: runs/NAME.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the training in this run folder.")] = None,
    init: Annotated[
        str, typer.Option(help="Start from this model: a built-in model, a run folder, an export or a checkpoint.")
    ] = "",
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="With --init, or --text beside pairs: then train a second model from nothing, and print both scores. "
            "Takes twice as long.",
        ),
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Set any key of a recipe, such as train.max_steps=200.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every event as a line of JSON.")] = False,
) -> None:
    """Train a model from two text files, plain text, labels, pictures, captions or a recipe; fine-tune one; resume."""
    given = merge(*map(parse_setting, settings or []))
    if corpus:
        parts = corpus.split(",")
        if len(parts) != 3 or source or target:
            raise ConfigError(f"--corpus {corpus}: write it as PREFIX,SRC,TRG and without --source and --target")
        source, target = [f"{parts[0]}.{parts[1]}"], [f"{parts[0]}.{parts[2]}"]
    if text and recipe and recipe.suffix != ".toml":
        text, recipe, more = [*text, str(recipe), *(more or [])], None, None
    if more:
        raise ConfigError(
            f"{more[0]}: a recipe stands alone; name other files with --source, --target, --labels or --text"
        )
    others = (
        labels,
        valid_labels,
        images,
        valid_images,
        captions,
        valid_captions,
        recipe,
        source,
        target,
        tsv,
        text,
        valid_source,
        valid_target,
        valid_text,
        out,
        init,
        compare,
    )
    if resume and any(others):
        raise ConfigError("--resume takes everything from its folder; leave out recipe, files, --init and --out")

    with signals() as interrupted:
        from heedful.training import train as training
        from heedful.training.process_group import is_first_process

        first = interrupted.announces = is_first_process()
        with console.display(bars=first) as shown:
            events = EventDisplay(shown, as_json)
            if resume:
                result = training.resume(
                    resume, settings=given, reporter=shown, on_event=events.show, stop_requested=interrupted
                )
            else:
                result = training.train(
                    recipe,
                    source=source or (),
                    target=target or (),
                    tsv=tsv or (),
                    text=text or (),
                    valid_text=valid_text or (),
                    objective=_parse_objective(objective),
                    labels=labels or (),
                    valid_labels=valid_labels or (),
                    images=images or (),
                    valid_images=valid_images or (),
                    captions=captions or (),
                    valid_captions=valid_captions or (),
                    valid_source=valid_source or (),
                    valid_target=valid_target or (),
                    out=out,
                    init=init,
                    compare=compare,
                    settings=given,
                    reporter=shown,
                    on_event=events.show,
                    stop_requested=interrupted,
                )
            if first:
                shown.say(_next_step(result))
        raise typer.Exit(code_of(result.reason) if result.interrupted else 0)


def _parse_objective(name: str) -> "Objective":
    from heedful.training.train import Objective

    known = get_args(Objective)
    if name not in known:
        raise ConfigError(f"--objective must be one of {', '.join(known)}, but is {name}{did_you_mean(name, known)}")
    return cast("Objective", name)


def _next_step(result: "TrainingResult") -> str:
    if result.interrupted:
        return (
            f"stopped by {result.reason} at step {result.steps}, saved; "
            f"continue with: heedful train --resume {result.folder}"
        )
    from heedful.storage.run_folder import RunFolder
    from heedful.tasks import find_task

    task = find_task(RunFolder(result.folder).experiment().task)
    if task.denoises:
        return f"teach it to translate with: heedful train --init {result.folder} --source FILE --target FILE --out OUT"
    if task.continues_text:
        return f'continue a text with: heedful complete {result.folder} "..."'
    if task.encoder == "masked":
        return f"teach it your labels with: heedful train --init {result.folder} --labels FILE --out OUT"
    if task.reads_pictures:
        return f"classify with: heedful classify {result.folder} picture.png"
    if task.matches_pictures:
        return f'find pictures with: heedful find {result.folder} "..." FOLDER'
    if task.encoder:
        return f'classify with: heedful classify {result.folder} "..."'
    return f'translate with: heedful translate {result.folder} "..."'


class EventDisplay:
    """Prints events as JSON if asked to, and shows the loss as a running mean, the speed and the time left."""

    def __init__(self, shown: console.Display, as_json: bool) -> None:
        self._shown = shown
        self._as_json = as_json
        self._total = 0
        self._twice_from: int | None = None
        self._device = "cpu"
        self._until = math.inf  # when train.max_minutes are over
        self._seen = 0
        self._loss = 0.0
        self._seconds = 0.0  # per pass over the pairs of a step

    def show(self, event: "Event") -> None:
        """Show what has happened."""
        from heedful.training import events as kinds

        if self._as_json:
            console.out(kinds.event_to_json(event))
            sys.stdout.flush()  # a program that reads the events wants them now
        match event:
            case kinds.Started():
                self._begin(event)
            case kinds.StepDone():
                self._show_step(event)
            case kinds.Validated() | kinds.Saved() | kinds.Finished():
                pass
            case _:
                assert_never(event)

    def _begin(self, event: "Started") -> None:
        self._total = event.max_steps
        self._twice_from = event.twice_from
        self._device = event.device
        if event.minutes_left is not None:
            self._until = time.monotonic() + 60.0 * event.minutes_left

    def _show_step(self, event: "StepDone") -> None:
        self._seen += 1
        keep = min(0.98, 1.0 - 1.0 / self._seen)
        self._loss = keep * self._loss + (1.0 - keep) * event.loss
        seconds = event.tokens / event.tokens_per_second / self._passes(event.step - 1, event.step)
        self._seconds = keep * self._seconds + (1.0 - keep) * seconds
        seconds = self._passes(event.step, self._total) * self._seconds
        seconds = min(seconds, max(0.0, self._until - time.monotonic()))
        left = _minutes(seconds)
        rate = f"{event.tokens_per_second:,.0f}"
        if self._seen == _STEPS_BEFORE_A_GUESS:
            self._shown.say(f"{rate} tokens a second, {_memory(self._device)}; about {left} left")
        self._shown.show("training", event.step, self._total, f"loss {self._loss:.3f}  {rate} tokens/s  {left} left")

    def _passes(self, start: int, end: int) -> int:
        """How often the updates after the step `start` up to the step `end` read their pairs."""
        twice = 0 if self._twice_from is None else max(0, end - max(start, self._twice_from))
        return end - start + twice


def _memory(device: str) -> str:
    from heedful.device import measure_memory

    used = measure_memory(device)
    if not used.peak:
        return "memory unknown"
    return f"{used.now:,} MiB of memory (at most {used.peak:,})"


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
