"""Greedy search: the most probable token, again and again."""

import torch
from jaxtyping import Int
from torch import Tensor

from heedful.config.experiment import SearchConfig
from heedful.errors import Diverged
from heedful.search.check import NOT_NUMBERS
from heedful.search.hypothesis import Hypothesis
from heedful.search.penalty_table import penalty_table
from heedful.search.rules import rules_of
from heedful.search.stepping import S, Step, Symbols, select_rows
from heedful.search.top import top_log_probs


def greedy_search(
    step: Step[S], state: S, symbols: Symbols, max_lengths: Int[Tensor, " sentences"], config: SearchConfig
) -> list[Hypothesis]:
    """One hypothesis a sentence, the same as of a beam of 1; `state` has one row a sentence.

    `max_lengths` count EOS. A sentence leaves the batch when it ends. Of `config` only the beam is left out.
    """
    device, sentences = max_lengths.device, len(max_lengths)
    rules = rules_of(symbols, config, device)
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
        values, ids = top_log_probs(rules.log_probs(logits, length, history), 1)
        tokens = ids[:, 0]
        totals[live] += values[:, 0]
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
