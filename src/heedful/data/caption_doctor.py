"""Find problems in pictures with captions that a model is to learn from."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from heedful.data.captions import Caption, read_captions
from heedful.data.doctor import Finding, FindingKind, Severity
from heedful.data.pairs import STANDARD_INPUT, Paths, check_readable, list_files
from heedful.data.pictures import open_picture, read_cropped
from heedful.errors import DataError, counted

_COMPARED_SIZE = 64  # pixels on a side; a copy of another size differs
_NAMED = 5  # names in a finding
_FEW = 100  # pictures
_LONG_WORDS = 50
_MOST_CUT = 2.0  # times that the longer side may exceed the shorter one
_ORDER: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class CaptionDiagnosis:
    """The number of pictures and captions, and the problems, the most severe first."""

    pictures: int
    captions: int
    words: int
    findings: tuple[Finding, ...]


def doctor_captions(captions: Paths) -> CaptionDiagnosis:
    """Find the problems of files of picture, tab, caption. Only a missing file of captions is an error.

    Lines are counted from 1 in each file.
    """
    files = list_files(captions)
    for name in files:
        if name == STANDARD_INPUT:
            raise DataError("standard input (-) cannot be examined; write it to a file")
        check_readable(Path(name))
    scan = _CaptionScan()
    try:
        for name in files:
            for each in read_captions(Path(name)):
                scan.examine(each)
    except DataError as error:
        scan.unreadable = str(error)
    findings = sorted(scan.findings(), key=lambda finding: _ORDER.index(finding.severity))
    return CaptionDiagnosis(len(scan.pictures), scan.captions, scan.words, tuple(findings))


class _CaptionScan:
    """Looks at one line after another; a picture with several captions is decoded once."""

    def __init__(self) -> None:
        self.unreadable = ""
        self.captions = self.words = 0
        self.pictures: dict[Path, set[str]] = {}
        self._texts = Counter[str]()
        self._missing = list[str]()
        self._broken = list[str]()
        self._uniform = list[str]()
        self._copies = list[str]()
        self._cut = list[str]()
        self._empty = list[int]()
        self._repeated = list[int]()
        self._long = list[int]()
        self._first: dict[bytes, Path] = {}

    def examine(self, each: Caption) -> None:
        self.captions += 1
        words = len(each.text.split())
        self.words += words
        if not each.text:
            self._empty.append(each.line)
        if words > _LONG_WORDS:
            self._long.append(each.line)
        if each.picture not in self.pictures:
            self._look_at(each.picture)
        texts = self.pictures.setdefault(each.picture, set())
        if each.text in texts:
            self._repeated.append(each.line)
        elif each.text:
            self._texts[each.text] += 1
        texts.add(each.text)

    def _look_at(self, picture: Path) -> None:
        if not picture.exists():
            self._missing.append(str(picture))
            return
        try:
            with open_picture(picture) as image:
                size = image.size
            pixels = read_cropped(picture, _COMPARED_SIZE)
        except DataError as error:
            self._broken.append(str(error))
            return
        if max(size) > _MOST_CUT * min(size):
            self._cut.append(str(picture))
        if np.ptp(pixels.reshape(-1, 3), axis=0).max() == 0:
            self._uniform.append(str(picture))
        digest = blake2b(pixels.tobytes() + repr(size).encode(), digest_size=16).digest()
        first = self._first.setdefault(digest, picture)
        if first != picture:
            self._copies.append(f"{picture} and {first}")

    def findings(self) -> Iterator[Finding]:
        """All problems."""
        if self.unreadable:
            yield Finding("unreadable", self.unreadable, 1, (), "error")
        yield from _named("unreadable", self._missing, "do not exist", "error")
        for message in self._broken[:_NAMED]:
            yield Finding("unreadable", message, len(self._broken), (), "error")
        if more := self._broken[_NAMED:]:
            yield Finding("unreadable", f"{counted(len(more), 'more picture')} cannot be read", len(more), (), "error")
        yield from _lines("empty", self._empty, "without a caption", "error")
        if self.captions and len(self._texts) == 1:
            only = next(iter(self._texts))
            yield Finding("labels", f"all captions are {only!r}, so there is nothing to tell apart", 1, (), "error")
        if 0 < len(self.pictures) < _FEW:
            message = f"{counted(len(self.pictures), 'picture')} are too few to learn what words mean; give thousands"
            yield Finding("labels", message, len(self.pictures), (), "warning")
        yield from _named("empty", self._uniform, "show nothing: every pixel is the same", "warning")
        yield from _lines(
            "long", self._long, f"of more than {_LONG_WORDS} words, of which the end may be cut", "warning"
        )
        yield from _lines("duplicate", self._repeated, "that occur twice", "note")
        yield from _named("duplicate", self._copies, "are the same picture", "note")
        yield from _named("ratio", self._cut, "are long: only the square in the middle is seen", "note")
        shared = [text for text, count in self._texts.items() if count > 1]
        if shared:
            message = (
                f"{counted(len(shared), 'caption')} stand beside several pictures, such as {shared[0]!r}; all of them "
                "count as right"
            )
            yield Finding("many-targets", message, len(shared), (), "note")


def _named(kind: FindingKind, names: list[str], what: str, severity: Severity) -> Iterator[Finding]:
    if names:
        shown = "; ".join(names[:_NAMED]) + (f"; and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        yield Finding(kind, f"{shown}: {what}", len(names), (), severity)


def _lines(kind: FindingKind, lines: list[int], what: str, severity: Severity) -> Iterator[Finding]:
    if lines:
        yield Finding(kind, f"{counted(len(lines), 'line')} {what}", len(lines), tuple(lines[:_NAMED]), severity)
