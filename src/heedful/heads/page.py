"""One HTML file that shows every head: styles, scripts and the document inlined, nothing fetched."""

import json
import re
from collections.abc import Mapping

from heedful.heads.inline import asset, digest

_SCRIPTS = ("data", "colour", "grid", "matrix", "lines", "produced", "live", "main")  # main starts, so it is last

# In JSON these stand only inside of strings, where an escape means the same; as themselves they could end the script.
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}


def page(document: Mapping[str, object]) -> str:
    """The page that shows this document, as one string that works from disk.

    Its own policy lets a browser run these scripts and styles alone, and load nothing: whatever the text of a sentence
    is, it cannot act.
    """
    style = asset("theme.css") + asset("page.css")
    script = "\n".join(asset(f"{name}.js") for name in _SCRIPTS)
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    # ASCII alone: it has no line separators that a script minds, and no halves of characters that a file cannot hold.
    data = json.dumps(document, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)
    parts = {"policy": policy, "style": style, "script": script, "document": data}
    # All at once, so that text which looks like a mark stays text.
    return re.sub(r"@@(\w+)@@", lambda mark: parts[mark[1]], asset("page.html"))
