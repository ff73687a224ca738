"""Plain text as one stream of token ids in a memory-mapped file, which a model reads in windows.

::

    folder/text.ids        all texts end to end, each followed by EOS; two bytes an id (four for large vocabularies)
    folder/corpus.json     a description, written last: a folder without it is unfinished

A window is a pair for the training loop: its first token is the source, and the target is the tokens after it.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import overload

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray

from heedful.data.batch import Batch
from heedful.data.corpus import map_ids, read_description
from heedful.data.pairs import read_text
from heedful.errors import DataError, FolderError
from heedful.text import Tokenizer

FORMAT = 1
TEXT_FILES = ("corpus.json", "text.ids")


@dataclass(frozen=True, slots=True)
class TextStatistics:
    """The size of plain text, measured in one pass."""

    texts: int
    characters: int
    distinct: int  # different characters
    beyond_ascii: int  # of them


@dataclass(frozen=True, slots=True)
class TextSpan:
    """The characters from `start` to `stop` of several files, one after another."""

    files: tuple[str, ...]
    start: int
    stop: int

    def chunks(self) -> Iterator[str | None]:
        """The text in chunks; None stands for the end of a file."""
        place = 0
        for name in self.files:
            for chunk in read_text(Path(name)):
                part = chunk[max(0, self.start - place) : max(0, self.stop - place)]
                place += len(chunk)
                if part:
                    yield part
                if place > self.stop:
                    return
            if self.start < place <= self.stop:
                yield None


def measure_text(files: Sequence[str]) -> TextStatistics:
    """Count characters; damaged files raise their errors here, before any other work."""
    characters, distinct = 0, set[str]()
    for name in files:
        before = characters
        for chunk in read_text(Path(name)):
            characters += len(chunk)
            distinct.update(chunk)
        if characters == before:
            raise DataError(f"{name} is empty; give a file with text")
    beyond = sum(1 for character in distinct if not character.isascii())
    return TextStatistics(len(files), characters, len(distinct), beyond)


class TextCorpus:
    """Plain text as ids, on disk."""

    def __init__(self, folder: Path) -> None:
        match read_description(folder, FORMAT):
            case {"tokens": int(tokens), "characters": int(characters), "dtype": "uint16" | "uint32" as dtype}:
                self.characters = characters
            case _:
                raise FolderError(f"{folder}/corpus.json is damaged; delete {folder} and train again")
        self.ids = map_ids(folder / "text.ids", np.dtype(dtype))
        if len(self.ids) != tokens:
            raise FolderError(
                f"{folder} is damaged: text.ids holds {len(self.ids)} tokens instead of {tokens}; "
                "delete it and train again"
            )

    def __len__(self) -> int:
        return len(self.ids)

    def windows(self, context: int, first: int = 0) -> "TextWindows":
        """All tokens in windows of `context` tokens to predict; the first of them has `first`, if that is not 0."""
        return TextWindows(self, context, first)

    def epochs(self, context: int) -> "ShiftedWindows":
        """Windows that begin elsewhere in each epoch."""
        return ShiftedWindows(self, context)


class TextWindows:
    """A text in windows. Each token but the first of the text is predicted once, from those before it in its window."""

    def __init__(self, text: TextCorpus, context: int, first: int = 0) -> None:
        last = len(text) - 1
        starts = np.arange(first, last, context)
        self._starts = np.concatenate([[0], starts]) if first and last else starts
        self._ends = np.append(self._starts[1:], last)
        self._ids = text.ids
        self.tokens_per_character = len(text) / max(1, text.characters)

    def __len__(self) -> int:
        return len(self._starts)

    def lengths(self) -> tuple[Int[np.ndarray, " windows"], Int[np.ndarray, " windows"]]:
        """Zeros, because the first token of a window is only read, and the numbers of tokens to predict."""
        predicted = (self._ends - self._starts).astype(np.int32)
        return np.zeros_like(predicted), predicted

    def tokens(self, index: int) -> NDArray[np.int64]:
        """The tokens of one window, the first of which is only read."""
        return self._ids[self._starts[index] : self._ends[index] + 1].astype(np.int64)

    def batch(self, indices: Sequence[int] | NDArray[np.int64], start_id: int) -> Batch:
        """The windows at these places; `start_id` stands where the decoder reads the first token of a window."""
        windows = [self.tokens(int(index)) for index in indices]
        target_in = torch.from_numpy(np.concatenate([window[:-1] for window in windows]))
        lengths = torch.tensor([len(window) - 1 for window in windows])
        target_in[lengths.cumsum(0) - lengths] = start_id
        return Batch(
            source=torch.tensor([int(window[0]) for window in windows]),
            source_lengths=torch.ones(len(windows), dtype=torch.int64),
            target_in=target_in,
            target_out=torch.from_numpy(np.concatenate([window[1:] for window in windows])),
            target_lengths=lengths,
            indices=torch.as_tensor(np.asarray(indices, dtype=np.int64)),
        )


class ShiftedWindows(Sequence[TextWindows]):
    """The windows of each epoch. They begin elsewhere each time, so that no token is always the first of its window."""

    def __init__(self, text: TextCorpus, context: int) -> None:
        self._text = text
        self._context = context
        self._shifts = np.random.Generator(np.random.Philox(key=context)).permutation(context)

    def __len__(self) -> int:
        return self._context

    @overload
    def __getitem__(self, epoch: int) -> TextWindows: ...

    @overload
    def __getitem__(self, epoch: slice) -> Sequence[TextWindows]: ...

    def __getitem__(self, epoch: int | slice) -> TextWindows | Sequence[TextWindows]:
        if isinstance(epoch, slice):
            return [self[one] for one in range(*epoch.indices(len(self)))]
        return self._text.windows(self._context, int(self._shifts[epoch]))


def write_text_corpus(folder: Path, span: TextSpan, tokenizer: Tokenizer) -> TextCorpus:
    """Encode a span of text into a new corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.json").unlink(missing_ok=True)
    dtype = np.dtype(np.uint16 if tokenizer.vocabulary_size <= 1 << 16 else np.uint32)
    tokens = 0
    with (folder / "text.ids").open("wb") as file:
        for ids in _encode(span.chunks(), tokenizer):
            file.write(np.array(ids, dtype=dtype).tobytes())
            tokens += len(ids)
        file.flush()
        os.fsync(file.fileno())  # training never reads the text again, so the ids must survive a power cut
    about = {"format": FORMAT, "tokens": tokens, "characters": span.stop - span.start, "dtype": dtype.name}
    temporary = folder / "corpus.json.new"
    temporary.write_text(json.dumps(about, indent=1), encoding="utf-8")
    temporary.replace(folder / "corpus.json")
    return TextCorpus(folder)


def _encode(chunks: Iterator[str | None], tokenizer: Tokenizer) -> Iterator[list[int]]:
    for is_text, several in groupby(chunks, lambda chunk: chunk is not None):
        if is_text:
            yield from tokenizer.encode_stream(chunk for chunk in several if chunk is not None)
        else:
            yield [tokenizer.eos_id]
