"""Score parses: labelled brackets by the rules of EVALB (Sekine and Collins) with COLLINS.prm.

- TOP and traces do not count, nor does a bracket that has no words.
- Punctuation, as tagged in the reference, is removed before spans are compared. EVALB reads each file's own tags and
  skips a sentence where they differ; wherever EVALB gives a number, it is the same as ours.
- ADVP and PRT count as the same label. Function tags do not count.
- If the same bracket occurs n times on one side and m times on the other, the smaller number matches.
- A sentence with nothing but punctuation is left out.
- Sentences of all lengths count; scores are computed from sums over the corpus.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate

import numpy as np

from heedful.errors import DataError, counted
from heedful.metrics import Score
from heedful.metrics.bootstrap import Counts, bootstrap_score, percent

Bracket = tuple[str, int, int]  # a label, its first word, and the word after its last

_SIGNATURE = "evalb:COLLINS.prm|labelled|punctuation:by-reference-tags|lengths:all"
_DELETED = frozenset({"TOP", "-NONE-", ",", ":", "``", "''", "."})
_SAME = {"PRT": "ADVP"}
_FUNCTION = re.compile(r"(?<=.)[-=].*")


@dataclass(frozen=True, slots=True)
class Parse:
    """The scored parts of a tree: its brackets and the tags of its words, which are empty if unknown."""

    brackets: tuple[Bracket, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BracketCounts:
    """Counts over one sentence, or summed over many."""

    matched: int
    found: int
    wanted: int
    crossing: int  # found brackets that cross a bracket of the reference
    right_tags: int
    words: int
    complete: int  # sentences whose brackets all match
    sentences: int


def score_brackets(found: Sequence[Parse], references: Sequence[Parse], resamples: int = 1000) -> list[Score]:
    """F1, precision, recall, complete matches, crossing brackets per sentence, and tags if all are known."""
    if len(found) != len(references):
        raise DataError(f"{counted(len(found), 'tree')} but {counted(len(references), 'reference')}; they must pair up")
    each = [count_brackets(ours, right) for ours, right in zip(found, references, strict=True)]
    counts = np.array([astuple(count) for count in each if count.sentences], dtype=np.float64)
    if not len(counts):
        raise DataError("there are no trees to score; the test set has no words")
    scores = [
        bootstrap_score(name, counts, value, _SIGNATURE, resamples)
        for name, value in (("F1", _f1), ("precision", _precision), ("recall", _recall), ("complete", _complete))
    ]
    scores.append(bootstrap_score("crossing", counts, lambda sums: float(sums[3] / sums[7]), _SIGNATURE, resamples))
    if all(parse.tags for parse in found):
        tagged = bootstrap_score("tags", counts, lambda sums: percent(sums[4], sums[5]), _SIGNATURE, resamples)
        scores.append(tagged)
    return scores


def count_brackets(found: Parse, reference: Parse) -> BracketCounts:
    """Compare two parses of one sentence; all counts are zero if it has nothing but punctuation."""
    kept = [tag not in _DELETED for tag in reference.tags]
    if not any(kept):
        return BracketCounts(0, 0, 0, 0, 0, 0, 0, 0)
    ours, right = _scored_brackets(found.brackets, kept), _scored_brackets(reference.brackets, kept)
    matched = (ours & right).total()
    crossing = sum(number for bracket, number in ours.items() if any(_cross(bracket, other) for other in right))
    tags = zip(found.tags, reference.tags, kept, strict=True) if found.tags else ()
    return BracketCounts(
        matched,
        ours.total(),
        right.total(),
        crossing,
        sum(keep and mine == theirs for mine, theirs, keep in tags),
        sum(kept),
        int(matched == ours.total() == right.total()),
        1,
    )


def _scored_brackets(brackets: Sequence[Bracket], kept: Sequence[bool]) -> Counter[Bracket]:
    """The brackets that count, with spans over the words that count."""
    place = list(accumulate(kept, initial=0))
    plain = ((_plain(label), place[start], place[end]) for label, start, end in brackets)
    return Counter((label, start, end) for label, start, end in plain if start < end and label not in _DELETED)


def _plain(label: str) -> str:
    name = label if label.startswith("-") else _FUNCTION.sub("", label)
    return _SAME.get(name, name)


def _cross(one: Bracket, other: Bracket) -> bool:
    (_, a, b), (_, c, d) = one, other
    return a < c < b < d or c < a < d < b


def _precision(sums: Counts) -> float:
    return percent(sums[0], sums[1])


def _recall(sums: Counts) -> float:
    return percent(sums[0], sums[2])


def _f1(sums: Counts) -> float:
    return percent(2 * sums[0], sums[1] + sums[2])


def _complete(sums: Counts) -> float:
    return percent(sums[6], sums[7])
