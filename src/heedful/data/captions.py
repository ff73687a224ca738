"""Pictures with captions: files of `picture<TAB>caption`, and both as numbers in mapped files.

::

    folder/pixels.bytes      the pixels of all pictures end to end, row by row, with the colours of a pixel together
    folder/captions.ids      all captions end to end as ids; folder/captions.ends: the end of each
    folder/pictures.ends     the number of captions up to each picture, eight bytes
    folder/corpus.json       a description, written last: a folder without it is unfinished

A picture is named relative to the folder of its file, and may have several captions.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.batch import Batch, pack
from heedful.data.corpus import SideWriter, map_ids, read_description
from heedful.data.pairs import read_lines
from heedful.data.pictures import Augmentation, Pixels, open_picture, read_cropped
from heedful.errors import DataError, FolderError
from heedful.text import Tokenizer

FORMAT = 1
CAPTION_FILES = ("corpus.json", "pixels.bytes", "captions.ids", "captions.ends", "pictures.ends")
_EPOCHS = 1000


@dataclass(frozen=True, slots=True)
class Caption:
    """A line of a file: a picture and what it shows."""

    picture: Path
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class CaptionedPicture:
    """A picture with all its captions."""

    picture: Path
    captions: tuple[str, ...]

    def read(self, size: int) -> Pixels:
        """The pixels of its middle at this size; DataError if the file is no picture."""
        return read_cropped(self.picture, size)


@dataclass(frozen=True, slots=True)
class CaptionStatistics:
    """The size of a set of captioned pictures, measured in one pass."""

    pictures: int
    captions: int
    distinct: int  # captions
    words: int
    distinct_words: int
    usual: int  # the median of the shorter sides


def read_captions(path: Path) -> Iterator[Caption]:
    """The lines of a file; the pictures may be missing. Lines without text are left out."""
    for number, line in enumerate(read_lines(path), 1):
        picture, tab, text = line.partition("\t")
        if not line.strip():
            continue
        if not tab or not picture.strip():
            raise DataError(
                f"{path}, line {number}: {'no tab' if not tab else 'no picture'}; a line must be picture, tab, caption"
            )
        yield Caption(path.parent / picture.strip(), " ".join(text.split()), number)


def read_captioned(files: Sequence[str]) -> list[CaptionedPicture]:
    """The pictures of these files in the order of their first lines, each with all its captions."""
    found: dict[Path, list[str]] = {}
    for name in files:
        for each in read_captions(Path(name)):
            if not each.text:
                raise DataError(
                    f"{name}, line {each.line}: the caption of {each.picture.name} is empty; write one, or remove the "
                    "line; all such lines: heedful doctor --captions FILE"
                )
            found.setdefault(each.picture, []).append(each.text)
    if not found:
        raise DataError(f"{', '.join(files)} holds no lines; a line must be picture, tab, caption")
    return [CaptionedPicture(picture, tuple(dict.fromkeys(texts))) for picture, texts in found.items()]


def measure_captions(pictures: Iterable[CaptionedPicture]) -> CaptionStatistics:
    """Count pictures, captions and words; missing and broken pictures raise their errors here."""
    texts, sides = list[str](), list[int]()
    for each in pictures:
        with open_picture(each.picture) as image:
            sides.append(min(image.size))
        texts += each.captions
    distinct, words = set(texts), [word for text in texts for word in text.split()]
    if len(distinct) < 2:
        raise DataError(f"all captions are {texts[0]!r}, so there is nothing to tell apart; give different captions")
    return CaptionStatistics(len(sides), len(texts), len(distinct), len(words), len(set(words)), int(np.median(sides)))


@dataclass(frozen=True, slots=True)
class CaptionEncoder:
    """Captions as ids: a start, at most `longest` - 2 pieces, and the end-of-text token."""

    tokenizer: Tokenizer
    longest: int

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        start, most = self.tokenizer.start_id, self.longest - 2
        return [[start, *ids[:-1][:most], ids[-1]] for ids in self.tokenizer.encode_all(texts)]


class CaptionWriter:
    """Writes a corpus of captioned pictures, one after another."""

    def __init__(self, folder: Path, size: int, vocabulary_size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "corpus.json").unlink(missing_ok=True)
        self._folder = folder
        self._size = size
        self._dtype = np.dtype(np.uint16 if vocabulary_size <= 1 << 16 else np.uint32)
        self._captions = SideWriter(folder, "captions", self._dtype)
        self._pixels = (folder / "pixels.bytes").open("wb")
        self._ends = list[int]()

    def add(self, pixels: Pixels, captions: Sequence[Sequence[int]]) -> None:
        """Append a picture with its captions."""
        self._pixels.write(pixels.tobytes())
        for ids in captions:
            self._captions.add(ids)
        self._ends.append(self._captions.count)

    def close(self) -> "CaptionCorpus":
        """Finish the files, and open them."""
        with self._captions, self._pixels, (self._folder / "pictures.ends").open("wb") as ends:
            ends.write(np.array(self._ends, dtype=np.int64).tobytes())
            for file in (ends, self._pixels):
                file.flush()
                os.fsync(file.fileno())  # training never reads the pictures again, so these must survive a power cut
        about = {"format": FORMAT, "pictures": len(self._ends), "size": self._size, "dtype": self._dtype.name}
        temporary = self._folder / "corpus.json.new"
        temporary.write_text(json.dumps(about, indent=1), encoding="utf-8")
        temporary.replace(self._folder / "corpus.json")
        return CaptionCorpus(self._folder)


class CaptionCorpus:
    """Captioned pictures as numbers, on disk. To the training loop a picture is a source, and its caption one target.

    So an update has pictures of any captions, however long: the others are what each is told apart from.
    """

    def __init__(self, folder: Path) -> None:
        match read_description(folder, FORMAT):
            case {"pictures": int(count), "size": int(size), "dtype": "uint16" | "uint32" as dtype} if size > 0:
                shape = (count, size, size, 3)
            case _:
                raise FolderError(f"{folder}/corpus.json is damaged; delete {folder} and train again")
        pixels = map_ids(folder / "pixels.bytes", np.dtype(np.uint8))
        self._ids = map_ids(folder / "captions.ids", np.dtype(dtype))
        self._caption_ends, self._picture_ends = (
            map_ids(folder / f"{name}.ends", np.dtype(np.int64)) for name in ("captions", "pictures")
        )
        whole = (count, len(self._caption_ends), len(self._ids), int(np.prod(shape, dtype=np.int64)))
        last = (int(self._picture_ends[-1:].sum()), int(self._caption_ends[-1:].sum()))
        if whole != (len(self._picture_ends), *last, len(pixels)):
            raise FolderError(f"{folder} is damaged: it does not hold {count:,} pictures; delete it and train again")
        self.pixels = pixels.reshape(shape)

    def __len__(self) -> int:
        return len(self.pixels)

    def lengths(self) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
        """The number of bytes of each picture, and a single caption."""
        ones = np.ones(len(self), dtype=np.int32)
        return ones * int(np.prod(self.pixels.shape[1:])), ones

    def count_captions(self) -> Int[np.ndarray, " pairs"]:
        """The number of captions of each picture."""
        return np.diff(self._picture_ends, prepend=0)

    def captions(self, picture: int) -> list[list[int]]:
        """All captions of a picture."""
        first = int(self._picture_ends[picture - 1]) if picture else 0
        return [self._caption(number) for number in range(first, int(self._picture_ends[picture]))]

    def _caption(self, number: int) -> list[int]:
        first = int(self._caption_ends[number - 1]) if number else 0
        ids: list[int] = self._ids[first : int(self._caption_ends[number])].tolist()
        return ids

    def batch(self, indices: Sequence[int] | NDArray[np.int64], start_id: int) -> Batch:
        """The pictures at these places, each with its first caption."""
        texts = [self.captions(int(index))[0] for index in indices]
        return make_caption_batch(self.pixels[np.asarray(indices)], texts, indices)

    def epochs(self, seed: int, shift: int, flip: bool) -> "CaptionEpochs":
        """The pictures of each epoch, moved and mirrored as `Augmentation` does, each with one of its captions."""
        return CaptionEpochs(self, seed, shift, flip)


def make_caption_batch(
    pixels: NDArray[np.uint8], texts: Sequence[Sequence[int]], indices: Sequence[int] | NDArray[np.int64]
) -> Batch:
    """A batch of pictures, with a text for each."""
    ids, lengths = pack(texts)
    return Batch(
        source=torch.from_numpy(pixels.reshape(-1).astype(np.int64)),
        source_lengths=torch.full((len(pixels),), pixels[0].size),
        target_in=ids,
        target_out=ids,
        target_lengths=lengths,
        indices=torch.as_tensor(np.asarray(indices, dtype=np.int64)),
    )


def find_matches(batches: Sequence[Batch]) -> Bool[Tensor, "pictures texts"]:
    """Which texts of these batches are right for which pictures: their own, and equal ones."""
    texts = [tuple(text.tolist()) for batch in batches for text in batch.target_in.split(batch.target_lengths.tolist())]
    known: dict[tuple[int, ...], int] = {}
    numbers = torch.tensor([known.setdefault(text, len(known)) for text in texts], device=batches[0].target_in.device)
    return numbers[:, None] == numbers[None]


class CaptionEpoch:
    """The pictures of one epoch; each has one of its captions, drawn by chance."""

    def __init__(self, corpus: CaptionCorpus, seed: int, shift: int, flip: bool, epoch: int) -> None:
        self._corpus = corpus
        self._augmentation = Augmentation(len(corpus), shift, flip, epoch)
        random = np.random.Generator(np.random.Philox(key=[seed, epoch]))
        self._drawn = (random.random(len(corpus)) * corpus.count_captions()).astype(np.int64)

    def __len__(self) -> int:
        return len(self._corpus)

    def lengths(self) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
        """See `CaptionCorpus`."""
        return self._corpus.lengths()

    def batch(self, indices: Sequence[int] | NDArray[np.int64], start_id: int) -> Batch:
        """The pictures at these places."""
        numbers = np.asarray(indices)
        texts = [self._corpus.captions(number)[self._drawn[number]] for number in map(int, numbers)]
        return make_caption_batch(self._augmentation.apply(self._corpus.pixels[numbers], numbers), texts, indices)


class CaptionEpochs(Sequence[CaptionEpoch]):
    """The pictures of each epoch; after a thousand epochs they begin again."""

    def __init__(self, corpus: CaptionCorpus, seed: int, shift: int, flip: bool) -> None:
        self._corpus = corpus
        self._settings = (seed, shift, flip)

    def __len__(self) -> int:
        return _EPOCHS

    @overload
    def __getitem__(self, epoch: int) -> CaptionEpoch: ...

    @overload
    def __getitem__(self, epoch: slice) -> Sequence[CaptionEpoch]: ...

    def __getitem__(self, epoch: int | slice) -> CaptionEpoch | Sequence[CaptionEpoch]:
        if isinstance(epoch, slice):
            return [self[one] for one in range(*epoch.indices(len(self)))]
        return CaptionEpoch(self._corpus, *self._settings, epoch)
