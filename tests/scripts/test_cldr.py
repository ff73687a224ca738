"""Names from CLDR, read from archives of the same form."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import cldr
import pytest
from package_index import Archive, digest

from heedful.errors import DataError

_WEEK = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_YEAR = tuple(f"Month{number}" for number in range(1, 13))


def tables(language: str) -> dict[str, Any]:
    mark = "" if language == "en" else language
    calendar = {
        table: {kind: {"wide": {str(number): f"{name}{mark}" for number, name in enumerate(names)}}}
        for table, names in (("months", _YEAR), ("days", _WEEK))
        for kind in (("format",) if language == "en" else ("stand-alone",))
    }
    units = {
        unit: {
            "displayName": f"{unit}s{mark}",
            "unitPattern-count-one": f"{{0}} {unit}{mark}",
            "unitPattern-count-other": f"{{0}} {unit}s{mark}",
        }
        for unit in cldr._EVERYDAY_UNITS
    }
    names = {"territories": {"DE": f"Germany{mark}", "001": "001"}, "languages": {"fr": f"French{mark}"}}
    return {
        "ca-gregorian": {"dates": {"calendars": {"gregorian": calendar}}},
        "units": {"units": {"long": units}},
        **{table: {"localeDisplayNames": {table: values}} for table, values in names.items()},
    }


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("NAMES", "DATES", "UNITS"):
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as tar:
            for language in ("en", "de"):
                for name, table in tables(language).items():
                    data = json.dumps({"main": {language: table}}).encode()
                    member = tarfile.TarInfo(f"package/main/{language}/{name}.json")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
        (tmp_path / f"{kind}.tgz").write_bytes(content.getvalue())
        archive = Archive(kind, f"{kind}.tgz", digest(content.getvalue()), "1 MB")
        monkeypatch.setattr(cldr, kind, archive)
    return tmp_path


def test_names_dates_and_units_pair_up(cache: Path) -> None:
    found = cldr.names("de", cache)
    assert {("Germany", "Germanyde"), ("French", "Frenchde"), ("1 mass-gram", "1 mass-gramde")} <= set(found)
    assert ("20 mass-grams", "20 mass-gramsde") in found
    assert ("001", "001") not in found
    dates = [pair for pair in found if pair[0].startswith("Month") and pair[0][-4:].isdigit()]
    assert dates
    for english, german in dates:
        month, day, year = english.replace(",", "").split()
        assert german == f"{day}. {month}de {year}"


def test_days_and_months_pair_up(cache: Path) -> None:
    found = cldr.days_and_months("de", cache)
    assert len(found) == 19
    assert found[0] == ("Month1", "Month1de")
    assert found[-1] == ("Saturday", "Saturdayde")


def test_without_npm_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(DataError, match=r"cldr-units-full-.*\.tgz is downloaded with npm, which is not installed"):
        cldr.fetch_npm_archive(cldr.UNITS, tmp_path)
