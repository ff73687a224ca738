"""Documents for `heedful translate`: files whose structure is kept."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.cli import console
from heedful.cli.common import check_output
from heedful.cli.low_confidence import tell_doubts
from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.attention.aligner import Aligner
    from heedful.config import SearchConfig
    from heedful.documents.document import Document
    from heedful.documents.segmentation import TranslatedSentence
    from heedful.storage.run_folder import RunFolder
    from heedful.text.constraints import Constraints
    from heedful.translation.result import Translation
    from heedful.translation.translator import Translator

_PASSAGES = 50  # that the language is told by
_MOST = 50 << 20  # bytes
_OTHERS = (
    *(".pdf", ".doc", ".rtf", ".tex", ".epub", ".ppt", ".pptx", ".odp", ".xls", ".xlsx", ".ods", ".csv"),
    *(".xml", ".yml", ".yaml", ".toml", ".ini", ".properties", ".strings", ".arb", ".resx", ".ts", ".zip"),
)


def is_document(path: Path) -> bool:
    """Whether it is more than lines of text."""
    from heedful.documents.file_types import SUFFIXES, suffix_of

    return suffix_of(path.name) in SUFFIXES and suffix_of(path.name) != ".txt"


def refuse_other_files(path: Path | None) -> None:
    """Files with a structure that would be taken for text, and come out broken."""
    from heedful.documents.file_types import SUFFIXES, suffix_of

    if path and suffix_of(path.name) in _OTHERS:
        raise ConfigError(
            f"{path}: files that end in {suffix_of(path.name)} cannot be translated; these keep their structure: "
            f"{' '.join(SUFFIXES)}; any other is read as text, a sentence a line"
        )


def refuse_with_documents(path: Path, given: Mapping[str, object]) -> None:
    """A document has no place for what some options give."""
    for option, there in given.items():
        if there:
            raise ConfigError(f"{option} is for lines of text, but {path} is a document; leave it out")


@dataclass(frozen=True, slots=True)
class DocumentJob:
    """A document, where its translation goes, and how it is searched for."""

    model: "Callable[[Callable[[], Iterable[str]]], Path]"  # which one, given what tells how the text begins
    source: Path
    target: Path | None
    constraints: "Constraints"
    search: "Callable[[SearchConfig], SearchConfig]"


def translate_document(job: DocumentJob, load: "Callable[[Path], Translator]") -> None:
    """Write a document in another language, and say what of it could not be kept."""
    from heedful.documents.file_types import read_document
    from heedful.documents.segmentation import SegmentedDocument
    from heedful.storage.files import write_atomically
    from heedful.storage.run_folder import RunFolder

    target = _checked(job)
    document = read_document(_content(job.source), job.source.name)
    run = RunFolder.open(job.model(lambda: _read_beginning(document)))
    languages = run.experiment().data
    segmented = SegmentedDocument(document, languages.source_language)
    translator = load(run.path)
    with console.display() as shown:
        aligner = _aligner(run, translator, shown) if segmented.mixed else None
        total = len(segmented.plain) + len(segmented.mixed)

        def translated(texts: Sequence[str], before: int, aligner: "Aligner | None" = None) -> "list[Translation]":
            found = translator.translate_lines(
                texts,
                search=job.search(translator.search),
                aligner=aligner,
                constraints=job.constraints,
                done=lambda count: shown.progress("translating", before + count, total),
            )
            return list(found)

        plain = translated(segmented.plain, 0)
        mixed = translated(segmented.mixed, len(plain), aligner)
        of_plain, of_mixed = ([_make_sentence(one) for one in some] for some in (plain, mixed))
        write_atomically(target, segmented.write(of_plain, of_mixed, languages.target_language))
        tell_doubts(shown, plain + mixed)
        for note in segmented.list_notes(of_mixed):
            shown.say(f"{target}: {note}")


def _checked(job: DocumentJob) -> Path:
    """Where to write, if that can be."""
    from heedful.documents.file_types import suffix_of

    if job.target is None:
        raise ConfigError(f"{job.source} is a document; say with --output where its translation is to be written")
    check_output(job.target, read=[job.source])
    if suffix_of(job.target.name) != suffix_of(job.source.name):
        raise ConfigError(f"--output {job.target}: a document stays what it is; end the name in {job.source.suffix}")
    return job.target


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MOST:
            raise DataError(f"{path} has {path.stat().st_size:,} bytes, over the {_MOST:,} of a document; split it")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _read_beginning(document: "Document") -> Iterator[str]:
    """Enough to tell the language by."""
    return ("".join(run.text for run in passage) for passage in document.passages[:_PASSAGES])


def _aligner(run: "RunFolder", translator: "Translator", report: console.Display) -> "Aligner | None":
    """What knows where inline mark-up belongs, if this model can tell."""
    from heedful.translation.word_alignment import can_align, find_aligner

    return find_aligner(run, translator, report) if can_align(translator) else None


def _make_sentence(found: "Translation") -> "TranslatedSentence":
    from heedful.documents.segmentation import TranslatedSentence

    return TranslatedSentence(found.text, tuple((link[0], link[1]) for link in found.alignment or ()))
