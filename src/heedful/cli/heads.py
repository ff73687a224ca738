"""`heedful heads`"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import console
from heedful.cli.common import (
    BeamOption,
    DeviceOption,
    JsonOption,
    SearchOption,
    check_output,
    device_named,
    search_with,
)
from heedful.cli.translate import one_line
from heedful.errors import ConfigError, HeedfulError, did_you_mean

if TYPE_CHECKING:
    from heedful.runs.look import Lens
    from heedful.translator import Look

EXAMPLE = "The animal didn't cross the street because it was too tired."
_STRONGEST = 3  # heads that are told of each link of the paper
_FORMS = (".html", ".png", ".svg", ".json", ".npz")


def heads(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    text: Annotated[str | None, typer.Argument(help="A sentence to look into.")] = None,
    out: Annotated[
        Path, typer.Option(help="A page (.html), a picture (.png, .svg) or the numbers (.json, .npz).")
    ] = Path("heads.html"),
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    off: Annotated[list[str] | None, typer.Option(help="Switch off this head, say encoder.1.2. Repeatable.")] = None,
    n_best: Annotated[int, typer.Option(min=1, max=10, help="Translations to look into.")] = 1,
    serve: Annotated[bool, typer.Option("--serve", help="A page with the model behind it: heads on and off.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="For --serve; 0 is any that is free.")] = 0,
    source: Annotated[Path | None, typer.Option("--input", help="A file, a text a line: what each head does.")] = None,
    target: Annotated[Path | None, typer.Option(help="Its translation: what the loss is without each head.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write what each head does as a page, too.")] = None,
    paper: Annotated[Path | None, typer.Option(help="A folder for the sentences of the paper's figures 3-5.")] = None,
    beam: BeamOption = None,
    settings: SearchOption = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
) -> None:
    """See what every head attends to in a sentence, or what it does over a corpus."""
    _check(text, out, source, target, report, paper, serve)
    from heedful.device import use_threads
    from heedful.runs.look import Lens
    from heedful.translator import Translator

    use_threads(0)
    translator = Translator.load(run, device_named(device))
    lens = Lens(run, translator, search_with(translator.search, beam, settings))
    if serve:
        _serve(lens, text or EXAMPLE, off or [], n_best, port, show)
    elif source:
        _survey(lens, source, target, report, as_json)
    elif paper:
        _figures(lens, paper, as_json)
    else:
        _look(lens, text or "", off or [], n_best, out, show)


def _check(
    text: str | None,
    out: Path,
    source: Path | None,
    target: Path | None,
    report: Path | None,
    paper: Path | None,
    serve: bool,
) -> None:
    """Refuse what does not go together, before anything is loaded."""
    of_files = sum(path is not None for path in (source, paper))
    if (of_files > 0) if serve else (of_files + (text is not None) != 1):
        raise ConfigError("give one of these: a text, --input with a file, --paper with a folder, or --serve")
    if source is None and (target or report):
        raise ConfigError(f"{'--target' if target else '--report'} goes with --input, the file to measure heads on")
    if out.suffix.lower() not in _FORMS:
        near = did_you_mean(out.suffix, _FORMS)
        raise ConfigError(f"--out {out} must end in one of {', '.join(_FORMS)}, but ends in '{out.suffix}'{near}")
    check_output(out, "--out")
    check_output(report, "--report")


def _look(lens: "Lens", text: str, off: Sequence[str], n_best: int, out: Path, show: bool) -> None:
    """One sentence."""
    from heedful.store.files import write_atomically

    look = lens.look(text, off, n_best)
    write_atomically(out, _written(lens, look, off, out.suffix.lower()))
    console.out(one_line(look.translation.text))
    if off:
        console.say(f"with all heads: {one_line(lens.baseline(text))}")
    console.say(f"{out} shows every head" + ("" if show else "; open it in a browser" * (out.suffix == ".html")))
    if show:
        _open(out.resolve().as_uri())


def _written(lens: "Lens", look: "Look", off: Sequence[str], suffix: str) -> str | bytes:
    """In the form that the name of the file asks for."""
    match suffix:
        case ".html":
            from heedful.heads.page import page

            return page(lens.page(look, off))
        case ".json":
            return json.dumps(lens.numbers(look), ensure_ascii=False) + "\n"
        case ".npz":
            from heedful.runs.look import arrays

            return arrays(look)
        case _:
            from heedful.heads.draw import draw_attention

            pieces = look.translation.source_pieces, look.translation.pieces
            return draw_attention(look.inside[0].attention, *pieces, "svg" if suffix == ".svg" else "png")


def _serve(lens: "Lens", text: str, off: Sequence[str], n_best: int, port: int, show: bool) -> None:
    """The page with the model behind it, until Ctrl-C."""
    from heedful.heads.page import page
    from heedful.serve.explorer import Explorer

    def answer(text: str, off: Sequence[str], n_best: int) -> dict[str, object]:
        return lens.page(lens.look(text, off, n_best), off, live=True)

    with Explorer(port, page(answer(text, off, n_best)), answer) as server:
        console.say(f"{server.url} shows every head; end with Ctrl-C")
        if show:
            _open(server.url)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _open(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        console.say(f"no browser was found; open {url} yourself")


def _figures(lens: "Lens", folder: Path, as_json: bool) -> None:
    """The paper's sentences: a page for each, and a table of the heads that link what belongs together."""
    from heedful.heads.page import page
    from heedful.runs.figures import find_figures
    from heedful.store.files import disk_errors, write_atomically

    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    links: list[dict[str, object]] = []
    for found in find_figures(lens):
        path = folder / f"{found.figure.name}.html"
        write_atomically(path, page(lens.page(found.look)))
        question = {"page": str(path), "from": found.figure.query, "to": " ".join(found.figure.keys)}
        for link in found.links[:_STRONGEST]:
            links.append({**question, "head": str(link.head), "share": link.share, "chance": found.chance})
    if as_json:
        console.out(json.dumps(links))
    else:
        console.out(console.table([tuple(links[0]), *(tuple(map(_shown, link.values())) for link in links)]))


def _shown(value: object) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, float) else str(value)


def _survey(lens: "Lens", source: Path, target: Path | None, report: Path | None, as_json: bool) -> None:
    """A corpus: a table of what each head does, and a page of it."""
    from heedful.data.pairs import read_lines, read_parallel
    from heedful.heads.report import report_json, report_page, report_text
    from heedful.runs.survey import survey, worth
    from heedful.store.files import write_atomically

    pairs = list(read_parallel([str(source)], [str(target)])) if target else []
    with console.display() as shown:
        found = survey(lens, list(read_lines(source)), shown)
        importance = worth(lens, pairs, shown) if pairs else None
    if found.left_out:
        console.say(f"{found.left_out} lines are left out: they are empty or too long")
    known = found.measures, found.roles, importance
    console.out(json.dumps(report_json(*known)) if as_json else console.table(report_text(*known)))
    if report:
        write_atomically(report, report_page(str(lens.run), *known))
        console.say(f"{report} shows what each head does; open it in a browser")
    try:
        lens.keep_roles(found.known_roles())
    except HeedfulError as error:  # a model may lie where one can only read
        console.say(f"what the heads do is not kept in the run folder: {error}")
