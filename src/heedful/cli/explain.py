"""`heedful explain`"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import console
from heedful.cli.common import (
    BeamOption,
    DeviceOption,
    JsonOption,
    ModelArgument,
    SearchOption,
    check_output,
    override_search,
    parse_device,
)
from heedful.cli.heads import EXAMPLES, open_page
from heedful.cli.translate import one_line
from heedful.errors import ConfigError, require_library

if TYPE_CHECKING:
    from heedful.inspection.explain import ExplainedSentence


def explain(
    run: ModelArgument,
    text: Annotated[str | None, typer.Argument(help="The sentence to explain.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Explain this translation instead of the one that the model gives.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output file: a page (.html).", show_default="explain.html")] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    serve: Annotated[bool, typer.Option("--serve", help="Serve the page, with a form for other sentences.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port for --serve; 0: any free port.")] = 0,
    beam: BeamOption = None,
    settings: SearchOption = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Walk through the paper's figure 1 with the numbers of one sentence, in one page."""
    _check_options(text, out, serve, port, as_json)
    require_library("explaining a translation", "torch")
    from heedful.device import use_threads
    from heedful.inspection.explain import explain_sentence, make_plain_document
    from heedful.inspection.explanation_page import make_explanation_page
    from heedful.storage.files import write_atomically
    from heedful.storage.model_names import find_model
    from heedful.storage.run_folder import RunFolder
    from heedful.translation.translator import Translator

    use_threads(0)
    folder = find_model(run)
    translator = Translator.load(run, parse_device(device))
    search = override_search(translator.search, beam, settings)

    def explain_text(text: str, translation: str | None) -> "ExplainedSentence":
        with console.display() as shown:
            return explain_sentence(
                folder, translator, text, search, translation or None,
                lambda number, count: shown.progress("running experiments", number, count),
            )  # fmt: skip

    if serve:
        language = RunFolder(folder).experiment().data.source_language
        text = text or EXAMPLES.get(language, EXAMPLES["en"])[0]
        first = make_explanation_page(explain_text(text, target), live=True)
        _serve(first, lambda text, given: make_explanation_page(explain_text(text, given), live=True), port, show)
        return
    out = out or Path("explain.html")
    found = explain_text(text or "", target)
    write_atomically(out, make_explanation_page(found))
    if as_json:
        console.out(json.dumps(make_plain_document(found) | {"out": str(out)}, ensure_ascii=False))
    else:
        console.out(one_line(found.look.translation.text))
    console.say(f"{out} explains every step" + ("" if show else "; open it in a browser"))
    if show:
        open_page(out.resolve().as_uri())


def _check_options(text: str | None, out: Path | None, serve: bool, port: int, as_json: bool) -> None:
    """Refuse options that would be ignored."""
    if text is None and not serve:
        raise ConfigError("give a sentence to explain, or --serve")
    if port and not serve:
        raise ConfigError("--port goes with --serve; leave it out here")
    if serve and (out or as_json):
        raise ConfigError(
            f"{'--out' if out else '--json'} goes with a sentence, not with --serve; leave one of them out"
        )
    if out and out.suffix.lower() != ".html":
        raise ConfigError(f"--out {out} must end in .html, but ends in '{out.suffix}'")
    check_output(out or Path("explain.html"), "--out")


def _serve(page: str, explain: Callable[[str, str], str], port: int, show: bool) -> None:
    """Serve the page until Ctrl-C."""
    from heedful.serve.app import create_explanation_app
    from heedful.serve.listener import listen, url_of
    from heedful.serve.server import Server

    with listen("127.0.0.1", port) as listener:
        url = f"{url_of(listener)}/"
        console.say(f"{url} explains every step; stop it with Ctrl-C")
        if show:
            open_page(url)
        Server(create_explanation_app(page, explain)).run([listener])
