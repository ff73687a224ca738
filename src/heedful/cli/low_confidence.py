"""Warnings about low-confidence translations and about terms that were given up, on stderr."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from heedful.cli import console
from heedful.errors import counted

if TYPE_CHECKING:
    from heedful.translation.result import Translation


_SHOWN = 5  # of the low-confidence sentences of a document


class LowConfidenceWarnings:
    """Warns about low-confidence translations: about each of them, or about their number at the end.

    It also names the terms that were given up, each once for all translations of a file.
    """

    def __init__(self, display: console.Display, *, one_by_one: bool) -> None:
        self._display = display
        self._one_by_one = one_by_one

    def watch(self, translations: "Iterable[Translation]") -> "Iterator[Translation]":
        """Pass on the translations, and warn after those that need it."""
        count = unsure = 0
        failed: Counter[str] = Counter()
        for count, translation in enumerate(translations, 1):  # noqa: B007 (the last number is the total)
            yield translation
            unsure += translation.unsure
            failed.update(translation.failed_terms)
            for sentence in (translation.sentences or (translation,)) if self._one_by_one else ():
                if sentence.unsure:
                    self._display.say(f"low confidence: {' '.join(sentence.text.split())}")
                for term in sentence.failed_terms:
                    self._display.say(f"term not used, because it does not fit: {term}")
        if not self._one_by_one:
            _name_failed_terms(self._display, failed)
        if unsure and not self._one_by_one:
            self._display.say(
                f"low confidence in {unsure} of {counted(count, 'translation')}; --json marks them as unsure"
            )


def _name_failed_terms(display: console.Display, failed: "Counter[str]") -> None:
    for term, number in failed.items():
        display.say(f"term not used in {number} {'text' if number == 1 else 'texts'}, because it does not fit: {term}")


def warn_of_low_confidence(display: console.Display, translations: "Sequence[Translation]") -> None:
    """Name the terms that were given up and the first low-confidence sentences of a document."""
    _name_failed_terms(display, Counter(term for one in translations for term in one.failed_terms))
    unsure = [" ".join(translation.text.split()) for translation in translations if translation.unsure]
    for text in unsure[:_SHOWN]:
        display.say(f"low confidence: {text}")
    if len(unsure) > _SHOWN:
        display.say(f"low confidence in {len(unsure)} of {len(translations)} sentences; the first {_SHOWN} are above")
