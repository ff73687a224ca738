"""Batches: token ids as tensors, and how pairs are grouped (section 5.1).

Batches have pairs of similar length within a budget of tokens, in a new order every epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

_BAND = 2  # target lengths that count as equal; on image captions, wider and narrower bands waste more


@dataclass(frozen=True, slots=True)
class Batch:
    """Sentence pairs end to end, without padding, and their lengths.

    `target_in` is the target shifted right: it starts with PAD, the decoder's start symbol, and `target_out` ends with
    EOS. Code that needs a padded grid makes it from the lengths.
    """

    source: Int[Tensor, " source_rows"]
    source_lengths: Int[Tensor, " batch"]
    target_in: Int[Tensor, " target_rows"]
    target_out: Int[Tensor, " target_rows"]
    target_lengths: Int[Tensor, " batch"]
    indices: Int[Tensor, " batch"]  # the indices of the pairs in the corpus

    @property
    def tokens(self) -> int:
        """Source and target tokens together."""
        return len(self.source) + len(self.target_out)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return Batch(
            self.source.to(device),
            self.source_lengths.to(device),
            self.target_in.to(device),
            self.target_out.to(device),
            self.target_lengths.to(device),
            self.indices.to(device),
        )

    def twice(self) -> "Batch":
        """All pairs, followed by all of them again."""
        return Batch(*(torch.cat([rows, rows]) for rows in (getattr(self, field.name) for field in fields(self))))


def batch_sentences(
    sources: Sequence[NDArray[np.int64]],
    targets: Sequence[NDArray[np.int64]],
    indices: Sequence[int] | NDArray[np.int64],
    start_id: int,
) -> Batch:
    """The batch of these pairs, which have these indices; `start_id` is the first input of the decoder."""
    target_out = torch.from_numpy(np.concatenate(targets))
    target_lengths = torch.tensor([len(target) for target in targets])
    target_in = target_out.roll(1)
    target_in[target_lengths.cumsum(0) - target_lengths] = start_id
    return Batch(
        source=torch.from_numpy(np.concatenate(sources)),
        source_lengths=torch.tensor([len(source) for source in sources]),
        target_in=target_in,
        target_out=target_out,
        target_lengths=target_lengths,
        indices=torch.as_tensor(np.asarray(indices, dtype=np.int64)),
    )


@runtime_checkable
class Examples(Protocol):
    """What the training loop reads: numbered pairs of ids, such as sentences and translations or windows of a text."""

    def __len__(self) -> int: ...

    def lengths(self) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
        """The number of tokens of each source and each target."""
        ...

    def batch(self, indices: Sequence[int] | NDArray[np.int64], start_id: int) -> Batch:
        """The pairs at these places; `start_id` is the first input of the decoder."""
        ...


def pack(sentences: Sequence[Sequence[int]]) -> tuple[Int[Tensor, " rows"], Int[Tensor, " batch"]]:
    """All ids of these sentences end to end, and the lengths."""
    ids = [token for sentence in sentences for token in sentence]
    return torch.tensor(ids, dtype=torch.int64), torch.tensor([len(s) for s in sentences], dtype=torch.int64)


@dataclass(frozen=True, slots=True)
class Position:
    """The position of training in the data: the next update is number `update` of epoch `epoch`."""

    epoch: int = 0
    update: int = 0


@dataclass(frozen=True, slots=True)
class Batching:
    """The size of batches: at most `batch_tokens` source tokens and as many target tokens in an update."""

    batch_tokens: int
    seed: int


def epoch_batches(
    source: Int[np.ndarray, " pairs"], target: Int[np.ndarray, " pairs"], batching: Batching, epoch: int
) -> list[NDArray[np.int64]]:
    """Batches within the budget that contain every pair once; the same seed and epoch give the same batches.

    Pairs are sorted by length, so that little of attention's grid is padding. Pairs of equal length, and the batches,
    are in random order. A pair longer than the budget is a batch of its own.
    """
    if not len(source):
        return []
    random = np.random.Generator(np.random.Philox(key=[batching.seed, epoch]))
    shuffled = random.permutation(len(source))
    band = target[shuffled] // _BAND
    # Source lengths rise in one band and fall in the next, so that a batch across two bands has similar lengths, too.
    zigzag = np.where(band % 2 == 0, source[shuffled], -source[shuffled])
    order = shuffled[np.lexsort((zigzag, band))]
    cuts = _cuts(source[order].astype(np.int64), target[order].astype(np.int64), batching.batch_tokens)
    batches = np.split(order, cuts)
    return [batches[index] for index in random.permutation(len(batches))]


def _cuts(source: NDArray[np.int64], target: NDArray[np.int64], budget: int) -> list[int]:
    """The places where a new batch begins, so that neither side exceeds the budget."""
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


def split_batch(batch: NDArray[np.int64], parts: int) -> list[NDArray[np.int64]]:
    """Split a batch into parts of equal cost; if there are few pairs, the last parts are empty.

    A batch is sorted by length, so taking every n-th pair gives parts of about the same lengths.
    """
    return [batch[part::parts] for part in range(parts)]


def padding_share(lengths: Int[np.ndarray, " pairs"], batches: list[NDArray[np.int64]]) -> float:
    """The share of attention's grid that would be padding."""
    cells = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1.0 - float(lengths.sum()) / cells
