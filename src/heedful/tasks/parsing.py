"""Constituency parsing (section 6.3): a sentence in, its tree out."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.data.pairs import Pair, read_lines
from heedful.errors import DataError
from heedful.metrics.score import Score
from heedful.text.linearisation import linearise, tree_over, with_words, without_words
from heedful.text.trees import NO_TAG, Tree, read_tree, read_trees, write_tree

if TYPE_CHECKING:
    from heedful.metrics.brackets import Parse


def read(path: Path) -> Iterator[Pair]:
    """The trees of a file in Penn brackets: the words, and the tree on one line."""
    tree = None
    for tree in read_trees(read_lines(path), str(path)):
        yield Pair(" ".join(tree.texts()), write_tree(tree))
    if tree is None:
        raise DataError(f"{path} holds no tree; it must be in Penn brackets, such as (S (NP (PRP I)) (VP (VBP see)))")


def target_symbols(tree: str, *, tags: bool = False, words: bool = False) -> str:
    """A tree on one line in the linear form that the model writes."""
    return with_words(read_tree(tree)) if words else linearise(read_tree(tree), tags=tags)


def finish(source: str, output: str, *, words: bool = False) -> str:
    """A tree over exactly the words of the source, however wrong the output is; of no words nothing."""
    own, symbols = source.split(), output.split()
    tree = tree_over(own, without_words(own, symbols) if words else symbols)
    return write_tree(tree) if tree else ""


def scores(outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int) -> list[Score]:
    """Labelled brackets by EVALB's rules, against the first reference of each sentence."""
    from heedful.metrics.brackets import Parse, bracket_scores  # with NumPy, which translating need not wait for

    if len(outputs) != len(references):
        raise DataError(f"there are {len(outputs)} trees but {len(references)} references; they must pair up")
    found = [read_tree(output, f"tree {number}") for number, output in enumerate(outputs, 1)]
    right = [read_tree(several[0], f"reference {number}") for number, several in enumerate(references, 1)]
    for number, (ours, theirs) in enumerate(zip(found, right, strict=True), 1):
        if len(ours.texts()) != len(theirs.texts()):
            raise DataError(
                f"tree {number} has {len(ours.texts())} words but its reference {len(theirs.texts())}; "
                "both must be of the same sentence"
            )
    rights = [Parse(tuple(tree.brackets()), tree.tags()) for tree in right]
    return bracket_scores(list(map(_parse, found)), rights, resamples)


def _parse(tree: Tree) -> "Parse":
    """An output; a model may write no tags. Of a reference without tags no word is punctuation, and all count."""
    from heedful.metrics.brackets import Parse

    tags = tree.tags()
    return Parse(tuple(tree.brackets()), () if set(tags) == {NO_TAG} else tags)
