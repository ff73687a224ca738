"""Prove that a converted model agrees with its original: both score and decode sample sentences."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from heedful.config import SearchConfig
from heedful.decoding.engine import Ids
from heedful.decoding.hypothesis import Hypothesis
from heedful.errors import HeedfulError
from heedful.storage.run_folder import RunFolder, read_valid_pairs
from heedful.translation.translator import Translator

_SENTENCES = 16
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
class Proof:
    """The measured agreement of two models."""

    sentences: int
    tokens: int  # number of tokens that both scored
    largest: float  # largest difference between log-probabilities of a token
    same: int  # number of sentences with equal greedy translations


def samples(run: RunFolder, translator: Translator) -> list[list[int]]:
    """Sentences of the validation set, if there is one, and sequences of random pieces."""
    chance = random.Random(1)
    tokenizer = translator.tokenizers.source
    ids = [number for number in range(tokenizer.vocabulary_size) if number not in (tokenizer.pad_id, tokenizer.eos_id)]
    lengths = [1 + number * _LONGEST // _SENTENCES for number in range(_SENTENCES)]
    invented = [[*chance.choices(ids, k=length), tokenizer.eos_id] for length in lengths]
    if not (run.data / "valid.json").exists():
        return invented
    texts = [pair.source for pair in read_valid_pairs(run) if pair.source.strip()]
    real = translator.encode(texts[:: max(1, len(texts) // _SENTENCES)][:_SENTENCES])
    return [source for source in real if len(source) <= 2 * _LONGEST] + invented


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


def _end(hypothesis: Hypothesis, eos_id: int) -> tuple[int, ...]:
    return hypothesis.tokens if hypothesis.finished else (*hypothesis.tokens, eos_id)


def _gap(ours: ComparableModel, source: Ids, one: Ids, other: Ids) -> float:
    """The margin of our token where two translations diverge; rounding can only flip a near tie."""
    mine, yours = ours.score([source, source], [one, other])
    parting = next(i for i, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return mine[parting] - yours[parting]
