"""`heedful import`"""

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import console
from heedful.cli.common import JsonOption
from heedful.cli.export import describe_proof


def import_model(
    folder: Annotated[
        Path,
        typer.Argument(help="The folder of a Hugging Face model: Marian (such as OPUS-MT), GPT-2, BERT, T5 or ViT."),
    ],
    out: Annotated[Path, typer.Argument(help="The new run folder.")],
    as_json: JsonOption = False,
) -> None:
    """Import a Hugging Face model (Marian, GPT-2, BERT, T5 or ViT) as a run folder, and prove that both agree."""
    from heedful.device import use_threads
    from heedful.formats.import_model import import_model as write

    use_threads(0)
    console.out(describe_proof(write(folder, out), out, as_json))
