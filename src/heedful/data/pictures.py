"""Labelled pictures: folders with one sub-folder a class, or IDX files such as MNIST's; and as bytes in mapped files.

::

    folder/pixels.bytes    the pixels of all pictures end to end, row by row, with the channels of a pixel together
    folder/labels.ids      the number of the label of each picture
    folder/corpus.json     a description, written last: a folder without it is unfinished

Pictures come from anywhere. Only PNG and JPEG are decoded, and none that would take more memory than `MOST_PIXELS`.
"""

import gzip
import io
import json
import os
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np
import torch
from jaxtyping import Int, UInt8
from numpy.typing import NDArray

from heedful.data.batch import Batch
from heedful.data.corpus import map_ids, read_description
from heedful.errors import DataError, FolderError
from heedful.untrusted_files import read_bytes

if TYPE_CHECKING:
    from PIL.Image import Image

FORMAT = 1
PICTURE_FILES = ("corpus.json", "pixels.bytes", "labels.ids")
MOST_PIXELS = 50_000_000  # of one picture, before it is resized; larger ones could be meant to fill the memory
_MOST_FILE_BYTES = 64 << 20
_MOST_IDX_BYTES = 4 << 30
_SUFFIXES = (".png", ".jpg", ".jpeg")
_IMAGES = "images-idx3-ubyte"
_TRAIN, _TEST = "train", "t10k"  # how names of MNIST's files begin
_WHITE = (255, 255, 255)

Pixels = UInt8[np.ndarray, "rows columns channels"]


@dataclass(frozen=True, slots=True)
class LabelledPicture:
    """A picture of a data set: a file, or a place in an IDX file."""

    name: str
    label: str
    pixels: NDArray[np.uint8] | None = None  # of an IDX file; None: still in the file

    def read(self, size: int, channels: int) -> Pixels:
        """The pixels at this size; DataError if the file is no picture."""
        if self.pixels is None:
            return read_picture(Path(self.name), size, channels)
        return resize_picture(_from_array(self.pixels), size, channels)

    def shape(self) -> tuple[int, int, int]:
        """Width, height and channels, without decoding the picture."""
        if self.pixels is not None:
            return self.pixels.shape[1], self.pixels.shape[0], 1
        with open_picture(Path(self.name)) as image:
            return image.width, image.height, 1 if _is_grey(image) else 3


@dataclass(frozen=True, slots=True)
class PictureStatistics:
    """The size of a set of pictures, measured in one pass."""

    pictures: int
    labels: tuple[tuple[str, int], ...]  # each label and how often it occurs, the most frequent first
    smallest: int  # the shortest side of any picture
    usual: int  # the median of the shorter sides
    grey: bool  # no picture has colours

    @property
    def names(self) -> tuple[str, ...]:
        """The labels in alphabetical order, which is that of a model's outputs."""
        return tuple(sorted(name for name, _ in self.labels))


# Finding pictures


def list_pictures(place: Path, test: bool = False) -> Sequence[LabelledPicture]:
    """The pictures of a folder with one sub-folder a class, or of a folder or file in MNIST's IDX format.

    Of a folder with both of MNIST's sets, the training set is meant, or its test set with `test`.
    """
    if not place.exists():
        raise DataError(f"{place} does not exist; give a folder with one sub-folder a class, or IDX files")
    if not place.is_dir():
        return _list_idx(place)
    images = [path for path in sorted(place.iterdir()) if _IMAGES in path.name.replace(".idx3", "-idx3")]
    if images:
        first = [path for path in images if path.name.startswith(_TEST if test else _TRAIN)]
        return _list_idx((first or images)[0])
    classes = [path for path in sorted(place.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    found = [
        LabelledPicture(str(path), folder.name)
        for folder in classes
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")
    ]
    if not found:
        raise DataError(
            f"{place} holds no sub-folders with PNG or JPEG pictures and no IDX files; make one sub-folder for each "
            "class, named like the class"
        )
    return found


def _list_idx(path: Path) -> Sequence[LabelledPicture]:
    name = path.name.replace(".idx3", "-idx3")
    if _IMAGES not in name:
        raise DataError(f"{path} is not a folder, and not an IDX file of pictures such as train-{_IMAGES}")
    beside = path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1"))
    other = beside.with_name(beside.name.removesuffix(".gz") if beside.suffix == ".gz" else f"{beside.name}.gz")
    labels = next((each for each in (beside, other) if each.exists()), None)
    if labels is None:
        raise DataError(f"{path} has no labels beside it; copy {beside.name} there")
    pixels, numbers = read_idx(path, 3), read_idx(labels, 1)
    if len(pixels) != len(numbers):
        raise DataError(
            f"{path} has {len(pixels):,} pictures but {labels} {len(numbers):,} labels; they belong to different sets"
        )
    return [
        LabelledPicture(f"{path}, picture {number}", str(label), picture)
        for number, (picture, label) in enumerate(zip(pixels, numbers.tolist(), strict=True), 1)
    ]


def list_picture_files(places: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """PNG and JPEG files: those that are named, and all in the named folders and their sub-folders, without hidden."""
    found = list[Path]()
    for place in map(Path, places):
        if not place.exists():
            raise DataError(f"{place} does not exist; name a folder of pictures, or PNG and JPEG files")
        if not place.is_dir():
            found.append(place)
            continue
        inside = (path for path in sorted(place.rglob("*")) if path.suffix.lower() in _SUFFIXES and path.is_file())
        pictures = [path for path in inside if not any(part[0] == "." for part in path.relative_to(place).parts)]
        if not pictures:
            raise DataError(f"{place} holds no PNG or JPEG pictures; name a folder that does")
        found += pictures
    return list(dict.fromkeys(found))


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """The bytes of an IDX file with so many axes, unpacked if it ends in .gz."""
    try:
        with path.open("rb") as raw, gzip.open(raw) if path.suffix == ".gz" else raw as file:
            header = file.read(4 + 4 * axes)
            if len(header) < 4 + 4 * axes or header[:4] != bytes((0, 0, 8, axes)):
                raise DataError(
                    f"{path} is not an IDX file of bytes with {'one axis' if axes == 1 else f'{axes} axes'}"
                )
            shape = struct.unpack(f">{axes}I", header[4:])
            size = int(np.prod(shape, dtype=np.float64))
            if size > _MOST_IDX_BYTES:
                raise DataError(f"{path} describes {size:,} bytes, over the {_MOST_IDX_BYTES:,} that heedful reads")
            content = file.read(size + 1)  # no more than the header says, whatever the file unpacks to
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read ({reason}); give an IDX file such as MNIST's") from error
    if len(content) != size:
        raise DataError(f"{path} does not have the {size:,} bytes that its header describes; download it again")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


# Reading one picture


def read_picture(path: Path, size: int, channels: int, content: bytes | None = None) -> Pixels:
    """The pixels of a PNG or JPEG file at this size; DataError if it is no such picture.

    `content` are its bytes if they are not in a file; the path is then only a name.
    """
    with open_picture(path, content) as image:
        return resize_picture(image, size, channels)


class open_picture:  # noqa: N801 (used like a function)
    """A context with an undecoded picture; every error inside, of the file or of decoding it, is a DataError."""

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        self._path, self._content = path, content

    def __enter__(self) -> "Image":
        from PIL import Image

        try:
            content = self._content
            if content is None:
                content = read_bytes(self._path.resolve(), _MOST_FILE_BYTES)
            image = Image.open(io.BytesIO(content), formats=("PNG", "JPEG"))
        except FolderError as error:
            raise DataError(str(error)) from error
        except FileNotFoundError as error:
            raise DataError(f"{self._path} does not exist; name a PNG or JPEG picture") from error
        except Exception as error:  # a hostile file can raise almost anything
            raise DataError(f"{self._path} is not a PNG or JPEG picture; convert or remove it") from error
        if image.width * image.height > MOST_PIXELS:
            raise DataError(
                f"{self._path} has {image.width:,} x {image.height:,} pixels, over the {MOST_PIXELS:,} that heedful "
                "reads; make it smaller"
            )
        return image

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, DataError):
            raise DataError(f"{self._path} is damaged ({error}); replace or remove it") from error


def resize_picture(image: "Image", size: int, channels: int) -> Pixels:
    """The picture upright on white, in grey or colour, stretched to a square."""
    from PIL import Image

    image = _flatten(image, channels)
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image, dtype=np.uint8).reshape(size, size, channels)


def read_cropped(path: Path, size: int, content: bytes | None = None) -> Pixels:
    """The middle of a PNG or JPEG picture, as large as its shorter side, at this size and in colour.

    `content` are its bytes if they are not in a file; the path is then only a name.
    """
    with open_picture(path, content) as image:
        return crop_picture(image, size)


def crop_picture(image: "Image", size: int) -> Pixels:
    """The square in the middle of a picture, upright on white, as CLIP reads it: by cubic interpolation."""
    from PIL import Image

    image = _flatten(image, 3)
    width, height = image.size
    shorter = min(width, height)
    # What resizing the whole picture and cropping it afterwards gives, without the memory that a long one would take.
    across, down = size * width // shorter, size * height // shorter
    left, top = (across - size) // 2, (down - size) // 2
    box = (left * width / across, top * height / down, (left + size) * width / across, (top + size) * height / down)
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BICUBIC, box=box)
    return np.asarray(image, dtype=np.uint8)


def make_thumbnail(path: Path, side: int) -> bytes:
    """A small JPEG copy of a PNG or JPEG picture, with at most so many pixels on either side."""
    with open_picture(path) as image:
        small = _flatten(image, 3)
        small.thumbnail((side, side))
        content = io.BytesIO()
        small.save(content, "JPEG", quality=85, comment=b"")  # Pillow would copy the remark in the file
        return content.getvalue()


def _flatten(image: "Image", channels: int) -> "Image":
    """The picture upright on white, in grey or colour."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):  # 16 bits a pixel
        image = _from_array((np.asarray(image).astype(np.float64) / 257.0).clip(0, 255).astype(np.uint8))
    if "A" in image.mode or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (*_WHITE, 255)), image)
    return image.convert("L" if channels == 1 else "RGB")


def _from_array(pixels: NDArray[np.uint8]) -> "Image":
    from PIL import Image

    return Image.fromarray(pixels)


def _is_grey(image: "Image") -> bool:
    return image.mode in ("1", "L", "LA", "La") or image.mode.startswith("I")


# Sets of pictures


def measure_pictures(pictures: Iterable[LabelledPicture]) -> PictureStatistics:
    """Count pictures and labels; unreadable pictures raise their errors here, before any other work."""
    labels, sides, grey = Counter[str](), list[int](), True
    for picture in pictures:
        width, height, channels = picture.shape()
        labels[picture.label] += 1
        sides.append(min(width, height))
        grey = grey and channels == 1
    if len(labels) < 2:
        only = next(iter(labels), "")
        raise DataError(
            f"all pictures have the label {only!r}, so there is nothing to tell apart; give at least two classes"
        )
    ordered = tuple(sorted(labels.items(), key=lambda item: (-item[1], item[0])))
    return PictureStatistics(len(sides), ordered, min(sides), int(np.median(sides)), grey)


def is_held_out(pixels: Pixels, share: float, seed: int) -> bool:
    """Decided by a hash of the pixels, so that equal pictures are on the same side and none leaks."""
    if share == 0.0:
        return False
    digest = blake2b(pixels.tobytes(), digest_size=8, key=seed.to_bytes(8, "little", signed=True)).digest()
    return int.from_bytes(digest, "little") < share * 2**64


class PictureWriter:
    """Writes a corpus of pictures, one after another."""

    def __init__(self, folder: Path, labels: Sequence[str], size: int, channels: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "corpus.json").unlink(missing_ok=True)
        self._folder = folder
        self._numbers = {label: number for number, label in enumerate(labels)}
        self._shape = (size, size, channels)
        self._pixels = (folder / "pixels.bytes").open("wb")
        self._labels = list[int]()

    def add(self, pixels: Pixels, label: str) -> None:
        """Append a picture."""
        self._pixels.write(pixels.tobytes())
        self._labels.append(self._numbers[label])

    def close(self) -> "PictureCorpus":
        """Finish the files, and open them."""
        with (self._folder / "labels.ids").open("wb") as file:
            file.write(np.array(self._labels, dtype=np.uint16).tobytes())
            file.flush()
            os.fsync(file.fileno())
        self._pixels.flush()
        os.fsync(self._pixels.fileno())  # training never reads the pictures again, so these must survive a power cut
        self._pixels.close()
        size, _, channels = self._shape
        about = {"format": FORMAT, "pictures": len(self._labels), "size": size, "channels": channels}
        temporary = self._folder / "corpus.json.new"
        temporary.write_text(json.dumps(about, indent=1), encoding="utf-8")
        temporary.replace(self._folder / "corpus.json")
        return PictureCorpus(self._folder)


class PictureCorpus:
    """Labelled pictures as bytes, on disk. To the training loop a picture is a source, and its label the target."""

    def __init__(self, folder: Path) -> None:
        match read_description(folder, FORMAT):
            case {"pictures": int(count), "size": int(size), "channels": 1 | 3 as channels} if size > 0:
                shape = (count, size, size, channels)
            case _:
                raise FolderError(f"{folder}/corpus.json is damaged; delete {folder} and train again")
        pixels, self.labels = (
            map_ids(folder / "pixels.bytes", np.dtype(np.uint8)),
            map_ids(folder / "labels.ids", np.dtype(np.uint16)),
        )
        if len(pixels) != int(np.prod(shape, dtype=np.int64)) or len(self.labels) != count:
            raise FolderError(f"{folder} is damaged: it does not hold {count:,} pictures; delete it and train again")
        self.pixels = pixels.reshape(shape)

    def __len__(self) -> int:
        return len(self.labels)

    def lengths(self) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
        """The number of bytes of each picture, and a single label."""
        ones = np.ones(len(self), dtype=np.int32)
        return ones * int(np.prod(self.pixels.shape[1:])), ones

    def batch(self, indices: Sequence[int] | NDArray[np.int64], start_id: int) -> Batch:
        """The pictures at these places."""
        return make_picture_batch(self.pixels[np.asarray(indices)], self.labels[np.asarray(indices)], indices)

    def epochs(self, shift: int, flip: bool) -> "AugmentedEpochs":
        """The pictures of each epoch: moved by up to `shift` pixels, and if `flip`, half of them mirrored."""
        return AugmentedEpochs(self, shift, flip)


def make_picture_batch(
    pixels: NDArray[np.uint8], labels: NDArray[np.uint16], indices: Sequence[int] | NDArray[np.int64]
) -> Batch:
    """A batch of pictures, each of which is asked for its label once."""
    count = len(pixels)
    return Batch(
        source=torch.from_numpy(pixels.reshape(-1).astype(np.int64)),
        source_lengths=torch.full((count,), pixels[0].size),
        target_in=torch.zeros(count, dtype=torch.int64),
        target_out=torch.from_numpy(labels.astype(np.int64)),
        target_lengths=torch.ones(count, dtype=torch.int64),
        indices=torch.as_tensor(np.asarray(indices, dtype=np.int64)),
    )


class Augmentation:
    """How each picture of one epoch is moved and mirrored, by chance; the same epoch always gives the same."""

    def __init__(self, pictures: int, shift: int, flip: bool, epoch: int) -> None:
        random = np.random.Generator(np.random.Philox(key=epoch))
        self._shift = shift
        self._moves = random.integers(0, 2 * shift + 1, (pictures, 2))
        self._mirrored = random.random(pictures) < (0.5 if flip else 0.0)

    def apply(self, pixels: NDArray[np.uint8], numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The pictures with these numbers, moved and mirrored; what a move leaves free repeats the edge."""
        margin, size = self._shift, pixels.shape[1]
        pixels = np.where(self._mirrored[numbers][:, None, None, None], pixels[:, :, ::-1], pixels)
        padded = np.pad(pixels, ((0, 0), (margin, margin), (margin, margin), (0, 0)), mode="edge")
        rows = self._moves[numbers, 0][:, None] + np.arange(size)
        columns = self._moves[numbers, 1][:, None] + np.arange(size)
        moved: NDArray[np.uint8] = padded[np.arange(len(numbers))[:, None, None], rows[:, :, None], columns[:, None, :]]
        return moved


class AugmentedPictures:
    """The pictures of one epoch, each moved and mirrored by chance."""

    def __init__(self, corpus: PictureCorpus, shift: int, flip: bool, epoch: int) -> None:
        self._corpus = corpus
        self._augmentation = Augmentation(len(corpus), shift, flip, epoch)

    def __len__(self) -> int:
        return len(self._corpus)

    def lengths(self) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
        """See `PictureCorpus`."""
        return self._corpus.lengths()

    def batch(self, indices: Sequence[int] | NDArray[np.int64], start_id: int) -> Batch:
        """The pictures at these places."""
        numbers = np.asarray(indices)
        moved = self._augmentation.apply(self._corpus.pixels[numbers], numbers)
        return make_picture_batch(moved, self._corpus.labels[numbers], indices)


class AugmentedEpochs(Sequence[AugmentedPictures]):
    """The pictures of each epoch; after a thousand epochs they begin again."""

    _EPOCHS = 1000

    def __init__(self, corpus: PictureCorpus, shift: int, flip: bool) -> None:
        self._corpus = corpus
        self._shift = shift
        self._flip = flip

    def __len__(self) -> int:
        return self._EPOCHS

    @overload
    def __getitem__(self, epoch: int) -> AugmentedPictures: ...

    @overload
    def __getitem__(self, epoch: slice) -> Sequence[AugmentedPictures]: ...

    def __getitem__(self, epoch: int | slice) -> AugmentedPictures | Sequence[AugmentedPictures]:
        if isinstance(epoch, slice):
            return [self[one] for one in range(*epoch.indices(len(self)))]
        return AugmentedPictures(self._corpus, self._shift, self._flip, epoch)


def name_pictures(places: Sequence[str], test: bool = False) -> Iterator[LabelledPicture]:
    """The pictures of several folders or files, one after another."""
    for place in places:
        yield from list_pictures(Path(place), test)
