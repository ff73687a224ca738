"""Build the documentation site from README.md and docs/: `make docs`.

    .venv/bin/python scripts/site_builder.py --zensical .venv-docs/bin/zensical

The pages stay Markdown that reads well in the repository. This script copies them to build/pages, adds the references
of commands and of Python, and gives every source file that a page links to a page of its own. It lets zensical build
the site in build/site, and fails if a link in it leads nowhere.
"""

import argparse
import html.parser
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from steps import ending, say

from heedful.errors import DataError

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES, SITE = Path("build/pages"), Path("build/site")
PROJECT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_LINK = re.compile(r"(?<=\]\()[^)\s]+(?=\))")
_FENCE = re.compile(r"^(```|~~~)")
_LANGUAGES = {".py": "python", ".toml": "toml", ".js": "javascript", ".sh": "sh", ".yaml": "yaml", ".json": "json"}
MEGABYTES = 50


def main() -> None:
    """Build the site; an error is one sentence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zensical", type=Path, required=True, help="the program")
    options = parser.parse_args()
    zensical = options.zensical.absolute()
    os.chdir(REPOSITORY)
    sys.exit(ending("site", lambda: build(zensical), MEGABYTES))


def build(zensical: Path) -> int:
    """Write the pages, build the site, check its links; return the exit code."""
    write_pages(PAGES)
    shutil.rmtree(SITE, ignore_errors=True)
    done = subprocess.run([str(zensical), "build", "--clean", "--strict"], check=False)
    if done.returncode:
        return done.returncode
    if broken := list(broken_links(SITE)):
        raise DataError(f"{len(broken)} links lead nowhere:\n" + "\n".join(broken[:20]))
    say(f"the site is in {SITE}; open {SITE / 'index.html'}")
    return 0


def write_pages(out: Path) -> None:
    """All pages of the site as Markdown."""
    shutil.rmtree(out, ignore_errors=True)
    sources: set[Path] = set()
    for path in (Path("README.md"), *map(Path, PROJECT_PAGES), *sorted(Path("docs").rglob("*"))):
        if path.is_dir():
            continue
        place = out / place_of(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            place.write_text(convert_page(path, sources), encoding="utf-8")
        else:
            shutil.copyfile(path, place)
    for path in sorted(sources):
        place = out / place_of(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source_page(path), encoding="utf-8")
    (out / "reference").mkdir(exist_ok=True)
    (out / "reference" / "commands.md").write_text(commands_page(), encoding="utf-8")
    (out / "reference" / "api.md").write_text(api_page(), encoding="utf-8")


def source_page(path: Path) -> str:
    """A page that shows a source file, or the names of the files in a folder."""
    if path.is_dir():
        text = "".join(f"{file.name}\n" for file in sorted(path.iterdir()) if file.is_file())
    else:
        text = path.read_text(encoding="utf-8")
    return f"# {path.as_posix()}\n\n````{_LANGUAGES.get(path.suffix, 'text')}\n{text}````\n"


def place_of(path: Path) -> Path:
    """The place of a file of the repository among the pages."""
    if path == Path("README.md"):
        return Path("index.md")
    if path.parts[0] == "docs":
        return Path(*path.parts[1:])
    if str(path) in PROJECT_PAGES:
        return Path(path.name)
    return Path("source", path, "index.md") if path.is_dir() else Path("source", f"{path}.md")


def convert_page(path: Path, sources: set[Path]) -> str:
    """The page with links that lead to pages; source files that it links to are added to `sources`."""
    lines, fenced = [], False
    for line in path.read_text(encoding="utf-8").splitlines():
        fenced ^= bool(_FENCE.match(line.lstrip()))
        lines.append(line if fenced else _LINK.sub(lambda found: convert_link(path, found.group(), sources), line))
    return "\n".join(lines) + "\n"


def convert_link(page: Path, link: str, sources: set[Path]) -> str:
    """The link from a page of the site to where a link of the repository leads."""
    parts = urlsplit(link)
    if parts.scheme or not parts.path:
        return link
    target = Path(os.path.normpath(page.parent / unquote(parts.path)))
    if (target / "README.md").is_file():
        target /= "README.md"
    if not target.exists():
        raise DataError(f"{page} links to {link}, which does not exist")
    if target.parts[0] != "docs" and target != Path("README.md") and str(target) not in PROJECT_PAGES:
        sources.add(target)
    relative = os.path.relpath(place_of(target), place_of(page).parent)
    return Path(relative).as_posix() + (f"#{parts.fragment}" if parts.fragment else "")


def commands_page() -> str:
    """The help of every command."""
    import typer.main
    from typer import Context

    from heedful.cli.commands import app

    group = typer.main.get_command(app)
    text = ["# Commands", "", "Every command has `--help`; this is what it prints.", ""]
    for name in group.list_commands(Context(group)):  # type: ignore[attr-defined]
        command = group.get_command(Context(group), name)  # type: ignore[attr-defined]
        context = Context(command, info_name=f"heedful {name}", terminal_width=100, max_content_width=100)
        text += [f"## heedful {name}", "", "```text", command.get_help(context).rstrip(), "```", ""]
    return "\n".join(text)


def api_page() -> str:
    """Every public name of `heedful`, by mkdocstrings."""
    import heedful

    names = sorted(name for name in heedful.__all__ if not name.startswith("__"))
    text = ["# Python reference", "", "The [guide](../python.md) shows how these work together.", ""]
    for name in names:
        value = getattr(heedful, name)
        text += [f"::: {value.__module__}.{value.__qualname__}", ""]
    return "\n".join(text)


class _Links(html.parser.HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors.update(value for key in ("id", "name") if (value := values.get(key)))
        link = values.get("href") if tag in ("a", "link") else values.get("src")
        if link:
            self.links.append(link)


def broken_links(site: Path) -> Iterator[str]:
    """A line for each link inside the site that leads nowhere."""
    pages = {path.resolve(): _Links() for path in site.rglob("*.html")}
    for path, page in pages.items():
        page.feed(path.read_text(encoding="utf-8"))
    for path, page in pages.items():
        if path.name == "404.html":  # its links are for the root of a server
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or link.startswith("//"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{path.relative_to(site.resolve())}: {link}"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{path.relative_to(site.resolve())}: {link} (no such heading)"


if __name__ == "__main__":
    main()
