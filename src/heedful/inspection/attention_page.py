"""One HTML file that shows every head: styles, scripts and the document inlined, nothing fetched."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from heedful.pages.inline import asset, digest, json_in_page

_SCRIPTS = ("data", "colour", "grid", "matrix", "lines", "produced", "live", "view")


@dataclass(frozen=True, slots=True)
class Inside:
    """What another page needs to show heads in a part of it: HTML, a style, and a module of JavaScript."""

    html: str
    style: str
    script: str


def inside() -> Inside:
    """All that is needed but a document, which a server gives."""
    return Inside(asset("inside.html", "inspection"), asset("page.css", "inspection"), _script("served"))


def page(document: Mapping[str, object]) -> str:
    """The page that shows this document, as one string that works from disk.

    Its own policy lets a browser run these scripts and styles alone, and load nothing: whatever the text of a sentence
    is, it cannot act.
    """
    style, script = asset("theme.css") + asset("page.css", "inspection"), _script("main")
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    parts = {"policy": policy, "style": style, "script": script, "document": json_in_page(document)}
    parts["inside"] = asset("inside.html", "inspection")
    # All at once, so that text which looks like a mark stays text.
    return re.sub(r"@@(\w+)@@", lambda mark: parts[mark[1]], asset("page.html", "inspection"))


def _script(last: str) -> str:
    """The scripts, and last the one that starts them."""
    return "\n".join(asset(f"{name}.js", "inspection") for name in (*_SCRIPTS, last))
