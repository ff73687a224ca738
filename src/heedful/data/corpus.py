"""A corpus as token ids in memory-mapped files: written once, read in any order, never loaded whole.

::

    folder/source.ids      all source sentences end to end, two bytes an id (four for vocabularies over 65 536)
    folder/source.ends     the end of each sentence, eight bytes
    folder/target.ids, folder/target.ends
    folder/corpus.json     a description, written last: a folder without it is unfinished
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from heedful.data.batch import Batch, batch_sentences
from heedful.data.pairs import Pair
from heedful.errors import FolderError, counted
from heedful.untrusted_files import open_file, parse_json, read_bytes

FORMAT = 1
_MOST_ABOUT_BYTES = 1 << 20  # of corpus.json
_PAIRS_AT_A_TIME = 8192
_SIDES = ("source", "target")
FILES = ("corpus.json", *(f"{side}.{kind}" for side in _SIDES for kind in ("ids", "ends")))

Encode = Callable[[Sequence[str]], list[list[int]]]


@dataclass(frozen=True, slots=True)
class DroppedPairs:
    """The numbers of pairs that were left out, by reason."""

    empty: int = 0
    too_long: int = 0
    uneven: int = 0

    @property
    def total(self) -> int:
        return self.empty + self.too_long + self.uneven


@dataclass(frozen=True, slots=True)
class PairLimits:
    """A corpus keeps pairs of at most `longest` pieces a side whose lengths differ by at most `ratio` (0: any)."""

    longest: int
    ratio: float = 0.0


class Corpus:
    """Sentence pairs as ids, on disk."""

    def __init__(self, folder: Path) -> None:
        about = _read_about(folder)
        self.folder = folder
        self.pairs = about.pairs
        self.dropped = about.dropped
        self._ids = {side: map_ids(folder / f"{side}.ids", about.dtype) for side in _SIDES}
        self._ends = {side: map_ids(folder / f"{side}.ends", np.dtype(np.int64)) for side in _SIDES}
        for side, ends in self._ends.items():
            if len(ends) != self.pairs or ends[-1:].sum() != len(self._ids[side]):
                raise FolderError(
                    f"{folder} is damaged: its files do not hold its {counted(self.pairs, 'pair')}; "
                    "delete it and train again"
                )

    def __len__(self) -> int:
        return self.pairs

    def lengths(self) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
        """The number of pieces of each source and each target, with EOS."""
        source, target = (np.diff(self._ends[side], prepend=0) for side in _SIDES)
        if min(source.min(initial=1), target.min(initial=1)) < 1:
            raise FolderError(f"{self.folder} is damaged: a sentence ends before it begins; delete it and train again")
        return source.astype(np.int32), target.astype(np.int32)

    def sentence(self, side: str, index: int) -> NDArray[np.int64]:
        """The ids of one side of one pair."""
        ends = self._ends[side]
        return self._ids[side][ends[index - 1] if index else 0 : ends[index]].astype(np.int64)

    def batch(self, indices: Sequence[int] | NDArray[np.int64], start_id: int) -> Batch:
        """The pairs at these places; `start_id` is the first input of the decoder."""
        sources = [self.sentence("source", int(index)) for index in indices]
        targets = [self.sentence("target", int(index)) for index in indices]
        return batch_sentences(sources, targets, indices, start_id)


def write_corpus(
    folder: Path,
    pairs: Iterable[Pair],
    encoders: tuple[Encode, Encode],
    vocabulary_size: int,
    limits: PairLimits,
    seen: Callable[[int], None] = lambda _: None,
) -> Corpus:
    """Encode the pairs into a new corpus; `seen` is called with the number of pairs read so far."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.json").unlink(missing_ok=True)
    dtype = np.dtype(np.uint16 if vocabulary_size <= 1 << 16 else np.uint32)
    with SideWriter(folder, "source", dtype) as source, SideWriter(folder, "target", dtype) as target:
        dropped = _encode(pairs, encoders, (source, target), limits, seen)
    describe_corpus(folder, source.count, dtype, dropped)
    return Corpus(folder)


def describe_corpus(folder: Path, pairs: int, dtype: np.dtype[np.generic], dropped: DroppedPairs) -> None:
    """Write the description of a corpus whose other files are complete."""
    about = {"format": FORMAT, "pairs": pairs, "dtype": dtype.name, "dropped": asdict(dropped)}
    temporary = folder / "corpus.json.new"
    temporary.write_text(json.dumps(about, indent=1), encoding="utf-8")
    temporary.replace(folder / "corpus.json")


def _encode(
    pairs: Iterable[Pair],
    encoders: tuple[Encode, Encode],
    writers: "tuple[SideWriter, SideWriter]",
    limits: PairLimits,
    seen: Callable[[int], None],
) -> DroppedPairs:
    """Write the pairs within the limits; count the others."""
    counts = {"empty": 0, "too_long": 0, "uneven": 0}
    read = 0
    for some in _in_chunks(pairs):
        full = [pair for pair in some if pair.source.strip() and pair.target.strip()]
        counts["empty"] += len(some) - len(full)
        sources = encoders[0]([pair.source for pair in full])
        targets = encoders[1]([pair.target for pair in full])
        for source, target in zip(sources, targets, strict=True):
            reason = _reason_to_drop(len(source), len(target), limits)
            if reason:
                counts[reason] += 1
            else:
                writers[0].add(source)
                writers[1].add(target)
        read += len(some)
        seen(read)
    return DroppedPairs(**counts)


class SideWriter:
    """Writes the two files of one side, sentence by sentence."""

    def __init__(self, folder: Path, side: str, dtype: np.dtype[np.generic]) -> None:
        self.count = 0
        self._end = 0
        self._dtype = dtype
        self._ids: BinaryIO = (folder / f"{side}.ids").open("wb")
        self._ends: BinaryIO = (folder / f"{side}.ends").open("wb")

    def add(self, ids: Sequence[int]) -> None:
        self._ids.write(np.array(ids, dtype=self._dtype).tobytes())
        self._end += len(ids)
        self._ends.write(self._end.to_bytes(8, "little"))
        self.count += 1

    def __enter__(self) -> "SideWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._ids, self._ends:  # closes both, even if the disk is full and the first fails
            for file in (self._ids, self._ends):
                file.flush()
                os.fsync(file.fileno())  # training never reads the text again, so the ids must survive a power cut


def _in_chunks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    iterator = iter(pairs)
    while chunk := list(islice(iterator, _PAIRS_AT_A_TIME)):
        yield chunk


def _reason_to_drop(source: int, target: int, limits: PairLimits) -> str:
    """The reason to leave out a pair of these lengths, or an empty string."""
    if max(source, target) > limits.longest:
        return "too_long"
    if limits.ratio and max(source, target) > limits.ratio * min(source, target):
        return "uneven"
    return ""


@dataclass(frozen=True, slots=True)
class _About:
    """The content of `corpus.json`."""

    pairs: int
    dropped: DroppedPairs
    dtype: np.dtype[np.generic]


def _read_about(folder: Path) -> _About:
    match read_description(folder, FORMAT):
        case {
            "pairs": int(pairs),
            "dropped": {"empty": int(empty), "too_long": int(too_long), "uneven": int(uneven)},
            "dtype": "uint16" | "uint32" as dtype,
        }:
            return _About(pairs, DroppedPairs(empty, too_long, uneven), np.dtype(dtype))
    raise FolderError(f"{folder / 'corpus.json'} is damaged; delete {folder} and train again")


def read_description(folder: Path, number: int) -> dict[str, Any]:
    """The content of a corpus.json of this format."""
    path = folder / "corpus.json"
    try:
        about = parse_json(read_bytes(path, _MOST_ABOUT_BYTES))
    except FileNotFoundError:
        raise FolderError(f"{folder} holds no prepared corpus; train again without --resume to make it") from None
    except ValueError:
        raise FolderError(f"{path} is damaged; delete {folder} and train again") from None
    if not isinstance(about, dict) or about.get("format") != number:
        raise FolderError(f"{path} is not a corpus of format {number}; delete {folder} and train again")
    return about


def map_ids(path: Path, dtype: np.dtype[np.generic]) -> NDArray[Any]:
    """The numbers in a file, which stays on disk until they are used."""
    try:
        file = open_file(path)
    except FileNotFoundError:
        raise FolderError(f"{path} is missing; delete {path.parent} and train again") from None
    with file:
        size = os.fstat(file.fileno()).st_size
        if size % dtype.itemsize:
            raise FolderError(f"{path} is damaged: it is incomplete; delete {path.parent} and train again")
        # An empty file cannot be mapped.
        return np.memmap(file, dtype=dtype, mode="r") if size else np.empty(0, dtype=dtype)
