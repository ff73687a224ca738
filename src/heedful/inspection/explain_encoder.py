"""Explain an answer by BERT or ViT: every number on the way, and what the answer depends on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heedful.attention.steps import ReadingModel, stacks
from heedful.classification.answer_look import AnsweringModel, AskedInput
from heedful.config import SearchConfig
from heedful.config.experiment import Head
from heedful.errors import DataError
from heedful.inspection.cost import count_costs, count_lengths
from heedful.inspection.counterfactuals import AnswerRunner, Counterfactual, list_changes
from heedful.inspection.explain import (
    MAX_EXPLAINED_PIECES,
    ExplainedLayers,
    check_length,
    collect_norms,
    find_neighbours,
    name_roles,
    read_train_config,
)
from heedful.inspection.markup import visible
from heedful.inspection.measurements import (
    compare_alone_and_together,
    measure_gains,
    measure_reach,
    measure_similarity,
)
from heedful.inspection.training_step import take_training_step
from heedful.models.bert import BERT
from heedful.models.vit import ViT
from heedful.text import Tokenizer

_NOUNS: dict[Head, str] = {"sequence": "label", "tokens": "tagging", "masked": "answer"}
_GREY = 128  # covers a patch; about 0 for the model


@dataclass(frozen=True, slots=True)
class AnswerNames:
    """What the outputs of a model without a decoder stand for, in the answer to one question."""

    reader: AnsweringModel
    question: AskedInput

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """A name for each."""
        return visible(self.reader.name_answers(ids))

    def decode(self, ids: Sequence[int]) -> str:
        """All answers as one text."""
        return self.reader.spell(self.question, ids)


@dataclass(frozen=True, kw_only=True)
class ExplainedAnswer(ExplainedLayers):
    """Everything that the page tells about a text or a picture and what a model without a decoder answers."""

    question: AskedInput
    answer_noun: str
    hidden: tuple[Counterfactual, ...]  # with each piece hidden, or each patch covered: those behind [CLS]
    weight: np.ndarray  # of the output layer, and its bias: for each answer
    bias: np.ndarray

    @property
    def noun(self) -> str:
        """What the model answers."""
        return self.answer_noun

    @property
    def source_pieces(self) -> tuple[str, ...]:
        """What it reads."""
        return tuple(visible(self.question.pieces))

    @property
    def input_pieces(self) -> tuple[str, ...]:
        """What each answer is about."""
        whole = "the picture" if self.is_picture else "the text"
        return tuple(visible(asked or whole for asked in self.question.asked))

    @property
    def is_picture(self) -> bool:
        """Whether it reads patches instead of pieces."""
        return self.question.pixels is not None


def explain_answer(
    run: Path,
    reader: AnsweringModel,
    text: str,
    answers: Sequence[str] | None = None,
    done: Callable[[int, int], None] = lambda number, count: None,
) -> ExplainedAnswer:
    """Answer, or take given answers, record all steps, and run every experiment on them."""
    model = reader.model
    look = reader.look(text, answers)
    question = look.question
    if question.pixels is None:
        check_length("text", len(question.pieces))
    elif (patches := len(question.pieces) - 1) >= MAX_EXPLAINED_PIECES:
        raise DataError(
            f"{run} cuts a picture into {patches} patches, over the {MAX_EXPLAINED_PIECES - 1} that can be explained; "
            f"see its heads instead: heedful heads {run} {text}"
        )
    source, places, target = list(question.source), list(question.places), list(look.answer_ids)
    names = AnswerNames(reader, question)
    steps: Mapping[str, np.ndarray] = {**look.steps, "target": np.array(target)}
    runner = AnswerRunner(model, source, places, target)
    tokenizer = reader.vocabulary
    given = names.decode(target)
    baseline = runner.run()
    read = len(question.pieces)
    weight, bias = model.output_weight.detach(), model.output_bias
    return ExplainedAnswer(
        model_name=run.resolve().name,
        config=model.config,
        search=SearchConfig(),
        text=Path(text).name if question.pixels is not None else text,
        given=given,
        steps=steps,
        baseline=baseline,
        requested=answers is not None,
        source=tokenizer,
        target=names,
        neighbours=()
        if tokenizer is None or not isinstance(model, BERT)
        else find_neighbours(model.embedding.weight, list(dict.fromkeys(source)), tokenizer),
        without=runner.run_all(list_changes(model), done),
        log_prob=look.log_prob,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        roles=name_roles(run),
        training=take_training_step(model, source, target, read_train_config(run), places),
        layers={stack.name: len(stack.layers) for stack in stacks(model)},
        unmasked=(),
        norms=collect_norms(model),
        costs=tuple(count_costs(model, read, len(places))),
        lengths=tuple(count_lengths(model.config, len(model.output_weight))),
        reach=None if tokenizer is None else measure_reach(model, source, tokenizer),
        similarity=None if tokenizer is None else measure_similarity(model, tokenizer),
        gains=measure_gains(model, steps["encoder.1.feed_forward.before"][0]),
        alone=compare_alone_and_together(model, steps["encoder.1.feed_forward.input"]),
        question=question,
        answer_noun="label" if isinstance(model, ViT) else _NOUNS[model.config.head],
        hidden=tuple(runner.run(other) for other in _hide_each(model, question, tokenizer)),
        weight=weight.float().cpu().numpy(),
        bias=np.zeros(len(weight), np.float32) if bias is None else bias.detach().float().cpu().numpy(),
    )


def _hide_each(model: ReadingModel, question: AskedInput, tokenizer: Tokenizer | None) -> list[list[int]]:
    """What the model reads, each time with another piece hidden or another patch covered with grey."""
    if tokenizer is not None:
        return [
            [*question.source[:place], tokenizer.mask_id, *question.source[place + 1 :]]
            for place in range(1, len(question.source) - 1)
        ]
    size, side = model.config.image_size, model.config.patch_size
    pixels = np.array(question.source).reshape(size, size, -1)
    covered = []
    for row in range(0, size, side):
        for column in range(0, size, side):
            other = pixels.copy()
            other[row : row + side, column : column + side] = _GREY
            covered.append(other.ravel().tolist())
    return covered
