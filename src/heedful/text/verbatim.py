"""Parts of a text that stay as they are: addresses, numbers with units, emoji and placeholders.

A model that has never seen such a part loses it, and translates the words around it badly. So a sentence whose
translation lacks a part is translated again with a well-known name in its place, and the part is put back afterwards.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, repeat

_EMOJI = r"(?:[\U0001f000-\U0001faff\u2600-\u27bf\u2b50\u2b55][\ufe0f\u200d\u20e3\U0001f3fb-\U0001f3ff]*+)++"
_NUMBER = r"\d++(?:[.,\u202f]\d++)*+"
_UNITS = (
    r"(?:km/h|km²|m²|cm²|m³|cm³|km|cm|mm|µm|kg|mg|ml|dl|cl|kWh|kW|MW|mph|GHz|MHz|kHz|Hz|GB|MB|KB|TB|°C|°F|°|%|€|£|¥|\$|"
    r"EUR|USD|GBP|CHF|min|dB|lb|oz|ft|m|g|l|h|s|t|V|W|A)(?![\w²³])"
)
_VERBATIM = re.compile(
    r"(?P<address>(?:https?|ftp)://[^\s<>\"'«»“”]++|www\.[\w-]++(?:\.[\w-]++)++(?:/[^\s<>\"'«»“”]*+)?+"
    r"|(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++"
    r"|(?<![\w@.-])[\w-]++(?:\.[\w-]++)*?\.(?:com|org|net|edu|gov|io|info|eu|de|fr|uk)\b(?:/[^\s<>\"'«»“”]*+)?+)"
    r"|(?P<placeholder>%\(\w++\)[a-zA-Z]|%\d*+\$?+[sdifux@](?!\w)|\$?\{\{?[\w.]*+\}\}?)"
    rf"|(?P<number>[$€£¥]\s?+{_NUMBER}|(?<![\w.]){_NUMBER}[ \xa0\u202f]?+{_UNITS}"
    r"|(?<![\w.:])\d{1,2}:\d{2}(?::\d{2})?+(?!\w)|(?<![\w.-])\d{4}-\d{2}-\d{2}(?!\w))"
    rf"|(?P<emoji>{_EMOJI})"
)
_TRAILING = ".,;:!?)]}…"  # punctuation after an address, which is not part of it
_STAND_INS = ("Tom", "Paris", "Boston", "Anna", "Peter", "Berlin")  # words that models copy; the first are the surest
_WORD = re.compile(r"\S++")
_HINT = re.compile(r"[\d@%{/\u2600-\u2bff\U0001f000-\U0001faff]|\.\w")


def find_verbatim(text: str) -> list[tuple[int, int]]:
    """Start and end of each part that stays as it is."""
    if not _HINT.search(text):
        return []
    found = []
    for match in _VERBATIM.finditer(text):
        part = match[0].rstrip(_TRAILING) if match["address"] else match[0]
        found.append((match.start(), match.start() + len(part)))
    return found


def is_kept(text: str, translation: str) -> bool:
    """Whether a translation has every such part of a text as often as the text."""
    parts = [text[start:end] for start, end in find_verbatim(text)]
    return all(_count(part, translation) == parts.count(part) for part in parts)


def _count(part: str, text: str) -> int:
    """How often a part stands in a text on its own: "5 m" is not in "15 m" nor in "5 mm"."""
    before, after = (r"(?<!\w)" if part[0].isalnum() else ""), (r"(?!\w)" if part[-1].isalnum() else "")
    return len(re.findall(before + re.escape(part) + after, text))


@dataclass(frozen=True, slots=True)
class VerbatimPart:
    """A part, and the name that stands for it in the masked text."""

    text: str
    stand_in: str  # empty: there were not enough names, so nothing stands for it
    share: float  # its place in the masked text, from 0 to 1

    @property
    def pattern(self) -> "re.Pattern[str]":
        """The name, or a form of it: "Toms"."""
        return re.compile(rf"(?<!\w){self.stand_in}(?:['’]?\w{{1,2}})?+(?!\w)")


@dataclass(frozen=True, slots=True)
class MaskedText:
    """A sentence with names in the place of its verbatim parts; emoji at its ends are cut off."""

    text: str
    lead: str  # before the masked text
    trail: str  # after it
    parts: tuple["VerbatimPart", ...]
    source_words: tuple[int, ...]  # for each word of `text`, how many words of the sentence it stands for
    shift: int  # words of the sentence before the first of `text`

    def restore(self, translation: str) -> str:
        """The translation with every part in its place; a part whose stand-in is missing goes about where it was."""
        missing = [part for part in self.parts if not part.stand_in or not part.pattern.search(translation)]
        words = translation
        marks = [chr(0xE000 + number) for number in range(len(missing))]  # one word each until all have their places
        for mark, part in zip(marks, missing, strict=True):
            ends = [0, *(word.end() for word in _WORD.finditer(words))]
            place = min((abs(end - part.share * len(words)), end) for end in ends)[1]
            words = f"{words[:place]} {mark}{words[place:]}" if place else f"{mark} {words}"
        words = self.put_back(words)
        for mark, part in zip(marks, missing, strict=True):
            words = words.replace(mark, part.text)
        return f"{self.lead}{words}{self.trail}"

    def put_back(self, translation: str) -> str:
        """The translation with parts for their stand-ins."""
        for part in self.parts:
            if part.stand_in:
                translation = part.text.join(part.pattern.split(translation))
        return translation

    def restore_links(self, links: Sequence[tuple[int, int]], translation: str) -> tuple[tuple[int, int], ...]:
        """A word alignment of the masked texts, by the words of the sentence and of its restored translation."""
        counts = [self._count_words(word[0]) for word in _WORD.finditer(translation)]
        ahead = len(self.lead.split())
        sources, targets = _ranges(self.source_words, self.shift), _ranges(counts, ahead)
        return tuple(
            (source, target)
            for link in links
            if link[0] < len(sources) and link[1] < len(targets)
            for source in sources[link[0]]
            for target in targets[link[1]]
        )

    def _count_words(self, word: str) -> int:
        return 1 + sum(len(part.text.split()) - 1 for part in self.parts if part.stand_in and part.pattern.search(word))


def _ranges(counts: Sequence[int], shift: int) -> list[range]:
    ends = [shift]
    for count in counts:
        ends.append(ends[-1] + count)
    return [range(start, end) for start, end in pairwise(ends)]


def mask_verbatim(sentence: str) -> MaskedText | None:
    """The sentence with stand-ins; None if nothing would be left for a model to translate."""
    spans = find_verbatim(sentence)
    begin, end = 0, len(sentence)
    while spans and spans[0][0] == begin and _is_emoji(sentence, spans[0]):
        begin = _skip_space(sentence, spans.pop(0)[1])
    while spans and spans[-1][1] == end and _is_emoji(sentence, spans[-1]):
        end = spans.pop()[0]
        end = len(sentence[:end].rstrip())
    names = [name for name in _STAND_INS if name not in sentence]
    if (not spans and (begin, end) == (0, len(sentence))) or begin >= end:
        return None
    masked, parts, last = "", [], begin
    for (start, stop), name in zip(spans, chain(names, repeat("")), strict=False):
        masked += sentence[last:start]
        parts.append(VerbatimPart(sentence[start:stop], name, (start - begin) / (end - begin)))
        masked += name
        last = stop
    masked += sentence[last:end]
    found = MaskedText(masked, sentence[:begin], sentence[end:], tuple(parts), (), len(sentence[:begin].split()))
    return replace(found, source_words=tuple(found._count_words(word[0]) for word in _WORD.finditer(masked)))


def _is_emoji(text: str, span: tuple[int, int]) -> bool:
    return re.fullmatch(_EMOJI, text[slice(*span)]) is not None


def _skip_space(text: str, position: int) -> int:
    return position + len(text[position:]) - len(text[position:].lstrip())
