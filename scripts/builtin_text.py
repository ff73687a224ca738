"""Write the text that the built-in models learn from: English with French, German and Spanish, in both directions.

    .venv/bin/python scripts/builtin_text.py --german FOLDER --software FOLDER --out runs/builtin/data

Everyday sentences of Tatoeba in French and Spanish, messages of programs and names of countries, days and units are
downloaded. The first folder holds English and German: train.en and train.de, val.en and val.de, test.en and test.de.
The second holds messages and help texts of LibreOffice, en-de.tsv.gz, en-fr.tsv.gz and en-es.tsv.gz. No test or
validation text is in a training text, in any language or direction.
"""

import argparse
import gzip
import random
import sys
from hashlib import blake2b
from pathlib import Path

from cldr import days_and_months, names
from messages import messages_of_programs
from package_index import cache_folder
from splits import Pairs, Split, split, write_sides, write_split
from steps import ending, say
from tatoeba import english_french, english_spanish
from variants import with_variants
from word_pairs import Cases, word_pairs

from heedful.data.pairs import read_parallel

LANGUAGES = ("de", "fr", "es")
TEST, VALID = 2000, 2000  # held-out English sentences of English and French, and of English and Spanish
BLOCK = 100  # neighbouring lines of the software text, about a file, are held out together
TEST_BLOCKS, VALID_BLOCKS = 20, 10
JOINT_VALID, JOINT_SOFTWARE = 300, 100  # validation pairs of each language for a joint model
PHRASES = Path(__file__).with_name("phrases.tsv")  # English, German, French, Spanish; written for heedful
REPEATED = 4  # single words and names are few, and sentences many
OFTEN = 30  # people type phrases before anything else
MEGABYTES = 600


def main() -> None:
    """Write the text; an error is one sentence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--german", type=Path, required=True, metavar="FOLDER", help="with train.en, train.de, ...")
    parser.add_argument("--software", type=Path, required=True, metavar="FOLDER", help="with en-de.tsv.gz, ...")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    options = parser.parse_args()
    work = lambda: builtin_text(options.german, options.software, options.out)  # noqa: E731
    sys.exit(ending("builtin_text", work, MEGABYTES))


def builtin_text(german: Path, software: Path, out: Path) -> int:
    """Read all text, hold out some of it, write the files; return the exit code."""
    cache = cache_folder()
    everyday = {
        "de": english_german(german),
        "fr": split(english_french(cache), TEST, VALID),
        "es": split(english_spanish(cache), TEST, VALID),
    }
    programs = {language: split_blocks(read_software(software / f"en-{language}.tsv.gz")) for language in LANGUAGES}
    held = held_out([*everyday.values(), *programs.values()])
    joint: dict[str, Pairs] = {"from-english": [], "into-english": []}
    joint_valid: dict[str, Pairs] = {"from-english": [], "into-english": []}
    for language in LANGUAGES:
        sentences, texts = everyday[language], programs[language]
        cases = Cases.of([pair[0] for pair in sentences.train]), Cases.of([pair[1] for pair in sentences.train])
        words = word_pairs(sentences.train, cases)
        extras = [*words, *capitalised(words), *names(language, cache), *5 * days_and_months(language, cache)]
        messages = messages_of_programs(language, cache)
        phrases = read_phrases(language)
        full = [*sentences.train, *texts.train, *messages, *OFTEN * phrases]
        say(
            f"   {language}: {len(sentences.train):,} sentences, {len(texts.train):,} texts of LibreOffice, "
            f"{len(messages):,} messages of programs, {len(phrases):,} phrases, {len(words):,} words, "
            f"{len(extras):,} words and names in all"
        )
        for source, target in (("en", language), (language, "en")):
            turn = source != "en"
            name = f"{source}-{target}"
            train = with_variants(swapped(full, turn), cases[::-1] if turn else cases, source)
            train = [pair for pair in [*train, *swapped(REPEATED * extras, turn)] if not held & set(pair) and all(pair)]
            everyday_split = Split(train, swapped(sentences.valid, turn), swapped(sentences.test, turn))
            write_split(everyday_split, out / name, (source, target))
            for part, pairs in (("software-val", texts.valid), ("software-test", texts.test)):
                write_sides(swapped(pairs, turn), out / name / part, (source, target))
            say(f"   {name}: {len(train):,} pairs to train on")
            tag = "" if turn else f"x{language} "
            kind = "into-english" if turn else "from-english"
            valid = [*everyday_split.valid[:JOINT_VALID], *swapped(texts.valid[:JOINT_SOFTWARE], turn)]
            joint[kind] += [(tag + one, other) for one, other in train]
            joint_valid[kind] += [(tag + one, other) for one, other in valid]
    for kind, pairs in joint.items():
        random.Random(1).shuffle(pairs)  # so that the first lines, of which the vocabulary is made, are a fair sample
        write_sides(pairs, out / f"{kind}.train", ("source", "target"))
        write_sides(joint_valid[kind], out / f"{kind}.val", ("source", "target"))
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


def read_software(path: Path) -> Pairs:
    """The pairs of a packed file, English, tab, translation; each pair once."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    return list(dict.fromkeys((" ".join(row[0].split()), " ".join(row[1].split())) for row in rows if len(row) == 2))


def read_phrases(language: str) -> Pairs:
    """Greetings, signs and questions of travellers in English and this language."""
    column = 1 + LANGUAGES.index(language)
    rows = [line.split("\t") for line in PHRASES.read_text(encoding="utf-8").splitlines()]
    return [(row[0], row[column]) for row in rows]


def split_blocks(pairs: Pairs) -> Split:
    """Hold out whole blocks of neighbouring lines, chosen by the hash of their first text."""
    blocks = [pairs[start : start + BLOCK] for start in range(0, len(pairs), BLOCK)]
    order = sorted(range(len(blocks)), key=lambda n: blake2b(blocks[n][0][0].encode(), digest_size=8).digest())
    test, valid = set(order[:TEST_BLOCKS]), set(order[TEST_BLOCKS : TEST_BLOCKS + VALID_BLOCKS])
    parts: tuple[Pairs, Pairs, Pairs] = ([], [], [])
    for number, block in enumerate(blocks):
        parts[2 if number in test else 1 if number in valid else 0].extend(block)
    return Split(*parts)


def held_out(splits: list[Split]) -> set[str]:
    """All texts of the validation and test parts, in all languages: joint models see all training texts."""
    return {text for part in splits for pairs in (part.valid, part.test) for pair in pairs for text in pair}


def swapped(pairs: Pairs, turn: bool) -> Pairs:
    """The pairs, or with `turn` the pairs the other way round."""
    return [(target, source) for source, target in pairs] if turn else pairs


def capitalised(pairs: Pairs) -> Pairs:
    """The pairs with a capital letter at the start of both sides."""
    return [(source[:1].upper() + source[1:], target[:1].upper() + target[1:]) for source, target in pairs]


if __name__ == "__main__":
    main()
