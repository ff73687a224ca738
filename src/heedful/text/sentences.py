"""A text as sentences, and back: all white space stays where it was."""

import re
from collections.abc import Iterator, Sequence

LONGEST = 600  # characters; what has no end by then is cut between words

_LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
# What may end a sentence. In scripts without spaces nothing need follow it. It is looked for only where such marks
# begin, and is never tried shorter, or a thousand full stops would take a million steps.
_END = re.compile(r"(?<![.!?…؟।])[.!?…؟।]++[\"'”’»›)\]]*+(?=\s)|[。！？｡]++[\"'”’」』）]*+")
_BEFORE = 16  # characters before a full stop in which an abbreviation is looked for
_CLAUSE = re.compile(r"[,;:–—،、，；：]\s+|[、，；：]")

_ABBREVIATIONS = {
    "en": "mr mrs ms dr prof sr jr st vs etc e.g i.e cf no vol fig al inc ltd co approx dept est gen col sgt rev hon",
    "de": "dr prof hr fr z.b d.h u.a usw bzw ca evtl ggf inkl nr st str vgl sog u.u o.ä s.o s.u bd abb jh",
    "fr": "m mm mme mlle dr pr cf p.ex etc av env st ste vol fig éd",
    "es": "sr sra srta dr dra ud uds etc p.ej núm pág av",
    "it": "sig sig.ra dott prof ecc es pag vol fig",
    "nl": "dhr mevr dr prof bijv d.w.z enz o.a m.b.t nr blz",
    "pt": "sr sra dr dra prof etc p.ex núm pág av",
}
# Where an ordinal has a full stop: "3. Oktober".
_ORDINALS = frozenset({"cs", "da", "de", "et", "fi", "hr", "hu", "lv", "nb", "nn", "no", "pl", "sk", "sl"})
UNSPACED = frozenset({"ja", "km", "lo", "my", "th", "yue", "zh"})


class Sentences:
    """The sentences of a text, each without the white space around it."""

    def __init__(self, text: str, language: str = "", longest: int = LONGEST) -> None:
        self._text = text
        self._unspaced = language in UNSPACED
        self.spans = [span for whole in _spans(text, language) for span in _cut(text, *whole, longest)]

    @property
    def texts(self) -> list[str]:
        """What is to be translated."""
        return [self._text[start:end] for start, end in self.spans]

    def join(self, translations: Sequence[str], language: str = "") -> str:
        """The text with these in the places of its sentences."""
        parts: list[str] = []
        last = 0
        for (start, end), translation in zip(self.spans, translations, strict=True):
            gap = self._text[last:start]
            # Where the source needs no space between two sentences, this language may.
            parts.append(" " if parts and not gap and self._unspaced and language not in UNSPACED else gap)
            parts.append(translation)
            last = end
        return "".join([*parts, self._text[last:]])


def _spans(text: str, language: str) -> Iterator[tuple[int, int]]:
    """Where sentences begin and end. A line ends one, too."""
    for line in _LINE.finditer(text):
        start = line.start()
        for end in _END.finditer(text, line.start(), line.end()):
            if _ends(text, start, end, line.end(), language):
                yield from _stripped(text, start, end.end())
                start = end.end()
        yield from _stripped(text, start, line.end())


def _ends(text: str, start: int, end: "re.Match[str]", last: int, language: str) -> bool:
    """Whether a sentence ends here: not before a small letter, nor after an abbreviation."""
    following = text[end.end() : min(end.end() + _BEFORE, last)].lstrip()
    if following[:1].islower():
        return False
    if end[0] != ".":
        return True
    words = text[max(start, end.start() - _BEFORE) : end.start()].split()
    word = words[-1].lstrip("(\"'“„«[").lower() if words else ""
    if language in _ORDINALS and word.isdecimal():
        return False
    initial = len(word) == 1 and word.isalpha() and language not in UNSPACED
    return not initial and word not in _ABBREVIATIONS.get(language, "").split()


def _stripped(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Without the white space around it, if anything is left."""
    inner = text[start:end]
    start, end = start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())
    if start < end:
        yield start, end


def _cut(text: str, start: int, end: int, longest: int) -> Iterator[tuple[int, int]]:
    """What is too long in parts: after a clause if it can be, else after a word, else anywhere."""
    while end - start > longest:
        half = start + longest // 2
        clauses = [match.end() for match in _CLAUSE.finditer(text, half, start + longest)]
        space = max(text.rfind(" ", half, start + longest), text.rfind("\t", half, start + longest)) + 1
        cut = clauses[-1] if clauses else space or start + longest
        yield from _stripped(text, start, cut)
        start = cut
    yield from _stripped(text, start, end)
