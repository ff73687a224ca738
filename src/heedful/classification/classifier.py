"""The `Classifier`: a model that labels texts, or tags the words of sentences."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.classification.answer_look import AnswerLook, AskedInput, find_labels, look_inside, require_text
from heedful.config import Device
from heedful.data.batch import pack
from heedful.data.labelled_corpus import AskedText, TextEncoder
from heedful.data.labels import find_encoder_kind
from heedful.data.stream import batches_by_length
from heedful.device import choose_device
from heedful.errors import ConfigError, DataError
from heedful.models.bert import BERT
from heedful.process_memory import keep_freed_memory
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder
from heedful.tasks import find_task
from heedful.text import Tokenizer

_BATCH_TOKENS = 8000
# A word with its inner points and hyphens, and an apostrophe behind it ("l'"); or a single other sign.
_WORD = re.compile(r"\w+(?:[-.]\w+)*['’]?|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Classification:
    """A text and how probable each label is, the most probable first."""

    text: str
    label: str
    probability: float
    probabilities: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TaggedWord:
    """A word and its most probable tag."""

    word: str
    tag: str
    probability: float


@dataclass(frozen=True, slots=True)
class TaggedText:
    """A sentence and the tag of each of its words."""

    text: str
    words: tuple[TaggedWord, ...]

    def __str__(self) -> str:
        return " ".join(f"{one.word}/{one.tag}" for one in self.words)


class Classifier:
    """A trained model that labels texts or tags words.

    >>> classifier = Classifier.load("runs/sorter")   # doctest: +SKIP
    >>> classifier.classify(["Where is my parcel?"])[0].label   # doctest: +SKIP
    """

    def __init__(self, model: BERT, encoder: TextEncoder) -> None:
        keep_freed_memory()
        self.model = model
        self.encoder = encoder

    @classmethod
    def load(cls, model: str | os.PathLike[str], device: Device = "auto") -> "Classifier":
        """Load a run folder. Nothing in it is executed, and a damaged folder is an error."""
        return cls.from_run(RunFolder.open(find_model(model)), device)

    @classmethod
    def from_run(cls, run: RunFolder, device: Device = "auto") -> "Classifier":
        """Like `load`, for a folder that is already open."""
        experiment = run.experiment()
        task = find_task(experiment.task)
        if task.reads_pictures:
            raise ConfigError(f"{run.path} labels pictures, not texts; use PictureClassifier")
        if task.encoder not in ("sequence", "tokens"):
            raise ConfigError(
                f"{run.path} is a model for {task.name}, which knows no labels; "
                "train one with: heedful train --labels FILE"
            )
        model = run.model()
        if not isinstance(model, BERT):  # never: the tasks have no other family; this is for the type checker
            raise ConfigError(f"{run.path} holds a {type(model).__name__}, which knows no labels")
        encoder = TextEncoder(run.tokenizers().source, find_encoder_kind(task.encoder), experiment.model.max_positions)
        return cls(model.to(choose_device(device)), encoder)

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels or tags that the model knows."""
        return self.model.config.labels

    @property
    def vocabulary(self) -> Tokenizer:
        """The pieces that the model reads."""
        return self.encoder.tokenizer

    @property
    def tags_words(self) -> bool:
        """Whether it tags the words of sentences (`tag`) instead of labelling texts (`classify`)."""
        return self.encoder.kind == "tagging"

    def classify(self, texts: Sequence[str]) -> list[Classification]:
        """The labels of texts; the result does not depend on which texts are classified together."""
        _require_several(texts, "classify")
        if self.tags_words:
            raise ConfigError("this model tags words; use tag() instead of classify()")
        found = []
        for text, probabilities in zip(texts, self.probabilities([_flat(text) for text in texts]), strict=True):
            order = probabilities[0].argsort(descending=True, stable=True).tolist()
            by_label = {self.labels[number]: float(probabilities[0, number]) for number in order}
            label = next(iter(by_label))
            found.append(Classification(text, label, by_label[label], by_label))
        return found

    def tag(self, texts: Sequence[str]) -> list[TaggedText]:
        """The tags of sentences, which are divided into words and signs; tabs in a sentence divide it instead."""
        _require_several(texts, "tag")
        if not self.tags_words:
            raise ConfigError("this model labels whole texts; use classify() instead of tag()")
        words = [split_words(text) for text in texts]
        filled = [number for number, several in enumerate(words) if several]
        found = iter(self.probabilities(["\t".join(words[number]) for number in filled]))
        tagged = []
        for text, several in zip(texts, words, strict=True):
            values, numbers = next(found).max(-1) if several else (torch.empty(0), torch.empty(0))
            tags = [self.labels[int(number)] for number in numbers]
            tagged.append(TaggedText(text, tuple(map(TaggedWord, several, tags, values.tolist()))))
        return tagged

    def look(self, text: str, answers: Sequence[str] | None = None) -> AnswerLook:
        """Label a text or tag its words, and look inside: every head, every probability, and every step by name.

        You see the labels that `classify` and `tag` give. Given `answers`, one label or a tag for each word, take their
        place.
        """
        require_text(text)
        words = split_words(text) if self.tags_words else []
        (several,) = self.encoder(["\t".join(words) if self.tags_words else _flat(text)])
        if len(several) > 1:
            raise DataError(
                f"the sentence has {len(words)} words, more than the model reads at once ({self.encoder.longest} "
                "pieces); give a shorter one"
            )
        ids, places = several[0].ids, several[0].places
        pieces = tuple(self.encoder.tokenizer.pieces(ids))
        question = AskedInput(text, tuple(ids), tuple(places), pieces, tuple(words) if words else ("",))
        given = None if answers is None else find_labels(self.labels, answers)
        return look_inside(self.model, question, given, self.name_answers)

    def name_answers(self, numbers: Sequence[int]) -> list[str]:
        """The labels with these numbers."""
        return [self.labels[number] for number in numbers]

    def spell(self, question: AskedInput, numbers: Sequence[int]) -> str:
        """The label of a text, or its words with their tags."""
        names = self.name_answers(numbers)
        if not self.tags_words:
            return names[0]
        return " ".join(f"{word}/{tag}" for word, tag in zip(question.asked, names, strict=True))

    def divide(self, text: str) -> list[str]:
        """One label, or tags with spaces between them."""
        return text.split() if self.tags_words else [text]

    def probabilities(self, texts: Sequence[str]) -> list[Float[Tensor, "places labels"]]:
        """The probability of each label: one row for a text, or one for each word between tabs of a sentence."""
        questions = list(self.encoder(texts))
        flat = [question for several in questions for question in several]
        found: dict[int, Tensor] = {}
        for batch in batches_by_length(range(len(flat)), [one.ids for one in flat], 1, _BATCH_TOKENS):
            found |= zip(batch, self._answer([flat[number] for number in batch]), strict=True)
        parts = iter(found[number] for number in range(len(flat)))
        return [torch.cat([next(parts) for _ in several]) for several in questions]

    @torch.inference_mode()
    def _answer(self, questions: Sequence[AskedText]) -> Sequence[Tensor]:
        device = next(self.model.parameters()).device
        ids, lengths = (tensor.to(device) for tensor in pack([one.ids for one in questions]))
        places, counts = (tensor.to(device) for tensor in pack([one.places for one in questions]))
        logits = self.model.decode(places, counts, self.model.encode(ids, lengths))
        return logits.softmax(-1).cpu().split(counts.tolist())


def split_words(text: str) -> list[str]:
    """The words of a sentence: those between tabs, or else its words and signs."""
    if "\t" in text:
        return [word for word in text.split("\t") if word.strip()]
    return _WORD.findall(text)


def _flat(text: str) -> str:
    """A text as it stands in a file of labels: without tabs and white space around it."""
    return text.replace("\t", " ").strip()


def _require_several(texts: Sequence[str], method: str) -> None:
    if isinstance(texts, str):  # a string is a sequence too, of its characters
        raise DataError(f"{method}() takes a list of texts, but got one string; write {method}([text])")
