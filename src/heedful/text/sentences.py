"""Split a text into sentences, and join their translations: all white space stays where it was.

A sentence can end at any character that has Unicode's property Sentence_Terminal, and ends at every line break. Closing
quotes and brackets belong to the sentence before them, also after a space, as in French. A full stop is doubtful: it
ends nothing after an abbreviation, an initial or an ordinal, nor before a small letter. The lists at the end of this
module say which words these are in each language.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache

LONGEST = 600  # characters; a longer sentence is cut between clauses or words
UNSPACED = frozenset({"ja", "km", "lo", "my", "th", "yue", "zh"})  # languages without spaces between words

# Sentence_Terminal in Unicode 17, without U+104A, which Burmese uses as a comma.
_TERMINALS = (
    r"!.?\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u104b\u1362\u1367\u1368\u166e"
    r"\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b4e\u1b4f\u1b5a\u1b5b\u1b5e\u1b5f\u1b7d-\u1b7f"
    r"\u1c3b\u1c3c\u1c7e\u1c7f\u2024\u203c\u203d\u2047-\u2049\u2cf9-\u2cfb\u2e2e\u2e3c\u2e53\u2e54\u2e60\u2e61\u3002"
    r"\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\ufe12"
    r"\ufe15\ufe16\ufe52\ufe56\ufe57\uff01\uff0e\uff1f\uff61"
    r"\U00010a56\U00010a57\U00010f55-\U00010f59\U00010f86-\U00010f89\U00011047\U00011048\U000110be-\U000110c1"
    r"\U00011141-\U00011143\U000111c5\U000111c6\U000111cd\U000111de\U000111df\U00011238\U00011239\U0001123b\U0001123c"
    r"\U000112a9\U000113d4\U000113d5\U0001144b\U0001144c\U000115c2\U000115c3\U000115c9-\U000115d7\U00011641\U00011642"
    r"\U0001173c-\U0001173e\U00011944\U00011946\U00011a42\U00011a43\U00011a9b\U00011a9c\U00011c41\U00011c42\U00011ef7"
    r"\U00011ef8\U00011f43\U00011f44\U00016a6e\U00016a6f\U00016af5\U00016b37\U00016b38\U00016b44\U00016d6e\U00016d6f"
    r"\U00016e98\U0001bc9f\U0001da88"
)
_ELLIPSIS = "…"
_SPACED = frozenset("!.?…\u2024\u203c\u203d\u2047\u2048\u2049;:")  # these end a sentence only before white space
# Marks of one language: the Greek question mark, an Armenian full stop as people type it, and the Amharic full stop as
# two word separators.
_OWN_TERMINALS = {"el": "|;", "hy": "|:", "am": "|\u1361\u1361"}

_LINE_BREAK = re.compile(r"[\n\r]")
_LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_CLOSERS = re.compile(
    r"[\"'”’“‘»«›‹)\]}」』】〉》〕｣）］]*+"
    r"(?:\[\d{1,3}\])*+"  # references to notes
    r"(?:[ \t\xa0\u202f][»›”’)\]](?=[\s,.;:]|\Z))*+"  # after a space: « Bonjour ! »
)
_WIDE_CLOSERS = re.compile(r"[”’»›)\]}」』】〉》〕｣）］]*+")  # “ and ‘ open a quotation there
_OPENERS = " \t\xa0\u202f\u3000\"'“”‘’„‚«»‹›([{¿¡-–—*「『（"
_JOINERS = frozenset(",;:，、；：،؛)")  # a sentence does not begin with one of these
_BEFORE = 24  # characters before a full stop in which to look for an abbreviation
_AFTER = 24  # characters after the end of a sentence in which to look for the next word
_WORD = re.compile(r"[^\W\d_]+")
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.-?)+[^\W\d_]{1,2}")
_COUNTED = re.compile(r"\d|[IVXLC]+\b")
_NUMBER = re.compile(r"\d{1,2}|[IVXLC]{2,7}")
_ENUMERATOR = re.compile(r"[(\[]?(?:\d{1,3}|[a-zA-Zа-яА-Я]|[ivxIVX]{1,4})")
_CLAUSE = re.compile(r"[,;:–—،၊፣]\s+|[、，；：]")


class Sentences:
    """The sentences of a text, each without the white space around it."""

    def __init__(self, text: str, language: str = "", longest: int = LONGEST) -> None:
        """Split `text`; `language` is a code such as "en" or "pt-BR", or empty if it is unknown."""
        self.text = text
        self._language = _base_code(language)
        self.spans = [span for whole in _find_sentences(text, self._language) for span in _cut(text, *whole, longest)]

    @property
    def texts(self) -> list[str]:
        """The sentences to translate."""
        return [self.text[start:end] for start, end in self.spans]

    @property
    def is_whole(self) -> bool:
        """Whether the text is one sentence and nothing else."""
        return self.spans == [(0, len(self.text))]

    def join(self, translations: Sequence[str], language: str = "") -> str:
        """The text with its sentences replaced by these translations into `language`; each stays on one line."""
        return self.place(translations, language)[0]

    def place(self, translations: Sequence[str], language: str = "") -> tuple[str, list[tuple[int, int]]]:
        """The text of `join`, and start and end of each translation in it."""
        parts: list[str] = []
        spans: list[tuple[int, int]] = []
        last = position = 0
        for (start, end), translation in zip(self.spans, translations, strict=True):
            gap = self.text[last:start]
            gap = " " if parts and not gap and needs_space(self._language, language) else gap
            parts += [gap, _LINE_BREAK.sub(" ", translation)]
            position += len(gap)
            spans.append((position, position + len(translation)))
            position += len(translation)
            last = end
        return "".join([*parts, self.text[last:]]), spans


def needs_space(source: str, target: str) -> bool:
    """Whether two sentences without a space between them get one in translation."""
    return _base_code(source) in UNSPACED and _base_code(target) not in UNSPACED


def _base_code(language: str) -> str:
    """The code without region and script: "pt-BR" is "pt", and "eng" is "en"."""
    code = re.split(r"[-_]", language.lower(), maxsplit=1)[0]
    return _THREE_LETTERS.get(code, code)


def _find_sentences(text: str, language: str) -> Iterator[tuple[int, int]]:
    """Start and end of each sentence."""
    terminals = _terminals(language)
    for line in _LINE.finditer(text):
        start, last = line.span()
        splitter = _LineSplitter(text, line, language)
        for mark in terminals.finditer(text, start, last):
            end = splitter.find_end(start, mark)
            if end:
                yield from _strip(text, start, end)
                start = end
        yield from _strip(text, start, last)


@cache
def _terminals(language: str) -> "re.Pattern[str]":
    # A run of marks is matched as a whole, or a thousand full stops would take a million steps.
    return re.compile(f"(?:[{_TERMINALS}{_ELLIPSIS}]{_OWN_TERMINALS.get(language, '')})++")


class _LineSplitter:
    """Decides which marks in a line end a sentence."""

    def __init__(self, text: str, line: "re.Match[str]", language: str) -> None:
        self._text = text
        self._line = line
        self._last = line.end()
        self._language = language
        self._abbreviations, self._starters = _word_lists(language)
        self._small: bool | None = None  # not known yet

    def find_end(self, start: int, mark: "re.Match[str]") -> int:
        """The end of the sentence that began at `start` if these marks end it, otherwise 0."""
        text, marks = self._text, mark[0]
        spaced = all(character in _SPACED for character in marks)
        end = self._skip_closers(start, mark.end(), spaced)
        closed = end > mark.end()
        if end >= self._last or not _has_content(text, start, mark.start()):
            return 0
        if not (_is_separated(marks, text[end]) if spaced else self._may_end_before(text[end], marks, closed)):
            return 0
        following = text[end : min(end + _AFTER, self._last)].lstrip()
        if following[:1] in _JOINERS:
            return 0
        word = following.lstrip(_OPENERS)
        if spaced and word[:1].islower() and (closed or len(marks) > 1 or not self._is_in_small_letters()):
            return 0
        if marks in (".", "\u2024") and not closed and self._is_abbreviation(start, mark.start(), word):
            return 0
        return end

    def _skip_closers(self, start: int, position: int, spaced: bool) -> int:
        """The position after the closing quotes and brackets."""
        if spaced:
            found = _CLOSERS.match(self._text, position, self._last)
            return found.end() if found else position
        found = _WIDE_CLOSERS.match(self._text, position, self._last)
        end = found.end() if found else position
        if self._text.startswith(('"', "'"), end, self._last):
            # Straight quotes close what was opened in this sentence.
            opened = self._text.count(self._text[end], max(start, end - LONGEST), end) % 2
            end += opened
        return end

    def _may_end_before(self, following: str, marks: str, closed: bool) -> bool:
        """Whether a sentence may end before this character, after marks that need no white space."""
        if closed and self._language == "ja":  # 「行け！」と言った: a particle continues the sentence
            return not "\u3040" <= following <= "\u309f"
        return following.isspace() or following.isalpha() or following in _OPENERS or _is_wide(marks[-1])

    def _is_in_small_letters(self) -> bool:
        """Whether the line has no capitals at all, so that small letters do not continue a sentence."""
        if self._small is None:
            self._small = self._line[0] == self._line[0].lower()
        return self._small

    def _is_abbreviation(self, start: int, position: int, following: str) -> bool:
        """Whether the full stop at `position` belongs to an abbreviation, an initial or a number."""
        text = self._text
        before = text[max(start, position - _BEFORE) : position]
        if _ENUMERATOR.fullmatch(text[start:position].strip() if position - start < _BEFORE else ""):
            return True
        words = before.split()
        written = re.split(r"['’]", words[-1])[-1].lstrip("(\"'“„«‹[") if words else ""
        word = written.lower()
        kind = self._abbreviations.get(word, self._abbreviations.get(f"-{word[-3:]}"))
        next_word = _WORD.match(following)
        starts = next_word is not None and following[:1].isupper() and next_word[0].lower() in self._starters
        if kind == "":
            return True
        if kind == "#" and _COUNTED.match(following):
            return True
        if following[:1].islower():  # in a line of small letters, a short word is too likely an abbreviation
            return len(words) < 2 or len(word) < 3 or kind in ("", "~")
        doubtful = kind == "~" or _DOTTED.fullmatch(word) or _is_initial(word)
        ordinal = self._language in _ORDINALS.split() and _NUMBER.fullmatch(written)
        return bool(doubtful or ordinal) and not starts


def _has_content(text: str, start: int, end: int) -> bool:
    """Whether there is a letter or a digit; only the first characters count, so that this takes constant time."""
    return any(character.isalnum() for character in text[start : min(end, start + _BEFORE)]) or end - start > _BEFORE


def _is_separated(marks: str, following: str) -> bool:
    """Whether marks that need white space after them have it; before Chinese or Japanese, ! and ? need none."""
    return following.isspace() or (marks[-1] in "!?" and _is_wide(following))


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in ("W", "F")


def _is_initial(word: str) -> bool:
    """Whether this is one letter of a script that has initials."""
    return len(word) == 1 and (word != word.upper() or unicodedata.bidirectional(word) in ("R", "AL"))


def _strip(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The span without the white space around it, if anything is left."""
    inner = text[start:end]
    start, end = start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())
    if start < end:
        yield start, end


def _cut(text: str, start: int, end: int, longest: int) -> Iterator[tuple[int, int]]:
    """The parts of a sentence that is too long: cut after a clause if possible, else after a word, else anywhere."""
    while end - start > longest:
        half = start + longest // 2
        clauses = [match.end() for match in _CLAUSE.finditer(text, half, start + longest)]
        space = max(text.rfind(" ", half, start + longest), text.rfind("\t", half, start + longest)) + 1
        cut = clauses[-1] if clauses else space or start + longest
        yield from _strip(text, start, cut)
        start = cut
    yield from _strip(text, start, end)


@cache
def _word_lists(language: str) -> tuple[dict[str, str], frozenset[str]]:
    """The kind of each abbreviation, and the words that often begin a sentence."""
    words = _ABBREVIATIONS.get(_SAME_LISTS.get(language, language), "").split()
    kinds = {word.rstrip("#~"): word[len(word.rstrip("#~")) :] for word in words}
    return kinds, frozenset(_STARTERS.get(_SAME_LISTS.get(language, language), "").split())


# Languages

_THREE_LETTERS = {
    **{"amh": "am", "ara": "ar", "cat": "ca", "ces": "cs", "cmn": "zh", "dan": "da", "deu": "de", "ell": "el"},
    **{"eng": "en", "est": "et", "fin": "fi", "fra": "fr", "hin": "hi", "hrv": "hr", "hun": "hu", "hye": "hy"},
    **{"isl": "is", "ita": "it", "jpn": "ja", "khm": "km", "lao": "lo", "mya": "my", "nld": "nl", "nno": "nn"},
    **{"nob": "nb", "nor": "no", "pol": "pl", "por": "pt", "ron": "ro", "rus": "ru", "slk": "sk", "slv": "sl"},
    **{"spa": "es", "swe": "sv", "tha": "th", "tur": "tr", "ukr": "uk", "urd": "ur", "vie": "vi", "zho": "zh"},
}
# Where an ordinal has a full stop: "3. Oktober".
_ORDINALS = "bs cs da de et fi fo hr hu is lb lv nb nn no pl sk sl sr tr"
_SAME_LISTS = {"nb": "da", "nn": "da", "no": "da", "sk": "cs"}
# Words with a full stop that does not end a sentence. "#": only before a number. "~": unless a word follows that often
# begins a sentence. "-str" is the end of a word.
_ABBREVIATIONS = {
    "en": "mr mrs ms messrs dr prof rev hon gen col maj sgt lt capt cmdr gov sen rep pres mt ft fr vs e.g i.e cf viz "
    "approx ca dept est max min incl excl esp resp temp figs# fig# no# nos# vol# vols# p# pp# ch# chap# sec# sect# "
    "art# eq# ed# jan# feb# mar# apr# jun# jul# aug# sep# sept# oct# nov# dec# etc~ inc~ ltd~ co~ corp~ jr~ sr~ al~ "
    "st~ bros~ ave~ blvd~ rd~ u.s~ a.m~ p.m~",
    "de": "dr prof hr hrn fr frl dipl ing mag z.b z.bsp d.h vgl bzw sog ca evtl ggf inkl exkl zzgl abzgl einschl max "
    "mind ggü geb gest insb bes allg tel resp ehem jun sen st nr# bd# abb# s# tab# kap# abs# art# aufl# jan# feb# aug# "
    "sept# okt# nov# dez# usw~ etc~ u.a~ str~ -str~ mio~ mrd~ std~ min~ sek~ jh~ jhd~ jahrh~",
    "fr": "m mm mme mmes mlle mlles dr pr prof me mgr st ste cf p.ex env av apr éd ex max min resp tél n# no# p# pp# "
    "vol# fig# chap# art# janv# févr# juil# sept# oct# nov# déc# etc~ bd~ boul~",
    "es": "sr sra srta sres d dña dr dra prof profa ing lic arq gral ud uds vd vds p.ej ej avda apdo máx mín aprox tel "
    "tfno núm# n.º# pág# págs# vol# cap# art# fig# ee av~ etc~ uu~ s.a~ s.l~ cía~",
    "it": "sig sigg sig.ra sig.na dott dott.ssa prof prof.ssa ing avv on mons ss es p.es cfr ca max min tel n# pag# "
    "pagg# vol# fig# art# cap# ecc~ s.p.a~ s.r.l~ d.c~ a.c~",
    "nl": "dhr mevr mw dr drs prof ing ir mr st bijv d.w.z m.b.t m.a.w t.a.v t.o.v i.v.m o.a ca max min incl excl evt "
    "resp nr# blz# p# hfst# art# enz~ etc~ jl~ e.d~ b.v~ n.v~",
    "pt": "sr sra srta dr dra prof profa eng exmo exma p.ex ex máx mín aprox tel n# núm# pág# págs# vol# cap# art# "
    "fig# av~ etc~ ltda~ cia~ s.a~ eua~",
    "ca": "sr sra dr dra prof p.ex núm# pàg# pàgs# vol# cap# art# fig# av~ etc~",
    "pl": "dr prof inż mgr hab św ul al pl os np tzw tj tzn m.in ok max min mjr płk gen ks im woj pow red zob por nr# "
    "str# s# art# ust# pkt# tab# rys# godz# r~ itd~ itp~ tys~ mln~ mld~ zł~",
    "cs": "dr prof ing mgr bc mudr judr phdr doc sv ul nám např tzv tj tzn mj max min resp viz č# str# s# odst# písm# "
    "obr# tab# r~ atd~ apod~ aj~ tis~ mil~ hod~ napr~ č~",
    "ru": "г-н г-жа т.е т.к т.н им ул пл наб пер просп корп см ср напр проф акад доц канд св макс мин тел стр# рис# "
    "табл# гл# п# пп# ст# др~ пр~ т.д~ т.п~ гг~ г~ в~ вв~ тыс~ млн~ млрд~ руб~ коп~ обл~",
    "uk": "проф акад доц св вул просп пл буд кв ім т.зв напр див пор стор# рис# табл# с# п# р~ рр~ ст~ тис~ млн~ млрд~ "
    "грн~ ін~ т.д~ т.п~ обл~",
    "sv": "dr prof hr fr t.ex bl.a d.v.s dvs s.k ca resp inkl exkl max min st nr# s# kap# fig# tab# osv~ m.m~ mfl~ "
    "etc~ kr~",
    "da": "dr prof hr fr f.eks bl.a dvs ca inkl ekskl maks min jf nr# s# kap# fig# kl# pkt# osv~ m.m~ mv~ mfl~ kr~",
    "fi": "esim mm ns ts noin puh prof tri s# nr# klo# kpl~ jne~ ym~ yms~",
    "hu": "dr prof id ifj özv pl kb ill ún sz# old# fej# stb~",
    "ro": "dl d-l dna d-na dr prof ing str ex nr# pag# art# cap# fig# bd~ etc~ ș.a~",
    "tr": "dr prof doç yrd av sn bkz örn hz müh no# s# sf# cad~ mah~ sok~ apt~ vb~ vs~ yy~",
    "el": "κ κος κα δρ καθ π.χ δηλ βλ αρ# σελ# κεφ# κλπ~ κ.λπ~ κ.ά~ κτλ~ μ.χ~",
    "vi": "tp ts ths pgs gs ks bs tr# st~ v.v~",
    "id": "dr ir prof drs jl no# hlm# dll~ dsb~ dst~",
    "hi": "डॉ श्री श्रीमती प्रो पं सं क्र",
}
# Words that, with a capital, often begin a sentence and are hardly ever part of a name.
_STARTERS = {
    "en": "the this that these those he she it we they i you but and or so then there here what who why how when where "
    "if in on at after before because his her our their my your its however no yes a an as for from with while",
    "de": "der die das dies diese dieser dieses er sie es wir ihr ich du aber und oder denn dann dort hier was wer "
    "warum wie wann wo wenn als in im am an auf nach vor weil sein seine ihre mein unser jedoch doch nein ja ein eine "
    "es man auch so danach dabei damit",
    "fr": "le la les un une des ce cet cette ces il elle ils elles on nous vous je tu mais et ou puis alors là ici que "
    "qui quoi pourquoi comment quand où si dans en au aux après avant son sa ses leur mon ma mes notre cependant non "
    "oui pour par avec",
    "es": "el la los las un una este esta estos estas él ella ellos ellas nosotros yo tú usted pero y o entonces allí "
    "aquí qué quién cuándo dónde si en después antes su sus mi mis nuestro no sí para por con",
    "it": "il lo la i gli le un una questo questa questi lui lei loro noi io tu ma e o poi allora qui che chi perché "
    "come quando dove se in dopo prima suo sua mio nostro no sì per con",
    "nl": "de het een dit dat deze die hij zij ze wij we ik jij je u maar en of dan daar hier wat wie waarom hoe "
    "wanneer waar als in op na voor zijn haar mijn ons onze hun nee ja er ook",
    "pt": "o a os as um uma este esta estes ele ela eles elas nós eu você mas e ou então ali aqui que quem quando onde "
    "se em no na depois antes seu sua meu minha nosso não sim para por com",
    "pl": "on ona ono oni one ja ty my wy to ten ta te ale i a lub potem tam tu co kto dlaczego jak kiedy gdzie jeśli "
    "gdy w na po przed jego jej ich mój nasz nie tak jednak z do jest był była",
    "cs": "on ona ono oni já ty my vy to ten ta ale a nebo pak tam tady co kdo proč jak kdy kde když v na po před jeho "
    "její jejich můj náš ne ano však z do je byl byla",
    "ru": "он она оно они я ты мы вы это этот эта эти но и а или потом тогда там здесь что кто почему как когда где "
    "если в на после перед его её их мой наш нет да однако с по из был была",
    "uk": "він вона воно вони я ти ми ви це цей ця ці але і й а або потім тоді там тут що хто чому як коли де якщо в у "
    "на після перед його її їх мій наш ні так однак з по був була",
    "sv": "den det de en ett denna detta han hon vi jag du ni men och eller sedan där här vad vem varför hur när var "
    "om i på efter före hans hennes min vår nej ja",
    "da": "den det de en et denne dette han hun vi jeg du men og eller så der her hvad hvem hvorfor hvordan når hvor "
    "hvis i på efter før hans hendes min vores vår nei nej ja",
    "fi": "se hän he me minä sinä te tämä nämä mutta ja tai sitten siellä täällä mitä kuka miksi miten kun missä jos "
    "hänen minun meidän ei kyllä",
    "hu": "a az ez ő ők mi én te de és vagy aztán ott itt mit ki miért hogyan mikor hol ha nem igen",
    "ro": "el ea ei ele noi eu tu acest această dar și sau apoi acolo aici ce cine de când unde dacă în la după nu da",
    "tr": "bu şu o onlar biz ben sen siz ama ve veya sonra orada burada ne kim neden nasıl nerede eğer hayır evet bir",
    "el": "ο η το οι τα αυτός αυτή αυτό εμείς εγώ εσύ αλλά και ή μετά εκεί εδώ τι ποιος γιατί πώς πότε πού αν σε στο "
    "στη όχι ναι",
}
