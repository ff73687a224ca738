"""Scores of parts of a test set: sentences by length, words by frequency."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heedful.config.experiment import BleuTokens
from heedful.metrics.bleu import bleu
from heedful.metrics.bootstrap import percent

LENGTHS = (5, 10, 15, 20, 25, 30, 40, 50)  # words of a sentence
FREQUENCIES = (0, 1, 4, 9, 99, 999)  # how often a word occurs

Words = Sequence[Sequence[str]]  # of each line


@dataclass(frozen=True, slots=True)
class Bucket:
    """Items of similar size: above the limit of the previous bucket, up to the limit of this one."""

    name: str
    limit: float
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BucketScore:
    """The number of items in a bucket, and each system's score on them."""

    name: str
    count: int
    values: tuple[float, ...]


def make_buckets(sizes: Sequence[int], limits: Sequence[int]) -> list[Bucket]:
    """Sort items into buckets by size; empty buckets are left out."""
    places: dict[int, list[int]] = {}
    for place, size in enumerate(sizes):
        places.setdefault(bisect_left(limits, size), []).append(place)
    ends = [*limits, math.inf]
    return [Bucket(_name(number, limits), ends[number], tuple(places[number])) for number in sorted(places)]


def name_bucket(size: int, limits: Sequence[int]) -> str:
    """The name of the bucket for this size."""
    return _name(bisect_left(limits, size), limits)


def partial_bleu(
    places: Sequence[int], outputs: Sequence[str], references: Sequence[Sequence[str]], tokenize: BleuTokens
) -> float:
    """BLEU of the sentences at these places; `references` holds one list for each set."""
    chosen = [[lines[place] for place in places] for lines in references]
    return bleu([outputs[place] for place in places], chosen, tokenize)


def f1_by_frequency(systems: Sequence[Words], reference: Words, frequency: Mapping[str, int]) -> list[BucketScore]:
    """F1 of words in %, by their frequency.

    A word counts as correct at most as often as it occurs in the reference sentence, in any position. Buckets without
    words in the reference are left out.
    """
    wanted, _ = _tally(reference, reference, frequency)
    found = [_tally(words, reference, frequency) for words in systems]
    return [
        BucketScore(
            _name(number, FREQUENCIES),
            wanted[number],
            tuple(percent(2 * right[number], said[number] + wanted[number]) for said, right in found),
        )
        for number in sorted(wanted)
    ]


def _tally(words: Words, reference: Words, frequency: Mapping[str, int]) -> tuple[Counter[int], Counter[int]]:
    """The number of words in each bucket, and how many of them are correct."""
    said: Counter[int] = Counter()
    right: Counter[int] = Counter()
    for mine, theirs in zip(words, reference, strict=True):
        counts = Counter(mine)
        for tally, several in ((said, counts), (right, counts & Counter(theirs))):
            for word, count in several.items():
                tally[bisect_left(FREQUENCIES, frequency.get(word, 0))] += count
    return said, right


def _name(number: int, limits: Sequence[int]) -> str:
    if number == len(limits):
        return f"over {limits[-1]}"
    first, last = limits[number - 1] + 1 if number else 0, limits[number]
    if first == last:
        return str(last)
    return f"{first} to {last}" if first else f"up to {last}"
