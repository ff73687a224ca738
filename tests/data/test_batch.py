"""Batches contain every pair once, stay within the budget, and are ordered by the seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from heedful.data.batch import Batching, Position, epoch_batches, padding_share, split_batch

LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=60)
Lengths = NDArray[np.int32]


def columns(pairs: list[tuple[int, int]]) -> tuple[Lengths, Lengths]:
    source, target = np.array(pairs, dtype=np.int32).reshape(-1, 2).T
    return source, target


def captions(count: int = 29_000) -> tuple[Lengths, Lengths]:
    """Lengths like those of Multi30k in word pieces: 14.5 on average, and about as many in the target."""
    random = np.random.default_rng(5)
    source = np.clip(random.gamma(shape=9.0, scale=1.5, size=count) + 1.0, 4, 50).astype(np.int32)
    target = np.clip(source * random.normal(1.05, 0.18, size=count), 3, 60).astype(np.int32)
    return source, target


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 100), st.integers(0, 2**63 - 1), st.integers(0, 1000))
def test_every_pair_comes_exactly_once_and_no_side_is_over_the_budget(
    pairs: list[tuple[int, int]], budget: int, seed: int, epoch: int
) -> None:
    source, target = columns(pairs)
    batches = epoch_batches(source, target, Batching(budget, seed), epoch)
    assert sorted(index for batch in batches for index in batch.tolist()) == list(range(len(pairs)))
    for batch in batches:
        assert len(batch) > 0
        over = max(source[batch].sum(), target[batch].sum()) > budget
        assert not over or len(batch) == 1  # a pair that is too long for any batch is one by itself


@settings(deadline=None)
@given(LENGTHS.filter(bool), st.integers(1, 9))
def test_shares_are_the_whole_batch_and_cost_the_same(pairs: list[tuple[int, int]], parts: int) -> None:
    source, target = columns(pairs)
    for batch in epoch_batches(source, target, Batching(200, 1), 0):
        found = split_batch(batch, parts)
        assert len(found) == parts
        assert sorted(pair for part in found for pair in part.tolist()) == sorted(batch.tolist())
        sums = [target[part].sum() for part in found]
        assert max(sums) - min(sums) <= 2 * target[batch].max()


def test_shares_of_captions_differ_by_a_hundredth() -> None:
    source, target = captions()
    batches = epoch_batches(source, target, Batching(4096, 1), 0)
    for costs in (source, target):
        pairs = [[costs[part].sum() for part in split_batch(batch, 2)] for batch in batches[:-1]]
        assert np.mean([abs(one - other) / (one + other) for one, other in pairs]) < 0.01


def test_with_few_pairs_some_shares_are_empty() -> None:
    assert [part.tolist() for part in split_batch(np.array([7, 3]), 4)] == [[7], [3], [], []]


def lists(seed: int, epoch: int) -> list[list[int]]:
    source, target = captions(500)
    return [batch.tolist() for batch in epoch_batches(source, target, Batching(300, seed), epoch)]


def test_the_same_seed_and_epoch_give_the_same_batches() -> None:
    assert lists(1, 4) == lists(1, 4)


@pytest.mark.parametrize(("seed", "epoch"), [(1, 5), (2, 4), (4, 1)])
def test_a_different_epoch_or_seed_gives_different_batches(seed: int, epoch: int) -> None:
    before, after = lists(1, 4), lists(seed, epoch)
    assert before != after
    assert {frozenset(batch) for batch in before} != {frozenset(batch) for batch in after}


def test_short_and_long_batches_are_mixed() -> None:
    """Lengths in the order of an epoch show no trend: neighbours are as far apart as any two batches."""
    source, _ = captions(5000)
    means = np.array([source[batch].mean() for batch in lists_of(5000)])
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.3


def lists_of(count: int) -> list[NDArray[np.int64]]:
    source, target = captions(count)
    return epoch_batches(source, target, Batching(600, 1), 0)


def test_hardly_any_of_attentions_grid_is_padding() -> None:
    source, target = captions()
    batches = epoch_batches(source, target, Batching(2048, 1), 0)
    in_order = np.array_split(np.arange(len(source)), len(batches))
    assert padding_share(source, batches) < 0.05
    assert padding_share(target, batches) < 0.05
    assert padding_share(source, in_order) > 0.45  # what it would be without sorting


@pytest.mark.parametrize(("source", "target"), [(5, 4), (4, 5), (5, 5)])
def test_a_batch_may_be_full_to_the_last_token(source: int, target: int) -> None:
    lengths = np.full(6, source, dtype=np.int32), np.full(6, target, dtype=np.int32)
    assert [len(batch) for batch in epoch_batches(*lengths, Batching(15, 1), 0)] == [3, 3]


def test_the_budget_is_used() -> None:
    source, target = captions()
    batches = epoch_batches(source, target, Batching(2048, 1), 0)
    fewest = max(source.sum(), target.sum()) / 2048
    assert len(batches) < 1.15 * fewest


def test_padding_is_the_space_that_the_longest_sentence_leaves() -> None:
    lengths = np.array([2, 4, 3, 3], dtype=np.int32)
    assert padding_share(lengths, [np.array([0, 1]), np.array([2, 3])]) == pytest.approx(2 / 14)
    assert padding_share(lengths, [np.array([i]) for i in range(4)]) == 0.0


def test_the_first_position_is_the_first_update_of_the_first_epoch() -> None:
    assert Position() == Position(epoch=0, update=0)


def test_without_pairs_there_are_no_batches() -> None:
    none = np.empty(0, dtype=np.int32)
    assert epoch_batches(none, none, Batching(9, 1), 0) == []
