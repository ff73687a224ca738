"""Score given translations: how probable a model finds them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import exp

from heedful.data.pairs import Pair
from heedful.data.stream import WINDOW, batches_by_length
from heedful.errors import DataError
from heedful.progress import Reporter
from heedful.translation.result import WordConfidence, measure_word_confidence
from heedful.translation.translator import Translator

_LONGEST = 8192  # pieces of both sides


@dataclass(frozen=True, slots=True)
class TokenizedPair:
    """A pair and its ids."""

    pair: Pair
    source: list[int]
    target: list[int]

    @property
    def ids(self) -> list[int]:
        """The ids of both sides."""
        return [*self.source, *self.target]


@dataclass(frozen=True, slots=True)
class PairScore:
    """A pair, and the log-probability of each target piece, given the source and the pieces before it."""

    source: str
    target: str
    log_prob: float  # of the whole target, including its end
    pieces: tuple[str, ...]  # of the target; the last is its end
    log_probs: tuple[float, ...]
    words: tuple[WordConfidence, ...]

    @property
    def per_piece(self) -> float:
        """The mean log-probability of a piece."""
        return self.log_prob / len(self.pieces)


@dataclass(frozen=True, slots=True)
class Total:
    """The totals of a whole file."""

    pairs: int = 0
    pieces: int = 0
    log_prob: float = 0.0

    def plus(self, score: PairScore) -> "Total":
        """The totals with one more pair."""
        return Total(self.pairs + 1, self.pieces + len(score.pieces), self.log_prob + score.log_prob)

    @property
    def perplexity(self) -> float:
        """The number of pieces that the model seems to choose between, on average."""
        return exp(-self.log_prob / self.pieces) if self.pieces else 1.0


def score_pairs(translator: Translator, pairs: Iterator[Pair], reporter: Reporter) -> Iterator[PairScore]:
    """The scores of a stream of pairs, in its order and in bounded memory."""
    before = 0
    while window := list(islice(pairs, WINDOW)):
        tokenized = tokenize_pairs(translator, window)
        for number, pair in enumerate(tokenized, before + 1):
            if (pieces := len(pair.ids)) > _LONGEST:
                raise DataError(f"pair {number} has {pieces} pieces, over {_LONGEST}; split it into sentences")
        yield from score_tokenized_pairs(translator, tokenized)
        before += len(window)
        reporter.progress("scoring", before, 0)


def tokenize_pairs(translator: Translator, pairs: Sequence[Pair]) -> list[TokenizedPair]:
    """The ids of both sides of each pair."""
    sources = translator.encode([pair.source for pair in pairs])
    targets = translator.tokenizers.target.encode_all([translator.task.target_symbols(pair.target) for pair in pairs])
    return [TokenizedPair(*both) for both in zip(pairs, sources, targets, strict=True)]


def score_tokenized_pairs(translator: Translator, pairs: Sequence[TokenizedPair]) -> list[PairScore]:
    """The score of each pair."""
    tokenizer, engine = translator.tokenizers.target, translator.engine
    found: dict[int, list[float]] = {}
    for batch in batches_by_length(range(len(pairs)), [pair.ids for pair in pairs], 1, engine.batch_tokens):
        log_probs = engine.score([pairs[i].source for i in batch], [pairs[i].target for i in batch])
        found |= dict(zip(batch, log_probs, strict=True))
    return [
        PairScore(
            one.pair.source,
            one.pair.target,
            sum(found[i]),
            tuple(tokenizer.pieces(one.target)),
            tuple(found[i]),
            measure_word_confidence(tokenizer, one.target, found[i]),
        )
        for i, one in enumerate(pairs)
    ]
