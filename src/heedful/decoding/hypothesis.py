"""Hypotheses, which searches return, and their scores. Nothing here needs PyTorch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, assert_never

from heedful.config.experiment import Penalty, SearchConfig
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    Length = TypeVar("Length", float, Tensor)
else:  # engines that do not need PyTorch should not wait for it
    Length = TypeVar("Length")

NOT_FINITE = "the model computes NaN or infinity, so it cannot translate; use a checkpoint from before it diverged"


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output: its ids without the start symbol, its log-probability, and the score that ranks it."""

    tokens: tuple[int, ...]  # ends in EOS, unless `finished` is False
    log_prob: float  # the sum over tokens, EOS included
    score: float  # log_prob / length penalty
    finished: bool = True  # False: cut off at the maximum length


def length_penalty(length: Length, alpha: float, kind: Penalty) -> Length:
    """The number to divide a log-probability by, so that outputs do not win by being short.

    Section 6.1 takes ((5 + n) / 6)^alpha from Wu et al. (2016), equation 14; n counts EOS.
    """
    match kind:
        case "paper":
            return ((5 + length) / 6) ** alpha
        case "power":
            return length**alpha
        case _:
            assert_never(kind)


def check_search_options(config: SearchConfig, n_best: int) -> None:
    """Refuse options that no search can follow, before any model runs."""
    if config.beam < 1:
        raise ConfigError(f"search.beam is {config.beam} but must be at least 1; set --beam to 1 or more")
    if n_best < 1:
        raise ConfigError(f"you asked for {n_best} translations; ask for at least 1")
    if n_best > config.beam:
        raise ConfigError(
            f"you asked for {n_best} translations, but search.beam is {config.beam}; set --beam to at least {n_best}"
        )
    if not config.alpha >= 0:  # otherwise a longer output would score lower, and no bound would hold
        raise ConfigError(f"search.alpha is {config.alpha} but must not be negative; set --alpha to 0 or more")
