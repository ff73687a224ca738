"""How sure a corpus score is: bootstrap over the sentences (Koehn 2004)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from heedful.metrics.score import Score

_SEED = 12345  # sacreBLEU's

Counts = NDArray[np.float64]


def score_of_sums(
    metric: str, counts: Counts, value: Callable[[Counts], float], signature: str, resamples: int
) -> Score:
    """A score that is a function of sums over the sentences, of which `counts` has a row each."""
    generator = np.random.default_rng(_SEED)
    middle = value(counts.sum(axis=0))
    drawn = [
        value(counts[generator.integers(len(counts), size=len(counts))].sum(axis=0))
        for _ in range(resamples if resamples > 1 else 0)
    ]
    low, high = np.percentile(drawn, (2.5, 97.5)) if drawn else (middle, middle)
    return Score(
        metric,
        middle,
        # A rare sentence is in no resample, at times; the value itself is never out of its interval.
        min(float(low), middle),
        max(float(high), middle),
        f"bs:{resamples}|seed:{_SEED}|{signature}" if drawn else signature,
    )


def percent(part: float, whole: float) -> float:
    """Of nothing all is right."""
    return 100.0 * float(part) / float(whole) if whole else 100.0
