"""What a search gives back."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output: its ids without the start symbol, how probable they are, and what they were ranked by."""

    tokens: tuple[int, ...]  # ends in EOS, unless `finished` is False
    log_prob: float  # the sum over tokens, EOS included
    score: float  # log_prob / length penalty
    finished: bool = True  # False: cut off at the maximum length
