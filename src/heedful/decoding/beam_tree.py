"""The beam search of one sentence as a tree: every candidate, and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from heedful.config.experiment import SearchConfig
from heedful.data.batch import pack
from heedful.decoding.beam import BeamStep, beam_search
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.step_function import NEVER, SpecialTokens
from heedful.models.seq2seq import AnySeq2Seq

Fate = Literal["kept", "pruned", "finished"]
ROOT = -1  # the parent of the first pieces


@dataclass(frozen=True, slots=True)
class BeamCandidate:
    """A hypothesis that the search looked at: its parent and one token more."""

    step: int  # from 1; this is also its length
    parent: int  # its place in `BeamTree.candidates`, or ROOT
    token: int
    log_prob: float  # of the whole hypothesis
    score: float  # log_prob / length penalty
    fate: Fate


@dataclass(frozen=True, slots=True)
class BeamTree:
    """All candidates, step by step and best first; the best hypothesis and its path; and greedy search beside it."""

    candidates: tuple[BeamCandidate, ...]
    best: Hypothesis
    path: tuple[int, ...]  # places of the candidates that make up the best hypothesis
    greedy: Hypothesis

    def tokens(self, place: int) -> tuple[int, ...]:
        """The tokens of a candidate, from the first on."""
        return tuple(self.candidates[each].token for each in self.trace(place))

    def trace(self, place: int) -> tuple[int, ...]:
        """The places of a candidate and all its ancestors, from the first on."""
        places = []
        while place != ROOT:
            places.append(place)
            place = self.candidates[place].parent
        return tuple(reversed(places))


@torch.inference_mode()
def grow_beam_tree(model: AnySeq2Seq, source: Sequence[int], special: SpecialTokens, search: SearchConfig) -> BeamTree:
    """Search as section 6.1 does, and keep what each step looked at."""
    device = next(model.parameters()).device
    ids, lengths = (tensor.to(device) for tensor in pack([source]))
    limits = lengths + search.max_extra
    memory = model.encode(ids, lengths)
    candidates: list[BeamCandidate] = []
    active = [ROOT]

    def watch(step: BeamStep) -> None:
        found, survives = step.found, step.survives[0].tolist()
        columns = (found.length, found.row, found.token, found.log_prob, found.score)
        kept = []
        rows = zip(*(column[0].tolist() for column in columns), survives, strict=True)
        for length, row, token, log_prob, score, stays in rows:
            if log_prob == NEVER:
                continue
            fate: Fate = "finished" if token == special.eos else "kept" if stays else "pruned"
            if stays:
                kept.append(len(candidates))
            candidates.append(BeamCandidate(length, active[row], token, log_prob, score, fate))
        active[:] = kept

    best = beam_search(model.step, model.start(memory), special, limits, search, watch=watch)[0][0]
    alone = replace(search, beam=1)
    greedy = beam_search(model.step, model.start(memory), special, limits, alone)[0][0]
    tree = BeamTree(tuple(candidates), best, (), greedy)
    last = next(place for place in range(len(candidates)) if tree.tokens(place) == best.tokens)
    return replace(tree, path=tree.trace(last))
