"""Names of languages, countries, days, months and units in several languages, from Unicode's CLDR.

The tables come as packages of the npm index (Unicode licence) and are read in memory; no code of theirs runs.
"""

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

from package_index import Archive, Unreachable, check_content, digest, of_tar, undamaged
from splits import Pairs

from heedful.errors import DataError

_VERSION = "48.2.0"
NAMES, DATES, UNITS = (
    Archive(project=f"cldr-{kind}-full", name=f"cldr-{kind}-full-{_VERSION}.tgz", sha256=sha256, size=size)
    for kind, sha256, size in (
        ("localenames", "7f2ac7fd3b5d90f56ad127f9ed5ae67b58b3e556818f55530b9f47bb81bcde57", "2 MB"),
        ("dates", "0256f1cefeca14f7d515be4872dda48fcdd7e75381430f25aafd0143eae5b430", "6 MB"),
        ("units", "754d55f183570c53029a77493302f432fb3e905df35a715f9cb022e2ebcb093c", "10 MB"),
    )
)
_DATE_PATTERNS = {
    "en": ("{month} {day}, {year}", "{weekday}, {month} {day}", "{month} {day}"),
    "de": ("{day}. {month} {year}", "{weekday}, {day}. {month}", "{day}. {month}"),
    "fr": ("{day} {month} {year}", "{weekday} {day} {month}", "{day} {month}"),
    "es": ("{day} de {month} de {year}", "{weekday}, {day} de {month}", "{day} de {month}"),
}
_DATES = 400
_COUNTED = (1, 2, 3, 5, 7, 10, 12, 15, 20, 24, 30, 50, 60, 90, 100)
_EVERYDAY_UNITS = (
    *(f"duration-{name}" for name in ("year", "month", "week", "day", "hour", "minute", "second")),
    *(f"length-{name}" for name in ("kilometer", "meter", "centimeter", "millimeter", "mile")),
    *(f"mass-{name}" for name in ("kilogram", "gram")),
    *(f"volume-{name}" for name in ("liter", "milliliter")),
    *(f"digital-{name}" for name in ("byte", "kilobyte", "megabyte", "gigabyte", "bit")),
    *(f"temperature-{name}" for name in ("celsius", "fahrenheit")),
)


def names(language: str, cache: Path) -> Pairs:
    """Names of countries, languages and units, and dates, in English and another language."""
    return [*_places_and_languages(language, cache), *_days_and_months(language, cache), *_units(language, cache)]


def days_and_months(language: str, cache: Path) -> Pairs:
    """The twelve months and seven days alone."""
    return [
        pair
        for table in ("months", "days")
        for pair in zip(*(_calendar_names(one, table, cache) for one in ("en", language)), strict=True)
    ]


def _places_and_languages(language: str, cache: Path) -> Pairs:
    pairs: Pairs = []
    for table in ("territories", "languages"):
        english, other = (_table(NAMES, one, table, cache)["localeDisplayNames"][table] for one in ("en", language))
        pairs += [(name, other[code]) for code, name in english.items() if code in other and not name.isdigit()]
    return pairs


def _days_and_months(language: str, cache: Path) -> Pairs:
    """Dates written out in several forms, from a fixed seed."""
    draw = random.Random(1)
    months = days_and_months(language, cache)[:12]
    days = days_and_months(language, cache)[12:]
    pairs: Pairs = []
    for number in range(_DATES):
        month, weekday = draw.choice(months), draw.choice(days)
        day, year, form = draw.randint(1, 28), draw.randint(1900, 2030), number % 3
        pairs.append(
            tuple(
                _DATE_PATTERNS[one][form].format(month=month[side], weekday=weekday[side], day=day, year=year)
                for side, one in enumerate(("en", language))
            )  # type: ignore[arg-type]
        )
    return pairs


def _units(language: str, cache: Path) -> Pairs:
    english, other = (_table(UNITS, one, "units", cache)["units"]["long"] for one in ("en", language))
    pairs: Pairs = []
    for unit in _EVERYDAY_UNITS:
        pairs.append((english[unit]["displayName"], other[unit]["displayName"]))
        for count in _COUNTED:
            key = f"unitPattern-count-{'one' if count == 1 else 'other'}"
            pairs.append((english[unit][key].format(count), other[unit][key].format(count)))
    return pairs


def _calendar_names(language: str, table: str, cache: Path) -> list[str]:
    calendar = _table(DATES, language, "ca-gregorian", cache)["dates"]["calendars"]["gregorian"]
    return list(calendar[table]["stand-alone" if language != "en" else "format"]["wide"].values())


def _table(archive: Archive, language: str, name: str, cache: Path) -> Any:
    path = fetch_npm_archive(archive, cache)
    with undamaged(path):
        content = of_tar(path, f"package/main/{language}/{name}.json")
    return json.loads(content)["main"][language]


def fetch_npm_archive(archive: Archive, cache: Path) -> Path:
    """The archive in the cache, with its hash verified; `npm pack` downloads it if it is missing or damaged."""
    path = cache / archive.name
    if path.exists() and digest(path.read_bytes()) == archive.sha256:
        return path
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"{archive.name} is downloaded with npm, which is not installed; install Node.js")
    cache.mkdir(parents=True, exist_ok=True)
    print(f"   downloading {archive.name} ({archive.size}, once) ...", flush=True)
    command = [npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", str(cache)]
    done = subprocess.run([*command, f"{archive.project}@{_VERSION}"], check=False, capture_output=True, text=True)
    if done.returncode or not path.exists():
        raise Unreachable(f"{archive.name} cannot be downloaded by npm; connect to the network and run it again")
    check_content(archive, path.read_bytes())
    return path
