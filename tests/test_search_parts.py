"""The top of a vocabulary and the length penalty."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.search.penalty import length_penalty
from heedful.search.top import BLOCK, top_log_probs


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


def test_equal_tokens_of_different_blocks_come_in_the_order_of_their_ids() -> None:
    log_probs = torch.full((1, 10 * BLOCK), -9.0)
    early, best, late = BLOCK + 6, 5 * BLOCK, 5 * BLOCK + 3
    log_probs[0, [early, best, late]] = torch.tensor([-2.0, -1.0, -2.0])
    values, ids = top_log_probs(log_probs, 3)
    assert ids.tolist() == [[best, early, late]]
    assert values.tolist() == [[-1.0, -2.0, -2.0]]


def test_the_papers_penalty_by_hand() -> None:
    assert length_penalty(1.0, 0.6, "paper") == 1.0
    assert length_penalty(10.0, 0.6, "paper") == pytest.approx(1.73286, abs=1e-5)  # 2.5^0.6 = exp(0.6 x 0.916291)
    assert length_penalty(25.0, 1.0, "paper") == pytest.approx(5.0)
    assert length_penalty(16.0, 0.5, "power") == pytest.approx(4.0)
    assert length_penalty(torch.tensor([1.0, 7.0]), 1.0, "paper").tolist() == pytest.approx([1.0, 2.0])
