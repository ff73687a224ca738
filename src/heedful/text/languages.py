"""The names of languages, and a detector that recognises some of them and says when a text is in none.

Each language is a model of words: a word is either one of its frequent words, or is spelt letter by letter, each
depending on the two before it. Two more models stand for everything else: letters in any order (other languages,
gibberish), and words among the signs of program code. Bayes' rule gives the probability of each.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import exp, log
from pathlib import Path
from typing import Literal, TypedDict

from heedful.text.verbatim import find_verbatim

Recognition = Literal["sure", "guess", "unknown"]

_LONGEST = 1000  # characters to detect by
_TABLE = Path(__file__).with_name("trigrams.json")
_SURE = 0.9  # the probability of a language to be sure of it
_LIKELY = 0.5  # the probability that it is one of the possible languages, to guess one
_TIE = 0.8  # two languages whose probabilities have a larger ratio are equally likely
_PLAUSIBLE = 0.1  # the probability of a language to prefer it to the target
# The probability that a letter does not follow from the two before it; then, not from the one before it; then, that it
# is any letter at all.
_BACK_OFF = (0.1, 0.1, 0.01)
_ALPHABET = 200  # letters, at most, of a language
_FREQUENT = 0.6  # the probability that a word is one of the frequent words
_SIGNS = re.compile(  # of code, in a part of a text between spaces
    r"[{}\[\]=<>_;\\|^~`$#@]|\w\(|\(\)|\):|[a-z]\.[a-z]|::|[a-z][A-Z]|^(?://|/\*|--?[a-z]|[+*/%]=?$)|[+*/&][a-z]"
    r"|^(?:try:|else:|def|elif|const|async|await|self|None|null|str|int|bool|void|func|fn|var|print|printf|np)(?!\w)"
)
_MOST_SIGNS = 3  # that count, of a part
NOISE, CODE = "noise", "code"  # the classes that are no language


def match_language(code: str, known: Collection[str]) -> str:
    """The known code that means this language: in any case, with a region or a script (`EN`, `de-DE`, `pt_BR`).

    A code that matches none is returned as it is. The region is dropped last part first, as in RFC 4647.
    """
    if code in known:
        return code
    folded = {one.lower().replace("_", "-"): one for one in known}
    parts = code.lower().replace("_", "-").split("-")
    ranges = ("-".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((folded[one] for one in ranges if one in folded), code)


class LanguageTable(TypedDict):
    """How often letters follow the two, the one and no letters before them, and the most frequent words."""

    letters: Mapping[str, Mapping[str, int]]
    words: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Detection:
    """The probabilities that a text is in the possible languages; the rest is for everything else."""

    shares: tuple[tuple[str, float], ...]  # the likeliest first
    other: str  # the likeliest of everything else: the code of another language, `NOISE` or `CODE`

    @property
    def recognition(self) -> Recognition:
        """Whether the first language is sure, a guess, or the text is probably in none of them."""
        if sum(share for _, share in self.shares) < _LIKELY:
            return "unknown"
        return "sure" if self.shares[0][1] >= _SURE else "guess"

    def choose_source(self, target: str = "") -> str:
        """The language to translate from; empty if the text is in none of them.

        It is the likeliest, and of those that are almost as likely, English. The target itself has to be sure, because
        "Taxi" is a word of many languages.
        """
        if self.recognition == "unknown":
            return ""
        best, most = self.shares[0]
        if self.recognition == "sure":
            return best
        ranked = [(code, share) for code, share in self.shares if code != target and share >= _PLAUSIBLE]
        if best == target:
            if not ranked:
                return best
            best, most = ranked[0]
        return "en" if any(code == "en" and share >= _TIE * most for code, share in ranked) else best


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a text shows: its log-probability in each language, and the counts by which noise and code are weighed."""

    languages: Mapping[str, float]
    letters: int  # with one for the end of each word
    signs: int  # of code
    plain: int  # parts between spaces without such signs


@dataclass(frozen=True, slots=True)
class Calibration:
    """The constants that turn evidence into probabilities; fitted by bench/detection.py to texts outside the tables."""

    sharpness: float = 0.5  # of the evidence, because the words of a text are not independent
    noise_cost: float = 2.9  # minus the log-probability of a letter in no language
    other: float = 0.19  # the probability of a language that is known, but not possible
    noise: float = 0.004  # the probability of no language
    code: float = 0.005  # the probability of code
    signed: float = 0.033  # the probability of a sign of code in prose
    signed_code: float = 0.29  # the probability of a sign of code in code


class _Words:
    """The log-probability of words in one language."""

    def __init__(self, table: LanguageTable) -> None:
        self._letters, self._words = table["letters"], table["words"]
        self._spoken = sum(self._words.values())
        self._totals: dict[str, int] = {}
        self._known: dict[str, float] = {}

    def log_prob(self, word: str) -> float:
        """Of a word in lower case, of letters alone."""
        found = self._known.get(word)
        if found is None:
            spelt = exp(self._spell(word))
            frequent = self._words.get(word, 0) / self._spoken if self._spoken else 0.0
            share = _FREQUENT if self._spoken else 0.0
            found = self._known[word] = log(max(share * frequent + (1 - share) * spelt, 1e-300))
        return found

    def _spell(self, word: str) -> float:
        text = f" {word} "
        return sum(log(self._letter(text[max(0, end - 2) : end], text[end])) for end in range(1, len(text)))

    def _letter(self, before: str, letter: str) -> float:
        """The probability of a letter, interpolated between contexts of two, one and no letters."""
        probability = 1 / _ALPHABET
        for context, rest in zip(("", before[-1:], before), reversed(_BACK_OFF), strict=True):
            counts = self._letters.get(context)
            if counts:
                total = self._totals.get(context) or self._totals.setdefault(context, sum(counts.values()))
                probability = (1 - rest) * counts.get(letter, 0) / total + rest * probability
        return probability


class Detector:
    """Detects languages by their tables; a language without a table is never detected."""

    def __init__(self, *sources: Mapping[str, LanguageTable]) -> None:
        """A language with a table from several sources is all of them: everyday texts, for example, and your own."""
        self._models: dict[str, list[_Words]] = {}
        for code, table in chain.from_iterable(tables.items() for tables in sources):
            if table["letters"]:
                self._models.setdefault(code, []).append(_Words(table))

    @property
    def languages(self) -> list[str]:
        """The languages that can be detected."""
        return list(self._models)

    def detect(self, text: str, among: Collection[str] | None = None) -> Detection:
        """Which of these languages a text is in (default: of all that are known), if it is in any of them."""
        known = [code for code in self._models if among is None or code in among]
        evidence = self.weigh(text)
        if not known or not evidence.letters:
            return Detection(tuple((code, 0.0) for code in known), NOISE)
        return judge(evidence, known)

    def weigh(self, text: str) -> Evidence:
        """The evidence of the beginning of a text."""
        prose = leave_out_verbatim(text[:_LONGEST])
        words, parts = find_words(prose), prose.split()
        signs = [len(_SIGNS.findall(part)) for part in parts]
        languages = {
            code: max(sum(map(model.log_prob, words)) for model in models) for code, models in self._models.items()
        }
        letters = sum(len(word) + 1 for word in words)
        return Evidence(languages, letters, sum(min(count, _MOST_SIGNS) for count in signs), signs.count(0))


_FITTED = Calibration()


def judge(evidence: Evidence, possible: Collection[str], constants: Calibration = _FITTED) -> Detection:
    """The probabilities of the possible languages, by Bayes' rule; there is at least one."""
    others = [code for code in evidence.languages if code not in possible]
    elsewhere = constants.other * bool(others) + constants.noise + constants.code
    priors = {code: (1 - elsewhere) / len(possible) for code in possible}
    priors |= {code: constants.other / len(others) for code in others}
    priors |= {NOISE: constants.noise, CODE: constants.code}
    logs = {**evidence.languages, NOISE: -constants.noise_cost * evidence.letters}
    logs[CODE] = evidence.languages.get("en", max(evidence.languages.values()))  # programs name things in English
    weights = {name: log(priors[name]) + constants.sharpness * value for name, value in logs.items()}
    signs = log(constants.signed_code / constants.signed), log((1 - constants.signed_code) / (1 - constants.signed))
    weights[CODE] += evidence.signs * signs[0] + evidence.plain * signs[1]
    best = max(weights.values())
    shares = {name: exp(value - best) for name, value in weights.items()}
    total = sum(shares.values())
    ranked = sorted(possible, key=lambda name: -shares[name])
    other = max((name for name in shares if name not in possible), key=lambda name: shares[name])
    return Detection(tuple((name, shares[name] / total) for name in ranked), other)


def known_languages() -> dict[str, LanguageTable]:
    """The tables that come with heedful: of languages that it translates, and of others, in order to refuse them."""
    table: dict[str, LanguageTable] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return table


def learn_language(texts: Sequence[str]) -> LanguageTable:
    """The table of a language from some of its sentences."""
    return tabulate(count_trigrams(texts), count_words(texts))


def tabulate(trigrams: Mapping[str, int], words: Mapping[str, int]) -> LanguageTable:
    """The table of a language from the counts of its trigrams, in which the end of a word is a space, and its words."""
    letters: dict[str, dict[str, int]] = {}
    for trigram, number in trigrams.items():
        begins = [("", trigram[1]), (trigram[0], trigram[1])] if trigram[0] == " " else []
        for context, letter in (("", trigram[2]), (trigram[1], trigram[2]), (trigram[:2], trigram[2]), *begins):
            following = letters.setdefault(context, {})
            following[letter] = following.get(letter, 0) + number
    return {"letters": letters, "words": dict(words)}


def count_trigrams(texts: Iterable[str]) -> Counter[str]:
    """How often each trigram of letters occurs in the words of the texts; the ends of words count as letters."""
    counts: Counter[str] = Counter()
    for word, number in count_words(texts).items():
        whole = f" {word} "
        for place in range(len(whole) - 2):
            counts[whole[place : place + 3]] += number
    return counts


def count_words(texts: Iterable[str]) -> Counter[str]:
    """How often each word occurs, in lower case."""
    return Counter(word for text in texts for word in find_words(text))


def find_words(text: str) -> list[str]:
    """The words of a text in lower case; everything but letters separates them."""
    return "".join(character if character.isalpha() else " " for character in text.lower()).split()


def leave_out_verbatim(text: str) -> str:
    """The text without addresses, placeholders and the like, which are in no language."""
    for start, end in reversed(find_verbatim(text)):
        text = f"{text[:start]} {text[end:]}"
    return text


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
