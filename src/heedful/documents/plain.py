"""Text without any structure but its lines, subtitles, and the values of JSON."""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial

from heedful.documents.inline_marks import Leaf
from heedful.documents.passages import Draft, Placed
from heedful.documents.placeholders import TAG, Marked, marked
from heedful.documents.safe_input import Bounds, as_text
from heedful.errors import DataError

_LINE = re.compile(r"[^\n]*+\n|[^\n]++\Z")
_WORD = re.compile(r"(?:<[^<>]*+>|\{[^{}]*+\}|\S)++")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"(\s*+:)?+')
# Addresses, names of things in programs, colours, files: what a single word that is none has in it, or is.
_NO_LETTER = re.compile(r"[\d_/#@\\|<>=]")
_NAME = re.compile(r"\A[a-z]++[A-Z]\w*+")
_END_OF_NAME = re.compile(r"\w++")
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Pieces:
    """A text in pieces, some of which are yet to come."""

    def __init__(self, bounds: Bounds) -> None:
        self._pieces: list[str] = []
        self.draft = Draft(lambda _: "".join(self._pieces).encode(), bounds)

    def keep(self, text: str) -> None:
        self._pieces.append(text)

    def translate(self, text: Marked, written: Callable[[str], str] = lambda text: text) -> None:
        place = len(self._pieces)
        self._pieces.append("")

        def told(placed: Placed) -> None:
            self._pieces[place] = written(text.joined(placed))

        self.draft.add(text.passage, told)


def read_text(content: bytes, bounds: Bounds) -> Draft:
    """Lines stay lines."""
    pieces = _Pieces(bounds)
    pieces.translate(Marked((Leaf((), as_text(content)),)))
    return pieces.draft


def read_subtitles(content: bytes, bounds: Bounds) -> Draft:
    """SubRip and WebVTT: all but the text of cues stays, with its numbers, times, settings, styles and notes."""
    pieces = _Pieces(bounds)
    pieces.draft.notes.append("the lines of a subtitle are broken anew, into as many as there were")
    whole = as_text(content)
    bounds.check(elements=whole.count("\n"))
    for text, spoken in _cues(whole):
        if not spoken:
            pieces.keep(text)
            continue
        lines = text.splitlines(keepends=True)
        several = any(_dash(line) for line in lines[1:])  # people who speak
        for part in lines if several else (text,):
            dash = _dash(part)
            pieces.keep(dash)
            said = part[len(dash) :]
            joined = " ".join(line.strip() for line in said.splitlines())
            pieces.translate(marked(joined, TAG), partial(_in_lines, said))
    return pieces.draft


def _dash(line: str) -> str:
    """What stands before the words of one who begins to speak."""
    bare = line.lstrip()
    after = bare.lstrip("-–—")
    said = after.lstrip()
    return line[: len(line) - len(said)] if said and after != bare else ""


def _cues(text: str) -> Iterator[tuple[str, bool]]:
    """What is kept and what is spoken, in turns."""
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


def _in_lines(before: str, text: str) -> str:
    """A text in as many lines as another, which end alike."""
    end = before[len(before.rstrip("\r\n")) :]
    return ("\r\n" if "\r\n" in before else "\n").join(_broken(text, len(before.splitlines()))) + end


def _broken(text: str, count: int) -> list[str]:
    """A text in so many lines of about the same length, as it is seen without tags."""
    words = _WORD.findall(text)
    widths = [len(TAG.sub("", word)) + 1 for word in words]
    lines: list[list[str]] = [[] for _ in range(count)]
    before, total = 0, sum(widths)
    for word, width in zip(words, widths, strict=True):
        lines[int((before + width / 2) * count / total)].append(word)
        before += width
    return [" ".join(line) for line in lines if line]


def read_json(content: bytes, bounds: Bounds) -> Draft:
    """Values that are text; keys, numbers and all white space stay."""
    text = as_text(content)
    bounds.check(elements=text.count('"') // 2 + text.count("[") + text.count("{"))
    try:
        json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"the file is not JSON: {error}") from error
    pieces = _Pieces(bounds)
    last = 0
    for string in _STRING.finditer(text):
        value = "" if string[1] else json.loads(string[0], strict=False)
        if not _is_text(value):
            continue
        pieces.keep(text[last : string.start()])
        pieces.translate(marked(value), lambda text: json.dumps(text, ensure_ascii=False))
        last = string.end()
    pieces.keep(text[last:])
    return pieces.draft


def _is_text(value: str) -> bool:
    """Whether people read it; half of a surrogate pair is no character, and stays as it is written."""
    words = value.split(maxsplit=1)
    if len(words) != 1:
        return bool(words) and not _SURROGATE.search(value)
    stem, dot, end = words[0].rpartition(".")
    is_file = bool(dot and stem and _END_OF_NAME.fullmatch(end))
    return not (is_file or _NO_LETTER.search(value) or _NAME.fullmatch(words[0]) or _SURROGATE.search(value))
