"""A look inside a model that answers questions about what it reads: labels, tags, hidden words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

from heedful.attention.encoder_steps import record_encoder_steps
from heedful.attention.pruning import GatesNow, apply_gates, read_gates
from heedful.attention.record import RecordedAnswers, record_answers
from heedful.attention.steps import ReadingModel, Steps
from heedful.errors import ConfigError, DataError, counted, did_you_mean
from heedful.text import Tokenizer

if TYPE_CHECKING:
    import numpy as np

MAX_INSPECTED_PIECES = 400  # every head has as many weights as the square of a text's pieces
_NAMED_LABELS = 10  # in an error


@dataclass(frozen=True, slots=True)
class AskedInput:
    """What a model reads, as ids or pixels, and what it is asked about."""

    text: str  # as somebody wrote it, or the name of a picture
    source: tuple[int, ...]
    places: tuple[int, ...]
    pieces: tuple[str, ...]  # what the model reads, one name for each position
    asked: tuple[str, ...]  # what each answer is about: a word, or nothing if it is about the whole
    pixels: "np.ndarray | None" = None  # of a picture, as the model sees it: rows x columns x channels


@dataclass(frozen=True, eq=False)
class AnswerLook:
    """A text or a picture, a model's answers, and what happened inside the model.

    `inside` has the heads, and the log-probability of every answer at each place. `steps` are computed when you first
    ask for them, by the model as it was, with the heads that were off then.
    """

    question: AskedInput
    answers: tuple[str, ...]  # the likeliest, or those that were given
    answer_ids: tuple[int, ...]
    log_prob: float  # of these answers together
    inside: RecordedAnswers
    _record: Callable[[], Steps] = field(repr=False)

    @cached_property
    def steps(self) -> "Mapping[str, np.ndarray]":
        """Every step as arrays by name, such as `encoder.1.attention.scores`.

        `heedful.attention.encoder_steps` lists the names.
        """
        return self._record()


class AnsweringModel(Protocol):
    """A model without a decoder that can be looked into."""

    @property
    def vocabulary(self) -> Tokenizer | None:
        """The pieces that the model reads; None: it reads the patches of pictures."""
        ...

    @property
    def model(self) -> ReadingModel: ...

    def look(self, text: str, answers: Sequence[str] | None = None) -> AnswerLook:
        """Read a text, or the picture of this name, and look inside; given answers take the place of the likeliest."""
        ...

    def name_answers(self, numbers: Sequence[int]) -> list[str]:
        """What the outputs of the model stand for."""
        ...

    def spell(self, question: AskedInput, numbers: Sequence[int]) -> str:
        """All answers to a question as one text."""
        ...

    def divide(self, text: str) -> list[str]:
        """The answers that somebody wrote as one text."""
        ...


def look_inside(
    model: ReadingModel, question: AskedInput, given: Sequence[int] | None, name: Callable[[Sequence[int]], list[str]]
) -> AnswerLook:
    """Ask the model this question; `given` are the numbers of answers to look at instead of the likeliest."""
    if (pieces := len(question.pieces)) > MAX_INSPECTED_PIECES:
        most = MAX_INSPECTED_PIECES
        raise DataError(f"the model reads {counted(pieces, 'piece')}, over the {most} that can be shown; shorten it")
    inside = record_answers(model, question.source, question.places)
    if given is None:
        given = inside.log_probs.argmax(-1).tolist()
    if len(given) != len(question.places):
        wanted = counted(len(question.places), "answer")
        raise DataError(f"{len(given)} given, but the model is asked for {wanted}; give as many")
    log_prob = sum(float(row[number]) for row, number in zip(inside.log_probs, given, strict=True))
    record = partial(_record_later, model, read_gates(model), question)
    return AnswerLook(question, tuple(name(given)), tuple(given), log_prob, inside, record)


def _record_later(model: ReadingModel, gates: GatesNow, question: AskedInput) -> Steps:
    with apply_gates(model, gates):
        return record_encoder_steps(model, list(question.source), list(question.places))


def find_labels(labels: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The numbers of these labels."""
    for one in wanted:
        if one not in labels:
            known = ", ".join(labels[:_NAMED_LABELS]) + (", ..." if len(labels) > _NAMED_LABELS else "")
            raise ConfigError(f"unknown label: {one}; this model knows {known}{did_you_mean(one, labels)}")
    return [labels.index(one) for one in wanted]


def require_text(text: str) -> None:
    """Refuse a text in which there is nothing to see."""
    if not text.strip():
        raise DataError("there is nothing to look at in an empty text; give a sentence")
