"""Count the letters and words by which heedful detects languages, and write src/heedful/text/trigrams.json.

    .venv/bin/python scripts/trigrams.py --german FOLDER

English, French and Spanish sentences are downloaded (tatoeba.org, CC-BY 2.0 France); FOLDER has train.de, such
sentences in German. Letter counts of Wikipedia (in langdetect; Apache 2.0) and the messages of Django and Wagtail (BSD)
are mixed in. Languages that heedful recognises only to refuse them have these two alone.
"""

import argparse
import json
import sys
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from messages import read_messages
from package_index import Archive, cache_folder, fetch_archive, of_tar, of_zip, undamaged
from splits import split
from steps import ending, say
from tatoeba import NMT, english_french, read_archive, read_pairs

from heedful.data.pairs import read_lines
from heedful.text.languages import LanguageTable, count_trigrams, count_words, leave_out_verbatim, tabulate

LANGDETECT = Archive(
    project="langdetect",
    name="langdetect-1.0.9.tar.gz",
    sha256="cbc1fef89f8d062739774bd51eda3da3274006b3661d199c2655f6b3f6d605a0",
    size="1 MB",
)
PROFILE = "langdetect-1.0.9/langdetect/profiles/{}"
CATALOGUES = (
    Archive(
        project="Django",
        name="django-5.2.19-py3-none-any.whl",
        sha256="5965d974a5218a2b68a11dd1276434707f23886525c23f0598eccedaf4f4ca00",
        size="8 MB",
    ),
    Archive(
        project="wagtail",
        name="wagtail-8.0.1-py3-none-any.whl",
        sha256="1e6ad5c7891a54efce1400e168298b5a2cc343b642cee89c31bf5ec30c98b26c",
        size="10 MB",
    ),
)
# Other languages in Latin letters. Those in other letters are told from these by their letters alone.
OTHERS = ["af", "ca", "cs", "cy", "da", "et", "fi", "hr", "hu", "id", "it", "lt", "lv", "nl", "no", "pl", "pt", "ro"]
OTHERS += ["sk", "sl", "so", "sq", "sv", "sw", "tl", "tr", "vi"]
LOCALES = {"en": "fr", "no": "nb"}  # English is the other side of any catalogue
HELD_OUT = 2000  # English sentences of each language pair
TRIGRAMS, WORDS = 3000, 2500  # of each language that is translated, the most frequent
OTHER_TRIGRAMS, OTHER_WORDS = 1500, 250
SHARES = {"sentences": 0.6, "wikipedia": 0.2, "messages": 0.2}  # of the counts
TOTAL = 200_000  # that the counts of a language add up to
OUT = Path(__file__).resolve().parent.parent / "src/heedful/text/trigrams.json"
MEGABYTES = 100


def main() -> None:
    """Write the table; an error is one sentence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--german", type=Path, required=True, metavar="FOLDER", help="with train.de")
    parser.add_argument("--out", type=Path, default=OUT, help="the table to write (default: the one of heedful)")
    options = parser.parse_args()
    sys.exit(ending("trigrams", lambda: write_table(options.german, options.out), MEGABYTES))


def write_table(german: Path, out: Path) -> int:
    """Count, keep the most frequent, write the table; return the exit code."""
    cache = cache_folder()
    french = split(english_french(cache), HELD_OUT, HELD_OUT).train
    spanish = split(english_spanish(cache), HELD_OUT, HELD_OUT).train
    sentences = {
        "en": list(dict.fromkeys(english for english, _ in french)),
        "de": list(read_lines(german / "train.de")),
        "fr": [text for _, text in french],
        "es": [text for _, text in spanish],
    }
    profiles = fetch_archive(LANGDETECT, cache)
    wheels = [fetch_archive(archive, cache) for archive in CATALOGUES]
    table: dict[str, LanguageTable] = {}
    for code in (*sentences, *OTHERS):
        texts = {"sentences": sentences.get(code, []), "messages": list_messages(wheels, code)}
        letters = {kind: count_trigrams(own) for kind, own in texts.items()}
        letters["wikipedia"] = read_profile(profiles, code)
        words = {kind: count_words(own) for kind, own in texts.items()}
        most = (TRIGRAMS, WORDS) if code in sentences else (OTHER_TRIGRAMS, OTHER_WORDS)
        table[code] = tabulate(dict(mix(letters).most_common(most[0])), dict(mix(words).most_common(most[1])))
    out.write_text(json.dumps(table, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    say(f"   {len(table)} languages, {out.stat().st_size:,} bytes: {out}")
    return 0


def english_spanish(cache: Path) -> list[tuple[str, str]]:
    """All pairs, from the cache or downloaded to it."""
    return read_pairs(read_archive(fetch_archive(NMT, cache), "nmt-0.0.6/data/spa-eng.zip", "spa.txt").decode())


def read_profile(archive: Path, code: str) -> Counter[str]:
    """The trigrams of a language in langdetect, in lower case."""
    with undamaged(archive):
        profile = json.loads(of_tar(archive, PROFILE.format(code)))
    counts: Counter[str] = Counter()
    for letters, number in profile["freq"].items():
        small = letters.lower()
        inner = small.strip(" ")
        if len(letters) == len(small) == 3 and inner.isalpha():
            counts[small] += number
    return counts


def list_messages(wheels: Sequence[Path], code: str) -> list[str]:
    """The messages of all catalogues in this language, without their placeholders; none if there are none."""
    locale = LOCALES.get(code, code)
    found: dict[str, None] = {}
    for wheel in wheels:
        with undamaged(wheel), zipfile.ZipFile(wheel) as zipped:
            names = [name for name in zipped.namelist() if f"/locale/{locale}/" in name and name.endswith(".po")]
        for name in names:
            pairs = read_messages(of_zip(wheel, name), name)
            found |= dict.fromkeys(pair[0 if code == "en" else 1] for pair in pairs)
    return [leave_out_verbatim(text) for text in found]


def mix(counts: dict[str, Counter[str]]) -> Counter[str]:
    """Counts of several kinds of text as one, by their shares; what rounds to 0 is dropped."""
    there = {kind: SHARES[kind] for kind, own in counts.items() if own}
    mixed: Counter[str] = Counter()
    for kind, share in there.items():
        scale = TOTAL * share / sum(there.values()) / counts[kind].total()
        for key, number in counts[kind].items():
            mixed[key] += number * scale  # type: ignore[assignment]  # rounded below
    return +Counter({key: round(number) for key, number in mixed.items()})


if __name__ == "__main__":
    main()
