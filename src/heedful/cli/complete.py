"""`heedful complete`"""

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import console
from heedful.cli.common import DeviceOption, JsonOption, ModelArgument, open_model, parse_device
from heedful.errors import ConfigError, require_library

if TYPE_CHECKING:
    from heedful.data.stream import TextStream

_STANDARD_INPUT = "-"
_BETWEEN = "-" * 15  # texts on standard output


def complete(
    model: ModelArgument,
    prompts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROMPT]...", help="Texts to continue; default, and -: standard input, one a line."),
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="Number of continuations of each prompt.")] = 1,
    length: Annotated[int | None, typer.Option(min=1, help="Most new tokens; default: the model's own, 300.")] = None,
    temperature: Annotated[
        float | None,
        typer.Option(min=0.0, help="Below 1 favours likely tokens more; 0: always the likeliest. Default: 0.8."),
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=0, help="Draw from this many likely tokens; 0: from all.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw from the likely tokens with this probability together; default: 0.95.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed gives another text.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print each piece as soon as it is found.")] = False,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Continue texts with a model that `heedful train --text` has trained. The prompt is printed, too."""
    if stream and as_json:
        raise ConfigError("--stream prints text piece by piece, but --json prints whole results; leave out one of them")
    run = open_model(model)
    require_library("continuing a text", "torch")
    from heedful.completion.completer import Completer
    from heedful.data.stream import read_windows
    from heedful.device import use_threads

    completer = Completer.from_run(run, parse_device(device))
    use_threads(0)
    search = completer.change_search(length, temperature, top_k, top_p, seed)  # fail before standard input is read
    index = 0
    for window in read_windows(_read_prompts(prompts or [_STANDARD_INPUT])):
        if stream:
            for prompt, number in product(window, range(n)):
                _separate(index)
                _print_pieces(chain([prompt], completer.stream(prompt, number=number, search=search)))
                index += 1
            continue
        for completion in completer.complete(window, n=n, search=search):
            if as_json:
                console.out(json.dumps({"index": index, **asdict(completion)}, ensure_ascii=False))
                index += 1
            else:
                for continuation in completion.continuations:
                    _separate(index)
                    console.out(completion.prompt + continuation.text)
                    index += 1
            sys.stdout.flush()  # the reader of a pipe may wait for this text


def _read_prompts(prompts: list[str]) -> "list[str] | TextStream":
    """The prompts, or those that arrive on standard input."""
    if prompts != [_STANDARD_INPUT]:
        return prompts
    from heedful.data.pairs import read_lines
    from heedful.data.stream import TextStream

    if sys.stdin.isatty():
        console.say("reading from the keyboard, one prompt a line; end with Ctrl-D")
    return TextStream(read_lines(Path(_STANDARD_INPUT)))


def _separate(index: int) -> None:
    """Print a line between two texts."""
    if index:
        console.out(_BETWEEN)


def _print_pieces(pieces: Iterable[str]) -> None:
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    console.out("")
