"""The contender's side of a benchmark: a process that works for a given time and then reports what it did."""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TextIO

Step = Callable[[], int]  # makes one update and returns its number of source and target tokens, without padding


@dataclass(frozen=True, slots=True)
class Lap:
    """The work done in one turn: tokens, or operations if the machine itself is measured."""

    work: float
    seconds: float

    @property
    def speed(self) -> float:
        """Work per second."""
        return self.work / self.seconds


def serve(lap: Callable[[float], Lap]) -> None:
    """Print that it is ready; then answer each line, a number of seconds, with a lap as JSON."""
    answers = take_output()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(asdict(lap(float(line)))), file=answers, flush=True)


def take_output() -> TextIO:
    """Standard output, for the answers alone; whatever libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def train_for(step: Step) -> Callable[[float], Lap]:
    """Laps of a training; its first update, which includes one-time costs, is made now and not counted."""
    step()

    def lap(seconds: float) -> Lap:
        tokens, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds:
            tokens += step()
        return Lap(tokens, spent)

    return lap
