"""Greedy search, and the loop that it shares with sampling: one hypothesis per sentence, token by token."""

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.config.experiment import SearchConfig
from heedful.decoding.beam import penalty_table
from heedful.decoding.hypothesis import NOT_FINITE, Hypothesis
from heedful.decoding.step_function import S, SpecialTokens, StepFunction, select_rows
from heedful.decoding.token_rules import make_token_rules
from heedful.decoding.topk import top_log_probs
from heedful.errors import Diverged

PickedTokens = tuple[Float[Tensor, " rows"], Int[Tensor, " rows"]]


@runtime_checkable
class TokenPicker(Protocol):
    """Picks one token for each row, with its log-probability; `active` has the number of each row's sentence."""

    def __call__(
        self, log_probs: Float[Tensor, "rows vocabulary"], active: Int[Tensor, " rows"], length: int
    ) -> PickedTokens: ...


def greedy_search(
    step: StepFunction[S],
    state: S,
    special: SpecialTokens,
    max_lengths: Int[Tensor, " sentences"],
    config: SearchConfig,
    *,
    prefixes: Sequence[Sequence[int]] = (),
) -> list[Hypothesis]:
    """One hypothesis per sentence, the same as with a beam of 1; `config.beam` is ignored."""
    return search_stepwise(step, state, special, max_lengths, config, pick_likeliest, prefixes)


def pick_likeliest(
    log_probs: Float[Tensor, "rows vocabulary"], active: Int[Tensor, " rows"], length: int
) -> PickedTokens:
    """The most probable token of each row."""
    values, ids = top_log_probs(log_probs, 1)
    return values[:, 0], ids[:, 0]


def search_stepwise(
    step: StepFunction[S],
    state: S,
    special: SpecialTokens,
    max_lengths: Int[Tensor, " sentences"],
    config: SearchConfig,
    pick: TokenPicker,
    prefixes: Sequence[Sequence[int]] = (),
) -> list[Hypothesis]:
    """One hypothesis per sentence; `state` has one row for each.

    `max_lengths` count EOS. If there are `prefixes`, each output begins with its own.
    """
    device, sentences = max_lengths.device, len(max_lengths)
    max_lengths = max_lengths.clamp(min=1)
    outputs = max_lengths.new_empty(sentences, int(max_lengths.max()) if sentences else 0)
    lengths = torch.zeros_like(max_lengths)
    totals = torch.zeros(sentences, device=device)
    length = 0
    for active, values, tokens in pick_stepwise(step, state, special, max_lengths, config, pick, prefixes):
        length += 1
        totals[active] += values
        outputs[active, length - 1] = tokens
        lengths[active] = length

    if not totals.isfinite().all():
        raise Diverged(NOT_FINITE)
    scores = totals / penalty_table(length, config, device)[lengths]
    return [
        Hypothesis(tuple(output[:n]), log_prob, score, finished=output[n - 1] == special.eos)
        for output, n, log_prob, score in zip(
            outputs.tolist(), lengths.tolist(), totals.tolist(), scores.tolist(), strict=True
        )
    ]


def pick_stepwise(
    step: StepFunction[S],
    state: S,
    special: SpecialTokens,
    max_lengths: Int[Tensor, " sentences"],
    config: SearchConfig,
    pick: TokenPicker,
    prefixes: Sequence[Sequence[int]] = (),
) -> Iterator[tuple[Int[Tensor, " rows"], Float[Tensor, " rows"], Int[Tensor, " rows"]]]:
    """The sentences that have not ended, and the log-probability and id of their next tokens, step by step.

    A sentence leaves the batch when it ends.
    """
    device, sentences = max_lengths.device, len(max_lengths)
    rules = make_token_rules(special, config, device, prefixes)
    active = torch.arange(sentences, device=device)
    tokens = torch.full_like(active, special.start)
    history = tokens.new_empty(sentences, 0)
    length = 0
    while len(active):
        length += 1
        logits, state = step(tokens, state)
        values, tokens = pick(rules.log_probs(logits, length, history, active), active, length)
        yield active, values, tokens
        kept = ((tokens != special.eos) & (max_lengths[active] > length)).nonzero()[:, 0]
        if len(kept):
            state = select_rows(state, kept, len(active))
        active, tokens = active[kept], tokens[kept]
        history = rules.extend_history(history, kept, tokens)
