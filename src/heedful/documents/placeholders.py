"""Texts of programs and subtitles: tags, and places that are filled in."""

import re
from dataclasses import dataclass
from itertools import islice

from heedful.documents.inline_marks import Leaf, Mark, paired, passage_of, written
from heedful.documents.passages import Passage, Placed
from heedful.documents.safe_input import TooMuch

_MOST = 10_000  # marks in one text
_TAG = r"</?[a-zA-Z][^<>]*+>"
TAG = re.compile(_TAG + r"|<\d[\d:.]*+>|\{\\[^{}]*+\}")  # the last two are of subtitles
# %s %(name)d %1$s %% | {name} {{name}} ${name}
PLACEHOLDER = re.compile(
    r"%(?:\(\w++\)|\d++\$)?+[-+#0]*+\d*+(?:\.\d++)?+[hlL]*+[diouxXeEfFgGcrsa@]\b|%%|\$?\{\{?[\w.:!]*+\}\}?|" + _TAG
)


@dataclass(frozen=True, slots=True)
class Marked:
    """A text as leaves; marks are fixed, and of tags a model is shown nothing."""

    leaves: tuple[Leaf, ...]

    @property
    def passage(self) -> Passage:
        """What is to be translated."""
        return passage_of(self.leaves)

    def joined(self, placed: Placed) -> str:
        """The translation with all marks."""
        return written(self.leaves, placed)


def marked(text: str, marks: "re.Pattern[str]" = PLACEHOLDER, *, pairs: bool = True) -> Marked:
    """Take a text apart at its marks; without pairs each stands alone."""
    found = list(islice(marks.finditer(text), _MOST + 1))
    if len(found) > _MOST:
        raise TooMuch(f"one text of the document has more than {_MOST:,} marks in it; split it")
    closing = paired([mark[0] for mark in found]) if pairs else {}
    closers = set(closing.values())
    path: list[Mark] = []
    leaves: list[Leaf] = []
    last = 0
    for number, mark in enumerate(found):
        if mark.start() > last:
            leaves.append(Leaf(tuple(path), text[last : mark.start()]))
        last = mark.end()
        if number in closing:
            path.append(Mark(number, mark[0], found[closing[number]][0]))
        elif number in closers:
            path.pop()
        else:
            leaves.append(Leaf(tuple(path), "" if TAG.fullmatch(mark[0]) else mark[0], mark[0]))
    if last < len(text):
        leaves.append(Leaf(tuple(path), text[last:]))
    return Marked(tuple(leaves))
