"""Split the texts or HTML pages of a request into sentences, and join their translations."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import islice

from heedful.documents.html import read_html
from heedful.documents.safe_parsing import DEFAULT_LIMITS
from heedful.documents.segmentation import SegmentedDocument, TranslatedSentence
from heedful.errors import DataError
from heedful.text.html_fragments import Markup
from heedful.text.sentences import Sentences


class SegmentedTexts:
    """The sentences of several texts in one list.

    Sentences of HTML pages with inline markup are in a second list, `mixed`, because their translations should come
    with a word alignment. This needs lxml; without it, each text between two tags is a sentence of its own.
    """

    def __init__(self, texts: Sequence[str], language: str, *, html: bool = False) -> None:
        self._pages = [_HtmlPage(text, language) for text in texts] if html else None
        self._documents = [page.parse_if_mixed() for page in self._pages or ()]
        pages = zip(self._pages or (), self._documents, strict=True)
        plain = [text for page, document in pages if not document for text in page.markup.texts] if html else texts
        self.by_text = [Sentences(text, language) for text in plain]

    @property
    def sentences(self) -> list[str]:
        """The sentences without inline markup."""
        of_documents = [sentence for document in self._documents if document for sentence in document.plain]
        return [*(sentence for text in self.by_text for sentence in text.texts), *of_documents]

    @property
    def mixed(self) -> list[str]:
        """The sentences with inline markup."""
        return [sentence for document in self._documents if document for sentence in document.mixed]

    def join(self, translations: Sequence[str], language: str, mixed: Sequence[TranslatedSentence] = ()) -> list[str]:
        """The texts or pages with their sentences replaced by these translations."""
        plain_left, mixed_left = iter(translations), iter(mixed)
        texts = [text.join(list(islice(plain_left, len(text.spans))), language) for text in self.by_text]
        return texts if self._pages is None else list(self._write_pages(iter(texts), plain_left, mixed_left, language))

    def _write_pages(
        self, texts: Iterator[str], plain: Iterator[str], mixed: Iterator[TranslatedSentence], language: str
    ) -> Iterator[str]:
        for page, counted in zip(self._pages or (), self._documents, strict=True):
            if not counted:
                yield page.markup.join(list(islice(texts, len(page.markup.texts))))
            elif document := page.parse_if_mixed():  # again, because a document can be written only once
                own = [TranslatedSentence(text) for text in islice(plain, len(document.plain))]
                yield document.write(own, list(islice(mixed, len(document.mixed))), language).decode()


class _HtmlPage:
    def __init__(self, html: str, language: str) -> None:
        self.markup = Markup(html)
        self._language = language
        self._may_be_mixed = "<" in html and find_spec("lxml") is not None

    def parse_if_mixed(self) -> SegmentedDocument | None:
        """The page as a document if a sentence has inline markup, otherwise None."""
        if not self._may_be_mixed:
            return None
        harmless = self.markup.join(self.markup.texts).encode()
        try:
            document = SegmentedDocument(read_html(harmless, DEFAULT_LIMITS, attributes=False), self._language)
        except DataError:  # nested too deeply, or too many attributes
            return None
        return document if document.mixed else None
