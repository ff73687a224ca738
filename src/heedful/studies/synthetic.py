"""A small artificial language with translations, a small treebank, and pictures: enough to see attention work."""

import random
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heedful.data.pairs import Pair
from heedful.storage.files import write_atomically
from heedful.text.trees import TOP, Tree, Word, write_tree

_NOUNS = (
    "apple bird boat book boy cat child city cook cup dog door farmer field fish flower forest friend garden girl "
    "hill horse house king lamp letter man map moon mother river road sea ship star stone table tree wolf woman"
)
_VERBS = "asks builds calls carries draws eats finds follows greets helps hears hides likes meets opens sees"
_ADJECTIVES = "big black blue brave cold dark green happy little loud old quiet red slow small young"
_PREPOSITIONS = "above behind beside near under with"
_JOINTS = "and because but while"
NOUNS, VERBS, ADJECTIVES = _NOUNS.split(), _VERBS.split(), _ADJECTIVES.split()
PREPOSITIONS, JOINTS = _PREPOSITIONS.split(), _JOINTS.split()
_MODIFIED, _PLACED = 0.4, 0.35  # probabilities of an adjective with a noun and of a place in a clause
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_OBJECT = "ka"  # precedes the object


def pairs(count: int, seed: int, clauses: Sequence[int] = (1, 1, 2, 2, 3)) -> list[Pair]:
    """Make random sentences; their numbers of clauses are drawn from `clauses`."""
    draw = random.Random(f"sentences {seed}")
    return [_sentence(draw, draw.choice(clauses)) for _ in range(count)]


def write_corpus(folder: Path, sizes: tuple[int, int, int], clauses: Sequence[int] = (1, 1, 2, 2, 3)) -> None:
    """Write `train.en` and `train.xx`, and the same for `valid` and `test`, with these numbers of pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, count) in enumerate(zip(("train", "valid", "test"), sizes, strict=True)):
        made = pairs(count, seed, clauses)
        write_atomically(folder / f"{name}.en", "".join(f"{pair.source}\n" for pair in made))
        write_atomically(folder / f"{name}.xx", "".join(f"{pair.target}\n" for pair in made))


def comes_from(word: str, english: str) -> bool:
    """Whether an invented word is the translation of this English one; articles and the object marker never are."""
    own = english in (*NOUNS, *VERBS, *PREPOSITIONS, *JOINTS) and word == _word(english)
    return own or (english in ADJECTIVES and word[:-1] == _word(english))


def _sentence(draw: random.Random, clauses: int) -> Pair:
    source, target = _clause(draw)
    for _ in range(clauses - 1):
        joint = draw.choice(JOINTS)
        more_source, more_target = _clause(draw)
        source += [joint, *more_source]
        target += [_word(joint), *more_target]
    return Pair(" ".join(source), " ".join(target))


def _clause(draw: random.Random) -> tuple[list[str], list[str]]:
    subject, its_subject = _noun(draw)
    verb = draw.choice(VERBS)
    object_, its_object = _noun(draw)
    source, target = [*subject, verb, *object_], [*its_subject, _OBJECT, *its_object]
    if draw.random() < _PLACED:
        place, its_place = _noun(draw)
        preposition = draw.choice(PREPOSITIONS)
        source += [preposition, *place]
        target += [*its_place, _word(preposition)]
    return source, [*target, _word(verb)]


def _noun(draw: random.Random) -> tuple[list[str], list[str]]:
    noun = draw.choice(NOUNS)
    article, its_article = draw.choice((("the", "l"), ("a", "n")))
    ending = "o" if NOUNS.index(noun) % 2 else "i"  # its gender
    if draw.random() < _MODIFIED:
        adjective = draw.choice(ADJECTIVES)
        return [article, adjective, noun], [its_article + ending, _word(noun), _word(adjective) + ending]
    return [article, noun], [its_article + ending, _word(noun)]


def _word(english: str) -> str:
    """The invented word for an English one, always the same."""
    draw = random.Random(f"word {english}")
    return "".join(draw.choice(_CONSONANTS) + draw.choice(_VOWELS) for _ in range(3))


_OF_THE_VERB, _OF_THE_NOUN = ("near", "under"), ("with", "of")
_FEWEST, _MOST = 3, 12  # words
# Probabilities in a tree of an object, a place, an adjective and a nested noun phrase.
_TREE_OBJECT, _TREE_PLACE, _TREE_ADJECTIVE, _TREE_NESTED = 0.7, 0.4, 0.3, 0.25


def trees(count: int, seed: int) -> list[Tree]:
    """Make random trees over 3 to 12 words."""
    draw = random.Random(f"trees {seed}")
    found: list[Tree] = []
    while len(found) < count:
        tree = Tree(TOP, (_sentence_tree(draw),))
        if _FEWEST <= len(tree.texts()) <= _MOST:
            found.append(tree)
    return found


def write_treebank(folder: Path, sizes: tuple[int, int, int]) -> None:
    """Write `train.mrg`, `valid.mrg` and `test.mrg` with these numbers of trees."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, count) in enumerate(zip(("train", "valid", "test"), sizes, strict=True)):
        write_atomically(folder / f"{name}.mrg", "".join(f"{write_tree(tree)}\n" for tree in trees(count, seed)))


def _sentence_tree(draw: random.Random) -> Tree:
    subject = _noun_phrase(draw)
    verb: list[Tree | Word] = [Word("VBZ", draw.choice(VERBS))]
    if draw.random() < _TREE_OBJECT:
        verb.append(_noun_phrase(draw))
    if draw.random() < _TREE_PLACE:
        verb.append(_with(draw, _OF_THE_VERB))
    return Tree("S", (subject, Tree("VP", tuple(verb))))


def _noun_phrase(draw: random.Random) -> Tree:
    adjective = [Word("JJ", draw.choice(ADJECTIVES))] if draw.random() < _TREE_ADJECTIVE else []
    plain = Tree("NP", (Word("DT", draw.choice(("the", "a"))), *adjective, Word("NN", draw.choice(NOUNS))))
    if draw.random() >= _TREE_NESTED:
        return plain
    return Tree("NP", (plain, _with(draw, _OF_THE_NOUN)))


def _with(draw: random.Random, prepositions: tuple[str, ...]) -> Tree:
    return Tree("PP", (Word("IN", draw.choice(prepositions)), _noun_phrase(draw)))


_TAGS = {
    **dict.fromkeys(NOUNS, "noun"),
    **dict.fromkeys(VERBS, "verb"),
    **dict.fromkeys(ADJECTIVES, "adjective"),
    **dict.fromkeys(PREPOSITIONS, "preposition"),
    **dict.fromkeys(JOINTS, "conjunction"),
    **dict.fromkeys(("a", "the"), "article"),
}


def write_tags(path: Path, sentences: Sequence[str]) -> None:
    """Write the words of English sentences with their parts of speech, one a line, and an empty line after each."""
    tagged = ("".join(f"{word}\t{_TAGS[word]}\n" for word in sentence.split()) for sentence in sentences)
    write_atomically(path, "\n".join(tagged))


SHAPE_NAMES = ("cross", "ring", "saltire")
PICTURE_SIDE = 24  # pixels
_SHAPE_SIDE = 7
_DARKEST_SHAPE, _BRIGHTEST_GROUND = 170, 110  # values of pixels


def write_shapes(folder: Path, name: str, count: int, seed: int) -> None:
    """Write pictures of a shape anywhere on noise, and its number, as IDX files with names such as MNIST's."""
    draw = np.random.default_rng([seed, count])
    labels = draw.integers(len(SHAPE_NAMES), size=count).astype(np.uint8)
    pixels = draw.integers(_BRIGHTEST_GROUND, size=(count, PICTURE_SIDE, PICTURE_SIDE)).astype(np.uint8)
    shapes = [_draw_shape(shape) for shape in SHAPE_NAMES]
    for picture, label in zip(pixels, labels, strict=True):
        row, column = draw.integers(PICTURE_SIDE - _SHAPE_SIDE + 1, size=2)
        place = picture[row : row + _SHAPE_SIDE, column : column + _SHAPE_SIDE]
        place[shapes[label]] = draw.integers(_DARKEST_SHAPE, 256)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / f"{name}-images-idx3-ubyte", _make_idx(pixels))
    write_atomically(folder / f"{name}-labels-idx1-ubyte", _make_idx(labels))


def _draw_shape(name: str) -> NDArray[np.bool_]:
    """Which pixels of a small square belong to a shape."""
    steps = np.abs(np.arange(_SHAPE_SIDE) - _SHAPE_SIDE // 2)
    rows, columns = np.meshgrid(steps, steps)
    match name:
        case "cross":
            return (rows == 0) | (columns == 0)
        case "saltire":
            return rows == columns
        case _:
            return np.maximum(rows, columns) == _SHAPE_SIDE // 2


def _make_idx(values: NDArray[np.uint8]) -> bytes:
    """An array of bytes in MNIST's IDX format."""
    return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()
