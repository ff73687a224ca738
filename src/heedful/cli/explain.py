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
    LengthSeenOption,
    ModelArgument,
    SearchOption,
    check_output,
    override_search,
    parse_device,
)
from heedful.cli.heads import (
    check_no_length,
    check_no_search,
    find_examples,
    load_translator,
    open_page,
    require_text,
)
from heedful.cli.translate import one_line
from heedful.errors import ConfigError, require_library

if TYPE_CHECKING:
    from heedful.config import Device
    from heedful.inspection.explain import Explained


def explain(
    run: ModelArgument,
    text: Annotated[str | None, typer.Argument(help="The sentence to explain, or a picture.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Explain this translation, continuation or label instead of the model's own.")
    ] = None,
    length: LengthSeenOption = None,
    out: Annotated[Path | None, typer.Option(help="Output file: a page (.html).", show_default="explain.html")] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    serve: Annotated[bool, typer.Option("--serve", help="Serve the page, with a form for other sentences.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port for --serve; 0: any free port.")] = 0,
    beam: BeamOption = None,
    settings: SearchOption = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Walk through the paper's figure 1 with the numbers of one text, in one page."""
    _check_options(text, out, serve, port, as_json)
    require_library("explaining what a model writes", "torch")
    from heedful.device import use_threads
    from heedful.inspection.explain import make_plain_document
    from heedful.inspection.explanation_page import make_explanation_page
    from heedful.storage.files import write_atomically
    from heedful.storage.model_names import find_model
    from heedful.storage.run_folder import RunFolder
    from heedful.tasks import find_task

    use_threads(0)
    experiment = RunFolder.open(find_model(run)).experiment()
    task = find_task(experiment.task)
    continues = task.continues_text
    if task.denoises:
        text = require_text(text)
    if serve and task.reads_pictures:
        raise ConfigError("--serve asks for texts, but this model reads pictures; leave it out")
    if continues:
        explain_one = _explain_texts(run, parse_device(device), beam, settings, length)
    elif task.encoder:
        check_no_length(length)
        check_no_search(beam, settings)
        text = require_text(text)
        explain_one = _explain_answers(run, parse_device(device))
    else:
        check_no_length(length)
        explain_one = _explain_sentences(run, parse_device(device), beam, settings)
    if serve:
        first = text or ("\n" if continues else find_examples(experiment)[0])
        page = make_explanation_page(explain_one(first, target), live=True)
        _serve(page, lambda text, given: make_explanation_page(explain_one(text, given), live=True), port, show)
        return
    out = out or Path("explain.html")
    found = explain_one(text or "", target)
    write_atomically(out, make_explanation_page(found))
    if as_json:
        console.out(json.dumps(make_plain_document(found) | {"out": str(out)}, ensure_ascii=False))
    else:
        console.out(one_line(found.given))
    console.say(f"{out} explains every step" + ("" if show else "; open it in a browser"))
    if show:
        open_page(out.resolve().as_uri())


def _explain_sentences(
    run: Path, device: "Device", beam: int | None, settings: list[str] | None
) -> Callable[[str, str | None], "Explained"]:
    """Explains sentences and their translations."""
    from heedful.inspection.explain import explain_sentence
    from heedful.inspection.explain_rival import explain_rival
    from heedful.models.t5 import T5
    from heedful.models.transformer import Transformer
    from heedful.storage.model_names import find_model

    translator = load_translator(run, device)
    explain = explain_sentence if isinstance(translator.model, Transformer | T5) else explain_rival
    search = override_search(translator.search, beam, settings)

    def explain_one(text: str, translation: str | None) -> "Explained":
        with console.display() as shown:
            return explain(
                find_model(run), translator, text, search, translation or None,
                lambda number, count: shown.progress("running experiments", number, count),
            )  # fmt: skip

    return explain_one


def _explain_answers(run: Path, device: "Device") -> Callable[[str, str | None], "Explained"]:
    """Explains texts or pictures and what a model without a decoder answers."""
    from heedful.inspection.encoder_view import load_answering_model
    from heedful.inspection.explain_encoder import explain_answer
    from heedful.storage.model_names import find_model
    from heedful.storage.run_folder import RunFolder

    folder = RunFolder.open(find_model(run))
    reader = load_answering_model(folder, device)

    def explain_one(text: str, answers: str | None) -> "Explained":
        with console.display() as shown:
            return explain_answer(
                folder.path, reader, text, reader.divide(answers) if answers else None,
                lambda number, count: shown.progress("running experiments", number, count),
            )  # fmt: skip

    return explain_one


def _explain_texts(
    run: Path, device: "Device", beam: int | None, settings: list[str] | None, length: int | None
) -> Callable[[str, str | None], "Explained"]:
    """Explains prompts and their continuations."""
    from heedful.completion.completer import Completer
    from heedful.inspection.explain_text import explain_text
    from heedful.storage.model_names import find_model

    completer = Completer.load(run, device)
    search = override_search(completer.search, beam, settings)

    def explain_one(text: str, continuation: str | None) -> "Explained":
        with console.display() as shown:
            return explain_text(
                find_model(run), completer, text, search, continuation or None, length,
                lambda number, count: shown.progress("running experiments", number, count),
            )  # fmt: skip

    return explain_one


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
