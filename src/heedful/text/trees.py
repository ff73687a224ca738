"""Constituency trees: Penn brackets in, one plain form inside, Penn brackets out.

What is read is made alike, as parsing papers do it before they train and score: traces and nodes without words are
gone, `NP-SBJ-1` is `NP`, brackets inside words are characters again, and every tree hangs below one `TOP`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from heedful.errors import DataError

TOP = "TOP"
NO_TAG = "XX"  # of a word whose tag is not known
DEEPEST = 200  # brackets inside each other; the treebanks have at most 50, and functions here call themselves

Bracket = tuple[str, int, int]  # a label, its first word, and the word behind its last

_TOKEN = re.compile(r"[()]|[^\s()]+")
_TOPS = ("", TOP, "ROOT", "S1", "VROOT")
_NO_WORDS = ("-NONE-", "CODE", "ID", "LB")  # traces; remarks, names and ends of lines in the historical corpora
_LABEL = re.compile(r"[^\s()]+")
_FUNCTION = re.compile(r"(?<=.)[-=|].*")
_TRACE = re.compile(r"0|\*|\*-\w+|\*[A-Za-z]+\*(-\w+)?")
_HYPHEN = re.compile(r"</?dash/?>")  # a bare one would part word and lemma
_LEMMA = re.compile(r"(.[^-]*)-.+")
_ESCAPED = {"-LRB-": "(", "-RRB-": ")", "-LCB-": "{", "-RCB-": "}", "-LSB-": "[", "-RSB-": "]", r"\/": "/", r"\*": "*"}
_ESCAPE = re.compile("|".join(map(re.escape, _ESCAPED)))
_WRITTEN = str.maketrans({"(": "-LRB-", ")": "-RRB-"})


@dataclass(frozen=True, slots=True)
class Word:
    """A leaf: a word and its part of speech."""

    tag: str
    text: str


@dataclass(frozen=True, slots=True)
class Tree:
    """A phrase. Its children are never none, and some word is below each of them."""

    label: str
    children: tuple["Tree | Word", ...]

    def words(self) -> Iterator[Word]:
        """The leaves from left to right."""
        for child in self.children:
            if isinstance(child, Word):
                yield child
            else:
                yield from child.words()

    def texts(self) -> tuple[str, ...]:
        """The sentence."""
        return tuple(word.text for word in self.words())

    def tags(self) -> tuple[str, ...]:
        """The part of speech of each word."""
        return tuple(word.tag for word in self.words())

    def brackets(self) -> list[Bracket]:
        """Which words each phrase spans, the outer ones first; leaves are no phrases."""
        found: list[Bracket] = []
        _collect(self, 0, found)
        return found


@dataclass(slots=True)
class _Open:
    """A bracket that is being read; no label yet is None."""

    label: str | None
    children: list["_Open | str"]


def read_trees(lines: Iterable[str], name: str) -> Iterator[Tree]:
    """The trees of a file, however they are broken into lines; those without a word are left out.

    Between two trees, a line that does not begin with a bracket is a header or a comment. From the first tree on that
    has an `(ID ...)`, leaves are read as IcePaHC writes them: `word-lemma`, and traces stand where words do.
    """
    stack: list[_Open] = []
    number = begun = 0
    named = False
    for number, line in enumerate(lines, 1):
        if not stack and not line.lstrip().startswith(("(", ")")):
            continue
        for token in _TOKEN.findall(line):
            begun = begun if stack else number
            whole = _take(stack, token, f"{name}, line {number}")
            if whole:
                named = named or any(isinstance(child, _Open) and child.label == "ID" for child in whole.children)
                tree = _topped(whole, named)
                if tree:
                    yield tree
    if stack:
        raise DataError(f"{name}, line {begun}: the tree that begins here lacks {len(stack)} closing brackets")


def read_tree(text: str, name: str = "tree") -> Tree:
    """The one tree of a text."""
    trees = list(read_trees([text], name))
    if len(trees) != 1:
        raise DataError(f"{name} must be one tree in brackets, but holds {len(trees)}: {text[:80]!r}")
    return trees[0]


def is_label(text: str) -> bool:
    """Whether a phrase of this label is read again as it was written."""
    return bool(_LABEL.fullmatch(text)) and text not in (*_TOPS, *_NO_WORDS) and _stripped(text) == text


def is_tag(text: str) -> bool:
    """Whether a word of this tag is read again as it was written."""
    return bool(_LABEL.fullmatch(text)) and text not in _NO_WORDS


def write_tree(tree: "Tree | Word") -> str:
    """Penn brackets on one line; `read_tree` gives the same tree again."""
    if isinstance(tree, Word):
        return f"({tree.tag} {tree.text.translate(_WRITTEN)})"
    return f"({tree.label} {' '.join(map(write_tree, tree.children))})"


def _take(stack: list[_Open], token: str, place: str) -> _Open | None:
    """One token more; gives the outermost bracket when this closes it."""
    if token == "(":  # noqa: S105
        if len(stack) == DEEPEST:
            raise DataError(f"{place}: more than {DEEPEST} brackets inside each other; is a closing one missing?")
        if stack and stack[-1].label is None:
            stack[-1].label = ""
        new = _Open(None, [])
        if stack:
            stack[-1].children.append(new)
        stack.append(new)
    elif not stack:
        raise DataError(f"{place}: '{token}' stands outside of all trees; is there a closing bracket too many?")
    elif token == ")":  # noqa: S105
        closed = stack.pop()
        return None if stack else closed
    elif stack[-1].label is None:
        stack[-1].label = token
    else:
        stack[-1].children.append(token)
    return None


def _topped(whole: _Open, named: bool) -> Tree | None:
    """The tree below one TOP, whatever stood there; None: it has no words."""
    nodes = _nodes(whole, named)
    while len(nodes) == 1 and isinstance(nodes[0], Tree) and nodes[0].label in _TOPS:
        nodes = nodes[0].children
    return Tree(TOP, nodes) if nodes else None


def _nodes(opened: _Open, named: bool) -> tuple[Tree | Word, ...]:
    """What becomes of a bracket: a node, nothing, or, where it has no label, its children."""
    label = opened.label or ""
    if label in _NO_WORDS:
        return ()
    match opened.children:
        case [str(text)]:
            return _leaf(label or NO_TAG, text, named)
    children = tuple(
        node
        for child in opened.children
        for node in (_leaf(NO_TAG, child, named) if isinstance(child, str) else _nodes(child, named))
    )
    if not label or not children:
        return children
    return (Tree(_stripped(label), children),)


def _stripped(label: str) -> str:
    """Without function tags and numbers; -LRB- and its like have none."""
    return label if label.startswith("-") else _FUNCTION.sub("", label)


def _leaf(tag: str, text: str, named: bool) -> tuple[Word, ...]:
    if named:
        if _TRACE.fullmatch(text):
            return ()
        lemma = _LEMMA.fullmatch(text)
        text = _HYPHEN.sub("-", lemma[1] if lemma else text)
    return (Word(tag, _ESCAPE.sub(lambda found: _ESCAPED[found[0]], text)),)


def _collect(tree: Tree, start: int, found: list[Bracket]) -> int:
    """Add the brackets of a tree that begins at this word; gives the word behind it."""
    place = len(found)
    found.append((tree.label, start, start))
    end = start
    for child in tree.children:
        end = end + 1 if isinstance(child, Word) else _collect(child, end, found)
    found[place] = (tree.label, start, end)
    return end
