"""Pages in one file: styles and scripts are written into them, and they may use no others."""

import base64
import hashlib
import json
from html import escape
from importlib import resources

# In JSON these stand only inside of strings, where an escape means the same; as themselves they could end the script.
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}


def asset(name: str, part: str = "pages") -> str:
    """The content of a file that comes with this part of the package."""
    return (resources.files(f"heedful.{part}") / "assets" / name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """What a page's policy calls an inlined part by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def json_in_page(document: object) -> str:
    """JSON that can stand in a script of the type application/json, whatever text is in it.

    It is ASCII alone: no line separators that a script minds, no halves of characters that a file cannot hold.
    """
    return json.dumps(document, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def text_in_page(text: str) -> str:
    """Text as text; a file's name need not be Unicode."""
    return escape(text.encode("utf-8", "replace").decode())


def whole_page(title: str, style: str, script: str, main: str) -> str:
    """A page out of HTML; its policy lets no text in it act, and nothing be loaded."""
    policy = (
        f"default-src 'none'; style-src '{digest(style)}'; script-src '{digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text_in_page(title)}</title>
<style>{style}</style>
</head>
<body>
<main>
{main}
</main>
<script>{script}</script>
</body>
</html>
"""
