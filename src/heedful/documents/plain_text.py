"""Plain text, subtitles, and the string values of JSON."""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial

from heedful.documents.document import Document, PlacedRuns
from heedful.documents.inline_markup import TAG, InlineNode, MarkedText, parse_markup
from heedful.documents.safe_parsing import DocumentLimits, decode_text
from heedful.errors import DataError

_LINE = re.compile(r"[^\n]*+\n|[^\n]++\Z")
_WORD = re.compile(r"(?:<[^<>]*+>|\{[^{}]*+\}|\S)++")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"(\s*+:)?+')
# A single word with one of these is an address, an identifier, a colour or a file name, and not text.
_NO_LETTER = re.compile(r"[\d_/#@\\|<>=]")
_NAME = re.compile(r"\A[a-z]++[A-Z]\w*+")
_END_OF_NAME = re.compile(r"\w++")
_SURROGATE = re.compile("[\ud800-\udfff]")


class _TextBuilder:
    """A text in parts, some of which are to be translated."""

    def __init__(self, limits: DocumentLimits) -> None:
        self._parts: list[str] = []
        self.document = Document(lambda _: "".join(self._parts).encode(), limits)

    def keep(self, text: str) -> None:
        self._parts.append(text)

    def translate(self, text: MarkedText, render: Callable[[str], str] = lambda text: text) -> None:
        index = len(self._parts)
        self._parts.append("")

        def set_translation(placed: PlacedRuns) -> None:
            self._parts[index] = render(text.write(placed))

        self.document.add(text.passage, set_translation)


def read_text(content: bytes, limits: DocumentLimits) -> Document:
    """Parse plain text; line breaks are kept."""
    builder = _TextBuilder(limits)
    builder.translate(MarkedText((InlineNode((), decode_text(content)),)))
    return builder.document


def read_subtitles(content: bytes, limits: DocumentLimits) -> Document:
    """Parse SubRip or WebVTT: only the text of cues is translated; numbers, times, settings and notes are kept."""
    builder = _TextBuilder(limits)
    builder.document.notes.append("subtitles are wrapped again, into as many lines as before")
    whole = decode_text(content)
    limits.check(elements=whole.count("\n"))
    for text, spoken in _split_cues(whole):
        if not spoken:
            builder.keep(text)
            continue
        lines = text.splitlines(keepends=True)
        several = any(_find_dash(line) for line in lines[1:])  # several speakers
        for part in lines if several else (text,):
            dash = _find_dash(part)
            builder.keep(dash)
            said = part[len(dash) :]
            joined = " ".join(line.strip() for line in said.splitlines())
            builder.translate(parse_markup(joined, TAG), partial(_wrap_like, said))
    return builder.document


def _find_dash(line: str) -> str:
    """The dash before the words of a speaker, with the white space around it."""
    bare = line.lstrip()
    after = bare.lstrip("-–—")
    said = after.lstrip()
    return line[: len(line) - len(said)] if said and after != bare else ""


def _split_cues(text: str) -> Iterator[tuple[str, bool]]:
    """Split into parts; the flag says whether a part is the spoken text of a cue."""
    held = ""
    inside = False
    for line in _LINE.findall(text):
        if inside and not line.strip():
            yield held, True
            held, inside = "", False
        held += line
        if not inside and "-->" in line and line.lstrip()[:1].isdigit():
            yield held, False
            held, inside = "", True
    if held:
        yield held, inside


def _wrap_like(before: str, text: str) -> str:
    """Wrap a text into as many lines as another, with the same line endings."""
    end = before[len(before.rstrip("\r\n")) :]
    return ("\r\n" if "\r\n" in before else "\n").join(_wrap(text, len(before.splitlines()))) + end


def _wrap(text: str, count: int) -> list[str]:
    """Split a text into lines of about the same visible width; tags have none."""
    words = _WORD.findall(text)
    widths = [len(TAG.sub("", word)) + 1 for word in words]
    lines: list[list[str]] = [[] for _ in range(count)]
    before, total = 0, sum(widths)
    for word, width in zip(words, widths, strict=True):
        lines[int((before + width / 2) * count / total)].append(word)
        before += width
    return [" ".join(line) for line in lines if line]


def read_json(content: bytes, limits: DocumentLimits) -> Document:
    """Parse JSON: string values that look like text are translated; keys, numbers and white space are kept."""
    text = decode_text(content)
    limits.check(elements=text.count('"') // 2 + text.count("[") + text.count("{"))
    try:
        json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"the file is not JSON: {error}") from error
    builder = _TextBuilder(limits)
    last = 0
    for string in _STRING.finditer(text):
        value = "" if string[1] else json.loads(string[0], strict=False)
        if not _is_text(value):
            continue
        builder.keep(text[last : string.start()])
        builder.translate(parse_markup(value), lambda text: json.dumps(text, ensure_ascii=False))
        last = string.end()
    builder.keep(text[last:])
    return builder.document


def _is_text(value: str) -> bool:
    """Whether people read this value. A string with half a surrogate pair is kept as it is."""
    words = value.split(maxsplit=1)
    if len(words) != 1:
        return bool(words) and not _SURROGATE.search(value)
    stem, dot, end = words[0].rpartition(".")
    is_file = bool(dot and stem and _END_OF_NAME.fullmatch(end))
    return not (is_file or _NO_LETTER.search(value) or _NAME.fullmatch(words[0]) or _SURROGATE.search(value))
