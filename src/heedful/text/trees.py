"""Constituency trees: read and write Penn brackets, and linearise trees for a model that writes symbols.

Reading normalises trees as parsing papers do before they train and score: traces and nodes without words are removed,
`NP-SBJ-1` becomes `NP`, escaped brackets inside words become characters again, and every tree has the root `TOP`.

The linear form is that of Vinyals et al. 2015 (section 3), whose set-up section 6.3 of the paper follows: an opening
bracket with its label, a closing bracket with the same label, and XX for each word, `(S (NP XX )NP (VP XX )VP )S`. It
has no words because the source has them, no tags because brackets are scored without them (Vinyals et al. gained a
point of F1 by leaving them out), and no TOP because every tree has it.

There are two variants. Tags can replace XX, and then tell the model which word it is at. So can the words themselves,
which tell it best. For these, the brackets are letters, `ᐸS ᐸNP she ᐳNP ᐳS`: a tokenizer that is learnt from words
separates punctuation, and would split each bracket into two pieces.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from heedful.errors import DataError

TOP = "TOP"
NO_TAG = "XX"  # the tag of a word whose tag is unknown
DEEPEST = 200  # nested brackets; the treebanks have at most 50, and the functions here are recursive
OPEN, CLOSE = "ᐸ", "ᐳ"  # the brackets of the form with words: two letters of the Canadian syllabics

Bracket = tuple[str, int, int]  # a label, the index of its first word, and the index after its last word

_TOKEN = re.compile(r"[()]|[^\s()]+")
_TOPS = ("", TOP, "ROOT", "S1", "VROOT")
_NO_WORDS = ("-NONE-", "CODE", "ID", "LB")  # traces; and remarks, names and line ends of the historical corpora
_LABEL = re.compile(r"[^\s()]+")
_FUNCTION = re.compile(r"(?<=.)[-=|].*")
_TRACE = re.compile(r"0|\*|\*-\w+|\*[A-Za-z]+\*(-\w+)?")
_HYPHEN = re.compile(r"</?dash/?>")  # a plain hyphen separates word and lemma
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
    """A phrase. It has at least one child, and there is a word below each of them."""

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
        """The words that each phrase spans, outer phrases first; leaves are not phrases."""
        found: list[Bracket] = []
        _collect(self, 0, found)
        return found


@dataclass(slots=True)
class _Open:
    """A bracket that is being read; its label is None until it is known."""

    label: str | None
    children: list["_Open | str"]


def read_trees(lines: Iterable[str], name: str) -> Iterator[Tree]:
    """The trees of a file, whatever its line breaks; trees without words are left out.

    Between two trees, a line that does not begin with a bracket is a header or a comment. After the first tree with an
    `(ID ...)`, leaves are read as IcePaHC writes them: `word-lemma`, and traces in the place of words.
    """
    stack: list[_Open] = []
    number = first_line = 0
    named = False
    for number, line in enumerate(lines, 1):
        if not stack and not line.lstrip().startswith(("(", ")")):
            continue
        for token in _TOKEN.findall(line):
            first_line = first_line if stack else number
            whole = _take(stack, token, f"{name}, line {number}")
            if whole:
                named = named or any(isinstance(child, _Open) and child.label == "ID" for child in whole.children)
                tree = _add_top(whole, named)
                if tree:
                    yield tree
    if stack:
        raise DataError(f"{name}, line {first_line}: the tree that begins here lacks {len(stack)} closing brackets")


def read_tree(text: str, name: str = "tree") -> Tree:
    """The only tree of a text; an error if there are none or several."""
    trees = list(read_trees([text], name))
    if len(trees) != 1:
        raise DataError(f"{name} must be one tree in brackets, but has {len(trees)}: {text[:80]!r}")
    return trees[0]


def is_label(text: str) -> bool:
    """Whether a phrase with this label is read back as it was written."""
    return bool(_LABEL.fullmatch(text)) and text not in (*_TOPS, *_NO_WORDS) and _strip_label(text) == text


def is_tag(text: str) -> bool:
    """Whether a word with this tag is read back as it was written."""
    return bool(_LABEL.fullmatch(text)) and text not in _NO_WORDS


def write_tree(tree: "Tree | Word") -> str:
    """Penn brackets on one line; `read_tree` returns the same tree."""
    if isinstance(tree, Word):
        return f"({tree.tag} {tree.text.translate(_WRITTEN)})"
    return f"({tree.label} {' '.join(map(write_tree, tree.children))})"


def _take(stack: list[_Open], token: str, place: str) -> _Open | None:
    """Read one more token; returns the outermost bracket if this closes it."""
    if token == "(":  # noqa: S105
        if len(stack) == DEEPEST:
            raise DataError(f"{place}: more than {DEEPEST} nested brackets; is a closing bracket missing?")
        if stack and stack[-1].label is None:
            stack[-1].label = ""
        new = _Open(None, [])
        if stack:
            stack[-1].children.append(new)
        stack.append(new)
    elif not stack:
        raise DataError(f"{place}: '{token}' is outside of all trees; is there a closing bracket too many?")
    elif token == ")":  # noqa: S105
        closed = stack.pop()
        return None if stack else closed
    elif stack[-1].label is None:
        stack[-1].label = token
    else:
        stack[-1].children.append(token)
    return None


def _add_top(whole: _Open, named: bool) -> Tree | None:
    """The tree with TOP as its only root; None if it has no words."""
    nodes = _nodes(whole, named)
    while len(nodes) == 1 and isinstance(nodes[0], Tree) and nodes[0].label in _TOPS:
        nodes = nodes[0].children
    return Tree(TOP, nodes) if nodes else None


def _nodes(opened: _Open, named: bool) -> tuple[Tree | Word, ...]:
    """The nodes that a bracket becomes: one, none, or, if it has no label, its children."""
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
    return (Tree(_strip_label(label), children),)


def _strip_label(label: str) -> str:
    """The label without function tags and numbers; labels such as -LRB- have none."""
    return label if label.startswith("-") else _FUNCTION.sub("", label)


def _leaf(tag: str, text: str, named: bool) -> tuple[Word, ...]:
    if named:
        if _TRACE.fullmatch(text):
            return ()
        lemma = _LEMMA.fullmatch(text)
        text = _HYPHEN.sub("-", lemma[1] if lemma else text)
    return (Word(tag, _ESCAPE.sub(lambda found: _ESCAPED[found[0]], text)),)


def _collect(tree: Tree, start: int, found: list[Bracket]) -> int:
    """Add the brackets of a tree that begins at this word; returns the index after its last word."""
    place = len(found)
    found.append((tree.label, start, start))
    end = start
    for child in tree.children:
        end = end + 1 if isinstance(child, Word) else _collect(child, end, found)
    found[place] = (tree.label, start, end)
    return end


# The linear form


def linearise(tree: Tree, *, tags: bool = False) -> str:
    """The symbols of a tree without TOP, separated by spaces."""
    return " ".join(symbol for child in tree.children for symbol in _symbols(child, tags))


def linearise_with_words(tree: Tree) -> str:
    """The linear form with words, whose brackets are letters."""
    return " ".join(symbol for child in tree.children for symbol in _symbols_with_words(child))


def remove_words(words: Sequence[str], symbols: Sequence[str]) -> list[str]:
    """Turn the symbols of `linearise_with_words`, right or wrong, into those of `linearise`, with XX for words."""
    rest, brackets = deque(words), {OPEN: "(", CLOSE: ")"}
    found = []
    for symbol in symbols:
        is_next = bool(rest) and symbol == rest[0]  # a word may begin with the same letter as a bracket
        bracket = None if is_next else brackets.get(symbol[0])
        found.append(bracket + symbol[1:] if bracket else NO_TAG)
        if not bracket and rest:
            rest.popleft()
    return found


def remove_tags(tree: Tree) -> Tree:
    """The tree without tags, as its linear form describes it."""
    return Tree(
        tree.label,
        tuple(Word(NO_TAG, child.text) if isinstance(child, Word) else remove_tags(child) for child in tree.children),
    )


def build_tree(words: Sequence[str], symbols: Sequence[str]) -> Tree | None:
    """The tree over exactly these words that a sequence of symbols describes, even a wrong one; None without words.

    A sequence from `linearise` gives its tree. Of any other, as much as possible is kept:

    - A closing bracket closes the nearest open one with its label, and everything inside it; if there is none, it
      closes the innermost: a wrong label is likelier than an extra bracket.
    - Brackets that are open at the end are closed there.
    - Missing words go where the sequence broke off, or into the last phrase; an extra XX and phrases without words are
      dropped.
    """
    if not words:
        return None
    rest = iter(words)
    stack: list[tuple[str, list[Tree | Word]]] = [(TOP, [])]
    for symbol in symbols:
        label = symbol[1:]
        if symbol.startswith("("):
            if is_label(label) and len(stack) < DEEPEST - 1:  # a word below it has brackets of its own
                stack.append((label, []))
        elif symbol.startswith(")"):
            _close(stack, label)
        else:
            tag = symbol if is_tag(symbol) else NO_TAG
            stack[-1][1].extend(Word(tag, word) for word in [next(rest, None)] if word is not None)
    _add_rest(stack, [Word(NO_TAG, word) for word in rest])
    while len(stack) > 1:
        _close_innermost(stack)
    return Tree(TOP, tuple(stack[0][1]))


def _symbols(node: Tree | Word, tags: bool) -> list[str]:
    if isinstance(node, Word):
        return [node.tag if tags else NO_TAG]
    inside = (symbol for child in node.children for symbol in _symbols(child, tags))
    return [f"({node.label}", *inside, f"){node.label}"]


def _symbols_with_words(node: Tree | Word) -> list[str]:
    if isinstance(node, Word):
        return [node.text]
    inside = (symbol for child in node.children for symbol in _symbols_with_words(child))
    return [OPEN + node.label, *inside, CLOSE + node.label]


def _close(stack: list[tuple[str, list[Tree | Word]]], label: str) -> None:
    names = [name for name, _ in stack[1:]]
    count = names[::-1].index(label) + 1 if label in names else min(1, len(names))
    for _ in range(count):
        _close_innermost(stack)


def _close_innermost(stack: list[tuple[str, list[Tree | Word]]]) -> None:
    label, children = stack.pop()
    if children:
        stack[-1][1].append(Tree(label, tuple(children)))


def _add_rest(stack: list[tuple[str, list[Tree | Word]]], rest: list[Word]) -> None:
    """Add missing words to the open phrase, or else to the last phrase, which is usually the whole sentence."""
    children = stack[-1][1]
    last = children[-1] if children else None
    if len(stack) == 1 and isinstance(last, Tree):
        children[-1] = Tree(last.label, (*last.children, *rest))
    else:
        children.extend(rest)
