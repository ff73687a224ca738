"""Texts and pages as sentences, and back."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import islice

from heedful.documents.html import read_html
from heedful.documents.safe_parsing import DEFAULT_LIMITS
from heedful.documents.segmentation import SegmentedDocument, TranslatedSentence
from heedful.errors import DataError
from heedful.text.html_fragments import Markup
from heedful.text.sentences import Sentences


class Parts:
    """All sentences of some texts, in one list, and what stands around them.

    Those of pages that have mark-up inside stand in another list: for these it should be known which word comes from
    which. They can be told from others only where lxml is installed; else each text between two tags is a sentence.
    """

    def __init__(self, texts: Sequence[str], language: str, *, markup: bool = False) -> None:
        self._pages = [_Page(text, language) for text in texts] if markup else None
        self._documents = [page.mixed_document() for page in self._pages or ()]
        pages = zip(self._pages or (), self._documents, strict=True)
        within = [text for page, work in pages if not work for text in page.markup.texts] if markup else texts
        self.by_text = [Sentences(text, language) for text in within]

    @property
    def sentences(self) -> list[str]:
        """What is to be translated, but for what is mixed."""
        works = [sentence for work in self._documents if work for sentence in work.plain]
        return [*(sentence for text in self.by_text for sentence in text.texts), *works]

    @property
    def mixed(self) -> list[str]:
        """Sentences with mark-up inside."""
        return [sentence for work in self._documents if work for sentence in work.mixed]

    def joined(self, translations: Sequence[str], language: str, mixed: Sequence[TranslatedSentence] = ()) -> list[str]:
        """The texts or pages with these in the places of their sentences."""
        given, marked = iter(translations), iter(mixed)
        texts = [text.joined(list(islice(given, len(text.spans))), language) for text in self.by_text]
        return texts if self._pages is None else list(self._written(iter(texts), given, marked, language))

    def _written(
        self, texts: Iterator[str], plain: Iterator[str], mixed: Iterator[TranslatedSentence], language: str
    ) -> Iterator[str]:
        for page, counted in zip(self._pages or (), self._documents, strict=True):
            if not counted:
                yield page.markup.joined(list(islice(texts, len(page.markup.texts))))
            elif work := page.mixed_document():  # anew, for it can be written once
                own = [TranslatedSentence(text) for text in islice(plain, len(work.plain))]
                yield work.write(own, list(islice(mixed, len(work.mixed))), language).decode()


class _Page:
    def __init__(self, html: str, language: str) -> None:
        self.markup = Markup(html)
        self._language = language
        self._marked = "<" in html and find_spec("lxml") is not None

    def mixed_document(self) -> SegmentedDocument | None:
        """The page as a document, if any sentence has mark-up inside."""
        if not self._marked:
            return None
        harmless = self.markup.joined(self.markup.texts).encode()
        try:
            work = SegmentedDocument(read_html(harmless, DEFAULT_LIMITS, attributes=False), self._language)
        except DataError:  # too deep, or of too many attributes
            return None
        return work if work.mixed else None
