"""One token after the other for each sentence, however it is picked."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.config.experiment import SearchConfig
from heedful.decoding.checks import NOT_NUMBERS
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.penalty_table import penalty_table
from heedful.decoding.stepping import S, Step, Symbols, select_rows
from heedful.decoding.token_rules import rules_of
from heedful.errors import Diverged

Picked = tuple[Float[Tensor, " rows"], Int[Tensor, " rows"]]


@runtime_checkable
class Pick(Protocol):
    """Takes the log-probabilities of the tokens at `length` and whose they are; gives the log-probability and token."""

    def __call__(
        self, log_probs: Float[Tensor, "rows vocabulary"], live: Int[Tensor, " rows"], length: int
    ) -> Picked: ...


def walk(
    step: Step[S],
    state: S,
    symbols: Symbols,
    max_lengths: Int[Tensor, " sentences"],
    config: SearchConfig,
    pick: Pick,
    prefixes: Sequence[Sequence[int]] = (),
) -> list[Hypothesis]:
    """One hypothesis a sentence; `state` has one row for each. A sentence leaves the batch when it ends.

    `max_lengths` count EOS. Each output begins with its sentence's prefix, if there are any.
    """
    device, sentences = max_lengths.device, len(max_lengths)
    rules = rules_of(symbols, config, device, prefixes)
    max_lengths = max_lengths.clamp(min=1)
    outputs = max_lengths.new_empty(sentences, int(max_lengths.max()) if sentences else 0)
    lengths = torch.zeros_like(max_lengths)
    totals = torch.zeros(sentences, device=device)

    live = torch.arange(sentences, device=device)
    tokens = torch.full_like(live, symbols.start)
    history = tokens.new_empty(sentences, 0)
    length = 0
    while len(live):
        length += 1
        logits, state = step(tokens, state)
        values, tokens = pick(rules.log_probs(logits, length, history, live), live, length)
        totals[live] += values
        outputs[live, length - 1] = tokens
        lengths[live] = length
        kept = ((tokens != symbols.eos) & (max_lengths[live] > length)).nonzero()[:, 0]
        if len(kept):
            state = select_rows(state, kept, len(live))
        live, tokens = live[kept], tokens[kept]
        history = rules.remember(history, kept, tokens)

    if not totals.isfinite().all():
        raise Diverged(NOT_NUMBERS)
    scores = totals / penalty_table(length, config, device)[lengths]
    return [
        Hypothesis(tuple(output[:n]), log_prob, score, finished=output[n - 1] == symbols.eos)
        for output, n, log_prob, score in zip(
            outputs.tolist(), lengths.tolist(), totals.tolist(), scores.tolist(), strict=True
        )
    ]
