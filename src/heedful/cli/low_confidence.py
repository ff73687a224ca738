"""Warnings about low-confidence translations, on stderr."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from heedful.cli import console

if TYPE_CHECKING:
    from heedful.translation.result import Translation


_SHOWN = 5  # of the low-confidence sentences of a document


class LowConfidenceWarnings:
    """Warns about low-confidence translations: about each of them, or about their number at the end."""

    def __init__(self, display: console.Display, *, one_by_one: bool) -> None:
        self._display = display
        self._one_by_one = one_by_one

    def watch(self, translations: "Iterable[Translation]") -> "Iterator[Translation]":
        """Pass on the translations, and warn after those that need it."""
        count = unsure = 0
        for count, translation in enumerate(translations, 1):  # noqa: B007 (the last number is the total)
            yield translation
            unsure += translation.unsure
            for sentence in (translation.sentences or (translation,)) if self._one_by_one else ():
                if sentence.unsure:
                    self._display.say(f"low confidence: {' '.join(sentence.text.split())}")
        if unsure and not self._one_by_one:
            self._display.say(f"low confidence in {unsure} of {count} translations; --json marks them as unsure")


def warn_of_low_confidence(display: console.Display, translations: "Sequence[Translation]") -> None:
    """Name the first low-confidence sentences of a document, so that you can look for them."""
    unsure = [" ".join(translation.text.split()) for translation in translations if translation.unsure]
    for text in unsure[:_SHOWN]:
        display.say(f"low confidence: {text}")
    if len(unsure) > _SHOWN:
        display.say(f"low confidence in {len(unsure)} of {len(translations)} sentences; the first {_SHOWN} are above")
