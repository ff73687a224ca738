"""Whether a converted model is still the same: it scores and decodes sample sentences beside the one it came from."""

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
_LONGEST = 60  # pieces of a made-up sentence
_GREEDY = SearchConfig(beam=1, max_extra=20)  # a search that all programs do in the same way


class Model(Protocol):
    """What a model must be able to do to be compared; every engine is."""

    def decode(self, sources: Sequence[Ids], search: SearchConfig, n_best: int) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first."""
        ...

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """The log-probability of every token of each target."""
        ...


@dataclass(frozen=True, slots=True)
class Proof:
    """How alike two models are."""

    sentences: int
    tokens: int  # that both have scored
    largest: float  # difference of the log-probabilities that they give to a token
    same: int  # sentences that both translate alike, greedily


def samples(run: RunFolder, translator: Translator) -> list[list[int]]:
    """Sentences of the validation set, if it is still there, and as many of random pieces, some of them long."""
    chance = random.Random(1)
    tokenizer = translator.tokenizers.source
    ids = [number for number in range(tokenizer.vocabulary_size) if number not in (tokenizer.pad_id, tokenizer.eos_id)]
    lengths = [1 + number * _LONGEST // _SENTENCES for number in range(_SENTENCES)]
    made_up = [[*chance.choices(ids, k=length), tokenizer.eos_id] for length in lengths]
    if not (run.data / "valid.json").exists():
        return made_up
    texts = [pair.source for pair in read_valid_pairs(run) if pair.source.strip()]
    real = translator.encode(texts[:: max(1, len(texts) // _SENTENCES)][:_SENTENCES])
    return [source for source in real if len(source) <= 2 * _LONGEST] + made_up


def prove(ours: Model, theirs: Model, sources: Sequence[Ids], eos_id: int, tolerance: float) -> Proof:
    """Compare the two; raise if a log-probability differs by more than this, or a translation without a near tie."""
    translations = [_ended(best, eos_id) for (best,) in ours.decode(sources, _GREEDY, 1)]
    others = [_ended(best, eos_id) for (best,) in theirs.decode(sources, _GREEDY, 1)]
    scores, their_scores = ours.score(sources, translations), theirs.score(sources, translations)
    differences = [
        abs(one - other)
        for mine, yours in zip(scores, their_scores, strict=True)
        for one, other in zip(mine, yours, strict=True)
    ]
    same = sum(one == other for one, other in zip(translations, others, strict=True))
    # Of what is no number `max` would not tell.
    largest = math.nan if any(map(math.isnan, differences)) else max(differences)
    proof = Proof(len(sources), len(differences), largest, same)
    if not proof.largest <= tolerance:
        raise HeedfulError(
            f"the converted model is another one: its log-probabilities differ by up to {proof.largest:.2g}, "
            f"over {tolerance:g}; nothing was written"
        )
    for source, one, other in zip(sources, translations, others, strict=True):
        if one != other and (gap := _gap(ours, source, one, other)) > 2 * tolerance:
            raise HeedfulError(
                f"the converted model translates otherwise where ours is sure by {gap:.2g}; nothing was written"
            )
    return proof


def _ended(hypothesis: Hypothesis, eos_id: int) -> tuple[int, ...]:
    return hypothesis.tokens if hypothesis.finished else (*hypothesis.tokens, eos_id)


def _gap(ours: Model, source: Ids, one: Ids, other: Ids) -> float:
    """How much more probable our token is where two translations part: rounding can only turn what is nearly equal."""
    mine, yours = ours.score([source, source], [one, other])
    parting = next(i for i, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return mine[parting] - yours[parting]
