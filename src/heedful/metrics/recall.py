"""How well the right candidates are found: recall among the first k, and what chance would give."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from heedful.metrics import Score
from heedful.metrics.bootstrap import bootstrap_score, percent

RECALL = "recall@5"  # the score of a validation: the mean of both directions
FIRST = (1, 5, 10)


@dataclass(frozen=True, slots=True)
class RetrievalScore(Score):
    """Recall in per cent, and that of a random order."""

    chance: float = 0.0


@dataclass(frozen=True, slots=True)
class Ranks:
    """For each query, the rank of its best right candidate from 0, and how many of the candidates are right."""

    ranks: Int[np.ndarray, " queries"]
    right: Int[np.ndarray, " queries"]
    candidates: int

    def recall(self, k: int) -> float:
        """The percentage of queries with a right candidate among the first k."""
        return percent(float((self.ranks < k).sum()), len(self.ranks))

    def chance(self, k: int) -> float:
        """The recall that a random order has on average."""
        wrong, drawn = self.candidates - self.right, min(k, self.candidates)
        # The probability that all drawn candidates are wrong: the first, then the second, and so on.
        factors = np.clip(wrong[:, None] - np.arange(drawn), 0, None) / (self.candidates - np.arange(drawn))
        return float(100.0 * (1.0 - factors.prod(1)).mean())


def find_ranks(
    scores: Float[np.ndarray, "queries candidates"], right: Bool[np.ndarray, "queries candidates"]
) -> Int[np.ndarray, " queries"]:
    """How many wrong candidates are before the best right one; a tie counts against it."""
    best = np.where(right, scores, -np.inf).max(1, keepdims=True)
    return ((scores >= best) & ~right).sum(1)


def score_ranks(found: Ranks, direction: str, resamples: int = 1000) -> list[RetrievalScore]:
    """Recall at 1, 5 and 10; the intervals are by bootstrap over the queries."""
    signature = f"queries:{len(found.ranks)}|candidates:{found.candidates}"
    scores = []
    for k in FIRST:
        hits: NDArray[np.float64] = np.stack([found.ranks < k, np.ones(len(found.ranks))], axis=1).astype(np.float64)
        score = bootstrap_score(f"{direction} recall@{k}", hits, _share, signature, resamples)
        scores.append(
            RetrievalScore(score.metric, score.value, score.low, score.high, score.signature, chance=found.chance(k))
        )
    return scores


def _share(sums: NDArray[np.float64]) -> float:
    return percent(sums[0], sums[1])


def mean_recall(both: Sequence[Ranks], k: int = 5) -> float:
    """The mean recall of both directions."""
    return sum(ranks.recall(k) for ranks in both) / len(both)
