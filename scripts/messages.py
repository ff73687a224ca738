"""What a program says to people, in English and other languages: pairs from catalogues of gettext (.po).

    .venv/bin/python scripts/messages.py de.po --out my

writes the finished messages of a catalogue as my.en and my.de. The demo learns those of Horizon, the web interface of
OpenStack (Apache 2.0), which come in a wheel on the package index. Placeholders (`%s`, `{name}`) stay as they are.
"""

import argparse
import re
import sys
from pathlib import Path

from package_index import Archive, fetched, of_zip, undamaged
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
MAX_WORDS = 25  # the few that are longer are whole paragraphs
MEGABYTES = 10


def main() -> None:
    """Write the messages of one catalogue, or say in one sentence why not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("catalogue", type=Path, help="such as de.po")
    parser.add_argument("--out", type=Path, required=True, help="what both files are called, without their languages")
    parser.add_argument(
        "--languages", nargs=2, default=("en", "de"), metavar=("FROM", "TO"), help="of both files (en de)"
    )
    options = parser.parse_args()
    sys.exit(ending("messages", lambda: convert(options.catalogue, options.out, tuple(options.languages)), MEGABYTES))


def convert(catalogue: Path, out: Path, languages: tuple[str, str]) -> int:
    """Write the pairs of a catalogue as two files; give the exit code."""
    check_readable(catalogue)
    pairs = read_messages(catalogue.read_bytes(), catalogue.name)
    write_sides(pairs, out, languages)
    say(f"{len(pairs):,} messages: {out}.{languages[0]} and {out}.{languages[1]}")
    return 0


def messages_of_horizon(language: str, cache: Path) -> Pairs:
    """English and another language, each English message once; from the cache or fetched into it."""
    wheel = fetched(HORIZON, cache)
    pairs: dict[str, str] = {}
    for catalogue in CATALOGUES:
        name = f"{catalogue.format(f'locale/{language}/LC_MESSAGES')}.po"
        with undamaged(wheel):
            content = of_zip(wheel, name)
        pairs |= dict(read_messages(content, name))
    return [(english, other) for english, other in pairs.items() if len(english.split()) <= MAX_WORDS]


def read_messages(content: bytes, name: str) -> Pairs:
    """The finished messages of a catalogue: none that is fuzzy, obsolete, or has forms for plurals."""
    import polib

    try:
        # Whatever polib takes for a name of a file it opens. No file has such a name.
        catalogue = polib.pofile("\n\n\n" + content.decode("utf-8-sig"))
    except (OSError, ValueError) as error:
        found = str(error).replace("\n", "")
        raise DataError(f"{name} is not a catalogue of gettext in UTF-8 ({found[:80]}); give a .po file") from error
    entries = [entry for entry in catalogue.translated_entries() if not entry.msgid_plural]
    return [(" ".join(entry.msgid.split()), " ".join(entry.msgstr.split())) for entry in entries]


def letters(text: str) -> str:
    """By this two messages are the same: their letters and digits, small. "Save file..." is "Save File"."""
    return re.sub(r"[\W_]+", " ", text.casefold()).strip()


if __name__ == "__main__":
    main()
