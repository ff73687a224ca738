"""The tree of a beam search."""

import pytest
import torch
from model_examples import EOS, PAD, SMALL, SOURCE_TYPES, sentences, shaken

from heedful.config import SearchConfig
from heedful.data.batch import pack
from heedful.decoding.beam import beam_search
from heedful.decoding.beam_tree import ROOT, BeamTree, grow_beam_tree
from heedful.decoding.hypothesis import length_penalty
from heedful.decoding.step_function import SpecialTokens
from heedful.decoding.torch_engine import token_log_probs

SPECIAL = SpecialTokens(PAD, EOS, (PAD,))
SOURCE = sentences([6], SOURCE_TYPES)[0]


def tree_of(beam: int, alpha: float = 0.6, max_extra: int = 3) -> tuple[BeamTree, SearchConfig]:
    search = SearchConfig(beam=beam, alpha=alpha, max_extra=max_extra)
    return grow_beam_tree(shaken(SMALL), SOURCE, SPECIAL, search), search


@pytest.mark.parametrize("beam", [1, 3, 5])
def test_its_best_hypothesis_is_that_of_the_search(beam: int) -> None:
    tree, search = tree_of(beam)
    model = shaken(SMALL)
    ids, lengths = pack([SOURCE])
    with torch.inference_mode():
        limits = lengths + search.max_extra
        state = model.start(model.encode(ids, lengths))
        best = beam_search(model.step, state, SPECIAL, limits, search)[0][0]
    assert tree.best == best
    assert tuple(tree.candidates[place].token for place in tree.path) == best.tokens
    assert tree.tokens(tree.path[-1]) == best.tokens


def test_every_candidate_has_its_probability_and_its_penalty() -> None:
    tree, search = tree_of(4)
    model = shaken(SMALL)
    for place, one in enumerate(tree.candidates):
        tokens = tree.tokens(place)
        assert len(tokens) == one.step
        expected = sum(token_log_probs([model], [SOURCE], [tokens])[0])
        assert one.log_prob == pytest.approx(expected, abs=1e-4)
        assert one.score == pytest.approx(one.log_prob / length_penalty(one.step, search.alpha, search.penalty))


def test_only_kept_candidates_have_children_and_a_step_keeps_no_more_than_the_beam() -> None:
    tree, search = tree_of(3)
    parents = {one.parent for one in tree.candidates} - {ROOT}
    assert all(tree.candidates[parent].fate == "kept" for parent in parents)
    for step in {one.step for one in tree.candidates}:
        fates = [one.fate for one in tree.candidates if one.step == step]
        assert 0 < len(fates) <= 2 * search.beam
        assert fates.count("kept") <= search.beam
    assert {one.fate for one in tree.candidates if one.token == EOS} == {"finished"}


def test_greedy_search_is_beside_it() -> None:
    wide, _ = tree_of(4)
    narrow, _ = tree_of(1)
    assert wide.greedy == narrow.best
