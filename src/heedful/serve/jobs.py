"""The jobs that requests submit: translate, score, and look at attention, many sentences at a time.

A sentence is tokenized once, when its item is made: the item carries the ids.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from heedful.config import SearchConfig
from heedful.data.pairs import Pair
from heedful.errors import require_library
from heedful.evaluation.score_pairs import PairScore, TokenizedPair, score_tokenized_pairs, tokenize_pairs
from heedful.serve.batcher import JobItem
from heedful.serve.http_errors import RequestError
from heedful.serve.model_registry import PivotModel, ServedModel
from heedful.text.constraints import Constraints
from heedful.translation.pipeline import TokenizedText
from heedful.translation.result import Translation

_DIVERSITY = 2.0  # penalty of a token for each other translation that has it at the same position
_MOST_TOKENS_TO_SHOW = 200  # each head has as many weights as their square
_ATTENTION_COST, _ATTENTION_TOKEN_COST = 100, 8  # of a sentence and of each token, where aligning a token costs 1


@dataclass(frozen=True, slots=True)
class TranslationJob:
    """Sentences in, translations out."""

    model: ServedModel | PivotModel
    n_best: int = 1
    beam: int | None = None
    confidence: bool = False
    alignments: bool = False
    glossary: tuple[tuple[str, str], ...] = ()
    prefix: str = ""
    diverse: bool = False

    @property
    def search(self) -> SearchConfig:
        """The search of the model, of two the second, widened as far as the request needs."""
        own = self.model.translator.search
        if self.diverse:
            return replace(own, beam=2 * self.n_best, groups=self.n_best, diversity=_DIVERSITY)
        beam = max(self.beam or own.beam, self.n_best)
        return own if beam == own.beam else replace(own, beam=beam)

    @property
    def budget(self) -> int:
        """In source tokens."""
        return max(1, self.model.translator.engine.batch_tokens // self.search.beam)

    @property
    def exclusive(self) -> bool:
        """Alignments are recorded inside the model."""
        return self.alignments

    def make_items(self, texts: Sequence[str]) -> list[JobItem]:
        """One item per sentence; its cost is its number of tokens."""
        return [JobItem(text, len(text.source)) for text in self.model.tokenize(texts)]

    def run(self, items: Sequence[TokenizedText]) -> list[Translation]:
        """Translate the sentences as one batch, in this thread."""
        return self.model.translate(
            items,
            search=self.search,
            n_best=self.n_best,
            constraints=Constraints(dict(self.glossary), self.prefix),
            confidence=self.confidence,
            alignments=self.alignments,
        )


@dataclass(frozen=True, slots=True)
class ScoringJob:
    """Pairs in, their probabilities out."""

    model: ServedModel

    exclusive = False

    @property
    def budget(self) -> int:
        """In tokens of both sides."""
        return self.model.translator.engine.batch_tokens

    def make_items(self, texts: Sequence[str], translations: Sequence[str]) -> list[JobItem]:
        """One item per pair; its cost is its number of tokens."""
        pairs = [Pair(*both) for both in zip(texts, translations, strict=True)]
        return [JobItem(pair, len(pair.ids)) for pair in tokenize_pairs(self.model.translator, pairs)]

    def run(self, items: Sequence[TokenizedPair]) -> list[PairScore]:
        """Score the pairs as one batch."""
        return score_tokenized_pairs(self.model.translator, items)


@dataclass(frozen=True, slots=True)
class AttentionJob:
    """Sentences in, JSON documents with the attention of every head out."""

    model: ServedModel
    off: tuple[str, ...] = ()
    n_best: int = 1
    translation: str | None = None  # of the only sentence; None: the model translates it
    glossary: tuple[tuple[str, str], ...] = ()
    rank: bool = False  # also measure what the translation loses without each head

    budget = 1  # one sentence at a time
    exclusive = True

    def make_items(self, texts: Sequence[str]) -> list[JobItem]:
        """One item per sentence."""
        tokenized = self.model.translator.tokenize(texts)
        target = self.model.translator.tokenizers.target.encode(self.translation or "")
        longest = max(len(ids) for ids in (target, *(text.source for text in tokenized)))
        if longest > _MOST_TOKENS_TO_SHOW:
            message = f"text or translation has {longest} tokens, but at most {_MOST_TOKENS_TO_SHOW} can be shown"
            raise RequestError(400, f"Invalid request: {message}")
        return [JobItem(text, _ATTENTION_COST + _ATTENTION_TOKEN_COST * len(text.source)) for text in tokenized]

    def run(self, items: Sequence[TokenizedText]) -> list[bytes]:
        """Translate each sentence with some heads switched off, in a model that nobody else uses meanwhile."""
        require_library("looking at attention heads", "torch")
        from heedful.inspection.attention_view import AttentionViewer

        model = self.model
        with model.exclusive:
            translator = model.exclusive_translator
            search = replace(translator.search, beam=max(translator.search.beam, self.n_best))
            viewer = AttentionViewer(model.run.path, translator, search, Constraints(dict(self.glossary)))
            inspected = [viewer.look(text, self.off, self.n_best, self.translation) for text in items]
            found = [viewer.document(look, self.off, live=True, ranked=self.rank) for look in inspected]
        return [json.dumps(document | {"model": model.name}).encode() for document in found]
