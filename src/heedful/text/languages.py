"""The names of languages, and a detector that recognises a few of them by letter trigrams.

A library that knows a hundred languages takes longer to load than a sentence takes to translate. This detector knows
only the languages that there are models for, and assigns any other text to the nearest of them.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from pathlib import Path

_LONGEST = 2000  # characters to detect by
_PRIOR = 0.5  # the count of a trigram that is in no table, relative to the rarest one in it
# The lowest mean log-probability of the trigrams of a text in a language of the table. With it, 1 of 2000 English and
# 2 of 2000 German sentences of Tatoeba are rejected, and 17 of 1412 French captions and short lines of news; 7 of 1500
# Icelandic sentences are accepted. A short sentence in a similar language is often accepted.
_LEAST, _SLACK = -8.2, 6.0
_TABLE = Path(__file__).with_name("trigrams.json")


class Detector:
    """Detects languages by the counts of their trigrams; a language without counts is never detected."""

    def __init__(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        self._counts = {code: count for code, count in counts.items() if count}
        kinds = 1 + len({trigram for count in self._counts.values() for trigram in count})
        self._prior = {code: _PRIOR * min(count.values()) for code, count in self._counts.items()}
        self._totals = {
            code: log(sum(count.values()) + self._prior[code] * kinds) for code, count in self._counts.items()
        }

    @property
    def languages(self) -> list[str]:
        """The languages that can be detected."""
        return list(self._counts)

    def detect(self, text: str, among: Iterable[str] | None = None) -> list[tuple[str, float]]:
        """Languages and their probabilities, the likeliest first; all are equally likely if the text has no letters."""
        known = [code for code in self._counts if among is None or code in among]
        seen = trigrams(text[:_LONGEST])
        logs = {code: self._log_prob(seen, code) for code in known}
        best = max(logs.values(), default=0.0)
        shares = {code: exp(value - best) for code, value in logs.items()}
        total = sum(shares.values())
        return sorted(((code, share / total) for code, share in shares.items()), key=lambda both: -both[1])

    def fits(self, text: str, code: str) -> bool:
        """Whether the text can be in this language of the built-in table; a very short text can be in any."""
        seen = trigrams(text[:_LONGEST])
        return self._log_prob(seen, code) >= _LEAST * len(seen) - _SLACK

    def _log_prob(self, seen: Sequence[str], code: str) -> float:
        count, prior = self._counts[code], self._prior[code]
        return sum(log(count.get(trigram, 0) + prior) for trigram in seen) - len(seen) * self._totals[code]


def known_languages() -> dict[str, dict[str, int]]:
    """The trigram counts of the built-in languages."""
    table: dict[str, dict[str, int]] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return table


def count_trigrams(texts: Iterable[str]) -> Counter[str]:
    """How often each trigram occurs in the texts."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(trigrams(text))
    return counts


def trigrams(text: str) -> list[str]:
    """The letter trigrams of a text in lower case; the ends of words count as letters."""
    words = "".join(character if character.isalpha() else " " for character in text.lower()).split()
    joined = f" {' '.join(words)} "
    return [joined[place : place + 3] for place in range(len(joined) - 2)] if words else []


_NAMES = """
af Afrikaans, ar Arabic, az Azerbaijani, be Belarusian, bg Bulgarian, bn Bengali, bs Bosnian, ca Catalan, cs Czech,
cy Welsh, da Danish, de German, el Greek, en English, eo Esperanto, es Spanish, et Estonian, eu Basque, fa Persian,
fi Finnish, fr French, ga Irish, gl Galician, gu Gujarati, ha Hausa, he Hebrew, hi Hindi, hr Croatian, hu Hungarian,
hy Armenian, id Indonesian, ig Igbo, is Icelandic, it Italian, ja Japanese, ka Georgian, kk Kazakh, km Khmer,
kn Kannada, ko Korean, ky Kyrgyz, la Latin, lb Luxembourgish, lo Lao, lt Lithuanian, lv Latvian, mk Macedonian,
ml Malayalam, mn Mongolian, mr Marathi, ms Malay, mt Maltese, my Burmese, nb Norwegian, ne Nepali, nl Dutch,
nn Nynorsk, no Norwegian, pa Punjabi, pl Polish, ps Pashto, pt Portuguese, ro Romanian, ru Russian, si Sinhala,
sk Slovak, sl Slovenian, so Somali, sq Albanian, sr Serbian, sv Swedish, sw Swahili, ta Tamil, te Telugu, th Thai,
tl Tagalog, tr Turkish, uk Ukrainian, ur Urdu, uz Uzbek, vi Vietnamese, xh Xhosa, yi Yiddish, yo Yoruba, zh Chinese,
zu Zulu
"""
_KNOWN: dict[str, str] = dict(entry.split() for entry in _NAMES.split(","))


def language_name(code: str) -> str:
    """The English name of a language, or the code if it has no name here."""
    return _KNOWN.get(code, code)


def language_code(name: str) -> str:
    """The code of a language that is given by its code or its English name."""
    small = name.strip().lower()
    return next((code for code, known in _KNOWN.items() if known.lower() == small), small)
