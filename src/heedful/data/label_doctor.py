"""Find problems in labelled texts that a model is to learn from."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations
from pathlib import Path

from heedful.data.doctor import FINDING_KINDS, Finding, FindingKind, describe_finding, severity_of, tidy_line
from heedful.data.labels import LabelKind, find_label_kind, read_labels, read_tags
from heedful.data.pairs import STANDARD_INPUT, Pair, Paths, check_readable, list_files
from heedful.errors import DataError, counted

_MAX_LINES = 5  # numbers in a finding
_FEW = 10  # examples of a label
_NAMED = 5  # labels in a finding
_KINDS: tuple[FindingKind, ...] = ("mojibake", "replacement", "control")


@dataclass(frozen=True, slots=True)
class LabelDiagnosis:
    """The size of labelled texts, how often each label occurs, and the problems, the most severe first."""

    texts: int
    words: int
    labels: tuple[tuple[str, int], ...]
    findings: tuple[Finding, ...]


def doctor_labels(labels: Paths) -> LabelDiagnosis:
    """Find the problems of labelled texts or tagged sentences. Only a missing file is an error.

    Texts are counted from 1 through all files in a row; lines without text are no texts.
    """
    files = list_files(labels)
    for name in files:
        if name == STANDARD_INPUT:
            raise DataError("standard input (-) cannot be examined; write it to a file")
        check_readable(Path(name))
    scan = _LabelScan()
    try:
        kind = find_label_kind(files)
        for name in files:
            for pair in (read_tags if kind == "tagging" else read_labels)(Path(name)):
                scan.examine(pair, kind)
    except DataError as error:
        scan.unreadable = str(error)
    findings = sorted(scan.findings(), key=lambda finding: ("error", "warning", "note").index(finding.severity))
    counts = sorted(scan.labels.items(), key=lambda item: (-item[1], item[0]))
    return LabelDiagnosis(scan.texts, scan.words, tuple(counts), tuple(findings))


class _LabelScan:
    """Counts the problems of one text after another."""

    def __init__(self) -> None:
        self.unreadable = ""
        self.texts = self.words = 0
        self.labels = Counter[str]()
        self._places: dict[FindingKind, list[int]] = {kind: [] for kind in FINDING_KINDS}
        self._first: dict[bytes, str] = {}  # the label with which each text occurs first

    def examine(self, pair: Pair, kind: LabelKind) -> None:
        self.texts += 1
        tagging = kind == "tagging"
        self.words += len(pair.source.split("\t" if tagging else None))
        self.labels.update(pair.target.split("\t") if tagging else [pair.target])
        text, flags = tidy_line(pair.source.replace("\t", " ").encode())
        for problem in _KINDS:
            if flags >> FINDING_KINDS.index(problem) & 1:
                self._places[problem].append(self.texts)
        if not text:
            self._places["empty"].append(self.texts)
            return
        digest = blake2b(text.encode(), digest_size=8).digest()
        if digest in self._first:
            same = self._first[digest] == pair.target
            self._places["duplicate" if same else "many-targets"].append(self.texts)
        self._first.setdefault(digest, pair.target)

    def findings(self) -> Iterator[Finding]:
        """All problems."""
        if self.unreadable:
            yield Finding("unreadable", self.unreadable, 1, (), severity_of("unreadable"))
        some = counted(self.texts, "text", ",")
        for kind in FINDING_KINDS:
            places = self._places[kind]
            if not places:
                continue
            count = len(places)
            match kind:
                case "empty":
                    message = f"{count} of {some} {'is' if count == 1 else 'are'} empty and will be left out"
                case "duplicate":
                    message = (
                        f"{count} of {some} {'repeats' if count == 1 else 'repeat'} an earlier one with the same label"
                    )
                case "many-targets":
                    message = f"{count} of {some} {'has' if count == 1 else 'have'} another label elsewhere"
                case _:
                    message = describe_finding(kind, count, self.texts, "text")
            severity = "warning" if kind == "many-targets" else "note" if kind == "duplicate" else severity_of(kind)
            yield Finding(kind, message, count, tuple(places[:_MAX_LINES]), severity)
        yield from self._label_findings()

    def _label_findings(self) -> Iterator[Finding]:
        rare = sorted(label for label, count in self.labels.items() if count < _FEW)
        if rare:
            yield self._labels(rare, f"fewer than {_FEW} examples, too few to learn")
        alike = [
            f"{one} and {other}"
            for one, other in combinations(sorted(self.labels), 2)
            if _normal(one) == _normal(other)
        ]
        if alike:
            yield self._labels(alike, "the same letters, so they may be one label written in two ways")
        if len(self.labels) == 1:
            yield self._labels(list(self.labels), "no other label beside it, so there is nothing to tell apart")

    def _labels(self, names: list[str], what: str) -> Finding:
        shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
        have = "has" if len(names) == 1 and " and " not in names[0] else "have"
        return Finding("labels", f"{shown} {have} {what}", len(names), (), severity_of("labels"))


def _normal(label: str) -> str:
    """The label without case, white space and signs."""
    return "".join(letter for letter in label.casefold() if letter.isalnum()) or label
