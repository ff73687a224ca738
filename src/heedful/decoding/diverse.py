"""Diverse beam search (Vijayakumar et al., 2018): groups of a beam that are kept apart from each other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.config.experiment import SearchConfig
from heedful.decoding.beam import Live, can_win, candidates, grow, start
from heedful.decoding.candidates import Candidates, Trace, empty_pool
from heedful.decoding.checks import NOT_NUMBERS, check_search
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.penalty_table import penalty_table
from heedful.decoding.stepping import S, Step, Symbols, select_rows
from heedful.decoding.token_rules import rules_of
from heedful.decoding.topk import top_log_probs
from heedful.errors import ConfigError, Diverged


@dataclass(frozen=True, slots=True)
class _Group:
    """One part of the beam: the best that it has found, and what of it goes on."""

    pool: Candidates
    cut_off: Candidates
    live: Live
    rows: Int[Tensor, " rows"]  # of the whole batch; after a step: the rows that its own come from


def diverse_search(
    step: Step[S],
    state: S,
    symbols: Symbols,
    max_lengths: Int[Tensor, " sentences"],
    config: SearchConfig,
    *,
    n_best: int = 1,
    prefixes: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    """Hypotheses of each sentence, best first, of as many groups as can be; there may be fewer than were asked for.

    The groups search one after the other at each position. To a group, a token counts as less probable by `diversity`
    for every hypothesis of the groups before that has it there; this decides who lives on, and goes into no score.
    One group is plain beam search.
    """
    check_search(config, n_best)
    if config.beam % config.groups:
        raise ConfigError(f"search.beam is {config.beam}, which {config.groups} groups do not divide; change either")
    device, sentences, width = max_lengths.device, len(max_lengths), config.beam // config.groups
    rules = rules_of(symbols, config, device, prefixes)
    max_lengths = max_lengths.clamp(min=1)
    penalties = penalty_table(int(max_lengths.max()) if sentences else 0, config, device)
    trace, length = Trace(), 0
    groups = _beginning(sentences, symbols, width, config.groups, n_best, device)
    tokens = torch.cat([group.live.tokens for group in groups])
    history = tokens.new_empty(len(tokens), 0)
    state = select_rows(state, torch.arange(sentences, device=device).repeat(config.groups), sentences)
    while len(tokens):
        length += 1
        logits, state = step(tokens, state)
        owners = torch.cat([group.live.places // width for group in groups])
        log_probs = rules.log_probs(logits, length, history, owners)
        counts = log_probs.new_zeros(sentences, log_probs.shape[1])
        groups = [
            _searched(group, log_probs[group.rows], counts, max_lengths, penalties, length, symbols.eos, config)
            for group in groups
        ]
        parents, before = torch.cat([group.rows for group in groups]), len(tokens)
        tokens = torch.cat([group.live.tokens for group in groups])
        trace.append(parents, tokens)
        history = rules.remember(history, parents, tokens)
        if len(parents):
            state = select_rows(state, parents, before)
        groups = _numbered(groups)
    outputs = [trace.read(group.pool.filled_up_with(group.cut_off), symbols.eos) for group in groups]
    results = [_best_of(several, n_best) for several in zip(*outputs, strict=True)]
    if not all(results):
        raise Diverged(NOT_NUMBERS)
    return results


def _beginning(
    sentences: int, symbols: Symbols, width: int, count: int, n_best: int, device: torch.device
) -> list[_Group]:
    nothing, live = empty_pool(sentences, n_best, device), start(sentences, symbols, width, device)
    return _numbered([_Group(nothing, nothing, live, live.places)] * count)


def _numbered(groups: Sequence[_Group]) -> list[_Group]:
    """The groups' rows one after the other, as the next step is given them."""
    device = groups[0].rows.device
    rows = torch.arange(sum(len(group.live.tokens) for group in groups), device=device)
    parts = rows.split([len(group.live.tokens) for group in groups])
    return [replace(group, rows=part) for group, part in zip(groups, parts, strict=True)]


def _searched(
    group: _Group,
    log_probs: Float[Tensor, "rows vocabulary"],
    counts: Float[Tensor, "sentences vocabulary"],
    max_lengths: Int[Tensor, " sentences"],
    penalties: Float[Tensor, " lengths"],
    length: int,
    eos: int,
    config: SearchConfig,
) -> _Group:
    """One group one token further; what it takes is added to `counts`."""
    live, width, sentences = group.live, config.beam // config.groups, len(max_lengths)
    if not len(live.tokens):
        return group
    disliked = log_probs - config.diversity * counts[live.places // width]
    best = top_log_probs(disliked, candidates(width))
    found = grow(live, *best, sentences, width, length=length, penalty=penalties[length])
    total = found.log_prob + config.diversity * counts.gather(1, found.token)
    found = Candidates(total / penalties[length], total, found.length, group.rows[found.row], found.token)

    pool, cut_off, ends = group.pool, group.cut_off, found.token == eos
    pool = pool.joined_by_score(found.only(ends))
    goes_on = can_win(found, pool, ends, penalties[max_lengths], width)
    last = (max_lengths <= length).unsqueeze(1)
    cut_off = cut_off.joined_by_score(found.only(goes_on & last))
    goes_on = goes_on & ~last
    counts.scatter_add_(1, found.token, goes_on.to(counts.dtype))
    rows = found.row[goes_on]
    places = (torch.arange(sentences, device=rows.device).unsqueeze(1) * width + goes_on.cumsum(dim=1) - 1)[goes_on]
    after = Live(places, found.log_prob[goes_on], found.token[goes_on], live.history.new_empty(len(rows), 0))
    return _Group(pool, cut_off, after, rows)


def _best_of(several: Sequence[Sequence[Hypothesis]], n_best: int) -> list[Hypothesis]:
    """The best of each group, then the next of each that differs, until there are enough; what ended goes first."""
    chosen: dict[tuple[int, ...], Hypothesis] = {}
    for finished in (True, False):
        groups = [[hypothesis for hypothesis in group if hypothesis.finished == finished] for group in several]
        groups = sorted(filter(None, groups), key=lambda group: -group[0].score)
        for group in islice(cycle(groups), n_best * len(groups)):
            fresh = [hypothesis for hypothesis in group if hypothesis.tokens not in chosen]
            if fresh and len(chosen) < n_best:
                chosen[fresh[0].tokens] = fresh[0]
    return sorted(chosen.values(), key=lambda hypothesis: (not hypothesis.finished, -hypothesis.score))
