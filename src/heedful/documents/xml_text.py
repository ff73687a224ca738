"""Text in trees of XML or HTML: inline elements as runs, and back.

Every stretch of text is put into an element of our own, which holds it until its translation is there. Then it is
filled anew, with copies of the elements around each run, and goes away again.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal

from heedful.documents.passages import Draft, Passage, Placed, Run
from heedful.documents.placeholders import marked
from heedful.documents.safe_input import Element, clean

Kind = Literal["through", "fixed", "silent", "break", "drop", "text"]
THROUGH: Kind = "through"  # its text is text of the passage
FIXED: Kind = "fixed"  # stays as it is, and its text shows what it is
SILENT: Kind = "silent"  # stays as it is, and has no text
BREAK: Kind = "break"  # parts passages
DROP: Kind = "drop"  # means nothing after translation
TEXT: Kind = "text"  # all text is in elements of this kind

HOLD = "heedful-hold"  # what holds a stretch
GROUP = "heedful-group"  # what holds elements that stay together


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A text or an element, and the inline elements that it is in, the outermost first."""

    path: tuple[Element, ...]
    content: Any  # a string, or an element
    shown: str
    fixed: bool = False
    breaks: bool = False

    @property
    def is_text(self) -> bool:
        return not self.fixed and not self.breaks


class Tree:
    """Stretches of one tree."""

    def __init__(
        self,
        kind: Callable[[Element], Kind],
        *,
        spaces: Callable[[str], str] = lambda text: text,
        write: Callable[[Element, str], None] | None = None,
        inherit: Callable[[Element, Element], None] = lambda _old, _new: None,
        placeholders: bool = False,
    ) -> None:
        """`spaces` tidies white space; `write` adds text to an element; `inherit` fills the copy of an element."""
        self._kind = kind
        self._spaces = spaces
        self._write = write
        self._inherit = inherit
        self._placeholders = placeholders

    def whole(self, parent: Element, draft: Draft, keep: int = 0) -> None:
        """All that is in an element, but so many children at its beginning, is one stretch."""
        hold = parent.makeelement(HOLD, {})
        if not keep:
            hold.text, parent.text = parent.text, None
        for child in parent[keep:]:
            hold.append(child)
        parent.append(hold)
        self.held(hold, draft)

    def held(self, hold: Element, draft: Draft) -> None:
        """A stretch that stands in an element of its own."""
        parts: list[list[_Leaf]] = [[]]
        for leaf in _joined(self._leaves(hold, ())):
            parts[-1].append(leaf)
            if leaf.breaks:
                parts.append([])
        if not any(c.isalpha() for part in parts for leaf in part if not leaf.fixed for c in leaf.shown):
            return
        told: list[list[tuple[_Leaf, str]]] = []

        def tell(part: list[_Leaf]) -> Callable[[Placed], None]:
            def take(placed: Placed) -> None:
                told.append([(part[number], text) for number, text in placed])
                if len(told) == len(parts):
                    self._fill(hold, [one for several in told for one in several])

            return take

        for part in parts:
            passage: Passage = tuple(Run(leaf.shown, leaf.fixed or leaf.breaks, len(leaf.path)) for leaf in part)
            draft.add(passage, tell(part))

    def finish(self, root: Element) -> None:
        """Take all of our own elements away."""
        from lxml import etree

        etree.strip_tags(root, HOLD, GROUP)

    def _leaves(self, node: Element, path: tuple[Element, ...]) -> Iterator[_Leaf]:
        if self._write is None:
            yield from self._texts(path, node.text)
        for child in node:
            match self._kind(child):
                case "through" if self._write is None and not child.text and next(iter(child), None) is None:
                    yield _Leaf(path, child, "", fixed=True)  # an anchor, or what a style makes a picture of
                case "through":
                    yield from self._leaves(child, (*path, child))
                case "text":
                    yield from self._texts(path, child.text)
                case "fixed":
                    yield _Leaf(path, child, self._spaces("".join(child.itertext())), fixed=True)
                case "silent":
                    yield _Leaf(path, child, "", fixed=True)
                case "break":
                    yield _Leaf(path, child, "", breaks=True)
                case "drop":
                    pass
            if self._write is None:
                yield from self._texts(path, child.tail)

    def _texts(self, path: tuple[Element, ...], text: str | None) -> Iterator[_Leaf]:
        if not text:
            return
        if not self._placeholders:
            yield _Leaf(path, "", self._spaces(text))
            return
        for leaf in marked(text, pairs=False).leaves:
            yield _Leaf(path, leaf.fixed or "", leaf.shown, fixed=leaf.fixed is not None)

    def _fill(self, hold: Element, leaves: list[tuple[_Leaf, str]]) -> None:
        """Write these, each into copies of the elements that it was in; neighbours share them."""
        for child in list(hold):
            child.tail = None
            hold.remove(child)
        hold.text = None
        opened: list[tuple[Element, Element]] = []
        used: set[int] = set()
        for leaf, text in leaves:
            common = 0
            while common < min(len(opened), len(leaf.path)) and opened[common][0] is leaf.path[common]:
                common += 1
            del opened[common:]
            for old in leaf.path[common:]:
                new = self._copy(old, id(old) in used)
                used.add(id(old))
                (opened[-1][1] if opened else hold).append(new)
                opened.append((old, new))
            self._put(opened[-1][1] if opened else hold, leaf, text)

    def _copy(self, old: Element, again: bool) -> Element:
        new = old.makeelement(old.tag, dict(old.attrib), nsmap=old.nsmap)
        if again:  # what names one thing names no two
            for name in ("id", "{http://www.w3.org/XML/1998/namespace}id"):
                new.attrib.pop(name, None)
        self._inherit(old, new)
        return new

    def _put(self, parent: Element, leaf: _Leaf, text: str) -> None:
        if leaf.fixed or leaf.breaks:
            if not isinstance(leaf.content, str):
                leaf.content.tail = None
                parent.append(leaf.content)
                return
            text = leaf.content
        last = next(parent.iterchildren(reversed=True), None)  # where len would count all
        if self._write:
            self._write(parent, clean(text))
        elif last is not None:
            last.tail = (last.tail or "") + clean(text)
        else:
            parent.text = (parent.text or "") + clean(text)


def _joined(leaves: Iterable[_Leaf]) -> Iterator[_Leaf]:
    """Neighbours that look the same as one."""
    groups: list[list[_Leaf]] = []
    for leaf in leaves:
        last = groups[-1][0] if groups else None
        if last and last.is_text and leaf.is_text and last.path == leaf.path:
            groups[-1].append(leaf)
        else:
            groups.append([leaf])
    for first, *more in groups:
        yield replace(first, shown="".join(leaf.shown for leaf in (first, *more))) if more else first


def copied(old: Element, new: Element, *tags: str) -> None:
    """Give a copy the children that say what the original looks like."""
    for child in old:
        if child.tag in tags:
            new.append(deepcopy(child))
