"""Measure what each head of a built-in model does over a text, and store the names of the roles in the model's folder.

    .venv/bin/python scripts/head_roles.py en-de runs/builtin/data/en-de/val.en [more models and texts]

The entry in about.json names the weights that it was measured on, so pages show no role after the model has changed.
Run this again after each export of a built-in model.
"""

import argparse
import sys
from pathlib import Path

from heedful.data.pairs import read_lines
from heedful.inspection.attention_view import AttentionViewer
from heedful.inspection.head_report import survey_heads
from heedful.progress import SilentReporter
from heedful.storage.model_names import find_model
from heedful.translation.translator import Translator

LINES = 300


def store_roles(model: str, text: Path, lines: int = LINES) -> dict[str, object]:
    """Measure the heads of a model on the first lines of a text, and store the name and the evidence of each role."""
    translator = Translator.load(model, "cpu")
    viewer = AttentionViewer(find_model(model), translator, translator.search)
    roles = survey_heads(viewer, list(read_lines(text))[:lines], SilentReporter()).known_roles()
    viewer.keep_roles(roles)
    return roles


def main() -> None:
    """Take pairs of a model and a text from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", metavar="MODEL TEXT", help="a model and a text in its source language")
    parser.add_argument("--lines", type=int, default=LINES, help=f"lines of the text to measure on (default: {LINES})")
    given = parser.parse_args()
    if len(given.pairs) % 2:
        parser.error("give each model with its text: MODEL TEXT MODEL TEXT ...")
    for model, text in zip(given.pairs[::2], given.pairs[1::2], strict=True):
        roles = store_roles(model, Path(text), given.lines)
        sys.stdout.write(f"{model}: {len(roles)} heads\n")


if __name__ == "__main__":
    main()
