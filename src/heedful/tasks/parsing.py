"""Constituency parsing (section 6.3): a sentence in, its tree out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.config.experiment import BleuTokens
from heedful.data.pairs import Pair, read_lines
from heedful.errors import DataError, counted
from heedful.metrics import Score
from heedful.tasks.task import References, ScoringOptions, Task
from heedful.text.trees import (
    NO_TAG,
    Tree,
    build_tree,
    linearise,
    linearise_with_words,
    read_tree,
    read_trees,
    remove_words,
    write_tree,
)

if TYPE_CHECKING:
    from heedful.metrics.brackets import Parse


def _read_treebank(path: Path) -> Iterator[Pair]:
    """Read trees in Penn brackets: the words of each tree, and the tree on one line."""
    tree = None
    for tree in read_trees(read_lines(path), str(path)):
        yield Pair(" ".join(tree.texts()), write_tree(tree))
    if tree is None:
        raise DataError(f"{path} has no trees; write them in Penn brackets, such as (S (NP (PRP I)) (VP (VBP see)))")


def _write_brackets(tree: str) -> str:
    return linearise(read_tree(tree), tags=False)


def _write_brackets_and_tags(tree: str) -> str:
    return linearise(read_tree(tree), tags=True)


def _write_brackets_and_words(tree: str) -> str:
    return linearise_with_words(read_tree(tree))


def _finish(source: str, output: str) -> str:
    """A tree over exactly the words of the source, however wrong the output is; empty if there are no words."""
    tree = build_tree(source.split(), output.split())
    return write_tree(tree) if tree else ""


def _finish_with_words(source: str, output: str) -> str:
    words = source.split()
    tree = build_tree(words, remove_words(words, output.split()))
    return write_tree(tree) if tree else ""


def _score(outputs: Sequence[str], references: References, options: ScoringOptions) -> list[Score]:
    """Labelled brackets by EVALB's rules, against the first reference of each sentence."""
    from heedful.metrics.brackets import Parse, score_brackets  # imports NumPy, which translating does not need

    if len(outputs) != len(references):
        raise DataError(
            f"{counted(len(outputs), 'tree')} but {counted(len(references), 'reference')}; they must pair up"
        )
    found = [read_tree(output, f"tree {number}") for number, output in enumerate(outputs, 1)]
    right = [read_tree(several[0], f"reference {number}") for number, several in enumerate(references, 1)]
    for number, (ours, theirs) in enumerate(zip(found, right, strict=True), 1):
        if len(ours.texts()) != len(theirs.texts()):
            raise DataError(
                f"tree {number} has {counted(len(ours.texts()), 'word')}, but its reference has {len(theirs.texts())}; "
                "both must be trees of the same sentence"
            )
    rights = [Parse(tuple(tree.brackets()), tree.tags()) for tree in right]
    return score_brackets(list(map(_parse, found)), rights, options.resamples)


def _quick_score(outputs: Sequence[str], references: References, tokenize: BleuTokens) -> Score:
    return _score(outputs, references, ScoringOptions(resamples=1))[0]


def _parse(tree: Tree) -> "Parse":
    """The brackets and tags of an output; a model that writes no tags gets empty ones."""
    from heedful.metrics.brackets import Parse

    tags = tree.tags()
    return Parse(tuple(tree.brackets()), () if set(tags) == {NO_TAG} else tags)


# A tree has several brackets per word; section 6.3 adds 300 to the length of the source.
_LONG_OUTPUTS = {"data": {"max_length": 600}, "search": {"max_extra": 300}}

PARSING = Task(
    name="parsing",
    read_file=_read_treebank,
    target_symbols=_write_brackets,
    finish=_finish,
    target_tokenizer="symbols",
    # Words and brackets share no vocabulary.
    defaults={"model": {"sharing": "target"}, "text": {"vocabularies": "separate"}, **_LONG_OUTPUTS},
    score=_score,
    quick_score=_quick_score,
    quick_metric="F1",
    files="one",
    pipeline_tag="token-classification",
    aligns_words=False,
    writes_trees=True,
)

TAGGED_PARSING = replace(PARSING, name="tagged-parsing", target_symbols=_write_brackets_and_tags)

LEXICAL_PARSING = replace(
    PARSING,
    name="lexical-parsing",
    target_symbols=_write_brackets_and_words,
    finish=_finish_with_words,
    target_tokenizer=None,  # with words between the brackets, the two sides share most of their vocabulary
    defaults=_LONG_OUTPUTS,
    searches_trees=True,
)

TREE_TASKS = (PARSING, TAGGED_PARSING, LEXICAL_PARSING)
