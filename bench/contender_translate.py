"""The side of a contender that translates: it is told in a file what to do, and how it may be set.

Arguments: that file, and `tune`, `race` or `once`. Each contender has a file of its own, which calls `compete`.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from contender import Lap, serve, take_output

Setting = dict[str, int | str | bool]


class Translated(NamedTuple):
    """A translation; its end is a piece, too."""

    text: str
    pieces: int


Translate = Callable[[Sequence[str]], list[Translated]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be done; the same for every contender but for the model's format."""

    model: str
    source: str  # a file, one text a line
    report: str  # where to write what came out
    beam: int = 4
    alpha: float = 0.6
    extra: int = 50  # an output has at most source length + this many pieces, where the longest can be told
    limit: int = 0  # every output has so many pieces; 0: as many as the model gives it
    together: int = 0  # texts that are given at a time; 0: all
    texts: int = 0  # only so many, the first ones; 0: all
    trial: float = 2.0  # seconds that each setting is tried for, at least
    settings: Sequence[Setting] = field(default_factory=lambda: [{}])  # who races takes the first

    def write(self, path: Path) -> None:
        """As JSON, for the other process."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Job":
        """What `write` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def lines(self) -> list[str]:
        """The texts."""
        return read_lines(Path(self.source))[: self.texts or None]


Make = Callable[[Job, Setting], Translate]


def read_lines(path: Path) -> list[str]:
    """The lines of a file; nothing but a line feed ends one."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def compete(make: Make) -> None:
    """Do what the command line says."""
    path, action = sys.argv[1:]
    job = Job.read(Path(path))
    match action:
        case "tune":
            answers = take_output()
            print(json.dumps([seconds_of(make(job, setting), job) for setting in job.settings]), file=answers)
        case "once":
            answers = take_output()
            print(make(job, job.settings[0])(job.lines()[:1])[0].text, file=answers, flush=True)
        case "race":
            serve(laps(make(job, job.settings[0]), job))
        case _:
            sys.exit(f"unknown action: {action}")


def seconds_of(translate: Translate, job: Job) -> float:
    """How long the texts take: the quickest of several times, after what comes only once."""
    texts = job.lines()
    translate(texts[:2])
    best, spent = float("inf"), 0.0
    while spent < job.trial or not spent:
        began = time.perf_counter()
        for start in range(0, len(texts), job.together or len(texts)):
            translate(texts[start : start + (job.together or len(texts))])
        seconds = time.perf_counter() - began
        best, spent = min(best, seconds), spent + seconds
    return best


def laps(translate: Translate, job: Job) -> Callable[[float], Lap]:
    """Laps of all texts, again and again until the time is up; work is texts. The last outputs are reported."""
    texts = job.lines()
    together = job.together or len(texts)
    translate(texts[:2])
    turns: list[float] = []  # seconds of every call, in all laps

    def lap(seconds: float) -> Lap:
        done, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds or not done:
            found: list[Translated] = []
            for start in range(0, len(texts), together):
                before = time.perf_counter()
                found += translate(texts[start : start + together])
                turns.append(time.perf_counter() - before)
            done += len(found)
        pieces = sum(one.pieces for one in found)
        report = {"texts": [one.text for one in found], "pieces": pieces, "turns": turns}
        Path(job.report).write_text(json.dumps(report), encoding="utf-8")
        return Lap(done, spent)

    return lap


def by_length(sources: Sequence[Sequence[object]], size: int) -> list[list[int]]:
    """Batches of so many, those of about the same length together."""
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
    return [order[start : start + size] for start in range(0, len(order), size)]
