"""The kinds of files that can be translated, by how their names end."""

from importlib.util import find_spec
from pathlib import PurePath

from heedful.documents.passages import Draft
from heedful.documents.safe_input import TOO_DEEP, USUAL, Bounds
from heedful.errors import ConfigError, DataError, extra

ENDINGS = (".txt", ".html", ".htm", ".md", ".srt", ".vtt", ".po", ".pot", ".xliff", ".xlf", ".json", ".docx", ".odt")


def installed() -> bool:
    """Whether all libraries are there."""
    return all(find_spec(name) for name in ("lxml", "polib", "markdown_it"))


def ending(name: str) -> str:
    """How a name ends, in small letters."""
    return PurePath(name).suffix.lower()


def read_document(content: bytes, name: str, bounds: Bounds = USUAL) -> Draft:
    """Read a file; of its name only the end counts."""
    try:
        return _read(content, ending(name), bounds)
    except RecursionError as error:
        raise DataError(TOO_DEEP) from error
    except ImportError as error:
        raise ConfigError(f"documents need {error.name}, which is not installed; {extra('documents')}") from error


def _read(content: bytes, end: str, bounds: Bounds) -> Draft:
    from heedful.documents import html, markdown, office, plain
    from heedful.documents import message_catalogues as catalogue

    match end:
        case ".txt":
            return plain.read_text(content, bounds)
        case ".srt" | ".vtt":
            return plain.read_subtitles(content, bounds)
        case ".json":
            return plain.read_json(content, bounds)
        case ".html" | ".htm":
            return html.read_html(content, bounds)
        case ".md":
            return markdown.read_markdown(content, bounds)
        case ".po" | ".pot":
            return catalogue.read_po(content, bounds)
        case ".xliff" | ".xlf":
            return catalogue.read_xliff(content, bounds)
        case ".docx":
            return office.read_docx(content, bounds)
        case ".odt":
            return office.read_odt(content, bounds)
    raise DataError(f"files that end in {end or 'nothing'} cannot be translated; these can: {' '.join(ENDINGS)}")
