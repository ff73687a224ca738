"""The `Finder`: a model that finds pictures by a text or by another picture."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from heedful.config import Device
from heedful.data.captions import CaptionEncoder
from heedful.data.pictures import Pixels, list_picture_files, read_cropped
from heedful.device import choose_device
from heedful.errors import ConfigError, DataError
from heedful.models.clip import CLIP
from heedful.process_memory import keep_freed_memory
from heedful.retrieval.vectors import Vectors, encode_pictures, encode_texts
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder
from heedful.tasks import find_task

_PICTURES_AT_A_TIME = 64

AnyPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class FoundPicture:
    """A picture and how well it fits: the cosine of the angle between its vector and that of the query."""

    picture: str
    score: float


@dataclass(frozen=True, slots=True)
class PictureIndex:
    """Pictures with their vectors, which can be searched as often as you like."""

    pictures: tuple[str, ...]
    vectors: Vectors
    broken: tuple[str, ...]  # a sentence for each file that is no picture and was left out


class Finder:
    """A trained model that finds pictures by a text or by another picture.

    >>> finder = Finder.load("runs/clip")   # doctest: +SKIP
    >>> photos = finder.index("photos")   # doctest: +SKIP
    >>> finder.find("a red car", photos)[0].picture   # doctest: +SKIP
    """

    def __init__(self, model: CLIP, encoder: CaptionEncoder) -> None:
        keep_freed_memory()
        self.model = model
        self.encoder = encoder

    @classmethod
    def load(cls, model: AnyPath, device: Device = "auto") -> "Finder":
        """Load a run folder. Nothing in it is executed, and a damaged folder is an error."""
        return cls.from_run(RunFolder.open(find_model(model)), device)

    @classmethod
    def from_run(cls, run: RunFolder, device: Device = "auto") -> "Finder":
        """Like `load`, for a folder that is already open."""
        experiment = run.experiment()
        task = find_task(experiment.task)
        if not task.matches_pictures:
            raise ConfigError(
                f"{run.path} is a model for {task.name}, which finds no pictures; "
                "train one with: heedful train --captions FILE"
            )
        model = run.model()
        if not isinstance(model, CLIP):  # never: the task has no other family; this is for the type checker
            raise ConfigError(f"{run.path} holds a {type(model).__name__}, which finds no pictures")
        encoder = CaptionEncoder(run.tokenizers().source, experiment.model.max_positions)
        return cls(model.to(choose_device(device)), encoder)

    def index(
        self, places: AnyPath | Sequence[AnyPath], done: Callable[[int, int], None] = lambda _, __: None
    ) -> PictureIndex:
        """Read pictures: PNG and JPEG files, or all of a folder and its sub-folders; broken ones are left out.

        `done` is called with the number of pictures that are read, and of all.
        """
        names = list_picture_files([places] if isinstance(places, str | os.PathLike) else places)
        pictures, broken, parts = list[str](), list[str](), list[Vectors]()
        for first in range(0, len(names), _PICTURES_AT_A_TIME):
            pixels = list[Pixels]()
            for name in names[first : first + _PICTURES_AT_A_TIME]:
                try:
                    pixels.append(read_cropped(name, self.model.config.image_size))
                    pictures.append(str(name))
                except DataError as error:
                    broken.append(str(error))
            parts.append(encode_pictures(self.model, pixels))
            done(min(first + _PICTURES_AT_A_TIME, len(names)), len(names))
        if not pictures:
            raise DataError(f"no picture can be read: {broken[0]}")
        return PictureIndex(tuple(pictures), torch.cat(parts), tuple(broken))

    def find(self, text: str, index: PictureIndex, n: int = 10) -> list[FoundPicture]:
        """The pictures that fit a text best, the best first."""
        if not text.strip():
            raise DataError("the text is empty; say what the pictures should show")
        return rank_pictures(self.encode_texts([text]), index, n)

    def find_like(self, picture: AnyPath, index: PictureIndex, n: int = 10) -> list[FoundPicture]:
        """The pictures that are most like a PNG or JPEG file, the most similar first."""
        return rank_pictures(self.encode_pictures([picture]), index, n)

    def find_like_content(self, name: str, content: bytes, index: PictureIndex, n: int = 10) -> list[FoundPicture]:
        """The same for the name and the content of such a file."""
        pixels = read_cropped(Path(name), self.model.config.image_size, content)
        return rank_pictures(encode_pictures(self.model, [pixels]), index, n)

    def encode_texts(self, texts: Iterable[str]) -> Vectors:
        """The vectors of texts, of length 1; the cosine of two is their product."""
        return encode_texts(self.model, self.encoder([" ".join(text.split()) for text in texts]))

    def encode_pictures(self, pictures: Iterable[AnyPath]) -> Vectors:
        """The vectors of PNG or JPEG files, of length 1."""
        size = self.model.config.image_size
        return encode_pictures(self.model, [read_cropped(Path(name), size) for name in pictures])


def rank_pictures(query: Vectors, index: PictureIndex, n: int) -> list[FoundPicture]:
    """The pictures of an index by their cosine with one vector; of equal ones, the first stays first."""
    if n < 1:
        raise ConfigError(f"n must be at least 1, but is {n} instead")
    scores = (index.vectors @ query[0]).tolist()
    order = sorted(range(len(scores)), key=lambda number: -scores[number])
    return [FoundPicture(index.pictures[number], scores[number]) for number in order[:n]]
