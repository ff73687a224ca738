"""The page that shows every attention head: as one file, or as parts for another page. Nothing here needs PyTorch."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from heedful.pages.inline import asset, digest, json_in_page, load_modules, load_script


@dataclass(frozen=True, slots=True)
class ExplorerParts:
    """The explorer of attention heads, for a page to include; `modules` are its JavaScript files by name."""

    html: str
    style: str
    modules: Mapping[str, str]


def load_explorer() -> ExplorerParts:
    """The explorer without a document, which the page around it requests from its server."""
    return ExplorerParts(_asset("explorer.html"), _asset("heads.css"), load_modules("explorer.js", _asset))


def make_attention_page(document: Mapping[str, object]) -> str:
    """The page that shows this document, as one HTML file that works from disk.

    Its policy allows only its own script and style and loads nothing, so no sentence can become code.
    """
    style = _asset("theme.css") + _asset("heads.css")
    script = load_script("standalone.js", "inspection")
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    parts = {"policy": policy, "style": style, "script": script, "document": json_in_page(document)}
    parts["explorer"] = _asset("explorer.html")
    # All at once, so that text that looks like a placeholder stays text.
    return re.sub(r"@@(\w+)@@", lambda mark: parts[mark[1]], _asset("standalone.html"))


def _asset(name: str) -> str:
    return asset(name, "inspection")
