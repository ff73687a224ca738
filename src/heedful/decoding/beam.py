"""Beam search as in section 6.1, over any step function."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heedful.config.experiment import SearchConfig
from heedful.decoding.candidates import Candidates, Trace, empty_pool
from heedful.decoding.checks import NOT_NUMBERS, check_search
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.penalty_table import penalty_table
from heedful.decoding.stepping import NEVER, S, Step, Symbols, select_rows
from heedful.decoding.token_rules import rules_of
from heedful.errors import Diverged


@dataclass(frozen=True, slots=True)
class Live:
    """The hypotheses that may still win: one row of the model's state each."""

    places: Int[Tensor, " rows"]  # sentence x beam + rank in it
    log_probs: Float[Tensor, " rows"]
    tokens: Int[Tensor, " rows"]  # the last of each
    history: Int[Tensor, "rows produced"]


def beam_search(
    step: Step[S],
    state: S,
    symbols: Symbols,
    max_lengths: Int[Tensor, " sentences"],
    config: SearchConfig,
    *,
    n_best: int = 1,
    prefixes: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best first; `state` has one row a sentence, `max_lengths` count EOS.

    At each step the best 2 x beam continuations of a sentence are candidates: those that end go to its pool, the best
    `beam` of the others live on. A live hypothesis can at best keep its log-probability up to the maximum length; once
    its score would be too low for the pool even then, it is dropped, and all that could come of it would have ranked
    below every one that isn't. So what is dropped never changes the result, and the pool needs `n_best` places only.
    What is cut off at the maximum length counts only where fewer than `n_best` have finished.

    With a beam of 1 there is one candidate, so that it is greedy search: an EOS in second place isn't taken.
    Each output begins with its sentence's prefix, if there are any.
    """
    check_search(config, n_best)
    device, sentences = max_lengths.device, len(max_lengths)
    rules = rules_of(symbols, config, device, prefixes)
    max_lengths = max_lengths.clamp(min=1)
    penalties = penalty_table(int(max_lengths.max()) if sentences else 0, config, device)
    largest = penalties[max_lengths]
    pool = cut_off = empty_pool(sentences, n_best, device)
    trace = Trace()
    live = start(sentences, symbols, config.beam, device)
    length = 0
    while len(live.tokens):
        length += 1
        logits, state = step(live.tokens, state)
        best = rules.best(logits, length, live.history, live.places // config.beam, candidates(config.beam))
        found = grow(live, *best, sentences, config.beam, length=length, penalty=penalties[length])

        ends = found.token == symbols.eos
        if ends.any():
            pool = pool.joined_by_score(found.only(ends))
        goes_on = can_win(found, pool, ends, largest, config.beam)
        last = max_lengths <= length
        if last.any():
            cut_off = cut_off.joined_by_score(found.only(goes_on & last.unsqueeze(1)))
            goes_on = goes_on & ~last.unsqueeze(1)

        parents, before = found.row[goes_on], live
        live = _survivors(found, goes_on, config.beam, rules.remember(before.history, parents, found.token[goes_on]))
        trace.append(parents, live.tokens)
        if len(parents):
            state = select_rows(state, parents, len(before.tokens))
    results = trace.read(pool.filled_up_with(cut_off), symbols.eos)
    if not all(results):
        raise Diverged(NOT_NUMBERS)
    return results


def start(sentences: int, symbols: Symbols, beam: int, device: torch.device) -> Live:
    """One hypothesis a sentence, with nothing said."""
    places = torch.arange(sentences, device=device) * beam
    tokens = torch.full_like(places, symbols.start)
    return Live(places, torch.zeros(sentences, device=device), tokens, tokens.new_empty(sentences, 0))


def candidates(beam: int) -> int:
    """How many continuations of a sentence are looked at: half of them may end it."""
    return 2 * beam if beam > 1 else 1


def grow(
    live: Live,
    values: Float[Tensor, "rows each"],
    ids: Int[Tensor, "rows each"],
    sentences: int,
    beam: int,
    *,
    length: int,
    penalty: Float[Tensor, ""],
) -> Candidates:
    """Of the best continuations of each row those of each sentence; equal ones by the parent's rank, then by id."""
    count, each = candidates(beam), values.shape[1]
    # A place without a row has no continuation, so sentences need not have equally many rows.
    totals = values.new_full((sentences * beam, each), NEVER)
    totals[live.places] = values + live.log_probs.unsqueeze(1)
    best, order = totals.view(sentences, -1).sort(dim=1, descending=True, stable=True)
    best, order = best[:, :count], order[:, :count]

    rows = live.places.new_zeros(sentences * beam)
    rows[live.places] = torch.arange(len(live.places), device=rows.device)
    row = rows.view(sentences, beam).gather(1, order // each)
    token = ids.flatten()[row * each + order % each]
    return Candidates(best / penalty, best, torch.full_like(row, length), row, token)


def can_win(
    found: Candidates,
    pool: Candidates,
    ends: Bool[Tensor, "sentences candidates"],
    largest: Float[Tensor, " sentences"],
    beam: int,
) -> Bool[Tensor, "sentences candidates"]:
    """Which live on: of the best `beam` that don't end, those that would win with the `largest` penalty."""
    bound = found.log_prob / largest.unsqueeze(1)
    open_ones = ~ends
    return open_ones & (open_ones.cumsum(dim=1) <= beam) & (bound > pool.score[:, -1:])


def _survivors(
    found: Candidates,
    goes_on: Bool[Tensor, "sentences candidates"],
    beam: int,
    history: Int[Tensor, "rows produced"],
) -> Live:
    """The chosen candidates as rows, by sentence and then by rank."""
    ranks = goes_on.cumsum(dim=1) - 1
    sentence = torch.arange(len(ranks), device=ranks.device).unsqueeze(1)
    places = (sentence * beam + ranks)[goes_on]
    return Live(places, found.log_prob[goes_on], found.token[goes_on], history)
