"""What is done with the sentences of requests, many at a time."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from heedful.config import SearchConfig
from heedful.data.pairs import Pair
from heedful.evaluation.score_pairs import PairScore, score_pairs
from heedful.inspection.attention_view import AttentionViewer
from heedful.progress import SilentReporter
from heedful.serve.batcher import Piece
from heedful.serve.http_errors import Refused
from heedful.serve.model_registry import Model
from heedful.text.constraints import Constraints
from heedful.translation.result import Translation

_DIVERSITY = 2.0  # what a token costs for every other translation that has it at the same place
_LONGEST_LOOK = 200  # pieces: every head of every layer has as many weights as their square
_LOOK, _LOOK_PIECE = 100, 8  # what a look costs, and each piece in it, where to align a piece costs 1


@dataclass(frozen=True, slots=True)
class Translating:
    """Sentences in, translations out."""

    model: Model
    n_best: int = 1
    beam: int | None = None
    confidence: bool = False
    alignments: bool = False
    glossary: tuple[tuple[str, str], ...] = ()
    prefix: str = ""
    diverse: bool = False

    @property
    def search(self) -> SearchConfig:
        """The model's own, wide enough for what is asked for."""
        own = self.model.translator.search
        if self.diverse:
            return replace(own, beam=2 * self.n_best, groups=self.n_best, diversity=_DIVERSITY)
        return replace(own, beam=max(self.beam or own.beam, self.n_best))

    @property
    def budget(self) -> int:
        """In source pieces."""
        return max(1, self.model.translator.engine.batch_tokens // self.search.beam)

    @property
    def apart(self) -> bool:
        """Alignments are read inside of a model."""
        return self.alignments

    def pieces(self, texts: Sequence[str]) -> list[Piece]:
        """Each sentence, and how many pieces it has."""
        ids = self.model.translator.encode(texts)
        return [Piece(text, len(own)) for text, own in zip(texts, ids, strict=True)]

    def do(self, items: Sequence[str]) -> list[Translation]:
        """Translate them together, in this thread."""
        constraints = Constraints(dict(self.glossary), self.prefix)
        if not self.alignments:
            return self.model.translator.translate(
                items,
                search=self.search,
                n_best=self.n_best,
                constraints=constraints,
                confidence=self.confidence,
                workers=1,
            )
        with self.model.alone:
            return self.model.inner.translate(
                items,
                search=self.search,
                n_best=self.n_best,
                aligner=self.model.aligner,
                constraints=constraints,
                confidence=self.confidence,
                workers=1,
            )


@dataclass(frozen=True, slots=True)
class Scoring:
    """Pairs in, their probabilities out."""

    model: Model

    apart = False

    @property
    def budget(self) -> int:
        """In pieces of both sides."""
        return self.model.translator.engine.batch_tokens

    def pieces(self, texts: Sequence[str], translations: Sequence[str]) -> list[Piece]:
        """Each pair, and how many pieces it has."""
        source = self.model.translator.encode(texts)
        target = self.model.translator.tokenizers.target.encode_all(list(translations))
        pairs = zip(texts, translations, source, target, strict=True)
        return [Piece(Pair(*both), len(ids) + len(others)) for *both, ids, others in pairs]

    def do(self, items: Sequence[Pair]) -> list[PairScore]:
        """Score them together."""
        pairs: Iterator[Pair] = iter(items)
        return list(score_pairs(self.model.translator, pairs, SilentReporter()))


@dataclass(frozen=True, slots=True)
class Looking:
    """Sentences in, documents with every head's attention out, as JSON."""

    model: Model
    off: tuple[str, ...] = ()
    n_best: int = 1

    budget = 1  # one at a time
    apart = True

    def pieces(self, texts: Sequence[str]) -> list[Piece]:
        """Each sentence, and its cost."""
        ids = self.model.translator.encode(texts)
        for own in ids:
            if len(own) > _LONGEST_LOOK:
                raise Refused(400, f"Invalid request: a text to look into has at most {_LONGEST_LOOK} pieces")
        return [Piece(text, _LOOK + _LOOK_PIECE * len(own)) for text, own in zip(texts, ids, strict=True)]

    def do(self, items: Sequence[str]) -> list[bytes]:
        """Look into each, with some heads switched off in a model that nobody else uses meanwhile."""
        model = self.model
        with model.alone:
            own = model.inner.search
            lens = AttentionViewer(model.run.path, model.inner, replace(own, beam=max(own.beam, self.n_best)))
            found = [lens.page(lens.look(text, self.off, self.n_best), self.off, live=True) for text in items]
        return [json.dumps(document | {"model": model.name}).encode() for document in found]
