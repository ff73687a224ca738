"""Which of the languages that are served a text is in, by its trigrams of letters.

The languages are told apart by the validation sentences of the runs themselves. So no other data is needed, and no
other languages are known: a text in none of them is given to the nearest.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import exp, log

_LONGEST = 2000  # characters that are looked at
_PRIOR = 0.1


class Detector:
    """Knows languages by samples of them; one without a sample is never found."""

    def __init__(self, samples: Mapping[str, Sequence[str]]) -> None:
        counts = {code: Counter(_all_trigrams(texts)) for code, texts in samples.items() if texts}
        kinds = 1 + len({trigram for count in counts.values() for trigram in count})
        self.languages = list(counts)
        self._logs = {
            code: {trigram: log(number + _PRIOR) for trigram, number in count.items()} for code, count in counts.items()
        }
        self._totals = {code: log(count.total() + _PRIOR * kinds) for code, count in counts.items()}

    def detect(self, text: str, among: Iterable[str] | None = None) -> list[tuple[str, float]]:
        """Languages and the probability of each, the likeliest first."""
        known = [code for code in self.languages if among is None or code in among]
        trigrams = _trigrams(text[:_LONGEST])
        logs = {
            code: sum(self._logs[code].get(trigram, log(_PRIOR)) - self._totals[code] for trigram in trigrams)
            for code in known
        }
        best = max(logs.values(), default=0.0)
        shares = {code: exp(value - best) for code, value in logs.items()}
        total = sum(shares.values())
        return sorted(((code, share / total) for code, share in shares.items()), key=lambda both: -both[1])


def _all_trigrams(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        yield from _trigrams(text)


def _trigrams(text: str) -> list[str]:
    """Of words in small letters, whose ends count as letters."""
    words = "".join(character if character.isalpha() else " " for character in text.lower()).split()
    joined = f" {' '.join(words)} "
    return [joined[place : place + 3] for place in range(len(joined) - 2)] if words else []
