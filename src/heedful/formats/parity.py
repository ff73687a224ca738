"""Prove that a converted model agrees with its original: both score and decode sample sentences."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from heedful.config import SearchConfig
from heedful.data.pairs import Pair
from heedful.decoding.engine import Ids
from heedful.decoding.hypothesis import Hypothesis
from heedful.errors import HeedfulError
from heedful.storage.run_folder import RunFolder, read_valid_pairs
from heedful.translation.translator import Translator

_SENTENCES = 16
_SCORED = 200  # validation pairs whose translations are scored
_LONGEST_SCORED = 500  # pieces of their sources; both models read the same cut ones
_MUCH = 1.0  # points of a score
_UNLIKE = 50.0  # chrF; random pieces are translated at a whim, and with int8 even good models reach only about 75
_LONGEST = 60  # pieces of a random sequence
_GREEDY = SearchConfig(beam=1, max_extra=20)  # greedy search is the same in all programs


class ComparableModel(Protocol):
    """The interface of a model that can be compared; every engine has it."""

    def decode(self, sources: Sequence[Ids], search: SearchConfig, n_best: int) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first."""
        ...

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """The log-probability of every token of each target."""
        ...


@dataclass(frozen=True, slots=True)
class RoundingLoss:
    """What rounded weights cost: greedy translations of a sample by both models, scored.

    The sample is validation pairs with their references. If there are none, it is the random pieces of the proof, and
    the references are the translations of the original.
    """

    sentences: int
    different: int  # number of sentences with other translations
    metric: str
    original: float | None  # the score of the original's translations; None without references of its own
    rounded: float

    @property
    def is_much(self) -> bool:
        """Whether users will notice: the score falls by more than a point, or most translations are others."""
        if self.original is None:
            return self.rounded < _UNLIKE
        return self.original - self.rounded > _MUCH or 2 * self.different > self.sentences


@dataclass(frozen=True, slots=True)
class Proof:
    """The measured agreement of two models."""

    sentences: int
    tokens: int  # number of tokens that both scored
    largest: float  # largest difference between what was compared of a token
    same: int  # number of sentences with equal greedy translations, or with the same nearest sentence by features
    rounding: RoundingLoss | None = None  # of weights as float16 or int8
    compared: Literal["log-probabilities", "features"] = "log-probabilities"  # features, if there is no output layer


def samples(run: RunFolder, translator: Translator) -> list[list[int]]:
    """Sentences of the validation set, if there is one, and sequences of random pieces."""
    tokenizer = translator.tokenizers.source
    ids = [number for number in range(tokenizer.vocabulary_size) if number not in (tokenizer.pad_id, tokenizer.eos_id)]
    invented = [[*source, tokenizer.eos_id] for source in random_sources(ids)]
    texts = [pair.source for pair in _valid_pairs(run) if pair.source.strip()]
    if not texts:
        return invented
    real = translator.encode(texts[:: max(1, len(texts) // _SENTENCES)][:_SENTENCES])
    return [source for source in real if len(source) <= 2 * _LONGEST] + invented


def random_sources(ids: Sequence[int], longest: int = _LONGEST) -> list[list[int]]:
    """Sequences of random pieces, from one piece to nearly `longest` of them; always the same."""
    chance = random.Random(1)
    return [chance.choices(ids, k=1 + number * longest // _SENTENCES) for number in range(_SENTENCES)]


def prove(
    ours: ComparableModel, theirs: ComparableModel, sources: Sequence[Ids], eos_id: int, tolerance: float
) -> Proof:
    """Compare two models; raise if log-probabilities or clear translations differ."""
    translations = [_end(best, eos_id) for (best,) in ours.decode(sources, _GREEDY, 1)]
    others = [_end(best, eos_id) for (best,) in theirs.decode(sources, _GREEDY, 1)]
    scores, their_scores = ours.score(sources, translations), theirs.score(sources, translations)
    differences = [
        abs(one - other)
        for mine, yours in zip(scores, their_scores, strict=True)
        for one, other in zip(mine, yours, strict=True)
    ]
    same = sum(one == other for one, other in zip(translations, others, strict=True))
    # `max` would hide a NaN.
    largest = math.nan if any(map(math.isnan, differences)) else max(differences)
    proof = Proof(len(sources), len(differences), largest, same)
    if not proof.largest <= tolerance:
        raise HeedfulError(
            f"the converted model does not agree: its log-probabilities differ by up to {proof.largest:.2g}, "
            f"over {tolerance:g}; nothing was written"
        )
    for source, one, other in zip(sources, translations, others, strict=True):
        if one != other and (gap := _gap(ours, source, one, other)) > 2 * tolerance:
            raise HeedfulError(
                f"the converted model translates differently where ours has a margin of {gap:.2g}; nothing was written"
            )
    return proof


def measure_rounding(run: RunFolder, translator: Translator, rounded: ComparableModel) -> RoundingLoss:
    """Score greedy translations of a sample by the original model and by the one with rounded weights."""
    asked = [question for question in translator.task.make_questions(_valid_pairs(run)) if question.source.strip()]
    taken = min(len(asked), _SCORED)
    questions = [asked[number * len(asked) // taken] for number in range(taken)]
    texts = [question.source for question in questions]
    sources = [source[:_LONGEST_SCORED] for source in translator.encode(texts)] or samples(run, translator)
    before, after = (_translate(model, translator, sources, texts) for model in (translator.engine, rounded))
    different = sum(one != other for one, other in zip(before, after, strict=True))
    if not questions:
        from heedful.metrics.chrf import Chrf  # imports sacreBLEU, which translating does not need

        agreement = Chrf().corpus_score(after, [before]).score if different else 100.0
        return RoundingLoss(len(sources), different, "chrF", None, agreement)
    references, tokenize = [question.references for question in questions], run.experiment().evaluate.tokenize
    original, now = (translator.task.quick_score(outputs, references, tokenize) for outputs in (before, after))
    return RoundingLoss(len(sources), different, now.metric, original.value, now.value)


def _translate(
    model: ComparableModel, translator: Translator, sources: Sequence[Ids], texts: Sequence[str]
) -> list[str]:
    found = model.decode(sources, _GREEDY, 1)
    outputs = [translator.tokenizers.target.decode(best.tokens) for (best,) in found]
    if not texts:  # of made-up sentences
        return outputs
    return [translator.task.finish(text, output) for text, output in zip(texts, outputs, strict=True)]


def _valid_pairs(run: RunFolder) -> Sequence[Pair]:
    return read_valid_pairs(run) if (run.data / "valid.json").exists() else ()


def _end(hypothesis: Hypothesis, eos_id: int) -> tuple[int, ...]:
    return hypothesis.tokens if hypothesis.finished else (*hypothesis.tokens, eos_id)


def _gap(ours: ComparableModel, source: Ids, one: Ids, other: Ids) -> float:
    """The margin of our token where two translations diverge; rounding can only flip a near tie."""
    mine, yours = ours.score([source, source], [one, other])
    parting = next(i for i, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return mine[parting] - yours[parting]
