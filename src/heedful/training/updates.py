"""Split the prepared corpora into updates, and each update among the processes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from heedful.data.batching import Batching, Position, epoch_batches, split_batch
from heedful.data.corpus import Corpus
from heedful.training.gradients import Update


@dataclass(frozen=True, slots=True)
class UpdateSplit:
    """How an update is split: every process gets so many parts of about the same cost."""

    parts: int
    rank: int = 0
    processes: int = 1


def make_updates(
    corpora: Sequence[Corpus],
    start: Position,
    batching: Batching,
    split: UpdateSplit,
    pad_id: int,
    device: torch.device,
) -> Iterator[Update]:
    """Endless updates from this position on; each epoch takes the next corpus.

    The pairs of an update are the same for any split, so a training can continue with other processes or threads.
    """
    epoch, skip = start.epoch, start.update
    while True:
        corpus = corpora[epoch % len(corpora)]
        source, target = corpus.lengths()
        batches = epoch_batches(source, target, batching, epoch)
        for number in range(skip, len(batches)):
            pairs, end = batches[number], number + 1 == len(batches)
            parts = split_batch(pairs, split.parts * split.processes)
            mine = [part for part in parts[split.rank :: split.processes] if len(part)]
            target_tokens = int(target[pairs].sum())
            yield Update(
                [corpus.batch(part, pad_id).to(device) for part in mine],
                target_tokens,
                target_tokens + int(source[pairs].sum()),
                epoch,
                Position(epoch + 1) if end else Position(epoch, number + 1),
            )
        epoch, skip = epoch + 1, 0
