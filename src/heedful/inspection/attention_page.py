"""The page of all attention heads, as one HTML file or as part of another page."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from heedful.pages.inline import asset, digest, json_in_page, load_modules, load_script


@dataclass(frozen=True, slots=True)
class ExplorerParts:
    """The parts of a page that explores attention heads; its modules are JavaScript, by name."""

    html: str
    style: str
    modules: Mapping[str, str]


def load_explorer() -> ExplorerParts:
    """The explorer without a document: the page that it becomes part of asks its server for one."""
    return ExplorerParts(_asset("explorer.html"), _asset("heads.css"), load_modules("explorer.js", _asset))


def page(document: Mapping[str, object]) -> str:
    """The page that shows this document, as one string that works from disk.

    Its policy lets a browser run its own script and style only, and load nothing: whatever a sentence says, it cannot
    act.
    """
    style = _asset("theme.css") + _asset("heads.css")
    script = load_script("standalone.js", "inspection")
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    parts = {"policy": policy, "style": style, "script": script, "document": json_in_page(document)}
    parts["explorer"] = _asset("explorer.html")
    # All at once, so that text which looks like a placeholder stays text.
    return re.sub(r"@@(\w+)@@", lambda mark: parts[mark[1]], _asset("standalone.html"))


def _asset(name: str) -> str:
    return asset(name, "inspection")
