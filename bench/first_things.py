r"""How many of the first things that a person types come out right.

.venv/bin/python bench/first_things.py en-de en-fr en-es
.venv/bin/python bench/first_things.py runs/builtin/all --target de --prefix "German "

`first_things.tsv` has 100 English texts (greetings, words, questions, signs, messages of programs, numbers, and some
without capitals or punctuation) and their acceptable translations. A translation is right if it has the same letters
and digits as one of them. The others are printed, for a person to judge: the list cannot have every good translation.
The built-in models learn some of them from scripts/phrases.tsv, so those that are not there are counted apart.
"""

import argparse
import csv
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.translation.translator import Translator

LIST = Path(__file__).with_name("first_things.tsv")
PHRASES = Path(__file__).resolve().parent.parent / "scripts" / "phrases.tsv"


@dataclass(frozen=True, slots=True)
class Thing:
    """A text that people type, and the translations that are right."""

    kind: str
    english: str
    translations: dict[str, tuple[str, ...]]  # by language


def main() -> None:
    """Translate the list with each model and print how many are right, and the rest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="names or folders; a name such as en-de has its language")
    parser.add_argument("--target", choices=("de", "fr", "es"), help="the language, if the name does not end in it")
    parser.add_argument("--prefix", default="", help="text before each source, for a model with several targets")
    options = parser.parse_args()
    things = read_things(LIST)
    learnt = {line.split("\t")[0] for line in PHRASES.read_text(encoding="utf-8").splitlines()}
    new = sum(thing.english not in learnt for thing in things)
    for model in options.models:
        language = options.target or Path(model).name.rpartition("-")[2]
        if language not in things[0].translations:
            sys.exit(f"first_things: {model} does not end in a language of the list; name it with --target")
        texts = Translator.load(model).translate([options.prefix + thing.english for thing in things])
        outputs = [text.text for text in texts]
        wrong = list_wrong(things, outputs, language)
        for thing, output in wrong:
            print(f"   {thing.english}\t{output}\t({thing.translations[language][0]})")
        wrong_new = sum(thing.english not in learnt for thing, _ in wrong)
        print(
            f"{model}: {len(things) - len(wrong)} of {len(things)} are right; {new - wrong_new} of the {new} new ones\n"
        )


def read_things(path: Path) -> list[Thing]:
    """The list, in its order."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [
        Thing(row["kind"], row["en"], {code: tuple(row[code].split(" | ")) for code in ("de", "fr", "es")})
        for row in rows
    ]


def list_wrong(things: Sequence[Thing], outputs: Sequence[str], language: str) -> list[tuple[Thing, str]]:
    """The things whose translation is not in the list, with the translation."""
    return [
        (thing, output)
        for thing, output in zip(things, outputs, strict=True)
        if letters(output) not in map(letters, thing.translations[language])
    ]


def letters(text: str) -> str:
    """The words and numbers of a text in lower case."""
    return re.sub(r"[\W_]+", " ", text.casefold().replace("œ", "oe")).strip()


if __name__ == "__main__":
    main()
