"""What a model is not sure of, told beside its translations."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from heedful.cli import console

if TYPE_CHECKING:
    from heedful.translation import Translation


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
