"""The learning rate (section 5.3) and the dropout at each update, counted from 1."""

import math
from typing import assert_never

from heedful.config import TrainConfig


def learning_rate(step: int, d_model: int, config: TrainConfig) -> float:
    """Equation 3, or one of the schedules in use since.

    All warm up linearly over `warmup_steps`. For "paper", `learning_rate` is a factor of the formula. Otherwise it is
    the peak: "inverse-sqrt" falls from it with the root of the step, "cosine" and "linear" fall to 0 at `max_steps`.
    """
    warmup = max(1, config.warmup_steps)
    if config.schedule == "paper":
        return config.learning_rate * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
    if step < warmup:
        return config.learning_rate * step / warmup
    done = min(1.0, (step - warmup) / max(1, config.max_steps - warmup))
    match config.schedule:
        case "inverse-sqrt":
            return config.learning_rate * math.sqrt(warmup / step)
        case "cosine":
            return config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))
        case "linear":
            return config.learning_rate * (1.0 - done)
        case "constant":
            return config.learning_rate
        case _:
            assert_never(config.schedule)


_FIRST_SHARE = 1 / 3
_STAIRS = 4  # not at every update: on a GPU, each new probability compiles the layers again


def dropout_share(step: int, warmup: int) -> float:
    """The share of its full probability that dropout has at this update; it rises over the first `warmup` updates."""
    stair = min(_STAIRS, _STAIRS * (step - 1) // warmup) if warmup else _STAIRS
    return _FIRST_SHARE + (1.0 - _FIRST_SHARE) * stair / _STAIRS
