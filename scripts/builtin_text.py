"""Write the text that the built-in models learn from: English with French and German, in all four directions.

    .venv/bin/python scripts/builtin_text.py --german FOLDER --out runs/builtin/data

English and French are downloaded (tatoeba.py). FOLDER holds English and German, one sentence a line: train.en and
train.de, val.en and val.de, test.en and test.de. The shipped models used Tatoeba's sentences there too. No test or
validation sentence is in a training text, in any language or direction.
"""

import argparse
import sys
from pathlib import Path

from package_index import cache_folder
from splits import Pairs, Split, split, write_sides, write_split
from steps import ending, say
from tatoeba import english_french

from heedful.data.pairs import read_parallel

TEST, VALID = 2000, 2000  # held-out English sentences of English and French
JOINT_VALID = 300  # validation pairs of each language for the joint model, in both directions
MEGABYTES = 150


def main() -> None:
    """Write the text; an error is one sentence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--german", type=Path, required=True, metavar="FOLDER", help="with train.en, train.de, ...")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    options = parser.parse_args()
    sys.exit(ending("builtin_text", lambda: builtin_text(options.german, options.out), MEGABYTES))


def builtin_text(german: Path, out: Path) -> int:
    """Read both language pairs, hold out sentences, write the files; return the exit code."""
    german_parts = english_german(german)
    french_parts = split(english_french(cache_folder()), TEST, VALID)
    parts = without_leaks({"fr": french_parts, "de": german_parts})
    for language, part in parts.items():
        write_split(part, out / f"en-{language}", ("en", language))
        say(f"   en-{language}: {len(part.train):,} pairs, {len(part.valid):,} to validate, {len(part.test):,} to test")
    joint = {
        "train": {language: part.train for language, part in parts.items()},
        "val": {language: part.valid[:JOINT_VALID] for language, part in parts.items()},
    }
    for name, pairs in joint.items():
        write_sides(all_directions(pairs), out / f"all.{name}", ("source", "target"))
    return 0


def english_german(folder: Path) -> Split:
    """The pairs of a folder, with its own split."""
    train, valid, test = (
        [
            (" ".join(pair.source.split()), " ".join(pair.target.split()))
            for pair in read_parallel([str(folder / f"{name}.en")], [str(folder / f"{name}.de")])
        ]
        for name in ("train", "val", "test")
    )
    return Split(train, valid, test)


def without_leaks(parts: dict[str, Split]) -> dict[str, Split]:
    """The same splits, without any training pair that contains a held-out sentence of either language pair.

    The two language pairs share English sentences, so a joint model would otherwise learn some of them.
    """
    held = {text for part in parts.values() for pairs in (part.valid, part.test) for pair in pairs for text in pair}
    return {
        language: Split([pair for pair in part.train if not held & set(pair)], part.valid, part.test)
        for language, part in parts.items()
    }


def all_directions(pairs: dict[str, Pairs]) -> Pairs:
    """Pairs from and to English; the first word of a source names the target language."""
    rows: Pairs = []
    for language, both in pairs.items():
        rows += [(f"<{language}> {english}", other) for english, other in both]
        rows += [(f"<en> {other}", english) for english, other in both]
    return rows


if __name__ == "__main__":
    main()
