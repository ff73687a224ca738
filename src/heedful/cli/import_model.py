"""`heedful import`"""

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import console
from heedful.cli.common import JsonOption
from heedful.cli.export import tell


def import_model(
    folder: Annotated[Path, typer.Argument(help="A folder of a Hugging Face Marian model, such as OPUS-MT's.")],
    out: Annotated[Path, typer.Argument(help="The new run folder.")],
    as_json: JsonOption = False,
) -> None:
    """Make a run folder of a Hugging Face Marian model, and prove that it is the same one."""
    from heedful.device import use_threads
    from heedful.formats.import_model import import_model as write

    use_threads(0)
    console.out(tell(write(folder, out), out, as_json))
