"""What people wish of a translation, as what is demanded of its ids."""

from functools import cached_property

from heedful.search.demand import Borders, Demand, Phrase
from heedful.text import Tokenizer
from heedful.text.terms import Wishes, term_ids, word_borders


class Demands:
    """Knows how the target tokenizer writes terms; each is worked out once."""

    def __init__(self, tokenizer: Tokenizer, wishes: Wishes) -> None:
        self._wishes = wishes
        self._prefix = tuple(tokenizer.encode(wishes.prefix)[:-1]) if wishes.prefix else ()
        self._tokenizer = tokenizer
        # All at once, so that a term that cannot be held to is refused before any work.
        self._phrases = {term: self._phrase(term) for term in wishes.glossary.values()}

    def of(self, source: str) -> Demand:
        """What is demanded of the translation of a text."""
        return Demand(self._prefix, tuple(self._phrases[term] for term in self._wishes.terms(source)))

    @cached_property
    def borders(self) -> Borders:
        """Where words begin and end; nobody needs to know without terms."""
        return Borders(*word_borders(self._tokenizer)) if self._phrases else Borders()

    def _phrase(self, term: str) -> Phrase:
        ids = term_ids(self._tokenizer, term)
        return Phrase(ids.spaced, ids.close)
