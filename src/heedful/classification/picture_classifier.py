"""The `PictureClassifier`: a model that labels pictures."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from heedful.classification.answer_look import AnswerLook, AskedInput, find_labels, look_inside
from heedful.config import Device
from heedful.data.pictures import Pixels, make_picture_batch, read_picture
from heedful.device import choose_device
from heedful.errors import ConfigError, DataError
from heedful.models.vit import ViT
from heedful.process_memory import keep_freed_memory
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder
from heedful.tasks import find_task

CLASS_PIECE = "[CLS]"  # the class token, in front of the patches; a patch is named by its row and its column
_PICTURES_AT_A_TIME = 64


@dataclass(frozen=True, slots=True)
class PictureClassification:
    """A picture and how probable each label is, the most probable first."""

    picture: str
    label: str
    probability: float
    probabilities: Mapping[str, float]


class PictureClassifier:
    """A trained model that labels pictures.

    >>> classifier = PictureClassifier.load("runs/vit")   # doctest: +SKIP
    >>> classifier.classify(["cat.png"])[0].label   # doctest: +SKIP
    """

    def __init__(self, model: ViT) -> None:
        keep_freed_memory()
        self.model = model

    @classmethod
    def load(cls, model: str | os.PathLike[str], device: Device = "auto") -> "PictureClassifier":
        """Load a run folder. Nothing in it is executed, and a damaged folder is an error."""
        return cls.from_run(RunFolder.open(find_model(model)), device)

    @classmethod
    def from_run(cls, run: RunFolder, device: Device = "auto") -> "PictureClassifier":
        """Like `load`, for a folder that is already open."""
        task = find_task(run.experiment().task)
        if not task.reads_pictures:
            raise ConfigError(
                f"{run.path} is a model for {task.name}, which reads no pictures; "
                "train one with: heedful train --images FOLDER"
            )
        model = run.model()
        if not isinstance(model, ViT):  # never: the task has no other family; this is for the type checker
            raise ConfigError(f"{run.path} holds a {type(model).__name__}, which reads no pictures")
        return cls(model.to(choose_device(device)))

    @property
    def vocabulary(self) -> None:
        """None: the model reads no pieces of text."""
        return

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels that the model knows."""
        return self.model.config.labels

    def classify(self, pictures: Sequence[str | os.PathLike[str]]) -> list[PictureClassification]:
        """The labels of PNG or JPEG files; the result does not depend on which are classified together."""
        if isinstance(pictures, str | os.PathLike):
            raise DataError("classify() takes a list of pictures, but got one; write classify([picture])")
        return self._label([(os.fspath(name), None) for name in pictures])

    def classify_contents(self, pictures: Sequence[tuple[str, bytes]]) -> list[PictureClassification]:
        """The same for the names and contents of such files."""
        return self._label(pictures)

    def _label(self, pictures: Sequence[tuple[str, bytes | None]]) -> list[PictureClassification]:
        size, channels = self.model.config.image_size, self.model.config.channels
        pixels = [read_picture(Path(name), size, channels, content) for name, content in pictures]
        found = []
        for (name, _), row in zip(pictures, self.probabilities(pixels), strict=True):
            order = row.argsort(descending=True, stable=True).tolist()
            by_label = {self.labels[number]: float(row[number]) for number in order}
            label = next(iter(by_label))
            found.append(PictureClassification(name, label, by_label[label], by_label))
        return found

    def look(self, text: str | os.PathLike[str], answers: Sequence[str] | None = None) -> AnswerLook:
        """Label the PNG or JPEG file of this name, and look inside: every head, every probability, every step by name.

        You see the label that `classify` gives. One given label takes its place.
        """
        config = self.model.config
        pixels = read_picture(Path(text), config.image_size, config.channels)
        given = None if answers is None else find_labels(self.labels, answers)
        return self.look_at_pixels(pixels, os.fspath(text), given)

    def look_at_pixels(self, pixels: Pixels, name: str, given: Sequence[int] | None = None) -> AnswerLook:
        """The same for a picture of the model's size."""
        across = self.model.config.image_size // self.model.config.patch_size
        places = [(row, column) for row in range(1, across + 1) for column in range(1, across + 1)]
        pieces = (CLASS_PIECE, *(f"{row},{column}" for row, column in places))
        question = AskedInput(name, tuple(pixels.ravel().tolist()), (0,), pieces, ("",), pixels)
        return look_inside(self.model, question, given, self.name_answers)

    def name_answers(self, numbers: Sequence[int]) -> list[str]:
        """The labels with these numbers."""
        return [self.labels[number] for number in numbers]

    def spell(self, question: AskedInput, numbers: Sequence[int]) -> str:
        """The label of a picture."""
        return self.labels[numbers[0]]

    def divide(self, text: str) -> list[str]:
        """One label."""
        return [text]

    @torch.inference_mode()
    def probabilities(self, pixels: Sequence[Pixels]) -> Float[Tensor, "pictures labels"]:
        """The probability of each label for pictures of the model's size."""
        device, rows = next(self.model.parameters()).device, list[Tensor]()
        for first in range(0, len(pixels), _PICTURES_AT_A_TIME):
            some = np.stack(pixels[first : first + _PICTURES_AT_A_TIME])
            batch = make_picture_batch(some, np.zeros(len(some), dtype=np.uint16), range(len(some))).to(device)
            memory = self.model.encode(batch.source, batch.source_lengths)
            rows.append(self.model.decode(batch.target_in, batch.target_lengths, memory).softmax(-1).cpu())
        return torch.cat(rows) if rows else torch.empty(0, len(self.labels))
