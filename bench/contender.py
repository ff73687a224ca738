"""The side of a contender: a process that works for as long as it is asked to, and then says what it did."""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TextIO

Step = Callable[[], int]  # makes one update and gives its source and target tokens that are not padding


@dataclass(frozen=True, slots=True)
class Lap:
    """What was done in one turn: tokens, or operations where the machine itself is measured."""

    work: float
    seconds: float

    @property
    def speed(self) -> float:
        """Work a second."""
        return self.work / self.seconds


def serve(lap: Callable[[float], Lap]) -> None:
    """Say that all is ready; then read a number of seconds a line, and answer each with a lap as JSON."""
    answers = take_output()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(asdict(lap(float(line)))), file=answers, flush=True)


def take_output() -> TextIO:
    """Standard output for the answers alone: what libraries print must not get between them."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def train_for(step: Step) -> Callable[[float], Lap]:
    """Laps of a training; its first update, which pays for what comes only once, is made now and not counted."""
    step()

    def lap(seconds: float) -> Lap:
        tokens, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds:
            tokens += step()
        return Lap(tokens, spent)

    return lap
