"""A tree as a picture that any browser shows."""

import re
import unicodedata
from collections.abc import Iterator
from html import escape

from heedful.text.trees import NO_TAG, Tree, Word

_ROW = 44  # pixels from a node to its children
_CHARACTER = 9
_GAP = 14  # between two words
_NOT_IN_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def tree_svg(tree: Tree) -> str:
    """An SVG of the tree, phrases above their words."""
    height = _ROW * _rows(tree)
    parts = list(_draw(tree, 0.0, 0))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_width(tree):g} {height}" '
        f'width="{_width(tree):g}" height="{height}" font-family="sans-serif" font-size="14" text-anchor="middle">\n'
        '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _draw(node: Tree | Word, left: float, row: int) -> Iterator[str]:
    """The node in the middle of its own strip, lines to its children, and these side by side below it."""
    middle = left + _width(node) / 2
    if isinstance(node, Word):
        if node.tag != NO_TAG:
            yield _text(middle, row, node.tag, "#777")
            yield _line(middle, middle, row)
        yield _text(middle, row + _rows(node) - 1, node.text, "#06c")
        return
    yield _text(middle, row, node.label, "black")
    # Where the label is wider than all below it, that stays in the middle.
    place = middle - sum(map(_width, node.children)) / 2
    for child in node.children:
        yield _line(middle, place + _width(child) / 2, row)
        yield from _draw(child, place, row + 1)
        place += _width(child)


def _text(x: float, row: int, text: str, colour: str) -> str:
    allowed = escape(_NOT_IN_XML.sub("\ufffd", text))
    return f'<text x="{x:g}" y="{row * _ROW + 26}" fill="{colour}">{allowed}</text>'


def _line(above: float, below: float, row: int) -> str:
    y = row * _ROW
    return f'<line x1="{above:g}" y1="{y + 32}" x2="{below:g}" y2="{y + _ROW + 12}" stroke="#999"/>'


def _rows(node: Tree | Word) -> int:
    if isinstance(node, Word):
        return 1 if node.tag == NO_TAG else 2
    return 1 + max(map(_rows, node.children))


def _width(node: Tree | Word) -> float:
    if isinstance(node, Word):
        return max(_text_width(node.text), _text_width(node.tag)) + _GAP
    return max(_text_width(node.label) + _GAP, sum(map(_width, node.children)))


def _text_width(text: str) -> float:
    """About as wide as it will be: no font is asked; letters of East Asia are twice as wide as others."""
    return sum(_CHARACTER * (2 if unicodedata.east_asian_width(character) in "WF" else 1) for character in text)
