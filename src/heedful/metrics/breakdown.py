"""Scores of parts of a test set: of sentences by their length, of words by their frequency."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heedful.config.experiment import BleuTokens
from heedful.metrics.bleu import bleu
from heedful.metrics.interval import percent

LENGTHS = (5, 10, 15, 20, 25, 30, 40, 50)  # words of a sentence
FREQUENCIES = (0, 1, 4, 9, 99, 999)  # how often a word was seen

Words = Sequence[Sequence[str]]  # of each line


@dataclass(frozen=True, slots=True)
class Bucket:
    """Things of about the same size: over the limit of the bucket before, and up to this one."""

    name: str
    limit: float
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartScore:
    """What is in a bucket, and how well each system does there."""

    name: str
    count: int
    values: tuple[float, ...]


def buckets(sizes: Sequence[int], limits: Sequence[int]) -> list[Bucket]:
    """Everything in the bucket of its size; those that are empty are left out."""
    places: dict[int, list[int]] = {}
    for place, size in enumerate(sizes):
        places.setdefault(bisect_left(limits, size), []).append(place)
    ends = [*limits, math.inf]
    return [Bucket(_name(number, limits), ends[number], tuple(places[number])) for number in sorted(places)]


def bucket_of(size: int, limits: Sequence[int]) -> str:
    """The name of the bucket that something of this size is in."""
    return _name(bisect_left(limits, size), limits)


def bleu_in(
    places: Sequence[int], outputs: Sequence[str], references: Sequence[Sequence[str]], tokenize: BleuTokens
) -> float:
    """BLEU of these sentences alone; `references` holds one list for each set."""
    chosen = [[lines[place] for place in places] for lines in references]
    return bleu([outputs[place] for place in places], chosen, tokenize)


def f1_by_frequency(systems: Sequence[Words], reference: Words, frequency: Mapping[str, int]) -> list[PartScore]:
    """How well words are found that are so frequent: F1 of precision and recall, in %.

    Within a sentence a word counts as right as often as the reference has it, wherever it stands. What the reference
    has no words of is left out.
    """
    wanted, _ = _tally(reference, reference, frequency)
    found = [_tally(words, reference, frequency) for words in systems]
    return [
        PartScore(
            _name(number, FREQUENCIES),
            wanted[number],
            tuple(percent(2 * right[number], said[number] + wanted[number]) for said, right in found),
        )
        for number in sorted(wanted)
    ]


def _tally(words: Words, reference: Words, frequency: Mapping[str, int]) -> tuple[Counter[int], Counter[int]]:
    """How many words of each bucket there are, and how many of them are right."""
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
