"""Constraints in words become constraints on the tokens of an output."""

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, chain

from heedful.decoding.token_constraints import NO_BOUNDARIES, Phrase, TokenConstraints, TreeLeaves, WordBoundaries
from heedful.text import Tokenizer
from heedful.text.constraints import Constraints, encode_term, find_word_boundaries
from heedful.text.trees import CLOSE, OPEN, is_label


class ConstraintEncoder:
    """Encodes constraints with the target tokenizer; each term is encoded once."""

    def __init__(
        self, tokenizer: Tokenizer, constraints: Constraints, trees: "TreeConstraintEncoder | None" = None
    ) -> None:
        """With `trees`, outputs must be trees over the words of their text."""
        self._constraints = constraints
        self._trees = trees
        self._prefix = tuple(tokenizer.encode(constraints.prefix)[:-1]) if constraints.prefix else ()
        self._tokenizer = tokenizer
        # All at once, so that a term that cannot be encoded is refused before any work.
        self._phrases = {term: self._encode_phrase(term) for term in constraints.glossary.values()}

    def encode(self, text: str) -> TokenConstraints:
        """The constraints on the translation of a text."""
        phrases = tuple(self._phrases[term] for term in self._constraints.find_terms(text))
        leaves = self._trees.encode(text.split()) if self._trees else None
        return TokenConstraints(self._prefix, phrases, leaves)

    @cached_property
    def boundaries(self) -> WordBoundaries:
        """Where words begin and end, which only terms need."""
        return WordBoundaries(*find_word_boundaries(self._tokenizer)) if self._phrases else NO_BOUNDARIES

    def _encode_phrase(self, term: str) -> Phrase:
        ids = encode_term(self._tokenizer, term)
        return Phrase(ids.spaced, ids.close)


class TreeConstraintEncoder:
    """Encodes the words and brackets of outputs that must be trees."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        pieces = tokenizer.pieces(range(tokenizer.vocabulary_size))
        opens, closes = (_find_labels(pieces, mark) for mark in (OPEN, CLOSE))
        self._brackets = {opens[label]: closes[label] for label in opens if label in closes}

    def encode(self, words: Sequence[str]) -> TreeLeaves | None:
        """The leaves of any tree over these words; None where the tokenizer cannot tell them from brackets."""
        ids = [piece[:-1] for piece in self._tokenizer.encode_all(list(words))]
        first = {own[0] for own in ids if own}
        if not self._brackets or not all(ids) or first & {*self._brackets, *self._brackets.values()}:
            return None
        starts = accumulate(map(len, ids), initial=0)
        return TreeLeaves(tuple(chain.from_iterable(ids)), frozenset(starts), self._brackets)


def _find_labels(pieces: Sequence[str], mark: str) -> dict[str, int]:
    """The label after this mark, and the id, of each piece that begins with the mark."""
    begin = f"▁{mark}"
    found = {piece.removeprefix(begin): number for number, piece in enumerate(pieces) if piece.startswith(begin)}
    return {label: number for label, number in found.items() if is_label(label)}
