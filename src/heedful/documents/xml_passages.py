"""Passages of an XML or HTML tree: inline elements become runs, and translations are written back.

Each stretch of text is wrapped in a holder element. When its translation arrives, the holder is filled with copies of
the inline elements around each run. `remove_holders` removes the holders at the end.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal

from heedful.documents.document import Document, InlineRun, Passage, PlacedRuns
from heedful.documents.inline_markup import parse_markup
from heedful.documents.safe_parsing import Element, replace_invalid_characters

ElementRole = Literal["inline", "fixed", "opaque", "break", "drop", "text"]
INLINE: ElementRole = "inline"  # formats text of the passage
FIXED: ElementRole = "fixed"  # not translated, but the model sees its text
OPAQUE: ElementRole = "opaque"  # not translated, and the model sees nothing of it
BREAK: ElementRole = "break"  # separates passages
DROP: ElementRole = "drop"  # removed: meaningless in a translation
TEXT: ElementRole = "text"  # contains text; other elements do not

HOLDER = "heedful-hold"  # wraps a stretch of text
GROUP = "heedful-group"  # wraps elements that must stay together


@dataclass(frozen=True, slots=True)
class _Node:
    """A text or an element, and the inline elements around it, outermost first."""

    path: tuple[Element, ...]
    content: Any  # a string, or an element
    shown: str
    fixed: bool = False
    breaks: bool = False

    @property
    def is_text(self) -> bool:
        return not self.fixed and not self.breaks


class XmlPassages:
    """Adds the text of one tree to a document."""

    def __init__(
        self,
        role_of: Callable[[Element], ElementRole],
        *,
        normalise_space: Callable[[str], str] = lambda text: text,
        append_text: Callable[[Element, str], None] | None = None,
        copy_children: Callable[[Element, Element], None] = lambda _old, _new: None,
        placeholders: bool = False,
    ) -> None:
        """`append_text` is for formats with special elements for text; `copy_children` completes a copied element."""
        self._role_of = role_of
        self._normalise_space = normalise_space
        self._append_text = append_text
        self._copy_children = copy_children
        self._placeholders = placeholders

    def add_content(self, parent: Element, document: Document, skip: int = 0) -> None:
        """Add everything inside an element, except its first `skip` children, as one stretch of text."""
        children = parent[skip:]
        holder = parent.makeelement(HOLDER, {})
        parent.append(holder)  # before it is filled: see `move_children`
        if not skip:
            holder.text, parent.text = parent.text, None
        move_children(children, holder)
        self.add_holder(holder, document)

    def add_holder(self, holder: Element, document: Document) -> None:
        """Add the stretch of text inside a holder; each break in it starts a new passage."""
        parts: list[list[_Node]] = [[]]
        for node in _merge_neighbours(self._find_nodes(holder, ())):
            parts[-1].append(node)
            if node.breaks:
                parts.append([])
        if not any(c.isalpha() for part in parts for node in part if not node.fixed for c in node.shown):
            return
        translated: list[list[tuple[_Node, str]]] = []

        def setter_for(part: list[_Node]) -> Callable[[PlacedRuns], None]:
            def set_translation(placed: PlacedRuns) -> None:
                translated.append([(part[number], text) for number, text in placed])
                if len(translated) == len(parts):
                    self._fill(holder, [node for nodes in translated for node in nodes])

            return set_translation

        for part in parts:
            passage: Passage = tuple(InlineRun(node.shown, node.fixed or node.breaks, len(node.path)) for node in part)
            document.add(passage, setter_for(part))

    def remove_holders(self, root: Element) -> None:
        from lxml import etree

        etree.strip_tags(root, HOLDER, GROUP)

    def _find_nodes(self, node: Element, path: tuple[Element, ...]) -> Iterator[_Node]:
        if self._append_text is None:
            yield from self._find_texts(path, node.text)
        for child in node:
            match self._role_of(child):
                case "inline" if self._append_text is None and not child.text and next(iter(child), None) is None:
                    yield _Node(path, child, "", fixed=True)  # an anchor, or an icon made by a style
                case "inline":
                    yield from self._find_nodes(child, (*path, child))
                case "text":
                    yield from self._find_texts(path, child.text)
                case "fixed":
                    yield _Node(path, child, self._normalise_space("".join(child.itertext())), fixed=True)
                case "opaque":
                    yield _Node(path, child, "", fixed=True)
                case "break":
                    yield _Node(path, child, "", breaks=True)
                case "drop":
                    pass
            if self._append_text is None:
                yield from self._find_texts(path, child.tail)

    def _find_texts(self, path: tuple[Element, ...], text: str | None) -> Iterator[_Node]:
        if not text:
            return
        if not self._placeholders:
            yield _Node(path, "", self._normalise_space(text))
            return
        for node in parse_markup(text, pairs=False).nodes:
            yield _Node(path, node.fixed or "", node.shown, fixed=node.fixed is not None)

    def _fill(self, holder: Element, nodes: list[tuple[_Node, str]]) -> None:
        """Write each node into copies of the inline elements around it; neighbours share a copy."""
        old_content = holder.makeelement(HOLDER, {})
        holder.addprevious(old_content)
        children = list(holder)
        for child in children:
            child.tail = None
        move_children(children, old_content)
        holder.text = None
        known = set(holder.nsmap.values())
        opened: list[tuple[Element, Element]] = []
        used: set[int] = set()
        for node, text in nodes:
            common = 0
            while common < min(len(opened), len(node.path)) and opened[common][0] is node.path[common]:
                common += 1
            del opened[common:]
            for old in node.path[common:]:
                new = self._copy(old, opened[-1][1] if opened else holder, known, id(old) in used)
                used.add(id(old))
                opened.append((old, new))
            self._put(opened[-1][1] if opened else holder, node, text)
        remove_element(old_content)

    def _copy(self, old: Element, parent: Element, known: set[str], again: bool) -> Element:
        """Append a copy of an element, without its content, to the parent, around which `known` is declared."""
        names = (name[1:].partition("}")[0] for name in (old.tag, *old.attrib) if name.startswith("{"))
        # Keep the prefix of a namespace that only this element declares.
        new = old.makeelement(old.tag, dict(old.attrib), nsmap=old.nsmap if set(names) - known else None)
        if again:  # an id must stay unique
            for name in ("id", "{http://www.w3.org/XML/1998/namespace}id"):
                new.attrib.pop(name, None)
        parent.append(new)
        self._copy_children(old, new)
        return new

    def _put(self, parent: Element, node: _Node, text: str) -> None:
        if node.fixed or node.breaks:
            if not isinstance(node.content, str):
                node.content.tail = None
                parent.append(node.content)
                return
            text = node.content
        last = next(parent.iterchildren(reversed=True), None)  # constant time, unlike len and indexing
        if self._append_text:
            self._append_text(parent, replace_invalid_characters(text))
        elif last is not None:
            last.tail = (last.tail or "") + replace_invalid_characters(text)
        else:
            parent.text = (parent.text or "") + replace_invalid_characters(text)


def _merge_neighbours(nodes: Iterable[_Node]) -> Iterator[_Node]:
    """Merge neighbouring texts that have the same elements around them."""
    groups: list[list[_Node]] = []
    for node in nodes:
        last = groups[-1][0] if groups else None
        if last and last.is_text and node.is_text and last.path == node.path:
            groups[-1].append(node)
        else:
            groups.append([node])
    for first, *more in groups:
        yield replace(first, shown="".join(node.shown for node in (first, *more))) if more else first


def move_children(children: Iterable[Element], parent: Element) -> None:
    """Move elements of a tree to another place in it.

    The new parent must be in the tree already. If a namespace of a moved element is not declared around its new place,
    lxml declares it anew for every element inside, and the time is quadratic in their number.
    """
    for child in children:
        parent.append(child)


def remove_element(element: Element) -> None:
    """Remove an element with its content and its tail: leaf by leaf, for the same reason."""
    for one in reversed(list(element.iter())):
        one.getparent().remove(one)


def copy_children_with_tags(old: Element, new: Element, *tags: str) -> None:
    """Copy those children that describe formatting."""
    for child in old:
        if child.tag in tags:
            new.append(deepcopy(child))
