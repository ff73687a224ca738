"""`heedful find`"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import console
from heedful.cli.common import DeviceOption, JsonOption, ModelArgument, check_output, open_model, parse_device
from heedful.errors import ConfigError, require_library

if TYPE_CHECKING:
    from heedful.retrieval.finder import PictureIndex

_PICTURES = (".png", ".jpg", ".jpeg")
_NAMED = 5  # broken pictures


def find(
    model: ModelArgument,
    query: Annotated[str, typer.Argument(help="What the pictures should show, in words; or a PNG or JPEG file.")],
    pictures: Annotated[
        list[Path], typer.Argument(metavar="PICTURES...", help="Folders, searched with their sub-folders, or files.")
    ],
    n: Annotated[int, typer.Option("--n", min=1, help="How many pictures to print.")] = 10,
    html: Annotated[Path | None, typer.Option(help="Write a page with the pictures, one HTML file.")] = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Find the pictures that fit a text, or are like a picture, with a model that `train --captions` has trained.

    Prints the score of each picture, the best first: the cosine of the angle between its vector and that of the query.
    """
    if html and html.suffix.lower() != ".html":
        raise ConfigError(f"--html {html} must end in .html, but ends in '{html.suffix}'")
    check_output(html, "--html")
    run = open_model(model)
    require_library("finding a picture", "torch")
    from heedful.device import use_threads
    from heedful.retrieval.finder import Finder

    finder = Finder.from_run(run, parse_device(device))
    use_threads(0)
    given = Path(query) if Path(query).suffix.lower() in _PICTURES else None
    if given:
        finder.encode_pictures([given])  # a mistake in its name shows before all pictures are read
    with console.display() as shown:
        index = finder.index(pictures, lambda done, total: shown.progress("reading pictures", done, total))
    _warn(index)
    found = finder.find_like(given, index, n) if given else finder.find(query, index, n)
    if html:
        from heedful.retrieval.results_page import make_results_page
        from heedful.storage.files import write_atomically

        write_atomically(html, make_results_page(query, found, len(index.pictures), given))
    for rank, one in enumerate(found, 1):
        line = json.dumps({"rank": rank, **asdict(one)}, ensure_ascii=False)
        console.out(line if as_json else f"{one.score:.4f}\t{one.picture}")
    if html:
        console.say(f"{html} shows the pictures; open it in a browser")


def _warn(index: "PictureIndex") -> None:
    for sentence in index.broken[:_NAMED]:
        console.say(f"left out: {sentence}")
    if more := index.broken[_NAMED:]:
        console.say(f"left out: {len(more)} more that cannot be read")
