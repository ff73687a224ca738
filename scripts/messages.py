"""The messages of a program in two languages: pairs from gettext catalogues (.po).

    .venv/bin/python scripts/messages.py de.po --out my

writes the translated messages of a catalogue to my.en and my.de. The demo uses those of Horizon, the web interface of
OpenStack (Apache 2.0), which come in a wheel on the package index. Placeholders (`%s`, `{name}`) are kept.
"""

import argparse
import re
import sys
import zipfile
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
# Programs whose licence lets a model learn from their messages, and the licence.
PROGRAMS = (
    Archive(
        "django",
        "django-5.2.19-py3-none-any.whl",
        "5965d974a5218a2b68a11dd1276434707f23886525c23f0598eccedaf4f4ca00",
        "8 MB",
    ),  # BSD-3
    Archive(
        "wagtail",
        "wagtail-8.0.1-py3-none-any.whl",
        "1e6ad5c7891a54efce1400e168298b5a2cc343b642cee89c31bf5ec30c98b26c",
        "10 MB",
    ),  # BSD-3
    Archive(
        "django-oscar",
        "django_oscar-4.2.1-py3-none-any.whl",
        "adbb95ea0130859c204cc6fb221052d6d437ecbaa90800e8418a809f72645e9c",
        "9 MB",
    ),  # BSD-3
    Archive(
        "django-allauth",
        "django_allauth-65.21.1-py3-none-any.whl",
        "7bdf018c9f3f0a32c80677f84e7777272d9c833b180bd6734314c4831c802a9e",
        "2 MB",
    ),  # MIT
    Archive(
        "spyder",
        "spyder-6.1.8-py3-none-any.whl",
        "4da836742a7138c93392a8a0bd1a5ff40002cf92d217ef0e7bed11b522322f90",
        "14 MB",
    ),  # MIT
    Archive(
        "sphinx",
        "sphinx-9.0.4-py3-none-any.whl",
        "5bebc595a5e943ea248b99c13814c1c5e10b3ece718976824ffa7959ff95fffb",
        "4 MB",
    ),  # BSD-2
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


def messages_of_programs(language: str, cache: Path) -> Pairs:
    """Messages of several programs in English and another language; from the cache or downloaded to it."""
    pairs: Pairs = []
    for program in PROGRAMS:
        wheel = fetch_archive(program, cache)
        with undamaged(wheel), zipfile.ZipFile(wheel) as zipped:
            names = [name for name in zipped.namelist() if name.endswith(".po") and f"/{language}/LC_MESSAGES/" in name]
        for name in sorted(names):
            with undamaged(wheel):
                pairs += read_messages(of_zip(wheel, name), name)
    return [pair for pair in dict.fromkeys(pairs) if len(pair[0].split()) <= MAX_WORDS]


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
