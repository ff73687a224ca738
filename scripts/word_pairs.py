"""A small dictionary that a parallel corpus contains: words that nearly always translate each other.

People often try a translator with a single word, and few sentences have only one. The probabilities are those of IBM
Model 1 (Brown et al., 1993), in both directions.
"""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
from splits import Pairs

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_ROUNDS = 5
_MIN_COUNT = 8
_MIN_FORWARD, _MIN_BACKWARD = 0.25, 0.15
_MAX_WORDS = 30  # longer sentences say little about single words


@dataclass(frozen=True, slots=True)
class Cases:
    """How the words of a language are usually written inside a sentence."""

    forms: dict[str, str]

    @classmethod
    def of(cls, sentences: list[str]) -> "Cases":
        """Count the forms of all words but the first of each sentence."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for sentence in sentences:
            for word in _WORD.findall(sentence)[1:]:
                counts[word.lower()][word] += 1
        return cls({word: forms.most_common(1)[0][0] for word, forms in counts.items()})

    def restore(self, word: str) -> str:
        """A word in its usual form."""
        return self.forms.get(word.lower(), word)

    def lower_first(self, sentence: str) -> str:
        """The sentence with its first word as inside a sentence."""
        first = _WORD.match(sentence)
        return self.restore(first.group()) + sentence[first.end() :] if first else sentence


def word_pairs(pairs: Pairs, cases: tuple[Cases, Cases]) -> Pairs:
    """Pairs of words, the most frequent first."""
    split = [(_WORD.findall(source.lower()), _WORD.findall(target.lower())) for source, target in pairs]
    tokens = [(source, target) for source, target in split if source and target and len(source) <= _MAX_WORDS]
    counts = Counter(word for source, _ in tokens for word in source)
    forward = _model1([source for source, _ in tokens], [target for _, target in tokens])
    backward = _model1([target for _, target in tokens], [source for source, _ in tokens])
    found: Pairs = []
    for word, count in counts.most_common():
        if count < _MIN_COUNT:
            break
        best = max(forward.get(word, {}).items(), key=lambda item: item[1], default=("", 0.0))
        if best[1] >= _MIN_FORWARD and backward.get(best[0], {}).get(word, 0.0) >= _MIN_BACKWARD:
            found.append((cases[0].restore(word), cases[1].restore(best[0])))
    return found


def _model1(sources: list[list[str]], targets: list[list[str]]) -> dict[str, dict[str, float]]:
    """The probabilities p(target word | source word), without the small ones."""
    names: tuple[dict[str, int], dict[str, int]] = ({}, {})
    rows, slots, slot = [], [], 0
    for source, target in zip(sources, targets, strict=True):
        s = np.array([names[0].setdefault(word, len(names[0])) for word in source], dtype=np.int64)
        t = np.array([names[1].setdefault(word, len(names[1])) for word in target], dtype=np.int64)
        rows.append(((s[:, None] << 32) | t[None, :]).T.ravel())
        slots.append(np.repeat(np.arange(slot, slot + len(t)), len(s)))
        slot += len(t)
    keys, index = np.unique(np.concatenate(rows), return_inverse=True)
    target_slot = np.concatenate(slots)
    source_of = keys >> 32
    p = np.ones(len(keys))
    for _ in range(_ROUNDS):
        mass = p[index]
        share = mass / np.bincount(target_slot, mass)[target_slot]
        counted = np.bincount(index, share, minlength=len(keys))
        p = counted / np.bincount(source_of, counted)[source_of]
    words = [{number: word for word, number in one.items()} for one in names]
    table: dict[str, dict[str, float]] = defaultdict(dict)
    for key, probability in zip(keys[p > 0.1].tolist(), p[p > 0.1].tolist(), strict=True):
        table[words[0][key >> 32]][words[1][key & 0xFFFFFFFF]] = probability
    return table
