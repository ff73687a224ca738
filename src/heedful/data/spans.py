"""Span corruption (T5, Raffel et al., 2020): a model reads a passage without some of its spans, and writes those.

::

    passage   Thank you for inviting me to your party last week .
    source    Thank you <extra_id_0> me to your party <extra_id_1> week . </s>
    target    <extra_id_0> for inviting <extra_id_1> last </s>

15 % of the pieces are left out, in spans of 3 on average. T5's own code begins every passage with a piece that stays,
so of a short one it leaves out the end alone; here what stays in front may move behind the last span instead. What is
left out depends only on the seed, the epoch and the passage: not on the batch, and not on what came before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from jaxtyping import Bool, Int
from numpy.typing import NDArray

from heedful.data.batch import Batch, batch_sentences
from heedful.data.corpus import Corpus
from heedful.text import Tokenizer

NOISE = 0.15  # share of the pieces that are left out
MEAN_SPAN = 3.0
SENTINELS = tuple(f"<extra_id_{number}>" for number in range(100))  # one for each span of a passage
VALIDATION_EPOCH = (1 << 32) - 1

_EPOCHS = 1 << 31
_BITS = 64


def count_noise(pieces: Int[np.ndarray, " passages"]) -> tuple[Int[np.ndarray, " passages"], ...]:
    """How many pieces of passages of so many are left out, and in how many spans."""
    noise = np.clip(np.rint(pieces * NOISE), 1, np.maximum(pieces - 1, 1)).astype(np.int64)
    spans = np.clip(np.rint(noise / MEAN_SPAN), 1, len(SENTINELS)).astype(np.int64)
    # Something stays between two spans.
    return noise, np.minimum(spans, np.maximum(pieces - noise, 1))


def draw_noise(pieces: int, generator: np.random.Generator) -> Bool[np.ndarray, " pieces"]:
    """Which pieces of a passage of so many are left out."""
    noise, spans = (int(count[0]) for count in count_noise(np.array([pieces])))
    left_out = _divide(noise, spans, generator)
    stays = _divide(pieces - noise, spans, generator) if pieces > noise else np.zeros(1, np.int64)
    behind = int(generator.integers(stays[0] + 1))  # so much of what stays in front moves behind the last span
    runs = np.ravel(np.stack([stays, left_out], axis=1))
    runs[0] -= behind
    mask = np.tile([False, True], spans).repeat(runs)
    return np.append(mask, np.zeros(behind, dtype=bool))


def _divide(items: int, parts: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """The lengths of so many parts of so many items, each at least one; all divisions are equally likely."""
    cuts = np.sort(generator.choice(items - 1, parts - 1, replace=False)) + 1 if parts > 1 else np.zeros(0, np.int64)
    return np.diff(cuts, prepend=0, append=items)


def corrupt(
    ids: NDArray[np.int64], mask: Bool[np.ndarray, " pieces"], sentinels: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What a model reads and writes of a passage, whose last id is EOS, without the pieces under the mask."""
    starts = mask & ~np.append(False, mask[:-1])
    marks = np.asarray(sentinels)[: int(starts.sum())]
    content, end = ids[:-1], ids[-1:]
    source = content.copy()
    source[starts] = marks
    left_out = np.insert(content[mask], np.flatnonzero(starts[mask]), marks)
    return np.append(source[starts | ~mask], end), np.append(left_out, end)


@dataclass(frozen=True, slots=True)
class CorruptedPassages:
    """The passages of a corpus as pairs to learn from, corrupted anew in each epoch."""

    corpus: Corpus
    sentinels: Sequence[int]
    seed: int
    epoch: int

    def __len__(self) -> int:
        return len(self.corpus)

    def lengths(self) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
        """The number of pieces of each source and target; they are the same in all epochs."""
        pieces = self.corpus.lengths()[0].astype(np.int64) - 1
        noise, spans = count_noise(pieces)
        return (pieces - noise + spans + 1).astype(np.int32), (noise + spans + 1).astype(np.int32)

    def pair(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The source and the target of one passage."""
        ids = self.corpus.sentence("source", index)
        key = self.seed + (self.epoch << _BITS) + (index << (_BITS + 32))
        generator = np.random.Generator(np.random.Philox(key=key))
        return corrupt(ids, draw_noise(len(ids) - 1, generator), self.sentinels)

    def batch(self, indices: Sequence[int] | NDArray[np.int64], start_id: int) -> Batch:
        """The pairs at these places; `start_id` is the first input of the decoder."""
        pairs = [self.pair(int(index)) for index in indices]
        return batch_sentences([source for source, _ in pairs], [target for _, target in pairs], indices, start_id)


class CorruptedEpochs(Sequence[CorruptedPassages]):
    """The passages of each epoch; the corpora, which may segment them differently, take turns."""

    def __init__(self, corpora: Sequence[Corpus], sentinels: Sequence[int], seed: int) -> None:
        self._corpora = corpora
        self._sentinels = sentinels
        self._seed = seed

    def __len__(self) -> int:
        return _EPOCHS

    @overload
    def __getitem__(self, epoch: int) -> CorruptedPassages: ...

    @overload
    def __getitem__(self, epoch: slice) -> Sequence[CorruptedPassages]: ...

    def __getitem__(self, epoch: int | slice) -> CorruptedPassages | Sequence[CorruptedPassages]:
        if isinstance(epoch, slice):
            return [self[one] for one in range(*epoch.indices(len(self)))]
        corpus = self._corpora[epoch % len(self._corpora)]
        return CorruptedPassages(corpus, self._sentinels, self._seed, epoch)


def find_sentinels(tokenizer: Tokenizer) -> list[int]:
    """The ids of the sentinels in a vocabulary that has them."""
    return [tokenizer.special_id(name) for name in SENTINELS]
