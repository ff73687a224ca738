"""Variants of sentence pairs as people type them: without punctuation, in capitals, several in one line, mistyped."""

import random
from collections.abc import Iterator, Sequence

from splits import Pairs
from word_pairs import Cases

_SHORT = 4  # words; people often type such texts without punctuation
_BARE, _BARE_SHORT, _LOWER, _LOWER_SHORT = 0.04, 0.4, 0.04, 0.3
_CALM, _CAPITALS, _TWO, _THREE, _TYPO = 0.5, 0.02, 0.06, 0.02, 0.03
_ENDS = ".!?…"


def with_variants(pairs: Sequence[tuple[str, str]], cases: tuple[Cases, Cases], seed: int = 1) -> Pairs:
    """All pairs, followed by variants of some of them."""
    return [*pairs, *_variants(pairs, cases, random.Random(seed))]


def _variants(
    pairs: Sequence[tuple[str, str]], cases: tuple[Cases, Cases], draw: random.Random
) -> Iterator[tuple[str, str]]:
    for number, (source, target) in enumerate(pairs):
        short = len(source.split()) <= _SHORT
        ends = source[-1:] in _ENDS and target[-1:] in _ENDS
        if ends and draw.random() < (_BARE_SHORT if short else _BARE):
            yield bare(source), bare(target)
        if ends and draw.random() < (_LOWER_SHORT if short else _LOWER):
            yield bare(source).lower(), cases[1].lower_first(bare(target))
        if short and source[-1:] == target[-1:] == "!" and draw.random() < _CALM:
            yield bare(source) + ".", bare(target) + "."
        if draw.random() < _CAPITALS and "{" not in source and "%" not in source:
            yield source.upper(), target.upper()
        if ends and draw.random() < _TWO:
            yield _joined([(source, target), *_others(pairs, number, 1, draw)])
        if ends and draw.random() < _THREE:
            yield _joined([(source, target), *_others(pairs, number, 2, draw)])
        if draw.random() < _TYPO and (mistyped := _mistyped(source, draw)) != source:
            yield mistyped, target


def bare(text: str) -> str:
    """The text without punctuation at its ends."""
    return text.strip(_ENDS + " ¿¡")


def _others(pairs: Sequence[tuple[str, str]], number: int, count: int, draw: random.Random) -> Pairs:
    """Sentences that may follow: neighbours are often about the same thing, and others are drawn."""
    found: Pairs = []
    while len(found) < count:
        near = number + draw.randint(1, 40)
        pair = pairs[near] if near < len(pairs) and draw.random() < 0.5 else draw.choice(pairs)
        if pair[0][-1:] in _ENDS and pair[1][-1:] in _ENDS and len(pair[0].split()) <= 20:
            found.append(pair)
    return found


def _joined(pairs: Pairs) -> tuple[str, str]:
    return " ".join(source for source, _ in pairs), " ".join(target for _, target in pairs)


def _mistyped(text: str, draw: random.Random) -> str:
    """One letter of one longer word is missing, doubled or swapped with the next."""
    words = text.split(" ")
    long = [index for index, word in enumerate(words) if len(word) > 4 and word.isalpha()]
    if not long:
        return text
    index = draw.choice(long)
    word, at = words[index], draw.randint(1, len(words[index]) - 2)
    words[index] = draw.choice(
        (
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        )
    )
    return " ".join(words)
