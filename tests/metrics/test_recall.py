"""Recall and its chance, by counting and against simulation."""

import numpy as np
import pytest

from heedful.metrics.recall import Ranks, find_ranks, mean_recall, score_ranks


def test_the_rank_is_the_number_of_wrong_candidates_before_the_best_right_one() -> None:
    scores = np.array([[0.1, 0.9, 0.5, 0.3], [0.4, 0.4, 0.4, 0.4], [0.9, 0.1, 0.8, 0.7]])
    right = np.array([[False, False, True, True], [True, False, False, False], [False, False, True, True]])
    assert find_ranks(scores, right).tolist() == [1, 3, 1]  # a tie counts against it


def test_a_model_that_knows_nothing_has_no_recall_by_ties() -> None:
    assert (find_ranks(np.zeros((20, 20)), np.eye(20, dtype=bool)) == 19).all()


@pytest.mark.parametrize("k", [1, 5, 10])
def test_chance_is_what_a_random_order_gives(k: int) -> None:
    chance = np.random.default_rng(3)
    right = np.zeros((4, 12), dtype=bool)
    for row, count in enumerate((1, 3, 12, 2)):
        right[row, :count] = True
    found = Ranks(np.zeros(4, dtype=np.int64), right.sum(1), 12)
    drawn = [(find_ranks(chance.random((4, 12)), right) < k).mean() for _ in range(4000)]
    assert found.chance(k) == pytest.approx(100 * np.mean(drawn), abs=1.5)
    assert Ranks(np.zeros(1, dtype=np.int64), np.array([1]), 3).chance(k) == pytest.approx(min(100.0, 100 * k / 3))


def test_scores_have_an_interval_and_their_chance() -> None:
    ranks = Ranks(np.array([0, 0, 3, 7, 12]), np.ones(5, dtype=np.int64), 20)
    first, fifth, tenth = score_ranks(ranks, "text to picture", resamples=200)
    assert (first.value, fifth.value, tenth.value) == (40.0, 60.0, 80.0)
    assert first.low < first.value < first.high
    assert [first.chance, fifth.chance] == pytest.approx([5.0, 25.0])
    assert fifth.metric == "text to picture recall@5"
    assert mean_recall((ranks, Ranks(np.array([0]), np.array([1]), 4))) == 80.0
