"""`make demo`: translate, then fine-tune a model on the vocabulary of a program in a minute or two.

The built-in models translate in six directions. One of them is fine-tuned on the messages of a program, with the
ordinary command line, and evaluated on held-out messages before and after. The messages come in a package on the
package index; without a network that part is left out, and the rest still works.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten

from messages import letters, messages_of_horizon
from package_index import cache_folder
from splits import Split, split, write_split
from steps import ending, heedful, say

from heedful.errors import FolderError, UserError

REPOSITORY = Path(__file__).resolve().parent.parent
MARK = ".heedful-demo"  # only a folder with this file is removed
MEGABYTES = 200

SENTENCES = {
    "en-fr": ("Where is the nearest station?", "I have never seen such a beautiful garden."),
    "fr-en": ("Où est la gare la plus proche ?", "Je n'ai jamais vu un si beau jardin."),
    "en-de": ("Where is the nearest station?", "I have never seen such a beautiful garden."),
    "de-en": ("Wo ist der nächste Bahnhof?", "Ich habe noch nie einen so schönen Garten gesehen."),
    "en-es": ("Where is the nearest station?", "Click the button to save your changes."),
    "es-en": ("¿Dónde está la estación más cercana?", "Haga clic en el botón para guardar los cambios."),
}
TAUGHT = "en-fr"
TEST, VALID = 300, 150  # held-out messages
MAX_STEPS = 300  # about a minute and a half on two cores
VALIDATIONS = 5  # few, because they take time from training
SHOWN = 6  # translations to print
SHOWN_WORDS = range(4, 12)
LOOKED_AT = "Unable to retrieve the list of images."


def main() -> None:
    """Run everything; an error is one sentence."""
    parser = argparse.ArgumentParser(description="Translate with the built-in models, and fine-tune one of them.")
    parser.add_argument("--minutes", type=float, default=2.0, help="the longest time to train (default: 2)")
    parser.add_argument(
        "--folder", type=Path, default=Path("runs/demo"), help="the folder to replace (default: runs/demo)"
    )
    options = parser.parse_args()
    os.chdir(REPOSITORY)
    sys.exit(ending("demo", lambda: demo(options.folder, options.minutes), MEGABYTES))


def demo(folder: Path, minutes: float) -> int:
    """Translate, fine-tune, show heads, suggest commands; return the exit code."""
    say("The built-in translators, and how one of them learns the vocabulary of a program.\n")
    renew(folder)
    if code := translate():
        return code
    parts = messages()
    if parts and (code := teach(parts, folder, minutes)):
        return code
    model = str(folder / "model") if parts else TAUGHT
    page = folder / "heads.html"
    say("\nInside: what every head attends to while this sentence is translated.")
    if code := heedful("heads", model, LOOKED_AT, "--out", str(page)):
        return code
    say(farewell(folder, page) if parts else farewell_untaught(page))
    return 0


def translate() -> int:
    """Translate a few sentences with each built-in model; return the exit code."""
    say("1. Translate: six models are built in, and nothing else is needed.")
    for name, sentences in SENTENCES.items():
        if code := heedful("translate", name, *sentences):
            return code
        say("")
    return 0


def messages() -> Split | None:
    """The messages to fine-tune on, split; None, with the reason printed, if they cannot be downloaded."""
    say("2. Text: the messages of Horizon, OpenStack's web interface, by its translators, Apache 2.0")
    try:
        pairs = messages_of_horizon(TAUGHT.partition("-")[2], cache_folder())
    except UserError as error:
        say(f"   {error}.\n   So the fine-tuning is left out; the rest needs no network.")
        return None
    return split(pairs, TEST, VALID, letters)


def teach(parts: Split, folder: Path, minutes: float) -> int:
    """Evaluate the model, fine-tune it, evaluate it again, print examples; return the exit code."""
    data, model = folder / "data", folder / "model"
    languages = TAUGHT.split("-")
    write_split(parts, data, (languages[0], languages[1]))
    say(f"   {len(parts.train):,} pairs to train on, {len(parts.valid)} to validate, {len(parts.test)} to test: {data}")
    say("   No test message is in the training text, in either language, not even with other punctuation or capitals.")

    say("\n3. Before: the model knows everyday sentences, but not this program. Its scores on the held-out messages:")
    if code := evaluate(TAUGHT, data, before := folder / "before.txt"):
        return code
    say(f"\n4. Fine-tune it, for at most {minutes:g} minutes. Ctrl-C stops it.")
    if code := fine_tune(data, model, minutes):
        return code
    say("\n5. After: the same messages again.")
    if code := evaluate(str(model), data, after := folder / "after.txt"):
        return code
    say("\nA few of them:\n")
    for english, people, first, then in shown(parts.test, read_lines(before), read_lines(after)):
        say(f"   English    {english}\n   before     {first}\n   after      {then}\n   people     {people}\n")
    return 0


def fine_tune(data: Path, model: Path, minutes: float) -> int:
    """Fine-tune the built-in model on the messages; return the exit code."""
    sides = TAUGHT.split("-")
    files = [
        part
        for option, name in (("", "train"), ("valid-", "val"))
        for side, language in zip(("source", "target"), sides, strict=True)
        for part in (f"--{option}{side}", str(data / f"{name}.{language}"))
    ]
    values = {"max_steps": MAX_STEPS, "validate_every": MAX_STEPS // VALIDATIONS, "max_minutes": minutes}
    settings = [part for key, value in values.items() for part in ("--set", f"train.{key}={value}")]
    return heedful("train", "--init", TAUGHT, *files, *settings, "--out", str(model))


def evaluate(model: str, data: Path, output: Path) -> int:
    """Score the translations of the held-out messages, and keep them; return the exit code."""
    source, target = files_of_test(data)
    return heedful("evaluate", model, "--source", source, "--reference", target, "--output", str(output))


def files_of_test(data: Path) -> tuple[str, str]:
    """The held-out messages and their human translations."""
    source, target = (str(data / f"test.{language}") for language in TAUGHT.split("-"))
    return source, target


def read_lines(path: Path) -> list[str]:
    """Lines end only at line feeds. They are shortened, because a model that has hardly been trained repeats itself."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [shorten(line, 200, placeholder=" ...") for line in lines]


def shown(
    pairs: Sequence[tuple[str, str]], before: Sequence[str], after: Sequence[str]
) -> list[tuple[str, str, str, str]]:
    """The first few of medium length: English, human translation, and both of ours."""
    rows = [(*pair, first, then) for pair, first, then in zip(pairs, before, after, strict=True)]
    return [row for row in rows if len(row[0].split()) in SHOWN_WORDS][:SHOWN]


def farewell(folder: Path, page: Path) -> str:
    """Where everything is, and commands to try next."""
    model, (source, target) = folder / "model", files_of_test(folder / "data")
    return f"""
The page is {page}; open it in a browser. The fine-tuned model is in {model}. Try next:

   source .venv/bin/activate
   heedful translate {model} "Unable to delete the volume %s."
   heedful translate de-en "Wie spät ist es?"
   heedful serve {TAUGHT}
   heedful heads {model} --serve --open
   heedful compare {TAUGHT} {model} --source {source} --reference {target} --html {folder}/compare.html
   heedful train --init en-de --source my.en --target my.de --out runs/mine

The last one teaches a model your own vocabulary, from two files with one sentence a line. README.md has the rest."""


def farewell_untaught(page: Path) -> str:
    """Commands to try next if nothing could be downloaded."""
    return f"""
The page is {page}; open it in a browser. The fine-tuning was left out, because its text could not be downloaded:
run the demo again with a network. With two files of your own, one sentence a line, it needs none. Try next:

   source .venv/bin/activate
   heedful translate de-en "Wie spät ist es?"
   heedful serve {TAUGHT}
   heedful heads {TAUGHT} --serve --open
   heedful train --init en-de --source my.en --target my.de --out runs/mine
   heedful study ablations

The last but one teaches a model your vocabulary; the last trains small models from scratch. README.md has the rest."""


def renew(folder: Path) -> None:
    """Make an empty folder; an existing one is removed if an earlier demo made it."""
    if folder.exists():
        if not (folder / MARK).exists():
            raise FolderError(f"{folder} exists, but no demo made it; move it away, or choose another with --folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARK).touch()


if __name__ == "__main__":
    main()
