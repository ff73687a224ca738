"""Variants of sentence pairs as people type them.

Without punctuation, apostrophes or accents, in capitals or small letters, several in one line, abbreviated, mistyped.
"""

import random
import re
import unicodedata
from collections.abc import Iterator, Sequence

from splits import Pairs
from word_pairs import Cases

_SHORT = 4  # words; people often type such texts without punctuation
_BARE, _BARE_SHORT, _LOWER, _LOWER_SHORT = 0.04, 0.4, 0.04, 0.3
_CALM, _CAPITALS, _TWO, _THREE, _TYPO = 0.5, 0.02, 0.06, 0.02, 0.06
_HURRIED, _HURRIED_SHORT, _CHAT = 0.05, 0.3, 0.03
_ENDS = ".!?…"
_APOSTROPHE = re.compile(r"(?<=[^\W\d_])['’](?=[^\W\d_])")
_SPELLED_OUT = {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"}  # as Germans do
_CHAT_WORDS = {  # English; other languages have few that everybody uses
    "are": "r", "because": "cuz", "going to": "gonna", "great": "gr8", "message": "msg", "people": "ppl",
    "please": "pls", "see you": "cu", "thank you": "thx", "thanks": "thx", "to be": "2b", "today": "2day",
    "tomorrow": "tmrw", "want to": "wanna", "with": "w/", "you": "u", "your": "ur",
}  # fmt: skip
_CHAT_WORD = re.compile(rf"\b({'|'.join(sorted(_CHAT_WORDS, key=len, reverse=True))})\b", re.IGNORECASE)


def with_variants(pairs: Sequence[tuple[str, str]], cases: tuple[Cases, Cases], source: str, seed: int = 1) -> Pairs:
    """All pairs, followed by variants of some of them; the language of the sources decides how people hurry."""
    return [*pairs, *_variants(pairs, cases, source, random.Random(seed))]


def _variants(
    pairs: Sequence[tuple[str, str]], cases: tuple[Cases, Cases], language: str, draw: random.Random
) -> Iterator[tuple[str, str]]:
    for number, (source, target) in enumerate(pairs):
        short = len(source.split()) <= _SHORT
        ends = source[-1:] in _ENDS and target[-1:] in _ENDS
        if ends and draw.random() < (_BARE_SHORT if short else _BARE):
            yield bare(source), bare(target)
        if (ends or short) and draw.random() < (_LOWER_SHORT if short else _LOWER):
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
        if draw.random() < (_HURRIED_SHORT if short else _HURRIED) and (quick := hurried(source, language)) != source:
            yield quick, target
            yield bare(quick).lower(), cases[1].lower_first(bare(target))
        if language == "en" and draw.random() < _CHAT and (chat := abbreviated(source)) != source:
            yield chat, target
            yield bare(chat).lower(), cases[1].lower_first(bare(target))


def hurried(text: str, language: str) -> str:
    """The text without what takes a second key: apostrophes between English letters, accents, umlauts, ¿ and ¡."""
    if language == "en":
        text = _APOSTROPHE.sub("", text)
    if language == "de":
        text = "".join(_SPELLED_OUT.get(letter, letter) for letter in text)
    letters = unicodedata.normalize("NFD", text)
    return "".join(letter for letter in letters if not unicodedata.combining(letter) and letter not in "¿¡")


def abbreviated(text: str) -> str:
    """English as people type it in a chat."""
    return _CHAT_WORD.sub(lambda found: _CHAT_WORDS[found.group().lower()], text)


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
    long = [index for index, word in enumerate(words) if len(word) > 3 and word.isalpha()]
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
