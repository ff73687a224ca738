"""The likeliest tokens of a vocabulary, and the length penalty."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.config import SearchConfig
from heedful.decoding import token_rules as rules_module
from heedful.decoding import topk as top
from heedful.decoding.hypothesis import length_penalty
from heedful.decoding.step_function import SpecialTokens
from heedful.decoding.token_rules import make_token_rules
from heedful.decoding.topk import BLOCK, best_log_probs, top_log_probs


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**16),
    rows=st.integers(1, 5),
    vocabulary=st.sampled_from([3, BLOCK, 10 * BLOCK + 7, 40 * BLOCK]),
    k=st.integers(1, 9),
    kinds=st.sampled_from([2, 60, 700, 100_000]),
)
def test_the_top_of_a_vocabulary_is_that_of_a_stable_sort(
    seed: int, rows: int, vocabulary: int, k: int, kinds: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    log_probs = -torch.randint(kinds, (rows, vocabulary), generator=generator) / 8
    log_probs[torch.rand(rows, vocabulary, generator=generator) < 0.1] = -torch.inf
    values, ids = top_log_probs(log_probs, k)
    expected = log_probs.sort(dim=1, descending=True, stable=True)
    assert torch.equal(values, expected.values[:, :k])
    assert torch.equal(ids, expected.indices[:, :k])


def test_equal_tokens_in_different_blocks_are_ordered_by_id() -> None:
    log_probs = torch.full((1, 10 * BLOCK), -9.0)
    early, best, late = BLOCK + 6, 5 * BLOCK, 5 * BLOCK + 3
    log_probs[0, [early, best, late]] = torch.tensor([-2.0, -1.0, -2.0])
    values, ids = top_log_probs(log_probs, 3)
    assert ids.tolist() == [[best, early, late]]
    assert values.tolist() == [[-1.0, -2.0, -2.0]]


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**16),
    rows=st.integers(1, 5),
    vocabulary=st.sampled_from([3, BLOCK, 10 * BLOCK + 7]),
    k=st.integers(1, 9),
    kinds=st.sampled_from([2, 60, 100_000]),
    banned=st.sets(st.integers(0, 2), max_size=2),
)
def test_the_compiled_loop_finds_the_same_tokens(
    seed: int, rows: int, vocabulary: int, k: int, kinds: int, banned: set[int]
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(kinds, (rows, vocabulary), generator=generator) * (9 / kinds) - 4
    barred = torch.tensor(sorted(banned), dtype=torch.long)
    values, ids = best_log_probs(logits, barred, k)
    plain = logits.log_softmax(dim=1).index_fill_(1, barred, -torch.inf)
    expected, expected_ids = top_log_probs(plain, k)
    possible = expected > -torch.inf
    assert torch.equal(values > -torch.inf, possible)
    torch.testing.assert_close(values[possible], expected[possible], atol=5e-6, rtol=1e-5)
    # Different logits may round to the same probability, and the loop compares logits.
    assert torch.equal(logits.gather(1, ids)[possible], logits.gather(1, expected_ids)[possible])
    ties = logits.gather(1, ids)[:, :-1] == logits.gather(1, ids)[:, 1:]
    assert (ids[:, :-1] < ids[:, 1:])[ties & possible[:, 1:]].all()


@pytest.mark.parametrize("bad", [torch.nan, -torch.nan, torch.inf])
def test_a_row_with_nan_has_no_possible_token_and_does_not_affect_others(bad: float) -> None:
    logits = torch.randn(3, 5 * BLOCK, generator=torch.Generator().manual_seed(1))
    logits[1, 200] = bad
    values, ids = best_log_probs(logits, torch.tensor([0]), 4)
    expected = top_log_probs(logits.log_softmax(dim=1).index_fill_(1, torch.tensor([0]), -torch.inf), 4)
    assert (values[1] == -torch.inf).all()
    assert (expected[0][1] == -torch.inf).all()
    assert torch.equal(ids[[0, 2]], expected[1][[0, 2]])


def test_the_search_uses_the_compiled_loop_for_large_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(4, 300, generator=torch.Generator().manual_seed(2))
    rules = make_token_rules(SpecialTokens(0, 1, (0,)), SearchConfig(), logits.device)
    asked = (1, torch.empty(4, 0, dtype=torch.long), torch.arange(4), 6)
    plain = rules.best(logits, *asked)
    monkeypatch.setattr(top, "_MIN_LOGITS", 1)
    monkeypatch.setattr(rules_module, "top_log_probs", lambda *_: pytest.fail("the plain form was taken"))
    compiled = rules.best(logits, *asked)
    assert torch.equal(plain[1], compiled[1])
    torch.testing.assert_close(plain[0], compiled[0])
    monkeypatch.undo()
    monkeypatch.setattr(top, "_MIN_LOGITS", 1)
    short = make_token_rules(SpecialTokens(0, 1, (0,)), SearchConfig(min_length=5), logits.device)
    assert torch.equal(short.best(logits, *asked)[1], top_log_probs(short.log_probs(logits, *asked[:3]), 6)[1])


def test_the_papers_penalty_matches_a_calculation_by_hand() -> None:
    assert length_penalty(1.0, 0.6, "paper") == 1.0
    assert length_penalty(10.0, 0.6, "paper") == pytest.approx(1.73286, abs=1e-5)  # 2.5^0.6 = exp(0.6 x 0.916291)
    assert length_penalty(25.0, 1.0, "paper") == pytest.approx(5.0)
    assert length_penalty(16.0, 0.5, "power") == pytest.approx(4.0)
    assert length_penalty(torch.tensor([1.0, 7.0]), 1.0, "paper").tolist() == pytest.approx([1.0, 2.0])
