"""Markdown: only the text of paragraphs is rewritten; everything else is kept, character by character."""

import re
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from heedful.documents.document import Document, PlacedRuns
from heedful.documents.inline_markup import (
    InlineNode,
    TagPair,
    make_passage,
    match_tags,
    merge_neighbours,
    write_markup,
)
from heedful.documents.safe_parsing import DocumentLimits, DocumentTooLarge, decode_text

if TYPE_CHECKING:
    from markdown_it.token import Token

_MOST_BYTES = 1 << 18
_MOST_MARKS = _MOST_BYTES // 8  # and lines; nested lists and links take 0.1 ms each
_NEWLINE = re.compile(r"\r\n?|\n")  # as markdown-it defines it
_MARK = re.compile(r"\r(?!\n)|[\n\[!<*_~`]")
_FRONT = re.compile(r"\ufeff?---\r?\n.*?\r?\n(?:---|\.\.\.)\r?\n", re.DOTALL)
_SPECIAL = re.compile(r"([\\`*\[\]<]|(?<!\w)_|_(?!\w))")
_BOX = re.compile(r"\[[ xX]\]\s++(?=\S)")  # of a task list
_BEGIN = re.compile(r"^(\s*+\d*+)([-+>#]|(?<=\d)[.)])(?=\s|#|$)")

_Lines = list[tuple[int, int]]  # start and end of each line of a paragraph


def read_markdown(content: bytes, limits: DocumentLimits) -> Document:
    """Parse CommonMark with tables and strikethrough; code, HTML, link targets and front matter are kept."""
    from markdown_it import MarkdownIt

    if len(content) > _MOST_BYTES:
        raise DocumentTooLarge(
            f"the file has {len(content):,} bytes, over the limit of {_MOST_BYTES:,} for Markdown; split it"
        )
    text = decode_text(content)
    if len(_MARK.findall(text)) > _MOST_MARKS:
        raise DocumentTooLarge(f"the file has more than {_MOST_MARKS:,} lines and Markdown marks; split it")
    front = _FRONT.match(text)
    begin = front.end() if front else 0
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = parser.parse(text[begin:])
    body = _Body(text[begin:])
    document = Document(lambda _: (text[:begin] + body.write()).encode(), limits)
    if any(token.type == "html_block" for token in tokens):
        document.notes.append("HTML blocks in Markdown are not translated")
    for number, token in enumerate(tokens):
        if token.type == "inline" and token.children and (lines := body.find(token)):
            if tokens[number - 2].type == "list_item_open":
                lines[0] = _skip_checkbox(token.children[0], lines[0])
            body.add(document, lines, _find_nodes(token.children))
    return document


def _skip_checkbox(first: "Token", line: tuple[int, int]) -> tuple[int, int]:
    """The line without the checkbox of a task list at its beginning."""
    if not (box := _BOX.match(first.content)):
        return line
    first.content = first.content[box.end() :]
    return line[0] + box.end(), line[1]


class _Body:
    """The Markdown text, and the replacements for parts of it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(match.end() for match in _NEWLINE.finditer(text)), len(text)]
        self._position = 0
        self._replacements: list[tuple[int, int, str]] = []

    def find(self, token: "Token") -> _Lines:
        """Where the lines of a token are, without the prefixes of quotes and lists; empty if they are not found."""
        first, last = token.map or (0, 0)
        here, limit = max(self._position, self._starts[first]), self._starts[min(last, len(self._starts) - 1)]
        lines: _Lines = []
        for line in token.content.split("\n"):
            start = self._text.find(line.rstrip(), here, limit)
            if start < 0 or not line.strip():
                return []
            here = start + len(line.rstrip())
            lines.append((start, here))
        self._position = here
        return lines

    def add(self, document: Document, lines: _Lines, nodes: list[InlineNode | None]) -> None:
        """Add the passages of a paragraph; None stands for a hard line break."""
        cuts = [-1, *(index for index, node in enumerate(nodes) if node is None), len(nodes)]
        parts = [merge_neighbours(node for node in nodes[a + 1 : b] if node) for a, b in pairwise(cuts)]
        translated: list[str] = []

        def setter_for(part: list[InlineNode]) -> Callable[[PlacedRuns], None]:
            def set_translation(placed: PlacedRuns) -> None:
                translated.append(write_markup(part, placed, _escape))
                if len(translated) == len(parts):
                    self._replace(lines, translated)

            return set_translation

        for part in parts:
            document.add(make_passage(part), setter_for(part))

    def write(self) -> str:
        """The text with all replacements."""
        out, last = [], 0
        for start, end, text in sorted(self._replacements):
            out += [self._text[last:start], text]
            last = end
        return "".join([*out, self._text[last:]])

    def _replace(self, lines: _Lines, parts: list[str]) -> None:
        """Replace these lines; after a hard break, the prefix of the second line is repeated."""
        start, end = lines[0][0], lines[-1][1]
        line = self._line_start(start)
        if self._text.rfind("|", line, start) >= 0:  # a table cell
            parts = [re.sub(r"(?<!\\)\|", r"\\|", part) for part in parts]
        elif not self._text[line:start].strip(" >\t"):
            parts[0] = _BEGIN.sub(r"\1\\\2", parts[0])
        between = "\\\n" + (self._text[self._line_start(lines[1][0]) : lines[1][0]] if len(lines) > 1 else "")
        self._replacements.append((start, end, between.join(parts)))

    def _line_start(self, position: int) -> int:
        return self._starts[bisect_right(self._starts, position) - 1]


def _find_nodes(tokens: "list[Token]") -> list[InlineNode | None]:
    tags = [token.content if token.type == "html_inline" else "" for token in tokens]
    closing = match_tags(tags)
    openers = {closes: opens for opens, closes in closing.items()}
    found: list[InlineNode | None] = []
    path: list[TagPair] = []
    for number, token in enumerate(tokens):
        around = tuple(path)
        match token.type:
            case "softbreak":
                found.append(InlineNode(around, " "))
            case "hardbreak":
                found.append(None)
            case "html_inline" if number in closing:
                path.append(TagPair(number, token.content, tags[closing[number]]))
            case "html_inline" if number in openers:
                path = [mark for mark in path if mark.number != openers[number]]
            case "code_inline" | "image" | "html_inline":
                found.append(
                    InlineNode(around, token.content if token.type == "code_inline" else "", _write_fixed(token))
                )
            case "link_open":
                auto = token.markup == "autolink"
                path.append(TagPair(number, "<" if auto else "[", ">" if auto else f"]{_write_target(token, 'href')}"))
            case _ if token.nesting == 1:
                path.append(TagPair(number, token.markup, token.markup))
            case _ if token.nesting == -1:
                path = path[:-1]
            case _:
                found.append(InlineNode(around, token.content))
    return [_fix_autolink(node) if node else None for node in found]


def _write_fixed(token: "Token") -> str:
    """The Markdown source of a token that is not translated."""
    match token.type:
        case "code_inline":
            pad = " " if token.content.startswith("`") or token.content.endswith("`") else ""
            return f"{token.markup}{pad}{token.content}{pad}{token.markup}"
        case "image":
            return f"![{_escape(token.content)}]{_write_target(token, 'src')}"
    return token.content


def _fix_autolink(node: InlineNode) -> InlineNode:
    """Make the text of an autolink fixed: it is an address."""
    if node.path and node.path[-1].opens == "<":
        return InlineNode(node.path[:-1], node.shown, f"<{node.shown}>")
    return node


def _write_target(token: "Token", name: str) -> str:
    address, title = str(token.attrs.get(name, "")), str(token.attrs.get("title", ""))
    address = f"<{address}>" if re.search(r"[\s()]", address) else address
    said = title.replace('"', r"\"")
    return f'({address} "{said}")' if title else f"({address})"


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
