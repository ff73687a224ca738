"""Text with marks in it, as a string: those that open and close, and those that stand alone."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from heedful.documents.passages import Passage, Placed, Run

_DEEPEST = 20  # marks in marks; deeper ones stand alone
_NAME = re.compile(r"</?([a-zA-Z][^\s<>/.]*)")


@dataclass(frozen=True, slots=True)
class Mark:
    """What opens and what closes; the number tells two apart that look the same."""

    number: int
    opens: str
    closes: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """A text, or what stays as it is, and the marks around it, the outermost first."""

    path: tuple[Mark, ...]
    shown: str  # to a model
    fixed: str | None = None  # what is written instead


def passage_of(leaves: Sequence[Leaf]) -> Passage:
    """What is to be translated."""
    return tuple(Run(leaf.shown, leaf.fixed is not None, len(leaf.path)) for leaf in leaves)


def joined_leaves(leaves: Iterable[Leaf]) -> list[Leaf]:
    """Neighbours that look the same as one."""
    groups: list[list[Leaf]] = []
    for leaf in leaves:
        last = groups[-1][0] if groups else None
        if last and leaf.fixed is None and last.fixed is None and last.path == leaf.path:
            groups[-1].append(leaf)
        else:
            groups.append([leaf])
    return [Leaf(first.path, "".join(one.shown for one in (first, *more)), first.fixed) for first, *more in groups]


def paired(tags: Sequence[str]) -> dict[int, int]:
    """Which tags, by their numbers, are closed by which."""
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


def written(leaves: Sequence[Leaf], placed: Placed, escape: Callable[[str], str] = str) -> str:
    """The translation with its marks. They do not open before a space, nor close after one: spaces go out of them."""
    out: list[str] = []
    opened: tuple[Mark, ...] = ()
    owed = ""  # spaces that come after what closes
    for leaf, text in ((leaves[number], text) for number, text in placed):
        common = 0
        while common < min(len(opened), len(leaf.path)) and opened[common] == leaf.path[common]:
            common += 1
        out += [mark.closes for mark in reversed(opened[common:])]
        shown = escape(text) if leaf.fixed is None else leaf.fixed
        opens = leaf.path[common:]
        before = shown[: len(shown) - len(shown.lstrip())] if opens else ""
        out += [owed, before, *(mark.opens for mark in opens)]
        shown = shown[len(before) :]
        owed = shown[len(shown.rstrip()) :] if leaf.path else ""
        out.append(shown[: len(shown) - len(owed)])
        opened = leaf.path
    return "".join([*out, *(mark.closes for mark in reversed(opened)), owed])
