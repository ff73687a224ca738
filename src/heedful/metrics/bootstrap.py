"""The interval of a corpus score by bootstrap resampling of the sentences (Koehn 2004)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from heedful.metrics import Score

_SEED = 12345  # the same as sacreBLEU's

Counts = NDArray[np.float64]


def bootstrap_score(
    metric: str, counts: Counts, value: Callable[[Counts], float], signature: str, resamples: int
) -> Score:
    """The score that `value` computes from sums over the sentences; `counts` has one row per sentence."""
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
        # It may be that no resample has a certain rare sentence. The value itself still belongs in its interval.
        min(float(low), middle),
        max(float(high), middle),
        f"bs:{resamples}|seed:{_SEED}|{signature}" if drawn else signature,
    )


def percent(part: float, whole: float) -> float:
    """The percentage of a whole; 100 if the whole is 0, because nothing was wrong."""
    return 100.0 * float(part) / float(whole) if whole else 100.0
