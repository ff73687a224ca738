"""Documents in `heedful translate`: the translation keeps their structure."""

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.cli import console
from heedful.cli.common import check_output
from heedful.cli.loaded_model import LoadedModel
from heedful.cli.low_confidence import warn_of_low_confidence
from heedful.errors import ConfigError, DataError, extra, is_installed

if TYPE_CHECKING:
    from heedful.config import SearchConfig
    from heedful.documents.document import Document
    from heedful.documents.segmentation import TranslatedSentence
    from heedful.text.constraints import Constraints
    from heedful.translation.result import Translation

_DETECTION_PASSAGES = 50  # passages to detect the language by
_MAX_BYTES = 50 << 20
_MAX_SNIFFED, _SNIFFED_END = 1 << 20, 1 << 10  # bytes by which the kind of a file is recognised
_UNSUPPORTED = (
    *(".pdf", ".doc", ".rtf", ".tex", ".epub", ".ppt", ".pptx", ".odp", ".xls", ".xlsx", ".ods", ".csv"),
    *(
        ".xml",
        ".tmx",
        ".tbx",
        ".sdlxliff",
        ".svg",
        ".jsonl",
        ".ipynb",
        ".yml",
        ".yaml",
        ".toml",
        ".ini",
        ".properties",
        ".strings",
        ".arb",
        ".resx",
        ".ts",
        ".zip",
    ),
)


def is_document(path: Path) -> bool:
    """Whether a file has structure beyond lines of text."""
    from heedful.documents import SUFFIXES, suffix_of

    return suffix_of(path.name) in SUFFIXES and suffix_of(path.name) != ".txt"


def refuse_unsupported_file(path: Path) -> None:
    """Refuse files with a structure that would break if they were read as text, by name or by content."""
    from heedful.documents import SUFFIXES, find_structure, suffix_of

    if suffix_of(path.name) in _UNSUPPORTED:
        raise ConfigError(
            f"{path}: unsupported file type {suffix_of(path.name)}; supported: {' '.join(SUFFIXES)}; "
            "files with other endings are read as text, line by line"
        )
    if path.is_file() and (kind := find_structure(_read_content(path))):
        raise ConfigError(
            f"{path} looks like {kind}, and would break if it were translated line by line; "
            f"supported: {' '.join(SUFFIXES)}; if it is one of these, give it that ending"
        )


def refuse_markup(lines: Iterable[str], name: str) -> Iterator[str]:
    """Pass on the lines of a pipe; refuse XML, which begins with its declaration."""
    begun = False
    for line in lines:
        if not begun and line.lstrip("\ufeff \t").startswith("<?xml "):
            raise ConfigError(f"{name} looks like XML, and would break if it were translated line by line")
        begun = begun or bool(line.strip())
        yield line


def _read_content(path: Path) -> bytes:
    """The file if it is small, or else its beginning and its end: that is enough to tell what it is."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(_MAX_SNIFFED)
            if len(content) == _MAX_SNIFFED and path.suffix != ".gz":
                file.seek(-_SNIFFED_END, os.SEEK_END)
                content += file.read()
            return content
    except (OSError, EOFError, zlib.error):
        return b""  # whoever reads the lines reports it


def refuse_line_options(path: Path, given: Mapping[str, object]) -> None:
    """Refuse options whose output has no place in a document."""
    for option, value in given.items():
        if value:
            raise ConfigError(f"{option} is for lines of text, but {path} is a document; leave it out")


def require_catalogue(path: Path | None) -> None:
    """Refuse --final for anything but a PO catalogue."""
    from heedful.documents import suffix_of

    if path is None or suffix_of(path.name) not in (".po", ".pot"):
        raise ConfigError("--final is for .po and .pot files, which have fuzzy entries; leave it out")


def check_document_output(source: Path, target: Path | None) -> Path:
    """The file to write to; an error if it is missing or has a different type."""
    from heedful.documents import suffix_of

    if target is None:
        raise ConfigError(f"{source} is a document; name a file for its translation with --output")
    check_output(target, read=[source])
    if suffix_of(target.name) != suffix_of(source.name):
        raise ConfigError(f"--output {target}: the file type cannot change; end the name in {source.suffix}")
    return target


def read_document_file(path: Path, *, final: bool = False) -> "Document":
    """The passages of a document; an error if it is too large or damaged."""
    from heedful.documents import read_document

    try:
        if path.stat().st_size > _MAX_BYTES:
            raise DataError(
                f"{path} has {path.stat().st_size:,} bytes, over the {_MAX_BYTES:,} allowed for a document; split it"
            )
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    return read_document(content, path.name, final=final)


def read_document_beginning(document: "Document") -> Iterator[str]:
    """Enough to detect the language by."""
    return ("".join(run.text for run in passage) for passage in document.passages[:_DETECTION_PASSAGES])


def copy_document(source: Path, target: Path) -> None:
    """Write a document that is in the target language already as it is."""
    from heedful.storage.files import write_atomically

    write_atomically(target, source.read_bytes())


def translate_document(
    document: "Document",
    model: LoadedModel,
    search: "SearchConfig",
    constraints: "Constraints",
    target: Path,
) -> None:
    """Write the translated document to `target`, and print what could not be kept."""
    from heedful.documents.segmentation import SegmentedDocument
    from heedful.storage.files import write_atomically

    source_language, target_language = model.languages
    segmented = SegmentedDocument(document, source_language)
    total = len(segmented.plain) + len(segmented.mixed)
    with console.display() as display:
        # Alignments say where inline mark-up belongs.
        align = bool(segmented.mixed) and _can_align(model, display)
        plain = list(
            model.translate_with(display, align=False)(
                segmented.plain,
                search=search,
                constraints=constraints,
                done=lambda count: display.progress("translating", count, total),
            )
        )
        mixed = list(
            model.translate_with(display, align=align)(
                segmented.mixed,
                search=search,
                constraints=constraints,
                split_sentences=False,
                done=lambda count: display.progress("translating", len(plain) + count, total),
            )
        )
        of_plain, of_mixed = ([_make_sentence(one) for one in some] for some in (plain, mixed))
        write_atomically(target, segmented.write(of_plain, of_mixed, target_language))
        warn_of_low_confidence(display, plain + mixed)
        for note in segmented.list_notes(of_mixed):
            display.say(f"{target}: {note}")


def _can_align(model: LoadedModel, display: console.Display) -> bool:
    if not is_installed("torch"):
        display.say(f"words are not aligned, because that needs torch, which is not installed; {extra('train')}")
        return False
    return model.can_align()


def _make_sentence(found: "Translation") -> "TranslatedSentence":
    from heedful.documents.segmentation import TranslatedSentence

    return TranslatedSentence(found.text, tuple((link[0], link[1]) for link in found.alignment or ()))
