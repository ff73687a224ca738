"""Sentences and their trees from a small random grammar, in Penn brackets: enough to see a parser work.

The words tell their tags, but a phrase behind another noun may belong to that noun or to the verb, and only the
preposition tells which, so a parser has to look at it.
"""

import random
from pathlib import Path

from heedful.storage.files import write_atomically
from heedful.studies.synthetic import ADJECTIVES, NOUNS, VERBS
from heedful.text.trees import TOP, Tree, Word, write_tree

_OF_THE_VERB, _OF_THE_NOUN = ("near", "under"), ("with", "of")
_FEWEST, _MOST = 3, 12  # words
_OBJECTS, _PLACES, _MODIFIED, _NESTED = 0.7, 0.4, 0.3, 0.25  # how often


def trees(count: int, seed: int) -> list[Tree]:
    """Random trees over 3 to 12 words."""
    draw = random.Random(f"trees {seed}")
    found: list[Tree] = []
    while len(found) < count:
        tree = Tree(TOP, (_sentence(draw),))
        if _FEWEST <= len(tree.texts()) <= _MOST:
            found.append(tree)
    return found


def write_treebank(folder: Path, sizes: tuple[int, int, int]) -> None:
    """The files `train.mrg`, `valid.mrg` and `test.mrg`, of so many trees."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, count) in enumerate(zip(("train", "valid", "test"), sizes, strict=True)):
        write_atomically(folder / f"{name}.mrg", "".join(f"{write_tree(tree)}\n" for tree in trees(count, seed)))


def _sentence(draw: random.Random) -> Tree:
    subject = _noun_phrase(draw)
    verb: list[Tree | Word] = [Word("VBZ", draw.choice(VERBS))]
    if draw.random() < _OBJECTS:
        verb.append(_noun_phrase(draw))
    if draw.random() < _PLACES:
        verb.append(_with(draw, _OF_THE_VERB))
    return Tree("S", (subject, Tree("VP", tuple(verb))))


def _noun_phrase(draw: random.Random) -> Tree:
    adjective = [Word("JJ", draw.choice(ADJECTIVES))] if draw.random() < _MODIFIED else []
    plain = Tree("NP", (Word("DT", draw.choice(("the", "a"))), *adjective, Word("NN", draw.choice(NOUNS))))
    if draw.random() >= _NESTED:
        return plain
    return Tree("NP", (plain, _with(draw, _OF_THE_NOUN)))


def _with(draw: random.Random, prepositions: tuple[str, ...]) -> Tree:
    return Tree("PP", (Word("IN", draw.choice(prepositions)), _noun_phrase(draw)))
