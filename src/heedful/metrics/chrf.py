"""chrF by sacreBLEU, and the agreement between several translations of one text."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.chrf import CHRF, CHRFScore
from sacrebleu.metrics.helpers import extract_all_char_ngrams


class Chrf(CHRF):
    """sacreBLEU's chrF with Python floats only: its own mixes them with NumPy's, which its bootstrap cannot take."""

    def _compute_score_from_stats(self, stats: list[int]) -> CHRFScore:
        score = super()._compute_score_from_stats(stats)
        score.score = float(score.score)
        return score


def score_agreement(texts: Sequence[str]) -> list[float]:
    """The mean chrF (0 to 100) of each text, with every text in turn as its reference.

    If the texts are samples from a model, the one with the highest mean has the lowest Bayes risk (Eikema and Aziz,
    2020).
    """
    counts = Counter(texts)
    found = dict(zip(counts, _pairwise_chrf(list(counts)) @ np.array(list(counts.values())) / len(texts), strict=True))
    return [float(found[text]) for text in texts]


def _pairwise_chrf(texts: Sequence[str]) -> NDArray[np.float64]:
    """The chrF of each text (row) against each reference (column); n-grams are counted only once."""
    grams = [extract_all_char_ngrams(text, CHRF.CHAR_ORDER) for text in texts]
    shape = (len(texts), len(texts))
    precision, recall, orders = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for order in range(CHRF.CHAR_ORDER):
        known = {gram: column for column, gram in enumerate({gram for text in grams for gram in text[order]})}
        counts = np.zeros((len(texts), len(known)), dtype=np.int32)
        for row, text in enumerate(grams):
            counts[row, [known[gram] for gram in text[order]]] = list(text[order].values())
        sizes = counts.sum(axis=1)
        matches = np.stack([np.minimum(row, counts).sum(axis=1) for row in counts])
        both = (sizes[:, None] > 0) & (sizes[None, :] > 0)  # a text may be too short for n-grams of this size
        precision += np.where(both, matches / np.maximum(sizes, 1)[:, None], 0.0)
        recall += np.where(both, matches / np.maximum(sizes, 1)[None, :], 0.0)
        orders += both
    precision, recall = precision / np.maximum(orders, 1), recall / np.maximum(orders, 1)
    factor = CHRF.BETA**2
    below = factor * precision + recall
    return 100 * (1 + factor) * precision * recall / np.where(below > 0, below, 1.0)
