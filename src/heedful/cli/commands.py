"""All commands, and the one sentence and exit code that every failure ends with."""

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from heedful.cli.classify import classify
from heedful.cli.compare import compare
from heedful.cli.complete import complete
from heedful.cli.console import complain, say
from heedful.cli.doctor import doctor
from heedful.cli.embed import embed
from heedful.cli.evaluate import evaluate
from heedful.cli.explain import explain
from heedful.cli.export import export
from heedful.cli.heads import heads
from heedful.cli.import_model import import_model
from heedful.cli.info import info
from heedful.cli.models import models
from heedful.cli.prune import prune
from heedful.cli.score import score
from heedful.cli.serve import key, serve
from heedful.cli.study import study
from heedful.cli.train import train
from heedful.cli.translate import translate
from heedful.errors import HeedfulError, did_you_mean, missing_library, out_of_memory

INTERRUPTED = 130
OUT_OF_SPACE = 5

app = typer.Typer(
    name="heedful",
    help="The Transformer of 'Attention Is All You Need': train, translate, evaluate, see every head.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help, because drawing boxes takes longer than everything else
    context_settings={"help_option_names": ["-h", "--help"]},
)
_SHORT: dict[Callable[..., None], str] = {  # one line each in the list of commands
    translate: "Translate texts, files of lines, documents.",
    complete: "Continue a text with a model of plain text.",
    classify: "Label texts or pictures, or tag words.",
    embed: "Turn texts into vectors; find similar texts.",
    models: "List the models: built-in ones and run folders.",
    train: "Train from files or a recipe, or resume.",
    evaluate: "Translate a test set and score it.",
    compare: "Test whether one system is better than another.",
    score: "Score given translations by their probability.",
    explain: "Walk through the paper with your own sentence.",
    heads: "See what every head attends to.",
    prune: "Remove the heads that matter least.",
    study: "Run one of the paper's comparisons.",
    export: "Write a model in another program's format.",
    serve: "Translate over HTTP, with a web page.",
    key: "Create an API key for `heedful serve`.",
    doctor: "Find problems in text or pictures to learn from.",
    info: "Describe a model or a preset.",
}


class _Command(TyperCommand):
    """A command whose help names the kinds of values in words, not as Python types such as `<list[str]>`."""

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        for parameter in self.params:
            shown = parameter.display_type(ctx)  # type: ignore[attr-defined]
            parameter.display_type = partial(_name_kind, shown, parameter.param_type_name)  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def _name_kind(shown: str, role: str, _: typer.Context) -> str:
    """The kind of value in words; an argument has a name and needs none."""
    if role == "argument":
        return ""
    kinds = shown.strip("<>").removeprefix("list[").removesuffix("]").split(",")
    return " ".join(_KINDS.get(kind.removesuffix(" range"), kind) for kind in kinds)


_KINDS = {"str": "TEXT", "int": "NUMBER", "float": "NUMBER", "path": "PATH", "Path": "PATH"}

for command, short in _SHORT.items():
    app.command(short_help=short, cls=_Command)(command)
app.command("import", short_help="Import a Hugging Face model as a run folder.", cls=_Command)(import_model)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"heedful {version('heedful')}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    if debug:
        os.environ["HEEDFUL_DEBUG"] = "1"


def main() -> NoReturn:
    """Run the command line and exit."""
    _open_streams()
    try:
        code = app(standalone_mode=False)
    except Exception as error:
        code = _explain(error)
        if os.environ.get("HEEDFUL_DEBUG"):
            traceback.print_exc()
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(_flush_output(code if isinstance(code, int) else 0))


def _explain(error: Exception) -> int:
    """Print what went wrong; return the exit code."""
    match error:
        case HeedfulError():
            complain(str(error))
            return error.exit_code
        case typer.TyperException():
            _explain_usage(error)
            return error.exit_code
        case typer.Exit():
            return error.exit_code
        case typer.Abort():
            return INTERRUPTED
        case BrokenPipeError():
            return 0
        case _ if out_of_memory(error):
            complain("out of memory; lower train.batch_tokens (or raise train.accumulate), --beam, or split long lines")
            return OUT_OF_SPACE
        case ModuleNotFoundError() if error.name and not error.name.startswith("heedful"):
            missing = missing_library("this command", error.name)
            complain(str(missing))
            return missing.exit_code
        case OSError() if error.errno in (errno.ENOSPC, errno.EDQUOT):
            complain(f"the disk is full{f' while writing {error.filename}' if error.filename else ''}; free some space")
            return OUT_OF_SPACE
        case OSError() if error.filename:
            complain(f"{error.filename}: {error.strerror}")
            return 1
        case _:
            what = f"unexpected {type(error).__name__}: {error}"
            complain(f"{what}; run again with --debug before the command to see where")
            return 1


def _explain_usage(error: typer.TyperException) -> None:
    message = error.format_message()
    if message.startswith("Usage:"):  # a command without arguments shows its help
        say(message)
        return
    option, context = getattr(error, "option_name", ""), getattr(error, "ctx", None)
    if message.startswith("No such option") and context:
        known = [name for parameter in context.command.params for name in parameter.opts]
        message = message.partition(" (Possible")[0].rstrip(".") + did_you_mean(option, known)
    complain(message[:1].lower() + message[1:].rstrip(".") + ("" if message.endswith("?") else "; see --help"))


def _flush_output(code: int) -> int:
    """Flush standard output, where a full disk or a closed pipe may show last; return the exit code."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # because Python flushes once more at exit
        if not isinstance(error, BrokenPipeError) and code == 0:
            complain(f"standard output: {error.strerror}")
            return OUT_OF_SPACE
    return code


def _open_streams() -> None:
    """Write UTF-8 whatever the locale, and replace closed streams by the null device."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115, PTH123
        elif name == "stdout" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", newline="\n")
