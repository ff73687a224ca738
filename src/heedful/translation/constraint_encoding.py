"""What people wish of a translation, and what a task asks of it, as what is demanded of its ids."""

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, chain

from heedful.decoding.token_constraints import Phrase, TokenConstraints, TreeLeaves, WordBoundaries
from heedful.text import Tokenizer
from heedful.text.constraints import Constraints, encode_term, find_word_boundaries
from heedful.text.linearisation import CLOSE, OPEN
from heedful.text.trees import is_label


class ConstraintEncoder:
    """Knows how the target tokenizer writes terms; each is worked out once."""

    def __init__(
        self, tokenizer: Tokenizer, constraints: Constraints, trees: "TreeConstraintEncoder | None" = None
    ) -> None:
        """`trees` are what outputs must be, if they must."""
        self._constraints = constraints
        self._trees = trees
        self._prefix = tuple(tokenizer.encode(constraints.prefix)[:-1]) if constraints.prefix else ()
        self._tokenizer = tokenizer
        # All at once, so that a term that cannot be held to is refused before any work.
        self._phrases = {term: self._phrase(term) for term in constraints.glossary.values()}

    def of(self, source: str) -> TokenConstraints:
        """What is demanded of the translation of a text."""
        leaves = self._trees.over(source.split()) if self._trees else None
        return TokenConstraints(
            self._prefix, tuple(self._phrases[term] for term in self._constraints.terms(source)), leaves
        )

    @cached_property
    def boundaries(self) -> WordBoundaries:
        """Where words begin and end; nobody needs to know without terms."""
        return WordBoundaries(*find_word_boundaries(self._tokenizer)) if self._phrases else WordBoundaries()

    def _phrase(self, term: str) -> Phrase:
        ids = encode_term(self._tokenizer, term)
        return Phrase(ids.spaced, ids.close)


class TreeConstraintEncoder:
    """Knows how the target tokenizer writes brackets and words, for outputs that must be trees."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        pieces = tokenizer.pieces(range(tokenizer.vocabulary_size))
        opens, closes = (_labels(pieces, mark) for mark in (OPEN, CLOSE))
        self._brackets = {opens[label]: closes[label] for label in opens if label in closes}

    def over(self, words: Sequence[str]) -> TreeLeaves | None:
        """These words, in any tree; None: their tokenizer cannot tell them and brackets apart."""
        ids = [piece[:-1] for piece in self._tokenizer.encode_all(list(words))]
        first = {own[0] for own in ids if own}
        if not self._brackets or not all(ids) or first & {*self._brackets, *self._brackets.values()}:
            return None
        starts = accumulate(map(len, ids), initial=0)
        return TreeLeaves(tuple(chain.from_iterable(ids)), frozenset(starts), self._brackets)


def _labels(pieces: Sequence[str], mark: str) -> dict[str, int]:
    """What stands after the mark in each piece that has it at its beginning, and the piece."""
    begin = f"▁{mark}"
    found = {piece.removeprefix(begin): number for number, piece in enumerate(pieces) if piece.startswith(begin)}
    return {label: number for label, number in found.items() if is_label(label)}
