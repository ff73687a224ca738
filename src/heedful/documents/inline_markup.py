"""Inline markup in strings: tags that open and close, and placeholders that stand alone."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from heedful.documents.document import InlineRun, Passage, PlacedRuns
from heedful.documents.safe_parsing import DocumentTooLarge

_MOST_MARKS = 10_000  # in one text
_DEEPEST = 20  # nested tags; deeper ones are treated as if they stood alone
_NAME = re.compile(r"</?([a-zA-Z][^\s<>/.]*)")
_TAG = r"</?[a-zA-Z][^<>]*+>"
TAG = re.compile(_TAG + r"|<\d[\d:.]*+>|\{\\[^{}]*+\}")  # the last two occur in subtitles
# %s %(name)d %1$s %% | {name} {{name}} ${name}
PLACEHOLDER = re.compile(
    r"%(?:\(\w++\)|\d++\$)?+[-+#0]*+\d*+(?:\.\d++)?+[hlL]*+[diouxXeEfFgGcrsa@]\b|%%|\$?\{\{?[\w.:!]*+\}\}?|" + _TAG
)


@dataclass(frozen=True, slots=True)
class TagPair:
    """An opening and a closing tag; the number distinguishes pairs that look the same."""

    number: int
    opens: str
    closes: str


@dataclass(frozen=True, slots=True)
class InlineNode:
    """A piece of text or of fixed markup, and the tags around it, outermost first."""

    path: tuple[TagPair, ...]
    shown: str  # what the model sees
    fixed: str | None = None  # what is written instead of a translation


def make_passage(nodes: Sequence[InlineNode]) -> Passage:
    """The passage to translate, with one run for each node."""
    return tuple(InlineRun(node.shown, node.fixed is not None, len(node.path)) for node in nodes)


def merge_neighbours(nodes: Iterable[InlineNode]) -> list[InlineNode]:
    """Merge neighbouring text nodes that have the same tags around them."""
    groups: list[list[InlineNode]] = []
    for node in nodes:
        last = groups[-1][0] if groups else None
        if last and node.fixed is None and last.fixed is None and last.path == node.path:
            groups[-1].append(node)
        else:
            groups.append([node])
    return [
        InlineNode(first.path, "".join(one.shown for one in (first, *more)), first.fixed) for first, *more in groups
    ]


def match_tags(tags: Sequence[str]) -> dict[int, int]:
    """The index of each opening tag that is closed, and the index of its closing tag."""
    found: dict[int, int] = {}
    opened: list[tuple[str, int]] = []
    count: Counter[str] = Counter()
    for number, tag in enumerate(tags):
        named = _NAME.match(tag)
        if not named or tag.endswith("/>"):
            continue
        name = named[1].lower()
        if not tag.startswith("</") and len(opened) < _DEEPEST:
            opened.append((name, number))
            count[name] += 1
        while tag.startswith("</") and count[name]:
            other, opener = opened.pop()
            count[other] -= 1
            if other == name:
                found[opener] = number
                break
    return found


def write_markup(nodes: Sequence[InlineNode], placed: PlacedRuns, escape: Callable[[str], str] = str) -> str:
    """The translation with its tags. White space next to a tag is moved outside the pair."""
    out: list[str] = []
    opened: tuple[TagPair, ...] = ()
    pending = ""  # white space to write after the closing tags
    for node, text in ((nodes[number], text) for number, text in placed):
        common = 0
        while common < min(len(opened), len(node.path)) and opened[common] == node.path[common]:
            common += 1
        out += [tag.closes for tag in reversed(opened[common:])]
        shown = escape(text) if node.fixed is None else node.fixed
        opens = node.path[common:]
        before = shown[: len(shown) - len(shown.lstrip())] if opens else ""
        out += [pending, before, *(tag.opens for tag in opens)]
        shown = shown[len(before) :]
        pending = shown[len(shown.rstrip()) :] if node.path else ""
        out.append(shown[: len(shown) - len(pending)])
        opened = node.path
    return "".join([*out, *(tag.closes for tag in reversed(opened)), pending])


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A string split into text and marks. Marks are fixed, and the model sees placeholders but no tags."""

    nodes: tuple[InlineNode, ...]

    @property
    def passage(self) -> Passage:
        """The passage to translate."""
        return make_passage(self.nodes)

    def write(self, placed: PlacedRuns) -> str:
        """The translation with all marks."""
        return write_markup(self.nodes, placed)


def parse_markup(text: str, marks: "re.Pattern[str]" = PLACEHOLDER, *, pairs: bool = True) -> MarkedText:
    """Split a text at its marks; without `pairs`, an opening tag is not matched with its closing tag."""
    found = list(islice(marks.finditer(text), _MOST_MARKS + 1))
    if len(found) > _MOST_MARKS:
        raise DocumentTooLarge(f"a text of the document has more than {_MOST_MARKS:,} tags and placeholders; split it")
    closing = match_tags([mark[0] for mark in found]) if pairs else {}
    closers = set(closing.values())
    path: list[TagPair] = []
    nodes: list[InlineNode] = []
    last = 0
    for number, mark in enumerate(found):
        if mark.start() > last:
            nodes.append(InlineNode(tuple(path), text[last : mark.start()]))
        last = mark.end()
        if number in closing:
            path.append(TagPair(number, mark[0], found[closing[number]][0]))
        elif number in closers:
            path.pop()
        else:
            nodes.append(InlineNode(tuple(path), "" if TAG.fullmatch(mark[0]) else mark[0], mark[0]))
    if last < len(text):
        nodes.append(InlineNode(tuple(path), text[last:]))
    return MarkedText(tuple(nodes))
