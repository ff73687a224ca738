"""Markdown: what is between the words stays, character by character; only the inside of paragraphs is written anew."""

import re
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from heedful.documents.inline_marks import Leaf, Mark, joined_leaves, paired, passage_of, written
from heedful.documents.passages import Draft, Placed
from heedful.documents.safe_input import Bounds, TooMuch, as_text

if TYPE_CHECKING:
    from markdown_it.token import Token

_MOST = 1 << 18  # bytes
_MOST_MARKS = _MOST // 8  # and lines; one takes 0.1 ms where lists and links are in each other
_NEWLINE = re.compile(r"\r\n?|\n")  # as markdown-it has it
_MARK = re.compile(r"\r(?!\n)|[\n\[!<*_~`]")
_FRONT = re.compile(r"\ufeff?---\r?\n.*?\r?\n(?:---|\.\.\.)\r?\n", re.DOTALL)
_SPECIAL = re.compile(r"([\\`*\[\]<]|(?<!\w)_|_(?!\w))")
_BOX = re.compile(r"\[[ xX]\]\s++(?=\S)")  # of a list of tasks
_BEGIN = re.compile(r"^(\s*+\d*+)([-+>#]|(?<=\d)[.)])(?=\s|#|$)")

_Lines = list[tuple[int, int]]  # where the lines of a paragraph begin and end


def read_markdown(content: bytes, bounds: Bounds) -> Draft:
    """CommonMark with tables and strikethrough; code, HTML, addresses of links and front matter stay as they are."""
    from markdown_it import MarkdownIt

    if len(content) > _MOST:
        raise TooMuch(f"the file has {len(content):,} bytes, over the {_MOST:,} of Markdown; split it")
    text = as_text(content)
    if len(_MARK.findall(text)) > _MOST_MARKS:
        raise TooMuch(f"the file has more than {_MOST_MARKS:,} lines and marks of Markdown; split it")
    front = _FRONT.match(text)
    begin = front.end() if front else 0
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = parser.parse(text[begin:])
    body = _Body(text[begin:])
    draft = Draft(lambda _: (text[:begin] + body.written()).encode(), bounds)
    if any(token.type == "html_block" for token in tokens):
        draft.notes.append("blocks of HTML in Markdown stay as they are")
    for number, token in enumerate(tokens):
        if token.type == "inline" and token.children and (lines := body.find(token)):
            if tokens[number - 2].type == "list_item_open":
                lines[0] = _after_box(token.children[0], lines[0])
            body.add(draft, lines, _leaves(token.children))
    return draft


def _after_box(first: "Token", line: tuple[int, int]) -> tuple[int, int]:
    """Where a line begins after the box that is ticked when its task is done; that is no text."""
    if not (box := _BOX.match(first.content)):
        return line
    first.content = first.content[box.end() :]
    return line[0] + box.end(), line[1]


class _Body:
    """A text, and what takes the places of some parts of it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(match.end() for match in _NEWLINE.finditer(text)), len(text)]
        self._here = 0
        self._new: list[tuple[int, int, str]] = []

    def find(self, token: "Token") -> _Lines:
        """Where the lines of a token stand, without what quotes and lists have before them; none: it is not found."""
        first, last = token.map or (0, 0)
        here, limit = max(self._here, self._starts[first]), self._starts[min(last, len(self._starts) - 1)]
        lines: _Lines = []
        for line in token.content.split("\n"):
            start = self._text.find(line.rstrip(), here, limit)
            if start < 0 or not line.strip():
                return []
            here = start + len(line.rstrip())
            lines.append((start, here))
        self._here = here
        return lines

    def add(self, draft: Draft, lines: _Lines, leaves: list[Leaf | None]) -> None:
        """The passages of a paragraph: None stands for a line break that is to stay."""
        cuts = [-1, *(place for place, leaf in enumerate(leaves) if leaf is None), len(leaves)]
        parts = [joined_leaves(leaf for leaf in leaves[a + 1 : b] if leaf) for a, b in pairwise(cuts)]
        told: list[str] = []

        def tell(part: list[Leaf]) -> Callable[[Placed], None]:
            def take(placed: Placed) -> None:
                told.append(written(part, placed, _escaped))
                if len(told) == len(parts):
                    self._put(lines, told)

            return take

        for part in parts:
            draft.add(passage_of(part), tell(part))

    def written(self) -> str:
        """The whole."""
        out, last = [], 0
        for start, end, text in sorted(self._new):
            out += [self._text[last:start], text]
            last = end
        return "".join([*out, self._text[last:]])

    def _put(self, lines: _Lines, parts: list[str]) -> None:
        """What broke lines breaks them again, and has the same before the next one as had the second line."""
        start, end = lines[0][0], lines[-1][1]
        line = self._line(start)
        if self._text.rfind("|", line, start) >= 0:  # a cell of a table
            parts = [re.sub(r"(?<!\\)\|", r"\\|", part) for part in parts]
        elif not self._text[line:start].strip(" >\t"):
            parts[0] = _BEGIN.sub(r"\1\\\2", parts[0])
        between = "\\\n" + (self._text[self._line(lines[1][0]) : lines[1][0]] if len(lines) > 1 else "")
        self._new.append((start, end, between.join(parts)))

    def _line(self, place: int) -> int:
        """Where its line begins."""
        return self._starts[bisect_right(self._starts, place) - 1]


def _leaves(tokens: "list[Token]") -> list[Leaf | None]:
    tags = [token.content if token.type == "html_inline" else "" for token in tokens]
    closing = paired(tags)
    openers = {closes: opens for opens, closes in closing.items()}
    found: list[Leaf | None] = []
    path: list[Mark] = []
    for number, token in enumerate(tokens):
        around = tuple(path)
        match token.type:
            case "softbreak":
                found.append(Leaf(around, " "))
            case "hardbreak":
                found.append(None)
            case "html_inline" if number in closing:
                path.append(Mark(number, token.content, tags[closing[number]]))
            case "html_inline" if number in openers:
                path = [mark for mark in path if mark.number != openers[number]]
            case "code_inline" | "image" | "html_inline":
                found.append(Leaf(around, token.content if token.type == "code_inline" else "", _kept(token)))
            case "link_open":
                auto = token.markup == "autolink"
                path.append(Mark(number, "<" if auto else "[", ">" if auto else f"]{_address(token, 'href')}"))
            case _ if token.nesting == 1:
                path.append(Mark(number, token.markup, token.markup))
            case _ if token.nesting == -1:
                path = path[:-1]
            case _:
                found.append(Leaf(around, token.content))
    return [_autolink(leaf) if leaf else None for leaf in found]


def _kept(token: "Token") -> str:
    """What is not translated, as it is written."""
    match token.type:
        case "code_inline":
            pad = " " if token.content.startswith("`") or token.content.endswith("`") else ""
            return f"{token.markup}{pad}{token.content}{pad}{token.markup}"
        case "image":
            return f"![{_escaped(token.content)}]{_address(token, 'src')}"
    return token.content


def _autolink(leaf: Leaf) -> Leaf:
    """An address is not translated."""
    if leaf.path and leaf.path[-1].opens == "<":
        return Leaf(leaf.path[:-1], leaf.shown, f"<{leaf.shown}>")
    return leaf


def _address(token: "Token", name: str) -> str:
    address, title = str(token.attrs.get(name, "")), str(token.attrs.get("title", ""))
    address = f"<{address}>" if re.search(r"[\s()]", address) else address
    said = title.replace('"', r"\"")
    return f'({address} "{said}")' if title else f"({address})"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
