"""`heedful heads`"""

import json
from collections.abc import Sequence
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
from heedful.cli.translate import one_line
from heedful.errors import ConfigError, HeedfulError, counted, did_you_mean

if TYPE_CHECKING:
    from heedful.config import Device, Experiment
    from heedful.inspection.attention_view import AttentionViewer, HeadsView
    from heedful.inspection.encoder_view import EncoderViewer
    from heedful.inspection.text_view import TextViewer
    from heedful.translation.translator import Translator

EXAMPLES = {
    "en": (
        "The animal didn't cross the street because it was too tired.",
        "Where is the station?",
        "She gave him the book that he had lost.",
        "I can't open the file.",
    ),
    "de": (
        "Das Tier überquerte die Straße nicht, weil es zu müde war.",
        "Wo ist der Bahnhof?",
        "Gestern habe ich ihn im Park gesehen.",
        "Ich kann die Datei nicht öffnen.",
    ),
    "fr": (
        "L'animal n'a pas traversé la rue parce qu'il était trop fatigué.",
        "Où est la gare ?",
        "Je ne l'ai pas vu hier.",
        "Je ne peux pas ouvrir le fichier.",
    ),
    "es": (
        "El animal no cruzó la calle porque estaba demasiado cansado.",
        "¿Dónde está la estación?",
        "No lo vi ayer.",
        "No puedo abrir el archivo.",
    ),
}
_STRONGEST = 3  # heads listed for each link of the paper
_REPORT_SUFFIXES = (".html", ".png", ".svg")
_SUFFIXES = (".html", ".png", ".svg", ".json", ".npz")


def heads(
    run: ModelArgument,
    text: Annotated[str | None, typer.Argument(help="The sentence to inspect, or a picture.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output file: a page (.html), a picture (.png, .svg) or data (.json, .npz).")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    off: Annotated[list[str] | None, typer.Option(help="Switch off a head, such as encoder.1.2. Repeatable.")] = None,
    n_best: Annotated[int, typer.Option(min=1, max=10, help="Number of translations to inspect.")] = 1,
    length: LengthSeenOption = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve an interactive page: other sentences, heads on and off.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port for --serve; 0: any free port.")] = 0,
    source: Annotated[
        Path | None, typer.Option("--input", help="Measure what each head does over this file, one text per line.")
    ] = None,
    target: Annotated[
        Path | None, typer.Option(help="Translation of --input; measures the loss without each head.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Page (.html) or picture (.png, .svg) of what each head does; needs --input.")
    ] = None,
    paper: Annotated[
        Path | None, typer.Option(help="Folder for a page about each sentence of the paper's figures 3 to 5.")
    ] = None,
    beam: BeamOption = None,
    settings: SearchOption = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
) -> None:
    """See what every head attends to in a sentence, or what it does over a corpus."""
    _check_one_task(text is not None, source, paper, serve)
    one, corpus = text is not None or serve, source is not None
    _check_given(("--off", off, one), ("--n-best", n_best > 1, one), ("--open", show, one), needed="a text or --serve")
    _check_given(("--out", out, one and not serve), needed="a text")
    _check_given(("--port", port, serve), needed="--serve")
    _check_given(("--target", target, corpus), ("--report", report, corpus), needed="--input")
    out = out or Path("heads.html")
    _check_suffix("--out", out, _SUFFIXES)
    _check_suffix("--report", report or Path("report.html"), _REPORT_SUFFIXES)
    from heedful.device import use_threads
    from heedful.storage.model_names import find_model, is_built_in
    from heedful.storage.run_folder import RunFolder
    from heedful.tasks import find_task

    use_threads(0)
    experiment = RunFolder.open(find_model(run)).experiment()
    task = find_task(experiment.task)
    if task.continues_text or task.encoder or task.denoises:
        _check_given(("--input", source, False), ("--paper", paper, False), needed="a model that translates")
        other: AttentionViewer | TextViewer | EncoderViewer
        if task.continues_text:
            text = text or ("\n" if serve else None)
            other = _load_text_viewer(run, parse_device(device), beam, settings, length)
        else:
            check_no_length(length)
            text = require_text(text)
            if task.encoder:
                check_no_search(beam, settings)
                other = _load_encoder_viewer(run, parse_device(device), text)
            else:
                other = _load_viewer(run, parse_device(device), beam, settings)
        if serve:
            _serve(other, text or "", (), off or [], n_best, port, show)
        else:
            _show_sentence(other, text or "", off or [], n_best, out, show, as_json)
        return
    check_no_length(length)
    viewer = _load_viewer(run, parse_device(device), beam, settings)
    if serve:
        examples = find_examples(experiment)
        _serve(viewer, text or examples[0], examples, off or [], n_best, port, show)
    elif source:
        _report_heads(viewer, source, target, report, as_json, keep=not is_built_in(run))
    elif paper:
        _show_figures(viewer, paper, as_json)
    else:
        _show_sentence(viewer, text or "", off or [], n_best, out, show, as_json)


def _load_viewer(run: Path, device: "Device", beam: int | None, settings: list[str] | None) -> "AttentionViewer":
    from heedful.inspection.attention_view import AttentionViewer
    from heedful.storage.model_names import find_model

    translator = load_translator(run, device)
    return AttentionViewer(find_model(run), translator, override_search(translator.search, beam, settings))


def load_translator(run: Path, device: "Device") -> "Translator":
    """A translator, or a model that restores what is left out of a text."""
    from heedful.storage.model_names import find_model
    from heedful.storage.run_folder import RunFolder
    from heedful.tasks import find_task
    from heedful.translation.span_filler import SpanFiller
    from heedful.translation.translator import Translator

    folder = RunFolder.open(find_model(run))
    if find_task(folder.experiment().task).denoises:
        return SpanFiller.open(folder, device)
    return Translator.from_run(folder, device)


def _load_text_viewer(
    run: Path, device: "Device", beam: int | None, settings: list[str] | None, length: int | None
) -> "TextViewer":
    from heedful.completion.completer import Completer
    from heedful.inspection.text_view import TextViewer
    from heedful.storage.model_names import find_model

    completer = Completer.load(run, device)
    return TextViewer(find_model(run), completer, override_search(completer.search, beam, settings), length)


def _load_encoder_viewer(run: Path, device: "Device", text: str) -> "EncoderViewer":
    from heedful.inspection.encoder_view import EncoderViewer, load_answering_model
    from heedful.storage.model_names import find_model
    from heedful.storage.run_folder import RunFolder

    folder = RunFolder.open(find_model(run))
    reader = load_answering_model(folder, device)
    return EncoderViewer(folder.path, reader, text if reader.vocabulary is None else "")


def require_text(text: str | None) -> str:
    """The text, of a model for which there is none that always makes sense."""
    if text is None:
        raise ConfigError("--serve needs a text, or a picture, to begin with; give one")
    return text


def check_no_search(beam: int | None, settings: list[str] | None) -> None:
    """Refuse options of the search for a model that writes nothing."""
    _check_given(("--beam", beam, False), ("--set", settings, False), needed="a model that writes text")


def check_no_length(length: int | None) -> None:
    """Refuse a length for a model that ends its output itself."""
    _check_given(("--length", length, False), needed="a model that continues texts")


def find_examples(experiment: "Experiment") -> Sequence[str]:
    """Sentences in the source language of a model; English ones if we have none in it."""
    return EXAMPLES.get(experiment.data.source_language, EXAMPLES["en"])


def _check_one_task(text: bool, source: Path | None, paper: Path | None, serve: bool) -> None:
    """Allow one task at a time; --serve may start with a text."""
    of_files = sum(path is not None for path in (source, paper))
    if (of_files > 0) if serve else (of_files + text != 1):
        raise ConfigError("give a text, --input FILE, --paper FOLDER or --serve")


def _check_given(*options: tuple[str, object, bool], needed: str) -> None:
    """Refuse options that would be ignored."""
    for option, given, fits in options:
        if given and not fits:
            raise ConfigError(f"{option} goes with {needed}; leave it out here")


def _check_suffix(option: str, path: Path, suffixes: Sequence[str]) -> None:
    if path.suffix.lower() not in suffixes:
        near = did_you_mean(path.suffix, suffixes)
        raise ConfigError(
            f"{option} {path} must end in one of {', '.join(suffixes)}, but ends in '{path.suffix}'{near}"
        )
    check_output(path, option)


def _show_sentence(
    viewer: "AttentionViewer | TextViewer | EncoderViewer",
    text: str,
    off: Sequence[str],
    n_best: int,
    out: Path,
    show: bool,
    as_json: bool,
) -> None:
    """Show one sentence."""
    from heedful.storage.files import write_atomically

    suffix = out.suffix.lower()
    view = viewer.view(text, off, n_best)
    write_atomically(out, _render(view, suffix))
    if as_json:
        console.out(json.dumps({"text": view.text, "baseline": view.baseline, "out": str(out)}))
    else:
        console.out(one_line(view.text))
        if view.baseline is not None:
            console.say(f"with all heads: {one_line(view.baseline)}")
    console.say(f"{out} shows every head" + ("" if show or suffix != ".html" else "; open it in a browser"))
    if show:
        open_page(out.resolve().as_uri())


def _render(view: "HeadsView", suffix: str) -> str | bytes:
    """The file in the format that its suffix asks for."""
    match suffix:
        case ".html":
            from heedful.inspection.attention_page import make_attention_page

            return make_attention_page(view.page())
        case ".json":
            return json.dumps(view.plain(), ensure_ascii=False) + "\n"
        case ".npz":
            return view.arrays()
        case _:
            return view.draw("svg" if suffix == ".svg" else "png")


def _serve(
    viewer: "AttentionViewer | TextViewer | EncoderViewer",
    text: str,
    examples: Sequence[str],
    off: Sequence[str],
    n_best: int,
    port: int,
    show: bool,
) -> None:
    """Serve the interactive page until Ctrl-C."""
    from heedful.inspection.attention_page import make_attention_page
    from heedful.serve.app import create_attention_app
    from heedful.serve.listener import listen, url_of
    from heedful.serve.server import Server

    def explain(text: str, off: Sequence[str], n_best: int) -> dict[str, object]:
        return {**viewer.view(text, off, n_best, live=True).page(), "examples": list(examples)}

    app = create_attention_app(make_attention_page(explain(text, off, n_best)), explain)
    with listen("127.0.0.1", port) as listener:
        url = f"{url_of(listener)}/"
        console.say(f"{url} shows every head; stop it with Ctrl-C")
        if show:
            open_page(url)
        Server(app).run([listener])


def open_page(url: str) -> None:
    """Open a page in the browser, or say where it is."""
    import webbrowser

    if not webbrowser.open(url):
        console.say(f"no browser found; open {url}")


def _show_figures(viewer: "AttentionViewer", folder: Path, as_json: bool) -> None:
    """Write a page for each sentence of the paper, and print the heads that make its links."""
    from heedful.inspection.attention_page import make_attention_page
    from heedful.inspection.paper_figures import find_figures
    from heedful.storage.files import disk_errors, write_atomically

    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    links: list[dict[str, object]] = []
    for found in find_figures(viewer):
        path = folder / f"{found.figure.name}.html"
        write_atomically(path, make_attention_page(viewer.document(found.look)))
        question = {"page": str(path), "from": found.figure.query, "to": " ".join(found.figure.keys)}
        for link in found.links[:_STRONGEST]:
            links.append({**question, "head": str(link.head), "share": link.share, "chance": found.chance})
    if as_json:
        console.out(json.dumps(links))
    else:
        console.out(console.table([tuple(links[0]), *(tuple(map(_format, link.values())) for link in links)]))


def _format(value: object) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, float) else str(value)


def _report_heads(
    viewer: "AttentionViewer", source: Path, target: Path | None, report: Path | None, as_json: bool, *, keep: bool
) -> None:
    """Measure what each head does over a corpus; print a table and write a page."""
    from heedful.data.pairs import read_lines
    from heedful.inspection.drawing import draw_roles
    from heedful.inspection.head_report import (
        measure_importance,
        report_json,
        report_page,
        report_text,
        survey_heads,
    )
    from heedful.storage.files import write_atomically

    task = viewer.translator.task
    both_sides = not target and task.files != "two"
    given = [str(target)] if target else []
    pairs = list(task.read_files([str(source)], given)) if target or both_sides else []
    lines = [pair.source for pair in pairs] if both_sides else list(read_lines(source))
    with console.display() as shown:
        found = survey_heads(viewer, lines, shown)
        importance = measure_importance(viewer, pairs, shown) if pairs else None
    if found.skipped:
        console.say(f"skipped {found.skipped} of {counted(len(lines), 'line')} that are empty or too long")
    known = found.measures, found.roles, importance
    console.out(json.dumps(report_json(*known)) if as_json else console.table(report_text(*known)))
    if report and report.suffix.lower() == ".html":
        write_atomically(report, report_page(viewer.name, *known))
    elif report:
        write_atomically(report, draw_roles(found.roles, "svg" if report.suffix.lower() == ".svg" else "png"))
    if report:
        console.say(f"{report} shows what each head does")
    if not keep:
        return
    try:
        viewer.keep_roles(found.known_roles())
    except HeedfulError as error:  # the folder may be read-only
        console.say(f"the roles of the heads are not stored in the run folder: {error}")
