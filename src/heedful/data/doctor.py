"""Find problems in a parallel corpus, and write a cleaned copy.

The files are read twice: first a sample, to learn what is usual (corpus_profile.py), then everything. A pair takes 20
bytes of memory (a hash of each side and a set of flags), and about 35 more while hashes are sorted: 36 million pairs
need about 2 GB.
"""

import errno
import gzip
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Literal, assert_never, get_args

import numpy as np
from jaxtyping import Bool, Int, UInt32, UInt64

from heedful.data import corpus_profile as profiles
from heedful.data.pairs import (
    MAX_LINE_BYTES,
    STANDARD_INPUT,
    AnyPath,
    Paths,
    check_parallel,
    list_files,
    read_raw_lines,
)
from heedful.errors import DataError, OutOfSpace, counted

FindingKind = Literal[
    "unreadable",
    "line-counts",
    "empty-file",
    "encoding",
    "binary",
    "oversized",
    "empty",
    "copy",
    "swapped",
    "same-language",
    "ratio",
    "long",
    "duplicate",
    "overlap-pair",
    "overlap-source",
    "overlap-target",
    "mojibake",
    "replacement",
    "control",
    "white-space",
    "many-targets",
    "markup",
    "labels",
]
Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem. Lines are counted from 1 through all files in a row; `lines` has the first few."""

    kind: FindingKind
    message: str
    count: int
    lines: tuple[int, ...]
    severity: Severity


FINDING_KINDS: tuple[FindingKind, ...] = get_args(FindingKind)
_LONG_WORDS = 250

_BLOCK = 4096  # pairs that are examined at a time
_SAMPLE = 100_000  # pairs to learn the profile from
_MAX_LINES = 5  # line numbers in a finding
# The first of these that a pair has is the reason for dropping it.
_DROPPED: tuple[FindingKind, ...] = (
    "encoding", "oversized", "empty", "overlap-pair", "overlap-source", "overlap-target",
    "copy", "swapped", "long", "ratio", "duplicate",
)  # fmt: skip
_NOT_COMPARED: tuple[FindingKind, ...] = ("empty", "encoding", "oversized")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The size of a corpus, and the problems found in it, the most severe first."""

    pairs: int
    source_words: int
    target_words: int
    source_characters: int
    target_characters: int
    findings: tuple[Finding, ...]

    @property
    def mean_source_words(self) -> float:
        return self.source_words / max(1, self.pairs)

    @property
    def mean_target_words(self) -> float:
        return self.target_words / max(1, self.pairs)


@dataclass(frozen=True, slots=True)
class CleanedCorpus:
    """The result of cleaning. Each dropped pair is counted once, for its most severe problem."""

    pairs: int
    kept: int
    dropped: dict[FindingKind, int]
    tidied: int  # kept pairs without their control characters or white space at the ends
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Some pairs with their flags and lengths."""

    sources: list[bytes]
    targets: list[bytes]
    flags: UInt32[np.ndarray, " pairs"]
    characters: Int[np.ndarray, "2 pairs"]
    words: Int[np.ndarray, "2 pairs"]


@dataclass(frozen=True, slots=True, eq=False)
class _Hashes:
    """Hashes of both sides of all pairs."""

    sources: UInt64[np.ndarray, " pairs"]
    targets: UInt64[np.ndarray, " pairs"]

    @property
    def pairs(self) -> UInt64[np.ndarray, " pairs"]:
        return self.sources * np.uint64(0x9E3779B97F4A7C15) ^ self.targets


@dataclass(slots=True, eq=False)
class _Scan:
    """The flags of all pairs; it grows block by block."""

    flags: UInt32[np.ndarray, " pairs"] = field(default_factory=lambda: np.zeros(0, np.uint32))
    characters: Int[np.ndarray, " 2"] = field(default_factory=lambda: np.zeros(2, np.int64))
    words: Int[np.ndarray, " 2"] = field(default_factory=lambda: np.zeros(2, np.int64))
    same_language: int = 0  # pairs in the sample, if its sides look like one language; else 0
    file_errors: list[Finding] = field(default_factory=list)


def doctor(
    source: Paths,
    target: Paths,
    tests: Sequence[tuple[AnyPath, AnyPath]] = (),
) -> Diagnosis:
    """Find the problems of a parallel corpus. `tests` are pairs of source and reference files, to look for overlap.

    Only a missing file is an error; every other problem is a finding.
    """
    scan = _scan(list_files(source), list_files(target), tests)
    pairs = len(scan.flags)
    findings = list(scan.file_errors)
    if scan.same_language:
        findings.append(_finding("same-language", scan.same_language, pairs, ()))
    for kind in FINDING_KINDS:
        places = np.flatnonzero(scan.flags & np.uint32(_flag(kind)))
        if len(places):
            findings.append(_finding(kind, len(places), pairs, tuple(int(n) + 1 for n in places[:_MAX_LINES])))
    order: tuple[Severity, ...] = ("error", "warning", "note")
    findings.sort(key=lambda finding: order.index(finding.severity))
    words, characters = scan.words.tolist(), scan.characters.tolist()
    return Diagnosis(pairs, words[0], words[1], characters[0], characters[1], tuple(findings))


def clean_corpus(
    source: Paths,
    target: Paths,
    out: AnyPath,
    tests: Sequence[tuple[AnyPath, AnyPath]] = (),
) -> CleanedCorpus:
    """Write the good pairs to files of the same names in the folder `out`; none appears before all are complete."""
    sources, targets, out = list_files(source), list_files(target), Path(out)
    outputs = _output_paths([*sources, *targets], out)
    scan = _scan(sources, targets, tests)
    for error in scan.file_errors:
        raise DataError(f"{error.message}; cleaning cannot repair that")
    reasons = _find_reasons(scan.flags)
    try:
        out.mkdir(parents=True, exist_ok=True)
        _write_kept(sources, targets, reasons < 0, outputs)
    except OSError as error:
        kind = OutOfSpace if error.errno == errno.ENOSPC else DataError
        raise kind(f"{out} cannot be written: {error.strerror}") from error
    counts = np.bincount(reasons[reasons >= 0], minlength=len(_DROPPED)).tolist()
    return CleanedCorpus(
        pairs=len(reasons),
        kept=int((reasons < 0).sum()),
        dropped={kind: count for kind, count in zip(_DROPPED, counts, strict=True) if count},
        tidied=int(_has_any(scan.flags[reasons < 0], ("white-space", "control")).sum()),
        files=tuple(outputs),
    )


def _scan(sources: Sequence[str], targets: Sequence[str], test_sets: Sequence[tuple[AnyPath, AnyPath]]) -> _Scan:
    tests = [(str(source), str(target)) for source, target in test_sets]
    check_parallel(sources, targets)
    check_parallel([source for source, _ in tests], [target for _, target in tests])
    for name in (*sources, *targets, *(name for test in tests for name in test)):
        if name == STANDARD_INPUT:
            raise DataError("standard input (-) cannot be examined, because files are read twice; write it to a file")
    profile = _learn(sources, targets)
    scan = _Scan(same_language=profile.pairs if profile.same_language else 0)
    flags, source_hashes, target_hashes = bytearray(), bytearray(), bytearray()  # these grow without copies
    for source, target in zip(sources, targets, strict=True):
        for block in _examine_files(source, target, scan.file_errors):
            flags += (block.flags | _flag_unusual(block, profile)).tobytes()
            source_hashes += _digests(block.sources)
            target_hashes += _digests(block.targets)
            scan.characters += block.characters.sum(1)
            scan.words += block.words.sum(1)
    scan.flags = np.frombuffer(flags, np.uint32)
    pairs = _Hashes(np.frombuffer(source_hashes, np.uint64), np.frombuffer(target_hashes, np.uint64))
    _mark_repeats(scan.flags, pairs)
    _mark_overlap(scan.flags, pairs, _test_hashes(tests, scan.file_errors))
    return scan


def _learn(sources: Sequence[str], targets: Sequence[str]) -> profiles.CorpusProfile:
    """Learn what is usual from the first good pairs of each file."""
    share = max(1, _SAMPLE // max(1, len(sources) * _BLOCK))
    blocks = [
        _leave_out(block, ("encoding", "binary", "oversized", "empty", "copy"))
        for source, target in zip(sources, targets, strict=True)
        for block in islice(_examine_files(source, target, []), share)
    ]
    nothing = np.zeros((2, 0), np.int64)
    return profiles.learn_profile(
        [(block.sources, block.targets) for block in blocks],
        np.concatenate([nothing, *(block.characters for block in blocks)], axis=1),
        np.concatenate([nothing, *(block.words for block in blocks)], axis=1),
    )


def _leave_out(block: _Block, kinds: Sequence[FindingKind]) -> _Block:
    """The pairs of a block that have none of these problems."""
    good = ~_has_any(block.flags, kinds)
    places = np.flatnonzero(good).tolist()
    return _Block(
        [block.sources[place] for place in places],
        [block.targets[place] for place in places],
        block.flags[good],
        block.characters[:, good],
        block.words[:, good],
    )


def _has_any(flags: UInt32[np.ndarray, " pairs"], kinds: Sequence[FindingKind]) -> Bool[np.ndarray, " pairs"]:
    return (flags & np.uint32(sum(map(_flag, kinds)))) != 0


def _flag_unusual(block: _Block, profile: profiles.CorpusProfile) -> UInt32[np.ndarray, " pairs"]:
    judged = ~_has_any(block.flags, ("encoding", "oversized", "empty", "copy"))
    swapped = profile.find_swapped(block.sources, block.targets) & judged
    unequal = profile.find_unequal(block.characters, block.words) & judged
    return swapped * np.uint32(_flag("swapped")) | unequal * np.uint32(_flag("ratio"))


def _examine_files(source: str, target: str, file_errors: list[Finding]) -> Iterator[_Block]:
    """Examine two files line by line; problems that keep them from pairing up are added to `file_errors`."""
    source_lines, target_lines = _read_lines(source, file_errors), _read_lines(target, file_errors)
    counts = [0, 0]
    while True:
        sources, targets = list(islice(source_lines, _BLOCK)), list(islice(target_lines, _BLOCK))
        if not sources and not targets:
            break
        counts[0] += len(sources)
        counts[1] += len(targets)
        if paired := min(len(sources), len(targets)):
            yield _examine_pairs(sources[:paired], targets[:paired])
    for name, count in zip((source, target), counts, strict=True):
        if not count:
            file_errors.append(Finding("empty-file", f"{name} is empty", 1, (), severity_of("empty-file")))
    if counts[0] != counts[1]:
        file_errors.append(_unequal_counts(source, target, counts[0], counts[1]))


def _read_lines(name: str, file_errors: list[Finding]) -> Iterator[bytes]:
    try:
        yield from read_raw_lines(Path(name))
    except DataError as error:
        file_errors.append(Finding("unreadable", str(error), 1, (), severity_of("unreadable")))


def _examine_pairs(sources: list[bytes], targets: list[bytes]) -> _Block:
    flags, characters, words = [], [], []
    empty, copy, long, oversized = _flag("empty"), _flag("copy"), _flag("long"), _flag("oversized")
    for place, (raw_source, raw_target) in enumerate(zip(sources, targets, strict=True)):
        source, source_flags = tidy_line(raw_source)
        target, target_flags = tidy_line(raw_target)
        found = source_flags | target_flags
        if not source or not target:
            found |= empty
        elif source == target and any(map(str.isalpha, source)):
            found |= copy
        if len(raw_source) > MAX_LINE_BYTES or len(raw_target) > MAX_LINE_BYTES:
            found |= oversized
        source_words, target_words = len(source.split()), len(target.split())
        if source_words > _LONG_WORDS or target_words > _LONG_WORDS:
            found |= long
        flags.append(found)
        characters.append((len(source), len(target)))
        words.append((source_words, target_words))
        sources[place], targets[place] = source.encode(), target.encode()
    return _Block(sources, targets, np.array(flags, np.uint32), np.array(characters).T, np.array(words).T)


def _unequal_counts(source: str, target: str, source_count: int, target_count: int) -> Finding:
    message = f"{source} has {counted(source_count, 'line')} but {target} has {target_count}"
    place = profiles.guess_divergence(_lengths(source), _lengths(target))
    shorter = min(source_count, target_count)
    if place <= shorter:
        message += f"; they seem to get out of step at about line {place}"
    elif shorter:
        message += f"; they seem to match up to line {shorter}, where the shorter file ends"
    return Finding("line-counts", message, abs(source_count - target_count), (place,), severity_of("line-counts"))


def _lengths(name: str) -> Int[np.ndarray, " lines"]:
    return np.fromiter((len(line) for line in _read_lines(name, [])), np.int64)


def _digests(lines: Sequence[bytes]) -> bytes:
    return b"".join(blake2b(line, digest_size=8).digest() for line in lines)


def _test_hashes(tests: Sequence[tuple[str, str]], file_errors: list[Finding]) -> _Hashes:
    blocks = [
        _leave_out(block, _NOT_COMPARED)
        for source, target in tests
        for block in _examine_files(source, target, file_errors)
    ]
    return _Hashes(
        np.frombuffer(b"".join(_digests(block.sources) for block in blocks), np.uint64),
        np.frombuffer(b"".join(_digests(block.targets) for block in blocks), np.uint64),
    )


def _mark_repeats(flags: UInt32[np.ndarray, " pairs"], hashes: _Hashes) -> None:
    """Flag pairs that repeat an earlier one, and sources that have several targets."""
    places = np.flatnonzero(~_has_any(flags, _NOT_COMPARED))
    _, again = _neighbours(hashes.pairs[places])
    flags[places[again]] |= np.uint32(_flag("duplicate"))
    places = np.flatnonzero(~_has_any(flags, (*_NOT_COMPARED, "duplicate")))
    before, after = _neighbours(hashes.sources[places])
    for alike in (before, after):
        flags[places[alike]] |= np.uint32(_flag("many-targets"))


def _neighbours(
    hashes: UInt64[np.ndarray, " pairs"],
) -> tuple[Int[np.ndarray, " repeats"], Int[np.ndarray, " repeats"]]:
    """Indices of equal hashes, each with the next index that has the same hash."""
    order = np.argsort(hashes, kind="stable")
    ranked = hashes[order]
    equal = ranked[1:] == ranked[:-1]
    return order[:-1][equal], order[1:][equal]


def _mark_overlap(flags: UInt32[np.ndarray, " pairs"], hashes: _Hashes, tests: _Hashes) -> None:
    if not len(tests.sources):
        return
    compared = ~_has_any(flags, _NOT_COMPARED)
    pair = compared & _member(hashes.pairs, tests.pairs)
    flags[pair] |= np.uint32(_flag("overlap-pair"))
    flags[compared & ~pair & _member(hashes.sources, tests.sources)] |= np.uint32(_flag("overlap-source"))
    flags[compared & ~pair & _member(hashes.targets, tests.targets)] |= np.uint32(_flag("overlap-target"))


def _member(hashes: UInt64[np.ndarray, " pairs"], known: UInt64[np.ndarray, " tests"]) -> Bool[np.ndarray, " pairs"]:
    """Which hashes are known. Only the few known ones are sorted; `np.isin` would sort all, several times."""
    known = np.sort(known)
    places = np.searchsorted(known, hashes)
    return known[np.minimum(places, len(known) - 1, out=places)] == hashes


def _finding(kind: FindingKind, count: int, pairs: int, lines: tuple[int, ...]) -> Finding:
    return Finding(kind, describe_finding(kind, count, pairs), count, lines, severity_of(kind))


def _find_reasons(flags: UInt32[np.ndarray, " pairs"]) -> Int[np.ndarray, " pairs"]:
    """For each pair, the index in `_DROPPED` of the reason to drop it, or -1 to keep it."""
    reasons = np.full(len(flags), -1, np.int8)
    for place in reversed(range(len(_DROPPED))):
        reasons[_has_any(flags, (_DROPPED[place],))] = place
    return reasons


def _output_paths(names: Sequence[str], out: Path) -> list[Path]:
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file; give a folder for the cleaned copies")
    paths = [out / Path(name).name for name in names]
    for name, path in zip(names, paths, strict=True):
        if path.resolve() == Path(name).resolve():
            raise DataError(f"the cleaned copy of {name} would overwrite it; give a different folder than {out}")
        if paths.count(path) > 1:
            raise DataError(f"two of the files are called {path.name}, and {out} cannot hold both; rename one")
    return paths


def _write_kept(
    sources: Sequence[str], targets: Sequence[str], kept: Bool[np.ndarray, " pairs"], outputs: Sequence[Path]
) -> None:
    drafts = [path.with_name(f".{path.name}.part") for path in outputs]
    try:
        _copy_kept(sources, kept, drafts[: len(sources)])
        _copy_kept(targets, kept, drafts[len(sources) :])
        for draft, path in zip(drafts, outputs, strict=True):
            draft.replace(path)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


def _copy_kept(names: Sequence[str], kept: Bool[np.ndarray, " pairs"], drafts: Sequence[Path]) -> None:
    keeps = iter(kept.tobytes())
    for name, draft in zip(names, drafts, strict=True):
        with draft.open("wb") as disk:
            packer = gzip.GzipFile("", "wb", 6, disk, mtime=0) if name.endswith(".gz") else nullcontext(disk)
            with packer as file:
                for raw, keep in zip(read_raw_lines(Path(name)), keeps, strict=False):
                    if keep:
                        file.write(tidy_line(raw)[0].encode() + b"\n")
            disk.flush()
            os.fsync(disk.fileno())


_BREAKS = re.compile("[\\r\\v\\f\x1c-\x1e\x85\u2028\u2029]+")
_CONTROLS = re.compile("[\x00-\x08\\v\\f\\r\x0e-\x1f\x7f-\x9f\u200b\u2028\u2029\ufeff]")
# UTF-8 read as Windows-1252: "ä" turns into "Ã¤", a closing apostrophe into "â€™".
_MOJIBAKE = re.compile("[ÃÂ][\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]|â€|ï»¿")
_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>|&(?:[A-Za-z]{2,8}|#\d{1,6}|#x[0-9A-Fa-f]{1,6});")


def _flag(kind: FindingKind) -> int:
    """The bit of this kind in the flags of a pair."""
    return 1 << FINDING_KINDS.index(kind)


_ENCODING, _BINARY = _flag("encoding"), _flag("binary")
_MOJI, _REPLACEMENT, _CONTROL = _flag("mojibake"), _flag("replacement"), _flag("control")
_WHITE_SPACE, _MARKED = _flag("white-space"), _flag("markup")


def tidy_line(raw: bytes) -> tuple[str, int]:
    """The line without repairable problems, and flags for all problems that were found."""
    try:
        text, flags = raw.decode(), 0
    except UnicodeDecodeError:
        text, flags = raw.decode(errors="replace"), _ENCODING
    if not text.isascii():
        flags |= _flag_non_ascii(text, flags)
    if not text.isprintable() and _CONTROLS.search(text):
        flags |= _CONTROL | (_BINARY if "\0" in text else 0)
        text = _CONTROLS.sub("", _BREAKS.sub(" ", text))
    if ("<" in text or "&" in text) and _MARKUP.search(text):
        flags |= _MARKED
    stripped = text.strip()
    return stripped, flags | (_WHITE_SPACE if len(stripped) != len(text) else 0)


def _flag_non_ascii(text: str, flags: int) -> int:
    found = _MOJI if _MOJIBAKE.search(text) else 0
    # If the bytes were not UTF-8, decoding has just inserted the replacement characters.
    return found | (_REPLACEMENT if "\ufffd" in text and not flags & _ENCODING else 0)


def severity_of(kind: FindingKind) -> Severity:
    """An error makes the files unreadable; a warning makes the model worse or its score wrong."""
    match kind:
        case "unreadable" | "line-counts" | "empty-file" | "encoding" | "binary" | "oversized":
            return "error"
        case "many-targets" | "markup" | "white-space" | "overlap-target":
            return "note"
        case (
            "empty" | "copy" | "swapped" | "same-language" | "ratio" | "long" | "duplicate" | "overlap-pair"
            | "overlap-source" | "mojibake" | "replacement" | "control" | "labels"
        ):  # fmt: skip
            return "warning"
        case _:
            assert_never(kind)


def describe_finding(kind: FindingKind, count: int, total: int, what: str = "pair") -> str:  # noqa: PLR0912  one branch a kind
    """One sentence about a finding in `count` of `total` pairs, or of what else was examined."""
    some, one = f"{count} of {counted(total, what)}", count == 1
    hold, have = ("holds", "has") if one else ("hold", "have")
    match kind:
        case "encoding":
            return f"{some} {hold} bytes that are not UTF-8"
        case "binary":
            return f"{some} {hold} NUL bytes, as in a binary or UTF-16 file"
        case "oversized":
            return f"{some} {hold} a line of more than a megabyte"
        case "empty":
            return f"{some} {have} an empty side"
        case "copy":
            return f"{some} {have} a target that is the source itself"
        case "swapped":
            return f"{some} {'seems' if one else 'seem'} to have source and target swapped"
        case "same-language":
            return f"source and target look like the same language in a sample of {counted(count, 'pair')}"
        case "ratio":
            return f"{some} {have} lengths too different for a sentence and its translation"
        case "long":
            return f"{some} {have} more than {_LONG_WORDS} words on a side"
        case "duplicate":
            return f"{some} {'repeats' if one else 'repeat'} an earlier pair"
        case "overlap-pair":
            return f"{some} {'is' if one else 'are'} in a test set, too"
        case "overlap-source":
            return f"{some} {have} a source that is in a test set, too"
        case "overlap-target":
            return f"{some} {have} a target that is in a test set, too"
        case "mojibake":
            return f"{some} {hold} UTF-8 that was read as Windows-1252 ('Ã¤' for 'ä')"
        case "replacement":
            return f"{some} {hold} the replacement character U+FFFD, which stands for lost text"
        case "control":
            return f"{some} {hold} control characters"
        case "white-space":
            return f"{some} {'begins or ends' if one else 'begin or end'} with white space"
        case "many-targets":
            return f"{some} {have} a source that has a different target elsewhere"
        case "markup":
            return f"{some} {hold} HTML tags or entities"
        case "labels":
            return f"{counted(count, 'label')} {'is' if one else 'are'} too rare to learn, or written in two ways"
        case "unreadable" | "line-counts" | "empty-file":
            # The callers that know the file names write these messages.
            return f"{counted(count, 'file')} cannot be paired"
        case _:
            assert_never(kind)
