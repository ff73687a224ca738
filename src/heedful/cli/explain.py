"""`heedful explain`"""

import json
from pathlib import Path
from typing import Annotated

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
from heedful.cli.heads import open_page
from heedful.cli.translate import one_line
from heedful.errors import ConfigError, require_library


def explain(
    run: ModelArgument,
    text: Annotated[str, typer.Argument(help="The sentence to explain.")],
    target: Annotated[
        str | None, typer.Option(help="Explain this translation instead of the one that the model gives.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Output file: a page (.html).")] = Path("explain.html"),
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    beam: BeamOption = None,
    settings: SearchOption = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Walk through the paper's figure 1 with the numbers of one sentence, in one page."""
    if out.suffix.lower() != ".html":
        raise ConfigError(f"--out {out} must end in .html, but ends in '{out.suffix}'")
    check_output(out, "--out")
    require_library("explaining a translation", "torch")
    from heedful.device import use_threads
    from heedful.inspection.explain import explain_sentence, make_plain_document
    from heedful.inspection.explanation_page import make_explanation_page
    from heedful.storage.files import write_atomically
    from heedful.storage.model_names import find_model
    from heedful.translation.translator import Translator

    use_threads(0)
    translator = Translator.load(run, parse_device(device))
    search = override_search(translator.search, beam, settings)
    found = explain_sentence(find_model(run), translator, text, search, target)
    write_atomically(out, make_explanation_page(found))
    if as_json:
        console.out(json.dumps(make_plain_document(found) | {"out": str(out)}, ensure_ascii=False))
    else:
        console.out(one_line(found.look.translation.text))
    console.say(f"{out} explains every step" + ("" if show else "; open it in a browser"))
    if show:
        open_page(out.resolve().as_uri())
