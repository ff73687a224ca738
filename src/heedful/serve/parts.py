"""Texts and pages as sentences, and back."""

from collections.abc import Iterator, Sequence
from itertools import islice

from heedful.text.markup import Markup
from heedful.text.sentences import Sentences


class Parts:
    """All sentences of some texts, in one list, and what stands around them."""

    def __init__(self, texts: Sequence[str], language: str, *, markup: bool = False) -> None:
        self._pages = [Markup(text) for text in texts] if markup else None
        within = [text for page in self._pages for text in page.texts] if self._pages is not None else texts
        self.by_text = [Sentences(text, language) for text in within]

    @property
    def sentences(self) -> list[str]:
        """What is to be translated."""
        return [sentence for text in self.by_text for sentence in text.texts]

    def joined(self, translations: Sequence[str], language: str) -> list[str]:
        """The texts or pages with these in the places of their sentences."""
        given = iter(translations)
        texts = (text.joined(list(islice(given, len(text.spans))), language) for text in self.by_text)
        return list(texts) if self._pages is None else list(_pages(self._pages, texts))


def _pages(pages: Sequence[Markup], texts: Iterator[str]) -> Iterator[str]:
    for page in pages:
        yield page.joined(list(islice(texts, len(page.texts))))
