"""The supported file types, by file name suffix."""

import json
import re
from importlib.util import find_spec
from pathlib import PurePath

from heedful.documents.document import Document
from heedful.documents.safe_parsing import DEFAULT_LIMITS, TOO_DEEP, DocumentLimits
from heedful.errors import DataError, missing_library

SUFFIXES = (".txt", ".html", ".htm", ".md", ".srt", ".vtt", ".po", ".pot", ".xliff", ".xlf", ".json", ".docx", ".odt")


_SIGNATURES = {
    **{b"PK\x03\x04": "a ZIP archive", b"7z\xbc\xaf": "a 7z archive"},
    **{b"Rar!": "a RAR archive", b"\xfd7zXZ": "an xz archive", b"BZh": "a bzip2 archive"},
    **{b"\x28\xb5\x2f\xfd": "a Zstandard archive", b"%PDF-": "a PDF file", b"{\\rtf": "an RTF file"},
    **{b"%!PS": "a PostScript file", b"\xd0\xcf\x11\xe0": "an old Office file", b"\x89PNG": "a picture"},
    **{b"\xff\xd8\xff": "a picture", b"GIF8": "a picture", b"\x7fELF": "a program", b"MZ\x90\0": "a program"},
    **{b"SQLite format 3": "a database"},
}
_ROOT = re.compile(rb"<([A-Za-z_][\w:.-]*+)(?:\s[^<>]*+)?+(/?)>")
_JSON_START = re.compile(rb"(?:\{|\[\s*+\{)\s*+\"[^\"\n]*+\"\s*+:")
_XML = re.compile(rb"<\?xml\s|<!DOCTYPE\s|<!--", re.IGNORECASE)


def find_structure(content: bytes) -> str:
    """The kind of a file that looks like XML, JSON, an archive or another binary; empty if it looks like text."""
    if kind := next((kind for start, kind in _SIGNATURES.items() if content.startswith(start)), ""):
        return kind
    text = content.removeprefix(b"\xef\xbb\xbf").strip()
    root = _ROOT.match(text)
    if _XML.match(text) or (root and (root.end() == len(text) if root[2] else text.endswith(b"</" + root[1] + b">"))):
        return "XML or HTML"
    return "JSON" if _is_json(text) else ""


def _is_json(text: bytes) -> bool:
    """Whether this is an object or an array with strings or objects in it, or its first line is, or its ends are."""
    if not text.startswith((b"{", b"[")):
        return False
    if _JSON_START.match(text) and text.endswith((b"}", b"]")):
        return True
    for part in (text, text.split(b"\n", 1)[0]):
        try:
            value = json.loads(part)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) or any(isinstance(item, str | list | dict) for item in value):
            return True
    return False


def libraries_installed() -> bool:
    """Whether the libraries that read documents are installed."""
    return all(find_spec(name) for name in ("lxml", "polib", "markdown_it"))


def suffix_of(name: str) -> str:
    """The suffix of a file name, in lower case."""
    return PurePath(name).suffix.lower()


def read_document(
    content: bytes, name: str, limits: DocumentLimits = DEFAULT_LIMITS, *, final: bool = False
) -> Document:
    """Parse a file; its type is chosen by the suffix of its name.

    In a PO catalogue, new translations are marked as fuzzy unless they are `final`.
    """
    try:
        return _read(content, suffix_of(name), limits, final)
    except RecursionError as error:
        raise DataError(TOO_DEEP) from error
    except ImportError as error:
        raise missing_library(f"a {suffix_of(name)} document", error.name) from error


def _read(content: bytes, suffix: str, limits: DocumentLimits, final: bool) -> Document:
    from heedful.documents import html, markdown, office, plain_text
    from heedful.documents import message_catalogues as catalogues

    match suffix:
        case ".txt":
            return plain_text.read_text(content, limits)
        case ".srt" | ".vtt":
            return plain_text.read_subtitles(content, limits)
        case ".json":
            return plain_text.read_json(content, limits)
        case ".html" | ".htm":
            return html.read_html(content, limits)
        case ".md":
            return markdown.read_markdown(content, limits)
        case ".po" | ".pot":
            return catalogues.read_po(content, limits, final=final)
        case ".xliff" | ".xlf":
            return catalogues.read_xliff(content, limits)
        case ".docx":
            return office.read_docx(content, limits)
        case ".odt":
            return office.read_odt(content, limits)
    raise DataError(f"unsupported file type {suffix or '(no suffix)'}; supported: {' '.join(SUFFIXES)}")
