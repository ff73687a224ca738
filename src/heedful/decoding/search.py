"""The search that the options name."""

from collections.abc import Sequence
from typing import assert_never

import torch
from jaxtyping import Int
from torch import Tensor

from heedful.config.experiment import SearchConfig
from heedful.decoding.beam import beam_search
from heedful.decoding.constrained import constrained_search
from heedful.decoding.constraints import ANYWHERE, Borders, Demand, check_demands, too_long
from heedful.decoding.diverse import diverse_search
from heedful.decoding.greedy import greedy_search
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.sampling import sample_search, sentence_key
from heedful.decoding.stepping import S, Step, Symbols, select_rows
from heedful.errors import ConfigError


def find(
    step: Step[S],
    state: S,
    symbols: Symbols,
    max_lengths: Int[Tensor, " sentences"],
    config: SearchConfig,
    sources: Sequence[Sequence[int]],
    *,
    n_best: int = 1,
    demands: Sequence[Demand] = (),
    borders: Borders = ANYWHERE,
) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence, best first; those that are drawn, in the order of the draws.

    `demands` are none, or one a sentence. Of `sources` only drawing makes use: they are what it depends on.
    """
    check_demands(demands, symbols, borders)
    prefixes = [demand.prefix for demand in demands] if any(demand.prefix for demand in demands) else []
    for prefix, limit in zip(prefixes, max_lengths.tolist(), strict=False):
        if len(prefix) >= limit:
            raise too_long(len(prefix), limit - 1)
    held = [bool(demand.phrases) for demand in demands]
    if any(held):
        return _with_phrases(
            step, state, symbols, max_lengths, config, sources, n_best=n_best, demands=demands, borders=borders
        )
    match config.method:
        case "beam":
            if config.groups > 1:
                return diverse_search(step, state, symbols, max_lengths, config, n_best=n_best, prefixes=prefixes)
            if config.beam == n_best == 1:  # the same result without a beam's bookkeeping
                found = greedy_search(step, state, symbols, max_lengths, config, prefixes=prefixes)
                return [[best] for best in found]
            return beam_search(step, state, symbols, max_lengths, config, n_best=n_best, prefixes=prefixes)
        case "sample" | "mbr":
            keys = max_lengths.new_tensor([sentence_key(config.seed, source) for source in sources])
            draws = config.samples if config.method == "mbr" else n_best
            return sample_search(step, state, symbols, max_lengths, config, keys, draws=draws, prefixes=prefixes)
    assert_never(config.method)


def _with_phrases(
    step: Step[S],
    state: S,
    symbols: Symbols,
    max_lengths: Int[Tensor, " sentences"],
    config: SearchConfig,
    sources: Sequence[Sequence[int]],
    *,
    n_best: int,
    demands: Sequence[Demand],
    borders: Borders,
) -> list[list[Hypothesis]]:
    """Sentences without phrases are searched apart, so that they come out as they would alone."""
    if config.method != "beam" or config.groups > 1:
        raise ConfigError(
            f"search.method is '{config.method}' and search.groups is {config.groups}, but only plain beam search can "
            "hold to terms; set search.method=beam and search.groups=1"
        )
    held = torch.tensor([bool(demand.phrases) for demand in demands], device=max_lengths.device)
    results: dict[int, list[Hypothesis]] = {}
    for rows in (held.nonzero()[:, 0], (~held).nonzero()[:, 0]):
        if not len(rows):
            continue
        numbers = rows.tolist()
        part, limits = select_rows(state, rows, len(held)), max_lengths[rows]
        some = [demands[number] for number in numbers]
        if some[0].phrases:
            found = constrained_search(step, part, symbols, limits, config, some, borders, n_best=n_best)
        else:
            own = [sources[number] for number in numbers]
            found = find(step, part, symbols, limits, config, own, n_best=n_best, demands=some, borders=borders)
        results |= dict(zip(numbers, found, strict=True))
    return [results[number] for number in range(len(demands))]
