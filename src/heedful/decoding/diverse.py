"""Diverse beam search (Vijayakumar et al., 2018): groups of a beam that avoid each other's tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.config.experiment import SearchConfig
from heedful.decoding.beam import (
    ActiveHypotheses,
    Backpointers,
    Candidates,
    count_candidates,
    empty_candidates,
    extend_hypotheses,
    penalty_table,
    select_survivors,
    start_hypotheses,
)
from heedful.decoding.hypothesis import NOT_FINITE, Hypothesis, check_search_options
from heedful.decoding.step_function import S, SpecialTokens, StepFunction, select_rows
from heedful.decoding.token_rules import make_token_rules
from heedful.decoding.topk import top_log_probs
from heedful.errors import ConfigError, Diverged


@dataclass(frozen=True, slots=True)
class _Group:
    """One part of the beam: its best outputs so far, and its active hypotheses."""

    pool: Candidates
    cut_off: Candidates
    active: ActiveHypotheses
    rows: Int[Tensor, " rows"]  # numbers within the whole batch; just after a step, those of the parents


def diverse_search(
    step: StepFunction[S],
    state: S,
    special: SpecialTokens,
    max_lengths: Int[Tensor, " sentences"],
    config: SearchConfig,
    *,
    n_best: int = 1,
    prefixes: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    """Hypotheses of each sentence, best first, from as many groups as possible; there may be fewer than `n_best`.

    At each position the groups search one after the other. Each time an earlier group has taken a token at this
    position, that token becomes less probable by `diversity` for the later groups. This decides which hypotheses stay
    active, but changes no score. With one group, it is plain beam search.
    """
    check_search_options(config, n_best)
    if config.beam % config.groups:
        raise ConfigError(f"search.beam is {config.beam}, which {config.groups} groups do not divide; change either")
    device, sentences, width = max_lengths.device, len(max_lengths), config.beam // config.groups
    rules = make_token_rules(special, config, device, prefixes)
    max_lengths = max_lengths.clamp(min=1)
    penalties = penalty_table(int(max_lengths.max()) if sentences else 0, config, device)
    backpointers, length = Backpointers(), 0
    groups = _start_groups(sentences, special, width, config.groups, n_best, device)
    tokens = torch.cat([group.active.tokens for group in groups])
    history = tokens.new_empty(len(tokens), 0)
    state = select_rows(state, torch.arange(sentences, device=device).repeat(config.groups), sentences)
    while len(tokens):
        length += 1
        logits, state = step(tokens, state)
        owners = torch.cat([group.active.slots // width for group in groups])
        log_probs = rules.log_probs(logits, length, history, owners)
        counts = log_probs.new_zeros(sentences, log_probs.shape[1])
        groups = [
            _extend_group(group, log_probs[group.rows], counts, max_lengths, penalties, length, special.eos, config)
            for group in groups
        ]
        parents, before = torch.cat([group.rows for group in groups]), len(tokens)
        tokens = torch.cat([group.active.tokens for group in groups])
        backpointers.append(parents, tokens)
        history = rules.extend_history(history, parents, tokens)
        if len(parents):
            state = select_rows(state, parents, before)
        groups = _number_rows(groups)
    outputs = [backpointers.trace(group.pool.fill_up_with(group.cut_off), special.eos) for group in groups]
    results = [_choose_best(several, n_best) for several in zip(*outputs, strict=True)]
    if not all(results):
        raise Diverged(NOT_FINITE)
    return results


def _start_groups(
    sentences: int, special: SpecialTokens, width: int, count: int, n_best: int, device: torch.device
) -> list[_Group]:
    nothing, active = empty_candidates(sentences, n_best, device), start_hypotheses(sentences, special, width, device)
    return _number_rows([_Group(nothing, nothing, active, active.slots)] * count)


def _number_rows(groups: Sequence[_Group]) -> list[_Group]:
    """Number the rows of all groups one after the other, as the next step receives them."""
    device = groups[0].rows.device
    rows = torch.arange(sum(len(group.active.tokens) for group in groups), device=device)
    parts = rows.split([len(group.active.tokens) for group in groups])
    return [replace(group, rows=part) for group, part in zip(groups, parts, strict=True)]


def _extend_group(
    group: _Group,
    log_probs: Float[Tensor, "rows vocabulary"],
    counts: Float[Tensor, "sentences vocabulary"],
    max_lengths: Int[Tensor, " sentences"],
    penalties: Float[Tensor, " lengths"],
    length: int,
    eos: int,
    config: SearchConfig,
) -> _Group:
    """Extend one group by one token, and add the tokens that it takes to `counts`."""
    active, width, sentences = group.active, config.beam // config.groups, len(max_lengths)
    if not len(active.tokens):
        return group
    penalised = log_probs - config.diversity * counts[active.slots // width]
    best = top_log_probs(penalised, count_candidates(width))
    found = extend_hypotheses(active, *best, sentences, width, length=length, penalty=penalties[length])
    total = found.log_prob + config.diversity * counts.gather(1, found.token)
    found = Candidates(total / penalties[length], total, found.length, group.rows[found.row], found.token)

    pool, cut_off, ends = group.pool, group.cut_off, found.token == eos
    pool = pool.merge_by_score(found.keep(ends))
    survives = select_survivors(found, pool, ends, penalties[max_lengths], width)
    last = (max_lengths <= length).unsqueeze(1)
    cut_off = cut_off.merge_by_score(found.keep(survives & last))
    survives = survives & ~last
    counts.scatter_add_(1, found.token, survives.to(counts.dtype))
    rows = found.row[survives]
    slots = (torch.arange(sentences, device=rows.device).unsqueeze(1) * width + survives.cumsum(dim=1) - 1)[survives]
    history = active.history.new_empty(len(rows), 0)
    after = ActiveHypotheses(slots, found.log_prob[survives], found.token[survives], history)
    return _Group(pool, cut_off, after, rows)


def _choose_best(several: Sequence[Sequence[Hypothesis]], n_best: int) -> list[Hypothesis]:
    """The best of each group, then the next of each that differs, until there are enough; finished ones come first."""
    chosen: dict[tuple[int, ...], Hypothesis] = {}
    for finished in (True, False):
        groups = [[hypothesis for hypothesis in group if hypothesis.finished == finished] for group in several]
        groups = sorted(filter(None, groups), key=lambda group: -group[0].score)
        for group in islice(cycle(groups), n_best * len(groups)):
            fresh = [hypothesis for hypothesis in group if hypothesis.tokens not in chosen]
            if fresh and len(chosen) < n_best:
                chosen[fresh[0].tokens] = fresh[0]
    return sorted(chosen.values(), key=lambda hypothesis: (not hypothesis.finished, -hypothesis.score))
