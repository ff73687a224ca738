"""What a model is not sure of, told beside its translations."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from heedful.cli import console

if TYPE_CHECKING:
    from heedful.translation.result import Translation


_FIRST = 5


class Doubts:
    """Hears translations on their way out, and tells of those that are unsure: one by one, or how many at the end."""

    def __init__(self, shown: console.Display, *, one_by_one: bool) -> None:
        self._shown = shown
        self._one_by_one = one_by_one

    def heard(self, found: "Iterable[Translation]") -> "Iterator[Translation]":
        """The same translations."""
        count = unsure = 0
        for count, translation in enumerate(found, 1):  # noqa: B007 (the last number is how many there were)
            yield translation
            unsure += translation.unsure
            if translation.unsure and self._one_by_one:
                self._shown.say(f"not sure of: {' '.join(translation.text.split())}")
        if unsure and not self._one_by_one:
            self._shown.say(f"not sure of {unsure} of {count} translations; --json marks them (unsure)")


def tell_doubts(shown: console.Display, found: "Sequence[Translation]") -> None:
    """The same of a document, which has no marks for it: the first that are unsure, to look for them."""
    unsure = [" ".join(translation.text.split()) for translation in found if translation.unsure]
    for text in unsure[:_FIRST]:
        shown.say(f"not sure of: {text}")
    if len(unsure) > _FIRST:
        shown.say(f"not sure of {len(unsure) - _FIRST} more, {len(unsure)} of {len(found)} sentences in all")
