"""Styles and scripts that are written into a page, which may then use no others."""

import base64
import hashlib
from importlib import resources


def asset(name: str) -> str:
    """The content of a file that comes with the package."""
    return (resources.files("heedful.heads") / "assets" / name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """What a page's policy calls an inlined part by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
