"""Text files as pairs of sentences, read line by line in constant memory.

Only a line feed ends a line: U+2028, a vertical tab or a form feed inside a sentence must not shift the lines of one
file against those of the other.
"""

import gzip
import hashlib
import io
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from heedful.errors import DataError, counted, did_you_mean

_LONGEST_PASSAGE = 500  # characters
MAX_LINE_BYTES = 1 << 20  # a longer "line" is not a sentence, and reading it whole could fill the memory
STANDARD_INPUT = "-"

_BOM = b"\xef\xbb\xbf"
_PACKED = frozenset({"gz", "txt"})  # suffixes that may follow the one of the language
_LANGUAGES = (
    # ISO 639-1
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv "
    "ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne "
    "ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st "
    "su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu "
    # ISO 639-2 and 639-3 codes that are common in the names of corpora
    "afr amh ara asm ast azj bel ben bos bul cat ceb ces ckb cmn cym dan deu ell eng epo est eus fas fil fin fra fry "
    "ful gle glg grc guj hat hau heb hin hrv hsb hun hye ibo ind isl ita jav jpn kab kan kat kaz khm kir kor kur lao "
    "lat lav lit ltz lug luo mal mar mkd mlt mon mri msa mya nld nob nno nor npi nya oci ori orm pan pes pol por pus "
    "ron rus san sin slk slv sna snd som spa sqi srp swa swe swh tam tat tel tgk tgl tha tir tuk tur uig ukr urd uzb "
    "vie wol xho yid yor yue zho zul"
)


AnyPath = str | os.PathLike[str]
Paths = AnyPath | Sequence[AnyPath]


@dataclass(frozen=True, slots=True)
class Pair:
    """A source and its target, such as a sentence and its translation."""

    source: str
    target: str


def list_files(files: Paths) -> list[str]:
    """The names of one or several files."""
    several = [files] if isinstance(files, str | os.PathLike) else files
    return [os.fspath(file) for file in several]


def read_parallel(sources: Sequence[str], targets: Sequence[str]) -> Iterator[Pair]:
    """Pair line n of `sources[i]` with line n of `targets[i]`, one pair of files after another."""
    check_parallel(sources, targets)
    return _parallel(sources, targets)


def read_table(path: Path) -> Iterator[Pair]:
    """The pairs of a file of lines with source, tab, target; further columns are ignored."""
    for number, line in enumerate(_lines(path), 1):
        columns = line.split("\t", 2)
        if len(columns) < 2:
            raise DataError(f"{_display_name(path)}, line {number}: no tab; a line must be source, tab, target")
        yield Pair(columns[0], columns[1])


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file without their ends; `.gz` is unpacked and "-" is standard input."""
    check_readable(path)
    return _lines(path)


def read_passages(path: Path) -> Iterator[str]:
    """The lines of a file that are not empty; long ones are divided between two words, where there are any."""
    for line in read_lines(path):
        rest = line.strip()
        while len(rest) > _LONGEST_PASSAGE:
            cut = rest.rfind(" ", 1, _LONGEST_PASSAGE + 1)
            cut = cut if cut > 0 else _LONGEST_PASSAGE
            yield rest[:cut]
            rest = rest[cut:].lstrip()
        if rest:
            yield rest


def read_text(path: Path) -> Iterator[str]:
    """The text of a file in chunks, with every line end as a line feed; `.gz` is unpacked."""
    check_readable(path)
    return _text(path)


def read_raw_lines(path: Path) -> Iterator[bytes]:
    """The lines as bytes, unchecked. A line over MAX_LINE_BYTES is cut to MAX_LINE_BYTES + 1."""
    check_readable(path)
    return _raw_lines(path)


def check_parallel(sources: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse lists of files that cannot be paired, before reading any."""
    if len(sources) != len(targets):
        raise DataError(
            f"you gave {counted(len(sources), 'source file')} but {counted(len(targets), 'target file')}; "
            "each source needs its target"
        )
    names = [*sources, *targets]
    if names.count(STANDARD_INPUT) > 1:
        raise DataError("standard input (-) can be read only once; give a file for the other side")
    for name in names:
        check_readable(Path(name))


def check_readable(path: Path) -> None:
    """Refuse a path that is a folder or does not exist."""
    if str(path) == STANDARD_INPUT:
        return
    if path.is_dir():
        raise DataError(f"{path} is a folder; give a text file")
    if not path.exists():
        near = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(f"there is no file {path}{did_you_mean(path.name, near)}")


def guess_language(path: str) -> str:
    """The language that a file's last suffix names ("corpus.en.gz": "en"), or an empty string."""
    suffixes = Path(path).name.lower().split(".")[1:]
    while suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in _LANGUAGES.split() else ""


def fingerprint(path: Path) -> str:
    """The SHA-256 of the file on disk."""
    if str(path) == STANDARD_INPUT:
        raise DataError("standard input (-) has no fingerprint; write the text to a file first")
    check_readable(path)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _parallel(sources: Sequence[str], targets: Sequence[str]) -> Iterator[Pair]:
    for source_name, target_name in zip(sources, targets, strict=True):
        source_lines, target_lines = _lines(Path(source_name)), _lines(Path(target_name))
        count = 0
        for source in source_lines:
            target = next(target_lines, None)
            if target is None:
                _refuse_counts(source_name, count + 1 + _count_rest(source_lines), target_name, count)
            else:
                yield Pair(source, target)
                count += 1
        if rest := _count_rest(target_lines):
            _refuse_counts(source_name, count, target_name, count + rest)


def _display_name(path: Path) -> str:
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def _count_rest(lines: Iterator[str]) -> int:
    return sum(1 for _ in lines)


def _refuse_counts(source: str, source_count: int, target: str, target_count: int) -> None:
    raise DataError(
        f"{source} has {counted(source_count, 'line')} but {target} has {target_count}; "
        "parallel files must pair up line by line"
    )


def _lines(path: Path) -> Iterator[str]:
    number = 0
    for number, raw in enumerate(_raw_lines(path), 1):
        if len(raw) > MAX_LINE_BYTES:
            raise DataError(
                f"{_display_name(path)}, line {number}: longer than {MAX_LINE_BYTES} bytes; "
                "give a file with one sentence a line"
            )
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            raise _not_utf8(path, number, error) from error
        if "\0" in line:
            raise DataError(
                f"{_display_name(path)}, line {number}: holds a NUL byte, so the file is binary or UTF-16; "
                "convert it to UTF-8 text"
            )
        yield line
    if not number and str(path) != STANDARD_INPUT:
        raise DataError(f"{path} is empty; it must hold one sentence a line")


def _text(path: Path) -> Iterator[str]:
    line = 1
    try:
        with _read_errors(path), _open(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig") as text:
            chunk = ""
            while chunk := text.read(MAX_LINE_BYTES):
                if "\0" in chunk:
                    line += chunk.count("\n", 0, chunk.index("\0"))
                    raise DataError(
                        f"{path}, line {line}: holds a NUL byte, so the file is binary or UTF-16; "
                        "convert it to UTF-8 text"
                    )
                line += chunk.count("\n")
                yield chunk
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 after line {line} (byte 0x{error.object[error.start]:02x}); convert it with: "
            f"iconv -f ISO-8859-1 -t UTF-8 {path} > {path.with_name(f'{path.stem}.utf8{path.suffix}')}"
        ) from error


def _not_utf8(path: Path, number: int, error: UnicodeDecodeError) -> DataError:
    raw, place, is_file = error.object, error.start, str(path) != STANDARD_INPUT
    column = len(raw[:place].decode()) + 1
    where = f"{_display_name(path)}, line {number}: not UTF-8 (byte 0x{raw[place]:02x} at column {column})"
    if number == 1 and raw.startswith(b"\x1f\x8b"):
        way_out = f"rename it to {path}.gz" if is_file else "pipe it through gunzip"
        return DataError(f"{where}; it is compressed by gzip, so {way_out}")
    encoding = "UTF-16" if number == 1 and raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "ISO-8859-1"
    if b"\0" in raw and encoding != "UTF-16":
        return DataError(f"{where}; it is not a text file; give one with one sentence a line")
    files = f" {path} > {path.with_name(f'{path.stem}.utf8{path.suffix}')}" if is_file else ""
    return DataError(f"{where}; convert it with: iconv -f {encoding} -t UTF-8{files}")


def _raw_lines(path: Path) -> Iterator[bytes]:
    with _read_errors(path), _open(path) as file:
        line = file.readline(MAX_LINE_BYTES + 2).removeprefix(_BOM)
        while line:
            if line[-1:] == b"\n":
                yield line[:-2] if line[-2:] == b"\r\n" else line[:-1]
            else:
                yield line[: MAX_LINE_BYTES + 1]
                _skip_line(file, line)
            line = file.readline(MAX_LINE_BYTES + 2)


@contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    """Turn every error of reading a file into a DataError that names it."""
    try:
        yield
    except EOFError as error:
        raise DataError(f"{path} ends in the middle; test it with gzip -t, or download it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is not a valid gzip file ({error}); if it is text, rename it without .gz") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _skip_line(file: BinaryIO, line: bytes) -> None:
    """Skip the rest of a line that was too long to be read at once."""
    while line and line[-1:] != b"\n":
        line = file.readline(MAX_LINE_BYTES)


def _open(path: Path) -> AbstractContextManager[BinaryIO]:
    if str(path) == STANDARD_INPUT:
        try:
            # A separate reader: a thread that waits in Python's own would keep the program from ending.
            return os.fdopen(sys.stdin.fileno(), "rb", closefd=False)
        except (OSError, ValueError):  # a test or a program has replaced it
            return nullcontext(sys.stdin.buffer)
    if path.suffix == ".gz":
        return io.BufferedReader(gzip.open(path), MAX_LINE_BYTES)
    return path.open("rb")
