"""The events of a training; each is one line of JSON in the log."""

import dataclasses
import json
import math
from dataclasses import dataclass

STOP_SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")  # reasons for which a run ends early; it can be resumed


@dataclass(frozen=True, slots=True)
class Started:
    """Training starts or continues after this step."""

    step: int
    max_steps: int
    minutes_left: float | None  # until train.max_minutes; None: no limit
    parameters: int
    pairs: int
    threads: int  # per process
    device: str
    processes: int = 1


@dataclass(frozen=True, slots=True)
class StepDone:
    """An update of the weights, or a skipped update because its loss or gradient was not finite."""

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
    """The model was scored on the validation pairs."""

    step: int
    loss: float  # unsmoothed, per target token
    perplexity: float
    score: float | None  # by the task's metric; higher is better
    metric: str  # BLEU, F1, accuracy
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
    model: str  # which weights the run folder keeps
    peak_memory_mib: int = 0  # of the GPU, or of the process

    @property
    def interrupted(self) -> bool:
        """Whether a signal ended it early; the run can be resumed."""
        return self.reason in STOP_SIGNALS


Event = Started | StepDone | Validated | Saved | Finished


def event_to_json(event: Event) -> str:
    """The event as a line of `events.jsonl`."""
    numbers = {key: _round(value) for key, value in dataclasses.asdict(event).items()}
    return json.dumps({"event": type(event).__name__} | numbers)


def _round(value: object) -> object:
    """Nine significant digits, all that a float32 has; NaN and infinity become null, because JSON lacks them."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.9g}") if math.isfinite(value) else None
