"""Find problems in pictures that a model is to learn from."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from heedful.data.doctor import Finding, FindingKind, Severity
from heedful.data.pairs import Paths, list_files
from heedful.data.pictures import LabelledPicture, list_pictures
from heedful.errors import DataError, counted

_COMPARED_SIZE = 64  # pixels on a side; a copy of another size differs
_FEW = 10  # pictures of a class
_NAMED = 5  # names in a finding
_MOST_UNEVEN = 4.0  # times that the largest shorter side may exceed the smallest
_ORDER: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class PictureDiagnosis:
    """The number of pictures, how often each label occurs, and the problems, the most severe first."""

    pictures: int
    labels: tuple[tuple[str, int], ...]
    findings: tuple[Finding, ...]


def doctor_pictures(images: Paths) -> PictureDiagnosis:
    """Find the problems of labelled pictures: folders with one sub-folder a class, or IDX files.

    Only a place that does not exist or holds no pictures is an error; every other problem is a finding.
    """
    scan = _PictureScan()
    for name in list_files(images):
        for picture in list_pictures(Path(name)):
            scan.examine(picture)
    findings = sorted(scan.findings(), key=lambda finding: _ORDER.index(finding.severity))
    counts = sorted(scan.labels.items(), key=lambda item: (-item[1], item[0]))
    return PictureDiagnosis(scan.pictures, tuple(counts), tuple(findings))


class _PictureScan:
    """Looks at one picture after another."""

    def __init__(self) -> None:
        self.pictures = 0
        self.labels = Counter[str]()
        self._sides = list[int]()
        self._channels = Counter[int]()
        self._unreadable = list[str]()
        self._uniform = list[str]()
        self._copies = list[str]()
        self._contradictions = list[str]()
        self._first: dict[bytes, LabelledPicture] = {}

    def examine(self, picture: LabelledPicture) -> None:
        self.pictures += 1
        try:
            width, height, channels = picture.shape()
            pixels = picture.read(_COMPARED_SIZE, 3)
        except DataError as error:
            self._unreadable.append(str(error))
            return
        self.labels[picture.label] += 1
        self._sides.append(min(width, height))
        self._channels[channels] += 1
        if np.ptp(pixels) == 0:
            self._uniform.append(picture.name)
        digest = blake2b(pixels.tobytes() + bytes((width % 256, height % 256)), digest_size=16).digest()
        first = self._first.setdefault(digest, picture)
        if first is not picture:
            both = f"{picture.name} and {first.name}"
            (self._copies if first.label == picture.label else self._contradictions).append(both)

    def findings(self) -> Iterator[Finding]:
        """All problems."""
        many = counted(self.pictures, "picture", ",")
        for message in self._unreadable[:_NAMED]:
            yield Finding("unreadable", message, len(self._unreadable), (), "error")
        if more := self._unreadable[_NAMED:]:
            yield Finding("unreadable", f"{len(more)} more of {many} cannot be read", len(more), (), "error")
        if len(self.labels) == 1:
            only = next(iter(self.labels))
            message = f"all pictures have the label {only}, so there is nothing to tell apart"
            yield Finding("labels", message, 1, (), "error")
        yield from _named("many-targets", self._contradictions, "are the same picture under two labels", "warning")
        rare = sorted(label for label, count in self.labels.items() if count < _FEW)
        yield from _named("labels", rare, f"have fewer than {_FEW} pictures, too few to learn", "warning")
        yield from _named("empty", self._uniform, "show nothing: every pixel is the same", "warning")
        yield from _named("duplicate", self._copies, "are the same picture", "note")
        if self._sides and max(self._sides) > _MOST_UNEVEN * min(self._sides):
            sides = f"{min(self._sides):,} to {max(self._sides):,} pixels"
            message = f"the shorter sides have {sides}; all are resized to one size"
            yield Finding("ratio", message, len(self._sides), (), "note")
        if len(self._channels) > 1:
            message = f"{self._channels[1]:,} of {many} are grey and the others have colours"
            yield Finding("copy", message, self._channels[1], (), "note")


def _named(kind: FindingKind, names: list[str], what: str, severity: Severity) -> Iterator[Finding]:
    if names:
        shown = "; ".join(names[:_NAMED]) + (f"; and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        yield Finding(kind, f"{shown}: {what}", len(names), (), severity)
