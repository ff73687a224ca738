"""Greedy search: the most probable token, again and again."""

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor

from heedful.config.experiment import SearchConfig
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.stepping import S, Step, Symbols
from heedful.decoding.stepwise import Picked, walk
from heedful.decoding.topk import top_log_probs


def greedy_search(
    step: Step[S],
    state: S,
    symbols: Symbols,
    max_lengths: Int[Tensor, " sentences"],
    config: SearchConfig,
    *,
    prefixes: Sequence[Sequence[int]] = (),
) -> list[Hypothesis]:
    """One hypothesis a sentence, the same as of a beam of 1; of `config` only the beam is left out."""
    return walk(step, state, symbols, max_lengths, config, _likeliest, prefixes)


def _likeliest(log_probs: Float[Tensor, "rows vocabulary"], live: Int[Tensor, " rows"], length: int) -> Picked:
    values, ids = top_log_probs(log_probs, 1)
    return values[:, 0], ids[:, 0]
