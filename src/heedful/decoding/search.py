"""Choose and run the search that the options name."""

from collections.abc import Sequence
from typing import assert_never

import torch
from jaxtyping import Int
from torch import Tensor

from heedful.config.experiment import SearchConfig
from heedful.decoding.beam import beam_search
from heedful.decoding.constrained import constrained_search
from heedful.decoding.diverse import diverse_search
from heedful.decoding.greedy import greedy_search
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.sampling import sample_search, sentence_key
from heedful.decoding.step_function import S, SpecialTokens, StepFunction, select_rows
from heedful.decoding.token_constraints import (
    NO_BOUNDARIES,
    TokenConstraints,
    WordBoundaries,
    check_constraints,
    no_room_error,
)
from heedful.errors import ConfigError


def run_search(
    step: StepFunction[S],
    state: S,
    special: SpecialTokens,
    max_lengths: Int[Tensor, " sentences"],
    config: SearchConfig,
    sources: Sequence[Sequence[int]],
    *,
    n_best: int = 1,
    constraints: Sequence[TokenConstraints] = (),
    boundaries: WordBoundaries = NO_BOUNDARIES,
) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence, best first; samples come in the order in which they were drawn.

    `constraints` are empty, or one for each sentence. Only sampling uses `sources`: its random numbers depend on them.
    """
    check_constraints(constraints, special, boundaries)
    prefixes = [each.prefix for each in constraints] if any(each.prefix for each in constraints) else []
    for prefix, limit in zip(prefixes, max_lengths.tolist(), strict=False):
        if len(prefix) >= limit:
            raise no_room_error(len(prefix), limit - 1)
    if any(each.phrases for each in constraints):
        return _search_with_phrases(step, state, special, max_lengths, config, sources, n_best, constraints, boundaries)
    match config.method:
        case "beam":
            if config.groups > 1:
                return diverse_search(step, state, special, max_lengths, config, n_best=n_best, prefixes=prefixes)
            if config.beam == n_best == 1:  # the same result without a beam's bookkeeping
                found = greedy_search(step, state, special, max_lengths, config, prefixes=prefixes)
                return [[best] for best in found]
            return beam_search(step, state, special, max_lengths, config, n_best=n_best, prefixes=prefixes)
        case "sample" | "mbr":
            keys = max_lengths.new_tensor([sentence_key(config.seed, source) for source in sources])
            draws = config.samples if config.method == "mbr" else n_best
            return sample_search(step, state, special, max_lengths, config, keys, draws=draws, prefixes=prefixes)
    assert_never(config.method)


def _search_with_phrases(
    step: StepFunction[S],
    state: S,
    special: SpecialTokens,
    max_lengths: Int[Tensor, " sentences"],
    config: SearchConfig,
    sources: Sequence[Sequence[int]],
    n_best: int,
    constraints: Sequence[TokenConstraints],
    boundaries: WordBoundaries,
) -> list[list[Hypothesis]]:
    """Search sentences without phrases separately, so that their outputs are the same as without the others."""
    if config.method != "beam" or config.groups > 1:
        raise ConfigError(
            f"search.method is '{config.method}' and search.groups is {config.groups}, but only plain beam search can "
            "require terms; set search.method=beam and search.groups=1"
        )
    constrained = torch.tensor([bool(each.phrases) for each in constraints], device=max_lengths.device)
    results: dict[int, list[Hypothesis]] = {}
    for rows in (constrained.nonzero()[:, 0], (~constrained).nonzero()[:, 0]):
        if not len(rows):
            continue
        numbers = rows.tolist()
        part, limits = select_rows(state, rows, len(constrained)), max_lengths[rows]
        some = [constraints[number] for number in numbers]
        if some[0].phrases:
            found = constrained_search(step, part, special, limits, config, some, boundaries, n_best=n_best)
        else:
            own = [sources[number] for number in numbers]
            found = run_search(
                step, part, special, limits, config, own, n_best=n_best, constraints=some, boundaries=boundaries
            )
        results |= dict(zip(numbers, found, strict=True))
    return [results[number] for number in range(len(constraints))]
