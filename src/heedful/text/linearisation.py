"""Trees as sequences, for a model that writes one symbol after another; and any sequence as a tree.

The form is that of Vinyals et al. 2015 (section 3 there), whose set-up section 6.3 of the paper follows: an opening
bracket with its label, a closing one with the label again, and XX for each word, `(S (NP XX )NP (VP XX )VP )S`. Words
are left out because the source has them; tags, because brackets are scored without them, and Vinyals et al. gained a
point of F1 by it; TOP, because all trees have it.

Tags can stand in the place of XX, for who wants to have them: then each also tells the model which word it is at. So
can the words themselves, which tell it best. For these the brackets are letters, `ᐸS ᐸNP she ᐳNP ᐳS`: a tokenizer
that is learnt from words cuts punctuation off, and would make two pieces of each bracket.
"""

from collections import deque
from collections.abc import Sequence

from heedful.text.trees import DEEPEST, NO_TAG, TOP, Tree, Word, is_label, is_tag

OPEN, CLOSE = "ᐸ", "ᐳ"  # two letters of the Canadian syllabics


def linearise(tree: Tree, *, tags: bool = False) -> str:
    """The symbols of a tree, TOP left out, with spaces between them."""
    return " ".join(symbol for child in tree.children for symbol in _symbols(child, tags))


def with_words(tree: Tree) -> str:
    """The same with the words in it, and with brackets that are letters."""
    return " ".join(symbol for child in tree.children for symbol in _lexical(child))


def without_words(words: Sequence[str], symbols: Sequence[str]) -> list[str]:
    """What `with_words` gives, or anything like it, as `linearise` would have it: XX for words, and brackets."""
    rest, brackets = deque(words), {OPEN: "(", CLOSE: ")"}
    found = []
    for symbol in symbols:
        is_next = bool(rest) and symbol == rest[0]  # a word may begin as a bracket does
        bracket = None if is_next else brackets.get(symbol[0])
        found.append(bracket + symbol[1:] if bracket else NO_TAG)
        if not bracket and rest:
            rest.popleft()
    return found


def untagged(tree: Tree) -> Tree:
    """The same tree as its linear form tells it: without tags."""
    return Tree(
        tree.label,
        tuple(Word(NO_TAG, child.text) if isinstance(child, Word) else untagged(child) for child in tree.children),
    )


def tree_over(words: Sequence[str], symbols: Sequence[str]) -> Tree | None:
    """The tree over exactly these words that a sequence of symbols tells, however wrong it is; None: no words.

    A sequence made by `linearise` gives its tree. Of others as much as possible is kept:

    - A closing bracket closes the nearest open one with its label, and all inside of it; if there is none, the
      innermost: one wrong label is likelier than a bracket that should not be there.
    - What is open at the end is closed there.
    - Words that the sequence does not have are put where it broke off, or into the last phrase; an XX too many and
      phrases without words are dropped.
    """
    if not words:
        return None
    rest = iter(words)
    stack: list[tuple[str, list[Tree | Word]]] = [(TOP, [])]
    for symbol in symbols:
        label = symbol[1:]
        if symbol.startswith("("):
            if is_label(label) and len(stack) < DEEPEST - 1:  # a word below it is in brackets, too
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


def _lexical(node: Tree | Word) -> list[str]:
    if isinstance(node, Word):
        return [node.text]
    inside = (symbol for child in node.children for symbol in _lexical(child))
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
    """Words that the sequence does not have: into what is open, or else into the last phrase, which mostly is all."""
    children = stack[-1][1]
    last = children[-1] if children else None
    if len(stack) == 1 and isinstance(last, Tree):
        children[-1] = Tree(last.label, (*last.children, *rest))
    else:
        children.extend(rest)
