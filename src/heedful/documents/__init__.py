"""The supported file types, by file name suffix."""

from importlib.util import find_spec
from pathlib import PurePath

from heedful.documents.document import Document
from heedful.documents.safe_parsing import DEFAULT_LIMITS, TOO_DEEP, DocumentLimits
from heedful.errors import ConfigError, DataError, extra

SUFFIXES = (".txt", ".html", ".htm", ".md", ".srt", ".vtt", ".po", ".pot", ".xliff", ".xlf", ".json", ".docx", ".odt")


def libraries_installed() -> bool:
    """Whether the libraries of the `documents` extra are installed."""
    return all(find_spec(name) for name in ("lxml", "polib", "markdown_it"))


def suffix_of(name: str) -> str:
    """The suffix of a file name, in lower case."""
    return PurePath(name).suffix.lower()


def read_document(content: bytes, name: str, limits: DocumentLimits = DEFAULT_LIMITS) -> Document:
    """Parse a file; its type is chosen by the suffix of its name."""
    try:
        return _read(content, suffix_of(name), limits)
    except RecursionError as error:
        raise DataError(TOO_DEEP) from error
    except ImportError as error:
        raise ConfigError(f"documents need {error.name}, which is not installed; {extra('documents')}") from error


def _read(content: bytes, suffix: str, limits: DocumentLimits) -> Document:
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
            return catalogues.read_po(content, limits)
        case ".xliff" | ".xlf":
            return catalogues.read_xliff(content, limits)
        case ".docx":
            return office.read_docx(content, limits)
        case ".odt":
            return office.read_odt(content, limits)
    raise DataError(f"unsupported file type {suffix or '(no suffix)'}; supported: {' '.join(SUFFIXES)}")
