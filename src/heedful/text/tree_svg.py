"""Draw a parse tree as an SVG picture."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from heedful.text.trees import NO_TAG, Tree, Word

_ROW = 44  # pixels between a node and its children
_MARGIN = 10
_GAP = 16  # between two words
_NARROW, _WIDE = "fijlrtI.,:;!|'`()[]-/ ", "mwMW@%&"
_NOT_IN_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class _Node:
    """A label with its position and its children; the child of a tag is its word."""

    text: str
    colour: str
    x: float
    row: int
    children: tuple["_Node", ...] = ()


def tree_svg(tree: Tree) -> str:
    """An SVG picture of the tree: phrases above their words, and the words in the bottom row, in reading order."""
    width, height = _width(tree) + 2 * _MARGIN, _ROW * _rows(tree)
    parts = list(_draw(_place(tree, _MARGIN, 0, _rows(tree))))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" '
        f'width="{width:g}" height="{height}" font-family="sans-serif" font-size="14" text-anchor="middle">\n'
        '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _place(node: Tree | Word, left: float, row: int, rows: int) -> _Node:
    """The node, centred above its children, within its own strip of the picture."""
    width = _width(node)
    if isinstance(node, Word):
        middle = left + width / 2
        word = _Node(node.text, "#06c", middle, rows - 1)
        return word if node.tag == NO_TAG else _Node(node.tag, "#666", middle, rows - 2, (word,))
    # If the label is wider than everything below it, the children are centred.
    place = left + (width - sum(map(_width, node.children))) / 2
    children = []
    for child in node.children:
        children.append(_place(child, place, row + 1, rows))
        place += _width(child)
    room = (_text_width(node.label) + _GAP) / 2
    middle = min(max((children[0].x + children[-1].x) / 2, left + room), left + width - room)
    return _Node(node.label, "black", middle, row, tuple(children))


def _draw(node: _Node) -> Iterator[str]:
    """The label, and lines to its children."""
    allowed = escape(_NOT_IN_XML.sub("\ufffd", node.text))
    yield f'<text x="{node.x:g}" y="{node.row * _ROW + 26}" fill="{node.colour}">{allowed}</text>'
    top = node.row * _ROW + 32
    for child in node.children:
        # Diagonal to the next row, then straight down: so lines never cross, however far down a word is.
        corner, bottom = (node.row + 1) * _ROW + 12, child.row * _ROW + 12
        points = f"{node.x:g},{top} {child.x:g},{corner} {child.x:g},{bottom}"
        yield f'<polyline points="{points}" fill="none" stroke="#999"/>'
        yield from _draw(child)


def _rows(node: Tree | Word) -> int:
    if isinstance(node, Word):
        return 1 if node.tag == NO_TAG else 2
    return 1 + max(map(_rows, node.children))


def _width(node: Tree | Word) -> float:
    if isinstance(node, Word):
        return max(_text_width(node.text), 0 if node.tag == NO_TAG else _text_width(node.tag)) + _GAP
    return max(_text_width(node.label) + _GAP, sum(map(_width, node.children)))


def _text_width(text: str) -> float:
    """An estimate of the width in pixels, without measuring a font."""
    return sum(map(_character_width, text))


def _character_width(character: str) -> float:
    if character in _NARROW:
        return 6
    if character in _WIDE or unicodedata.east_asian_width(character) in "WF":
        return 14
    if unicodedata.combining(character):
        return 0
    return 11 if character.isupper() else 9
