"""Which of a few languages a text is in, by its trigrams of letters.

A library that knows a hundred languages takes longer to load than a sentence takes to be translated. Here only those
are known that there is something to do for, so a text in any other is given to the nearest.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from pathlib import Path

_LONGEST = 2000  # characters that are looked at
_PRIOR = 0.5  # how often a trigram was seen that is in no table, where the rarest there was seen once
# The least log-probability of a trigram, on average, of a text in a language of the table. Of 2000 English and 2000
# German sentences of Tatoeba's it refuses 1 and 2, of 1412 French captions and short lines of news 17, and of 1500
# Icelandic sentences it takes 7; a short sentence in a language near to one of these often passes.
_LEAST, _SLACK = -8.2, 6.0
_TABLE = Path(__file__).with_name("trigrams.json")


class Detector:
    """Knows languages by how often their trigrams were seen; one of which nothing was seen is never found."""

    def __init__(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        self._counts = {code: count for code, count in counts.items() if count}
        kinds = 1 + len({trigram for count in self._counts.values() for trigram in count})
        self._prior = {code: _PRIOR * min(count.values()) for code, count in self._counts.items()}
        self._totals = {
            code: log(sum(count.values()) + self._prior[code] * kinds) for code, count in self._counts.items()
        }

    @property
    def languages(self) -> list[str]:
        """Those that can be found."""
        return list(self._counts)

    def detect(self, text: str, among: Iterable[str] | None = None) -> list[tuple[str, float]]:
        """Languages and the probability of each, the likeliest first; without letters in the text all are alike."""
        known = [code for code in self._counts if among is None or code in among]
        seen = trigrams(text[:_LONGEST])
        logs = {code: self._log_prob(seen, code) for code in known}
        best = max(logs.values(), default=0.0)
        shares = {code: exp(value - best) for code, value in logs.items()}
        total = sum(shares.values())
        return sorted(((code, share / total) for code, share in shares.items()), key=lambda both: -both[1])

    def fits(self, text: str, code: str) -> bool:
        """Whether the text may be in this language at all, of the program's own table; a short one may be in any."""
        seen = trigrams(text[:_LONGEST])
        return self._log_prob(seen, code) >= _LEAST * len(seen) - _SLACK

    def _log_prob(self, seen: Sequence[str], code: str) -> float:
        count, prior = self._counts[code], self._prior[code]
        return sum(log(count.get(trigram, 0) + prior) for trigram in seen) - len(seen) * self._totals[code]


def known_languages() -> dict[str, dict[str, int]]:
    """How often trigrams are seen in the languages that come with the program."""
    table: dict[str, dict[str, int]] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return table


def count_trigrams(texts: Iterable[str]) -> Counter[str]:
    """How often each is in these."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(trigrams(text))
    return counts


def trigrams(text: str) -> list[str]:
    """Of words in small letters, whose ends count as letters."""
    words = "".join(character if character.isalpha() else " " for character in text.lower()).split()
    joined = f" {' '.join(words)} "
    return [joined[place : place + 3] for place in range(len(joined) - 2)] if words else []
