"""How well a model predicts a text: loss in nats a token, perplexity, and bits per character."""

import math
from collections.abc import Sequence
from importlib.metadata import version

import numpy as np

from heedful.metrics import Score

BITS_PER_CHARACTER = "bits per character"


def bits_per_character(loss: float, tokens_per_character: float) -> float:
    """Nats a token as bits a character, which models with different tokens can be compared by."""
    return loss * tokens_per_character / math.log(2.0)


def score_text(
    losses: Sequence[float], lengths: Sequence[int], tokens_per_character: float, context: int, resamples: int = 1000
) -> list[Score]:
    """Loss, perplexity and bits per character from the summed loss and the length of every window of a text.

    The intervals are by bootstrap over the windows.
    """
    sums, counts = np.asarray(losses, dtype=np.float64), np.asarray(lengths, dtype=np.float64)
    random = np.random.Generator(np.random.Philox(key=1))
    chosen = random.multinomial(len(sums), np.full(len(sums), 1.0 / len(sums)), size=resamples)
    drawn = np.sort((chosen @ sums) / (chosen @ counts))
    low, high = float(drawn[int(0.025 * resamples)]), float(drawn[min(resamples - 1, int(0.975 * resamples))])
    mean = float(sums.sum() / counts.sum())
    signature = f"tokens:{int(counts.sum())}|context:{context}|version:{version('heedful')}"

    def score(metric: str, value: float, low: float, high: float) -> Score:
        return Score(metric, value, low, high, f"{metric}|{signature}")

    bits = [bits_per_character(value, tokens_per_character) for value in (mean, low, high)]
    return [
        score("loss", mean, low, high),
        score("perplexity", math.exp(min(mean, 700.0)), math.exp(min(low, 700.0)), math.exp(min(high, 700.0))),
        score(BITS_PER_CHARACTER, *bits),
    ]
