"""The kinds of problems that a pair can have, how severe each is, and those that a single line shows."""

import re
from dataclasses import dataclass
from typing import Literal, assert_never, get_args

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
LONG_WORDS = 250

_BREAKS = re.compile("[\\r\\v\\f\x1c-\x1e\x85\u2028\u2029]+")
_CONTROLS = re.compile("[\x00-\x08\\v\\f\\r\x0e-\x1f\x7f-\x9f\u200b\u2028\u2029\ufeff]")
# UTF-8 read as Windows-1252: "ä" turns into "Ã¤", a closing apostrophe into "â€™".
_MOJIBAKE = re.compile("[ÃÂ][\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]|â€|ï»¿")
_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>|&(?:[A-Za-z]{2,8}|#\d{1,6}|#x[0-9A-Fa-f]{1,6});")


def flag_of(kind: FindingKind) -> int:
    """The bit that stands for this kind in a pair's flags."""
    return 1 << FINDING_KINDS.index(kind)


_ENCODING, _BINARY = flag_of("encoding"), flag_of("binary")
_MOJI, _REPLACEMENT, _CONTROL = flag_of("mojibake"), flag_of("replacement"), flag_of("control")
_WHITE_SPACE, _MARKED = flag_of("white-space"), flag_of("markup")


def tidy_line(raw: bytes) -> tuple[str, int]:
    """The line without the problems that can be repaired, and flags for all that were found."""
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
    """With an error, the files cannot be read; with a warning, the model is worse or its score wrong."""
    match kind:
        case "unreadable" | "line-counts" | "empty-file" | "encoding" | "binary" | "oversized":
            return "error"
        case "many-targets" | "markup" | "white-space" | "overlap-target":
            return "note"
        case (
            "empty" | "copy" | "swapped" | "same-language" | "ratio" | "long" | "duplicate" | "overlap-pair"
            | "overlap-source" | "mojibake" | "replacement" | "control"
        ):  # fmt: skip
            return "warning"
        case _:
            assert_never(kind)


def describe_finding(kind: FindingKind, count: int, pairs: int) -> str:  # noqa: PLR0912  one branch a kind
    """One sentence about a finding."""
    some = f"{count} of {pairs} pairs"
    match kind:
        case "encoding":
            return f"{some} hold bytes that are not UTF-8"
        case "binary":
            return f"{some} hold NUL bytes, as in a binary or UTF-16 file"
        case "oversized":
            return f"{some} hold a line of more than a megabyte"
        case "empty":
            return f"{some} have an empty side"
        case "copy":
            return f"{some} have a target that is the source itself"
        case "swapped":
            return f"{some} seem to have source and target swapped"
        case "same-language":
            return f"source and target look like the same language in a sample of {count} pairs"
        case "ratio":
            return f"{some} have lengths too different for a sentence and its translation"
        case "long":
            return f"{some} have more than {LONG_WORDS} words on a side"
        case "duplicate":
            return f"{some} repeat an earlier pair"
        case "overlap-pair":
            return f"{some} are in a test set, too"
        case "overlap-source":
            return f"{some} have a source that is in a test set, too"
        case "overlap-target":
            return f"{some} have a target that is in a test set, too"
        case "mojibake":
            return f"{some} hold UTF-8 that was read as Windows-1252 ('Ã¤' for 'ä')"
        case "replacement":
            return f"{some} hold the replacement character U+FFFD, which stands for lost text"
        case "control":
            return f"{some} hold control characters"
        case "white-space":
            return f"{some} begin or end with white space"
        case "many-targets":
            return f"{some} have a source that has a different target elsewhere"
        case "markup":
            return f"{some} hold HTML tags or entities"
        case "unreadable" | "line-counts" | "empty-file":
            return f"{count} files cannot be paired"  # the callers that know the file names write these messages
        case _:
            assert_never(kind)
