"""A measured number, with how sure it is and how it was measured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Score:
    """A metric's value over a test set. `signature` is enough for another person to measure the same."""

    metric: str
    value: float
    low: float  # low and high: 95 % interval by bootstrap over the sentences
    high: float
    signature: str
