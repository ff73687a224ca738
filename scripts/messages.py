"""The messages of a program in two languages: pairs from gettext catalogues (.po).

    .venv/bin/python scripts/messages.py de.po --out my

writes the translated messages of a catalogue to my.en and my.de. The demo uses those of Horizon, the web interface of
OpenStack (Apache 2.0), which come in a wheel on the package index. Placeholders (`%s`, `{name}`) are kept.
"""

import argparse
import re
import sys
from pathlib import Path

from package_index import Archive, fetch_archive, of_zip, undamaged
from splits import Pairs, write_sides
from steps import ending, say

from heedful.data.pairs import check_readable
from heedful.errors import DataError

HORIZON = Archive(
    project="horizon",
    name="horizon-27.0.0-py3-none-any.whl",
    sha256="8a981dae4fb6626e71553aa185f6e429b0b1efb86b04b0a72c3b18ee04f1f990",
    size="5 MB",
)
CATALOGUES = (
    "openstack_dashboard/{}/django",
    "openstack_dashboard/{}/djangojs",
    "horizon/{}/django",
    "horizon/{}/djangojs",
)
MAX_WORDS = 25  # the few longer ones are whole paragraphs
MEGABYTES = 10


def main() -> None:
    """Write the messages of one catalogue; an error is one sentence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("catalogue", type=Path, help="such as de.po")
    parser.add_argument("--out", type=Path, required=True, help="the name of both files, without the languages")
    parser.add_argument(
        "--languages", nargs=2, default=("en", "de"), metavar=("FROM", "TO"), help="the languages (default: en de)"
    )
    options = parser.parse_args()
    sys.exit(ending("messages", lambda: convert(options.catalogue, options.out, tuple(options.languages)), MEGABYTES))


def convert(catalogue: Path, out: Path, languages: tuple[str, str]) -> int:
    """Write the pairs of a catalogue to two files; return the exit code."""
    check_readable(catalogue)
    pairs = read_messages(catalogue.read_bytes(), catalogue.name)
    write_sides(pairs, out, languages)
    say(f"{len(pairs):,} messages: {out}.{languages[0]} and {out}.{languages[1]}")
    return 0


def messages_of_horizon(language: str, cache: Path) -> Pairs:
    """Messages in English and another language, each English one once; from the cache or downloaded to it."""
    wheel = fetch_archive(HORIZON, cache)
    pairs: dict[str, str] = {}
    for catalogue in CATALOGUES:
        name = f"{catalogue.format(f'locale/{language}/LC_MESSAGES')}.po"
        with undamaged(wheel):
            content = of_zip(wheel, name)
        pairs |= dict(read_messages(content, name))
    return [(english, other) for english, other in pairs.items() if len(english.split()) <= MAX_WORDS]


def read_messages(content: bytes, name: str) -> Pairs:
    """The translated messages of a catalogue, without fuzzy and obsolete ones and without plural forms."""
    import polib

    try:
        # polib opens text that looks like the name of a file. No file has a name with such a start.
        catalogue = polib.pofile("\n\n\n" + content.decode("utf-8-sig"))
    except (OSError, ValueError) as error:
        found = str(error).replace("\n", "")
        raise DataError(f"{name} is not a gettext catalogue in UTF-8 ({found[:80]}); give a .po file") from error
    entries = [entry for entry in catalogue.translated_entries() if not entry.msgid_plural]
    return [(" ".join(entry.msgid.split()), " ".join(entry.msgstr.split())) for entry in entries]


def letters(text: str) -> str:
    """The letters and digits in lower case, by which messages are compared: "Save file..." equals "Save File"."""
    return re.sub(r"[\W_]+", " ", text.casefold()).strip()


if __name__ == "__main__":
    main()
