"""Which pairs go together (section 5.1): about the same length, a budget of tokens, a new order every epoch."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

_BAND = 2  # target lengths that count as equal; wider or narrower bands waste more on image captions


@dataclass(frozen=True, slots=True)
class Position:
    """Where in the data training stands: the next update is number `update` of epoch `epoch`."""

    epoch: int = 0
    update: int = 0


@dataclass(frozen=True, slots=True)
class Batching:
    """How a corpus is cut up: at most `batch_tokens` source and as many target tokens an update."""

    batch_tokens: int
    seed: int


def epoch_batches(
    source: Int[np.ndarray, " pairs"], target: Int[np.ndarray, " pairs"], batching: Batching, epoch: int
) -> list[NDArray[np.int64]]:
    """All pairs once, in batches of at most the budget, which is the same for the same seed and epoch.

    Sorted by length, so that the grid of attention is nearly full; equal lengths and the batches are in random order.
    A pair longer than the budget is a batch of its own.
    """
    if not len(source):
        return []
    random = np.random.Generator(np.random.Philox(key=[batching.seed, epoch]))
    shuffled = random.permutation(len(source))
    band = target[shuffled] // _BAND
    # Back and forth through the source lengths, so that a batch on the border of two bands is even as well.
    zigzag = np.where(band % 2 == 0, source[shuffled], -source[shuffled])
    order = shuffled[np.lexsort((zigzag, band))]
    cuts = _cuts(source[order].astype(np.int64), target[order].astype(np.int64), batching.batch_tokens)
    batches = np.split(order, cuts)
    return [batches[index] for index in random.permutation(len(batches))]


def _cuts(source: NDArray[np.int64], target: NDArray[np.int64], budget: int) -> list[int]:
    """Where a new batch begins, so that neither side is over the budget."""
    source_sums, target_sums = np.cumsum(source), np.cumsum(target)
    cuts: list[int] = []
    begin = 0
    while True:
        source_before = source_sums[begin - 1] if begin else 0
        target_before = target_sums[begin - 1] if begin else 0
        end = min(
            np.searchsorted(source_sums, source_before + budget, side="right"),
            np.searchsorted(target_sums, target_before + budget, side="right"),
        )
        begin = max(int(end), begin + 1)
        if begin >= len(source):
            return cuts
        cuts.append(begin)


def shares(batch: NDArray[np.int64], parts: int) -> list[NDArray[np.int64]]:
    """A batch in so many parts that cost the same; where pairs are few, the last are empty.

    A batch is sorted by length, so every so many-th pair is as long as the others, on both sides.
    """
    return [batch[part::parts] for part in range(parts)]


def padding_share(lengths: Int[np.ndarray, " pairs"], batches: list[NDArray[np.int64]]) -> float:
    """How much of the attention's grid would be padding."""
    cells = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1.0 - float(lengths.sum()) / cells
