"""Find problems in plain text that a model is to learn from."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from heedful.data.doctor import FINDING_KINDS, Finding, FindingKind, describe_finding, severity_of, tidy_line
from heedful.data.pairs import MAX_LINE_BYTES, STANDARD_INPUT, Paths, check_readable, list_files, read_raw_lines
from heedful.errors import DataError, counted

_MAX_LINES = 5  # line numbers in a finding
_LONG = 40  # characters from which a line that occurs twice is no coincidence
_HELD_OUT = 0.9  # the part of the lines before those that training holds out
# White space belongs to plain text, and so do short lines that occur often.
_KINDS: tuple[FindingKind, ...] = ("encoding", "binary", "mojibake", "replacement", "control", "markup")


@dataclass(frozen=True, slots=True)
class TextDiagnosis:
    """The size of plain text, and the problems found in it, the most severe first."""

    texts: int
    lines: int
    words: int
    characters: int
    findings: tuple[Finding, ...]


def doctor_text(text: Paths) -> TextDiagnosis:
    """Find the problems of plain text. Only a missing file is an error; every other problem is a finding.

    Lines are counted from 1 through all files in a row.
    """
    files = list_files(text)
    for name in files:
        if name == STANDARD_INPUT:
            raise DataError("standard input (-) cannot be examined; write it to a file")
        check_readable(Path(name))
    scan = _TextScan()
    for name in files:
        scan.read(name)
    findings = sorted(scan.findings(), key=lambda finding: ("error", "warning", "note").index(finding.severity))
    return TextDiagnosis(len(files), scan.lines, scan.words, scan.characters, tuple(findings))


class _TextScan:
    """Counts the problems of one line after another. A long line takes about 100 bytes of memory."""

    def __init__(self) -> None:
        self.lines = self.words = self.characters = 0
        self._places: dict[FindingKind, list[int]] = {kind: [] for kind in _KINDS}
        self._counts = dict.fromkeys(_KINDS, 0)
        self._first: dict[bytes, int] = {}  # the line where each long one occurs first
        self._repeats: list[tuple[int, int]] = []  # lines, and where they occurred before
        self._whole: dict[bytes, str] = {}  # files by their content
        self._file_findings: list[Finding] = []

    def read(self, name: str) -> None:
        """Examine a file."""
        whole, before = blake2b(digest_size=16), self.lines
        for raw in self._read_lines(name):
            whole.update(raw + b"\n")
            self._examine(raw)
        if self.lines == before:
            self._add("empty-file", f"{name} is empty")
        elif (same := self._whole.setdefault(whole.digest(), name)) != name:
            self._add("duplicate", f"{name} has the same text as {same}; leave out one of them")

    def findings(self) -> Iterator[Finding]:
        """All problems, in the order of their kinds."""
        yield from self._file_findings
        for kind in FINDING_KINDS:
            if count := self._counts.get(kind, 0):
                message = describe_finding(kind, count, self.lines, "line")
                yield Finding(kind, message, count, tuple(self._places[kind]), severity_of(kind))
        cut = _HELD_OUT * self.lines
        leaked = [line for line, earlier in self._repeats if line > cut >= earlier]
        repeated = [line for line, _ in self._repeats]
        if repeated:
            message = (
                f"{len(repeated)} of {counted(self.lines, 'line')} with at least {_LONG} characters "
                f"{'repeats' if len(repeated) == 1 else 'repeat'} an earlier one, such as a header of pages"
            )
            yield Finding("duplicate", message, len(repeated), tuple(repeated[:_MAX_LINES]), severity_of("duplicate"))
        if leaked:
            message = (
                f"{len(leaked)} of these {'is' if len(leaked) == 1 else 'are'} in the end of the text, which training "
                "holds out: its loss will look better than it is"
            )
            yield Finding("overlap-pair", message, len(leaked), tuple(leaked[:_MAX_LINES]), severity_of("overlap-pair"))

    def _examine(self, raw: bytes) -> None:
        self.lines += 1
        if len(raw) > MAX_LINE_BYTES:  # it was cut here, maybe within a character
            raw = raw[:MAX_LINE_BYTES].decode(errors="ignore").encode()
        line, flags = tidy_line(raw)
        self.words += len(line.split())
        self.characters += len(raw.decode(errors="replace")) + 1
        for kind in _KINDS:
            if flags >> FINDING_KINDS.index(kind) & 1:
                self._counts[kind] += 1
                if len(self._places[kind]) < _MAX_LINES:
                    self._places[kind].append(self.lines)
        if len(line) >= _LONG:
            digest = blake2b(line.encode(), digest_size=8).digest()
            if (earlier := self._first.setdefault(digest, self.lines)) != self.lines:
                self._repeats.append((self.lines, earlier))

    def _read_lines(self, name: str) -> Iterator[bytes]:
        try:
            yield from read_raw_lines(Path(name))
        except DataError as error:
            self._add("unreadable", str(error))

    def _add(self, kind: FindingKind, message: str) -> None:
        self._file_findings.append(Finding(kind, message, 1, (), severity_of(kind)))
