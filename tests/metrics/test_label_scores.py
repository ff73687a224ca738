"""Scores of labels against scikit-learn's definitions counted by hand, and the confusion matrix."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.metrics.label_scores import accuracy, count_confusions, f1_by_label, macro_f1, report_labels

LABELS = 4
labels = st.integers(0, LABELS - 1)


def by_hand(pairs: list[tuple[int, int]], label: int) -> float:
    """F1 by its definition, as the harmonic mean of precision and recall."""
    right = sum(gold == found == label for gold, found in pairs)
    found, gold = sum(pair[1] == label for pair in pairs), sum(pair[0] == label for pair in pairs)
    if not right:
        return 0.0
    precision, recall = right / found, right / gold
    return 100.0 * 2.0 * precision * recall / (precision + recall)


@given(st.lists(st.tuples(labels, labels), min_size=1))
def test_f1_is_the_harmonic_mean_and_accuracy_the_share(pairs: list[tuple[int, int]]) -> None:
    gold, found = map(list, zip(*pairs, strict=True))
    matrix = count_confusions(gold, found, LABELS)
    assert matrix.sum() == len(pairs)
    used = sorted({label for pair in pairs for label in pair})
    f1 = f1_by_label(matrix)
    assert [f1[label] for label in used] == pytest.approx([by_hand(pairs, label) for label in used])
    assert macro_f1(matrix) == pytest.approx(np.mean([by_hand(pairs, label) for label in used]))
    assert accuracy(matrix) == pytest.approx(100.0 * sum(g == f for g, f in pairs) / len(pairs))


@given(st.permutations(range(LABELS)), st.lists(st.tuples(labels, labels), min_size=1))
def test_the_names_of_labels_do_not_matter(order: list[int], pairs: list[tuple[int, int]]) -> None:
    gold, found = map(list, zip(*pairs, strict=True))
    other = count_confusions([order[g] for g in gold], [order[f] for f in found], LABELS)
    assert macro_f1(other) == pytest.approx(macro_f1(count_confusions(gold, found, LABELS)))


def test_a_report_has_every_label_that_occurs() -> None:
    report = report_labels([([0, 0, 2], [0, 2, 2]), ([0], [0])], ("a", "b", "c"), resamples=50)
    assert report.labels == ("a", "c")
    assert report.confusion == ((2, 1), (0, 1))
    first, second = report.by_label
    assert (first.precision, first.count) == (100.0, 3)
    assert first.recall == pytest.approx(66.67, abs=0.01)
    assert (second.precision, second.recall, second.count) == (50.0, 100.0, 1)
    share, mean = report.scores
    assert (share.metric, share.value) == ("accuracy", 75.0)
    assert mean.metric == "macro F1"
    assert mean.value == pytest.approx((80.0 + 66.667) / 2, abs=0.01)
    assert share.low <= share.value <= share.high
    assert "labels:2|texts:2|bs:50" in share.signature
