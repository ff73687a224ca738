"""The documentation site: links lead from page to page, and broken ones are found."""

from pathlib import Path

import pytest
import site_builder as site

from heedful.errors import DataError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def in_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("README.md", "docs/how-to/train.md#1-check-the-text", "how-to/train.md#1-check-the-text"),
        ("docs/how-to/train.md", "../../README.md", "../index.md"),
        ("docs/how-to/train.md", "recipes.md", "recipes.md"),
        ("docs/paper-map.md", "../src/heedful/nn/attention.py", "source/src/heedful/nn/attention.py.md"),
        ("README.md", "docs/decisions/README.md", "decisions/README.md"),
        ("CONTRIBUTING.md", "tests/tasks", "source/tests/tasks/index.md"),
        ("README.md", "https://example.org/a", "https://example.org/a"),
        ("README.md", "#install", "#install"),
    ],
)
def test_links_lead_to_pages(page: str, link: str, expected: str) -> None:
    sources: set[Path] = set()
    assert site.convert_link(Path(page), link, sources) == expected
    assert {site.place_of(path).as_posix() for path in sources} <= {expected}


def test_a_link_that_leads_nowhere_is_an_error() -> None:
    with pytest.raises(DataError, match=r"README\.md links to docs/no\.md, which does not exist"):
        site.convert_link(Path("README.md"), "docs/no.md", set())


def test_code_blocks_stay_as_they_are(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```\n[x](no.md)\n```\n[y](https://example.org)\n", encoding="utf-8")
    assert site.convert_page(page, set()) == page.read_text(encoding="utf-8")


def test_all_pages_of_the_repository_are_written(tmp_path: Path) -> None:
    site.write_pages(tmp_path / "pages")
    pages = {path.relative_to(tmp_path / "pages").as_posix() for path in (tmp_path / "pages").rglob("*.md")}
    for path in (ROOT / "docs").rglob("*.md"):
        assert path.relative_to(ROOT / "docs").as_posix() in pages
    commands = (tmp_path / "pages" / "reference" / "commands.md").read_text(encoding="utf-8")
    assert "## heedful translate" in commands
    assert "--glossary" in commands
    assert "::: heedful.translation.translator.Translator" in (tmp_path / "pages" / "reference" / "api.md").read_text(
        encoding="utf-8"
    )


def test_every_page_in_the_navigation_exists(tmp_path: Path) -> None:
    import tomllib

    site.write_pages(tmp_path / "pages")
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]

    def places(entries: list[dict[str, object]]) -> list[str]:
        found: list[str] = []
        for entry in entries:
            for value in entry.values():
                found += places(value) if isinstance(value, list) else [str(value)]
        return found

    listed = places(navigation)
    assert [place for place in listed if not (tmp_path / "pages" / place).is_file()] == []
    assert {path.name for path in (ROOT / "docs" / "how-to").glob("*.md")} <= {Path(place).name for place in listed}


def test_broken_links_of_the_site_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<h1 id="top"></h1><a href="b.html#x"></a><a href="c.html"></a>', encoding="utf-8")
    (tmp_path / "b.html").write_text('<a href="a.html#top"></a><img src="no.png"><a href="//x"></a>', encoding="utf-8")
    assert sorted(site.broken_links(tmp_path)) == [
        "a.html: b.html#x (no such heading)",
        "a.html: c.html",
        "b.html: no.png",
    ]
