"""Explain a continuation by a GPT: every number on the way, every draw, and what each part is good for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from heedful.attention.steps import stacks
from heedful.completion.completer import Completer
from heedful.config import SearchConfig
from heedful.decoding.sampling import Draw, trace_draws
from heedful.inspection.cost import count_costs, count_lengths
from heedful.inspection.counterfactuals import CounterfactualRunner, Write, list_changes
from heedful.inspection.explain import (
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

_TEMPERATURES = (0.3, 0.8, 1.5)
_MORE_DRAWS = 3


@dataclass(frozen=True, kw_only=True)
class ExplainedText(ExplainedLayers):
    """Everything that the page tells about a prompt and its continuation by a model without an encoder."""

    noun: ClassVar[str] = "continuation"
    whole: ClassVar[str] = "text"

    prompt: tuple[int, ...]
    drawn: tuple[Draw, ...]  # of each written piece; empty if nothing was drawn
    others: Mapping[str, tuple[str, ...]]  # continuations by other searches: "greedy", "draws", "0.3", ...

    @property
    def source_pieces(self) -> tuple[str, ...]:
        """The pieces of the prompt."""
        return tuple(visible(self.source.pieces(self.prompt)))

    @property
    def input_pieces(self) -> tuple[str, ...]:
        """All pieces that are read: the prompt, and the continuation without its last piece."""
        return tuple(visible(self.source.pieces(self.steps["target_in"].tolist())))

    @property
    def target_pieces(self) -> tuple[str, ...]:
        """The piece that comes next at each position."""
        return tuple(visible(self.target.pieces(self.steps["target"].tolist())))

    @property
    def first_written(self) -> int:
        """The position that writes the first piece of the continuation: the last one of the prompt."""
        return len(self.prompt) - 1


def explain_text(
    run: Path,
    completer: Completer,
    prompt: str,
    search: SearchConfig,
    continuation: str | None = None,
    length: int | None = None,
    done: Callable[[int, int], None] = lambda number, count: None,
) -> ExplainedText:
    """Continue a prompt or take a given continuation, record all steps, and run every experiment on it."""
    model, tokenizer = completer.model, completer.tokenizer
    check_length("prompt", len(completer.encode(prompt)))
    look = completer.look(prompt, continuation=continuation, length=length, search=search)
    steps = look.steps
    source = completer.encode(prompt)
    read = steps["target_in"].tolist()
    check_length("text", len(read))
    target = [*read, int(steps["target"][-1])][len(source) :]
    limited = completer.change_search(length=len(target), search=search)

    def write_by(config: SearchConfig) -> Write:
        return lambda ids: completer.decode([ids], config, 1)[0][0]

    runner = CounterfactualRunner(model, source, target, write_by(limited))
    baseline = runner.run()
    without = runner.run_all(list_changes(model), done)
    places = np.arange(len(source) - 1, len(read))
    is_drawn = continuation is None and search.method == "sample"
    return ExplainedText(
        model_name=run.resolve().name,
        config=model.config,
        search=limited,
        text=prompt,
        given=look.completion.continuations[0].text,
        steps=steps,
        prompt=tuple(source),
        source=tokenizer,
        target=tokenizer,
        neighbours=find_neighbours(model.embedding.weight, list(dict.fromkeys(read)), tokenizer),
        baseline=baseline,
        requested=continuation is not None,
        without=without,
        log_prob=float(steps["log_probs"][places, target].sum()),
        layers={stack.name: len(stack.layers) for stack in stacks(model)},
        unmasked=tuple(runner.run_without_mask()),
        norms=collect_norms(model),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        drawn=tuple(_trace(completer, steps, source, target, limited)) if is_drawn else (),
        others=_write_otherwise(completer, source, limited),
        training=take_training_step(model, read[:1], steps["target"].tolist(), read_train_config(run)),
        costs=tuple(count_costs(model, 0, len(read))),
        lengths=tuple(count_lengths(model.config, len(model.output_weight))),
        reach=measure_reach(model, read, tokenizer),
        similarity=measure_similarity(model, tokenizer),
        gains=measure_gains(model, steps["decoder.1.feed_forward.before"][0]),
        alone=compare_alone_and_together(model, steps["decoder.1.feed_forward.input"]),
        roles=name_roles(run),
    )


def _trace(
    completer: Completer,
    steps: Mapping[str, np.ndarray],
    source: Sequence[int],
    target: Sequence[int],
    search: SearchConfig,
) -> list[Draw]:
    logits = torch.from_numpy(steps["logits"][len(source) - 1 :])
    return trace_draws(logits, source, target, completer.special, search)


def _write_otherwise(completer: Completer, source: list[int], search: SearchConfig) -> dict[str, tuple[str, ...]]:
    """What the model writes with other searches."""

    def write(config: SearchConfig, count: int) -> tuple[str, ...]:
        return tuple(completer.tokenizer.decode(one.tokens) for one in completer.decode([source], config, count)[0])

    greedy = completer.change_search(temperature=0.0, search=search)
    if search.method != "sample":
        return {"greedy": write(greedy, 1)}
    warmer = {f"{each:g}": write(replace(search, temperature=each), 1) for each in _TEMPERATURES}
    return {"greedy": write(greedy, 1), "draws": write(search, 1 + _MORE_DRAWS)[1:], **warmer}
