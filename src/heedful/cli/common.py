"""Options and helpers that several commands share."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from heedful.cli import console
from heedful.config import BleuTokens, Device, SearchConfig, change_search, merge, parse_setting
from heedful.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    from heedful.data.stream import TextStream
    from heedful.storage.run_folder import RunFolder
    from heedful.translation.engines import EngineChoice
    from heedful.translation.translator import Translator

STANDARD_INPUT = "-"
MODEL_HELP = "A run folder, or the name of a built-in model."
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL_HELP)]
BeamOption = Annotated[int | None, typer.Option(min=1, help="Beam size; default: the model's own.")]
SearchOption = Annotated[
    list[str] | None, typer.Option("--set", help="Override a key of [search], such as search.alpha=1.0.")
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
EngineOption = Annotated[
    str, typer.Option(help="auto, torch or ctranslate2; auto: the fastest one that the folder supports.")
]
WithOption = Annotated[
    list[Path] | None, typer.Option("--with", help="Another run with the same vocabulary, for an ensemble. Repeatable.")
]
LengthSeenOption = Annotated[
    int | None,
    typer.Option(min=1, help="New tokens of a model that continues texts; default: 40, or what it sees at once."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def override_search(own: SearchConfig, beam: int | None, settings: Sequence[str] | None) -> SearchConfig:
    """The model's own search, with the changes of --beam and --set."""
    return change_search(own, parse_search_changes(beam, settings))


def parse_search_changes(beam: int | None, settings: Sequence[str] | None) -> dict[str, object]:
    """The keys of [search] that --beam and --set change."""
    given = merge(*map(parse_setting, settings or []), {"search": {"beam": beam}} if beam else {})
    if others := given.keys() - {"search"}:
        raise ConfigError(f"--set {min(others)}: here only keys of [search] can be set, such as search.alpha=1.0")
    search = given.get("search", {})
    if not isinstance(search, dict):
        raise ConfigError(f"--set search={search}: name a key of it, such as search.alpha=1.0")
    return search


def check_output(target: Path | None, option: str = "--output", read: Sequence[Path | None] = ()) -> None:
    """Refuse an output that cannot be written or is also an input, before the work starts; "-" is standard output."""
    if target and target.is_file() and any(path and path.exists() and target.samefile(path) for path in read):
        raise DataError(f"{option} {target} is also an input file and would be overwritten; name another")
    if target and target.is_dir():
        raise DataError(f"{option} {target} is a folder; name a file in it")
    if target and target.suffix == ".gz":
        raise DataError(f"{option} {target}: output is not compressed; leave out .gz, and run gzip on it")
    if target and not target.parent.is_dir():
        raise DataError(f"{option} {target}: there is no folder {target.parent}; create it first")


def write_output(target: Path | None, lines: Iterable[str]) -> None:
    """Write each line to standard output as it comes, or all lines to a file atomically."""
    if target is None or str(target) == "-":
        for line in lines:
            console.out(line)
            sys.stdout.flush()  # the reader of a pipe may wait for this line
        return
    from heedful.storage.files import disk_errors, write_lines

    real = target.resolve()  # write through links
    if real.exists() and not real.is_file():
        # Do not replace /dev/null or a pipe by a file.
        with disk_errors(target), target.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(line + "\n" for line in lines)
        return
    write_lines(real, lines)


def read_texts(texts: Sequence[str], file: Path | None) -> "Sequence[str] | TextStream":
    """The texts of the command line, or those that arrive from a file or, without either, on standard input."""
    if file and texts:
        raise ConfigError(f"--file {file} and texts on the command line; leave out one of them")
    if texts and list(texts) != [STANDARD_INPUT]:
        return texts
    from heedful.data.pairs import read_lines
    from heedful.data.stream import TextStream

    if not file and sys.stdin.isatty():
        console.say("reading from the keyboard, one text a line; end with Ctrl-D")
    return TextStream(read_lines(file or Path(STANDARD_INPUT)))


def parse_device(name: str) -> Device:
    known = get_args(Device)
    if name not in known:
        raise ConfigError(f"--device must be one of {', '.join(known)}, but is {name}{did_you_mean(name, known)}")
    return cast(Device, name)


def parse_engine(name: str) -> "EngineChoice":
    from heedful.translation.engines import EngineChoice

    known = get_args(EngineChoice)
    if name not in known:
        raise ConfigError(f"--engine must be one of {', '.join(known)}, but is {name}{did_you_mean(name, known)}")
    return cast("EngineChoice", name)


def parse_tokenize(name: str) -> BleuTokens:
    known = get_args(BleuTokens)
    if name not in known:
        raise ConfigError(f"--tokenize must be one of {', '.join(known)}, but is {name}{did_you_mean(name, known)}")
    return cast(BleuTokens, name)


def open_model(name: Path) -> "RunFolder":
    """Open a run folder, or a built-in model by its name."""
    from heedful.storage.model_names import find_model
    from heedful.storage.run_folder import RunFolder

    return RunFolder.open(find_model(name))


def load_translator(
    run: "RunFolder", device: str = "auto", engine: str = "auto", others: Sequence[Path] | None = None
) -> "Translator":
    """Load a model, with `others` as an ensemble; PyTorch may use all cores."""
    from heedful.translation.translator import Translator

    runs = [open_model(other) for other in others or ()]
    choice, where = parse_engine(engine), parse_device(device)
    translator = Translator.from_run(run, where, choice, runs, console.say)
    if translator.engine.name == "torch":
        from heedful.device import use_threads

        use_threads(0)
    return translator
