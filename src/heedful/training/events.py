"""What happens in training, one JSON line each."""

import dataclasses
import json
import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Started:
    """Training begins, or goes on, after this step."""

    step: int
    max_steps: int
    minutes_left: float | None  # until train.max_minutes are over; None: no limit
    parameters: int
    pairs: int
    threads: int  # of each process
    device: str
    processes: int = 1


@dataclass(frozen=True, slots=True)
class StepDone:
    """An update of the weights, or one that was skipped because a number was not finite."""

    step: int
    epoch: int
    loss: float  # smoothed, per target token
    learning_rate: float
    gradient_norm: float
    tokens: int  # source and target
    tokens_per_second: float
    skipped: int = 0  # updates skipped so far


@dataclass(frozen=True, slots=True)
class Validated:
    """Scores on the validation pairs."""

    step: int
    loss: float  # unsmoothed, per target token
    perplexity: float
    score: float | None  # what the task is judged by; more is better
    metric: str  # its name: BLEU, F1, accuracy
    best: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint was written."""

    step: int
    path: str


@dataclass(frozen=True, slots=True)
class Finished:
    """Training is over."""

    step: int
    reason: str
    minutes: float
    model: str  # which weights the run folder's model has
    peak_memory_mib: int = 0  # of the GPU, or of the process


Event = Started | StepDone | Validated | Saved | Finished


def event_to_json(event: Event) -> str:
    """One line of `events.jsonl`."""
    numbers = {key: _round(value) for key, value in dataclasses.asdict(event).items()}
    return json.dumps({"event": type(event).__name__} | numbers)


def _round(value: object) -> object:
    """Nine significant digits are all that a float32 has; what is no number is null, as JSON has no word for it."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.9g}") if math.isfinite(value) else None
