"""Metrics: scores of outputs against references, each with an interval and a signature."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Score:
    """A metric's value over a test set. With the `signature`, anyone can repeat the measurement."""

    metric: str
    value: float
    low: float  # low and high: 95 % interval by bootstrap over the sentences
    high: float
    signature: str
    brevity_penalty: float | None = None  # the factor of BLEU that punishes outputs shorter than the references
