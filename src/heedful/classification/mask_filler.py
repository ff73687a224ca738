"""The `MaskFiller`: a model that has learnt from plain text to find the words that are hidden in a text."""

import os
from collections.abc import Sequence

from heedful.classification.answer_look import AnswerLook, AskedInput, look_inside, require_text
from heedful.config import Device
from heedful.device import choose_device
from heedful.errors import ConfigError, DataError
from heedful.models.bert import BERT
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder
from heedful.tasks import find_task
from heedful.text import Tokenizer
from heedful.text.marks import encode_with_marks
from heedful.text.tokenizer import MASK

_ADDED = 2  # [CLS] and EOS


class MaskFiller:
    """A model that fills in hidden words, which are written as [MASK].

    >>> filler = MaskFiller.load("runs/pre")                  # doctest: +SKIP
    >>> filler.look("The [MASK] sat on the mat.").answers     # doctest: +SKIP
    """

    def __init__(self, model: BERT, tokenizer: Tokenizer) -> None:
        self.model = model
        self.tokenizer = tokenizer

    @property
    def vocabulary(self) -> Tokenizer:
        """The pieces that the model reads and finds."""
        return self.tokenizer

    @classmethod
    def load(cls, model: str | os.PathLike[str], device: Device = "auto") -> "MaskFiller":
        """Load a run folder. Nothing in it is executed, and a damaged folder is an error."""
        return cls.from_run(RunFolder.open(find_model(model)), device)

    @classmethod
    def from_run(cls, run: RunFolder, device: Device = "auto") -> "MaskFiller":
        """Like `load`, for a folder that is already open."""
        task, model = find_task(run.experiment().task), run.model()
        if task.encoder != "masked" or not isinstance(model, BERT):
            raise ConfigError(
                f"{run.path} is a model for {task.name}, which finds no hidden words; "
                "train one with: heedful train --text book.txt --objective masked"
            )
        return cls(model.to(choose_device(device)), run.tokenizers().source)

    def look(self, text: str, answers: Sequence[str] | None = None) -> AnswerLook:
        """Find the words under each [MASK] of a text, and look inside: every head, every probability, every step.

        Given `answers`, one piece for each [MASK], take the place of the likeliest.
        """
        require_text(text)
        mask, tokenizer = self.tokenizer.mask_id, self.tokenizer
        ids = [tokenizer.cls_id, *encode_with_marks(tokenizer, text, {MASK: mask})]
        places = [place for place, number in enumerate(ids) if number == mask]
        if not places:
            raise DataError(f"the text has no {MASK}; write {MASK} in place of each word that the model shall find")
        if len(ids) > (most := self.model.config.max_positions):
            raise DataError(f"the text has {len(ids) - _ADDED} pieces, over the {most - _ADDED} that the model reads")
        asked = tuple(f"{MASK} {number}" if len(places) > 1 else MASK for number in range(1, len(places) + 1))
        question = AskedInput(text, tuple(ids), tuple(places), tuple(tokenizer.pieces(ids)), asked)
        given = None if answers is None else [self._find_piece(answer) for answer in answers]
        return look_inside(self.model, question, given, self.name_answers)

    def name_answers(self, numbers: Sequence[int]) -> list[str]:
        """The pieces with these ids."""
        return self.tokenizer.pieces(list(numbers))

    def spell(self, question: AskedInput, numbers: Sequence[int]) -> str:
        """The text with the words that were found."""
        found = dict(zip(question.places, numbers, strict=True))
        return self.tokenizer.decode([found.get(place, number) for place, number in enumerate(question.source)])

    def divide(self, text: str) -> list[str]:
        """One word for each [MASK]."""
        return text.split()

    def _find_piece(self, answer: str) -> int:
        names = {name: number for number, name in enumerate(self.name_answers(range(self.tokenizer.vocabulary_size)))}
        for name in (f"▁{answer}", answer):  # a word, or a piece of one
            if name in names:
                return names[name]
        raise DataError(f"{answer} is no single piece of this vocabulary, but under {MASK} is one; choose another word")
