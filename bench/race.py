"""Contenders in processes of their own, which take turns: only one works at a time, the others are stopped.

A machine that is shared or throttled changes its speed from minute to minute, so each contender has a turn in every
round. Processes of their own, because settings of memory and threads are those of a process.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from contender import Lap
from usage import machine_seconds, peak_bytes, processor_seconds, tree

HERE = Path(__file__).resolve().parent
PATIENCE = 300.0  # seconds without a line before a contender is given up
# What the user of the race has set must not help or hurt anyone.
_OF_THREADS_AND_MEMORY = ("OMP_", "GOMP_", "KMP_", "MKL_", "MALLOC_", "LD_PRELOAD")

Kind = Literal["heedful", "shipped", "tuned", "machine"]
UpdateOf = Callable[[str, float], float | None]  # a line of a log, seconds since the update before -> target tokens

TUNED = {  # glibc keeps its pages and does not hand big temporaries back to the kernel
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}


class ContenderFailed(Exception):
    """A contender ended or fell silent; the text says why."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A process to race. With `update_of` it is another program, which trains until it is stopped and writes a log."""

    name: str
    kind: Kind
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    update_of: UpdateOf | None = None
    tokens_per_target_token: float = 1.0


@dataclass(slots=True)
class Result:
    """What one contender did in all rounds."""

    contender: Contender
    laps: list[Lap] = field(default_factory=list)
    peak_bytes: int = 0
    elsewhere: list[float] = field(default_factory=list)  # share of the machine that others took, lap by lap

    def add(self, child: "Child", seconds: float) -> None:
        """One lap more."""
        (busy, every), own = machine_seconds(), child.processor_seconds()
        self.laps.append(child.lap(seconds))
        (busy_then, every_then), own_then = machine_seconds(), child.processor_seconds()
        others = (busy_then - busy) - (own_then - own)
        self.elsewhere.append(max(0.0, others) / max(every_then - every, 1e-9))
        self.peak_bytes = max(self.peak_bytes, child.peak_bytes())

    @property
    def speed(self) -> float:
        """Work a second, the mean of the rounds."""
        return sum(lap.speed for lap in self.laps) / len(self.laps)


def python(script: str, *arguments: object) -> list[str]:
    """The command of a contender that is a file of this folder."""
    return [sys.executable, str(HERE / script), *map(str, arguments)]


def environment(contender: Contender) -> dict[str, str]:
    """What its process sees: ours without what is set of threads and memory, and its own."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(_OF_THREADS_AND_MEMORY)}
    return {**inherited, "PYTHONUNBUFFERED": "1", **contender.environment}


class Child:
    """A contender's process. Between two laps it is stopped, threads and children and all."""

    def __init__(self, contender: Contender, folder: Path, patience: float = PATIENCE) -> None:
        self.contender = contender
        self._patience = patience
        self._log = folder / f"{contender.name.replace(' ', '-')}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                contender.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if contender.update_of else log,
                cwd=folder,
                env=environment(contender),
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has no other threads
            )
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        os.set_blocking(self._out, False)
        self._unread = b""
        self._recent: list[str] = []

    def prepare(self) -> None:
        """Wait until the first update is done, then stop it."""
        if self.contender.update_of is None:
            self._line()
        else:
            next(self._updates())
        self._pause()

    def lap(self, seconds: float) -> Lap:
        """Let it work for about so long."""
        os.killpg(self._process.pid, signal.SIGCONT)
        lap = self._ask(seconds) if self.contender.update_of is None else self._watch(seconds)
        self._pause()
        return lap

    def peak_bytes(self) -> int:
        """The most memory that its largest process ever held; 0 where the system does not tell.

        Workers that load data are copies of it and share most of their pages, so a sum would count them twice.
        """
        return max(map(peak_bytes, tree(self._process.pid)))

    def processor_seconds(self) -> float:
        """What all its processes have used."""
        return sum(map(processor_seconds, tree(self._process.pid)))

    def close(self) -> None:
        """End it, and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _ask(self, seconds: float) -> Lap:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n".encode())
        self._process.stdin.flush()
        return Lap(**json.loads(self._line(seconds)))

    def _watch(self, seconds: float) -> Lap:
        """Count updates in the log. The first was begun before the stop, so the clock starts when it is done."""
        updates = self._updates()
        began, _ = next(updates)
        target_tokens = 0.0
        for now, tokens in updates:
            target_tokens += tokens
            if now - began >= seconds:
                break
        return Lap(target_tokens * self.contender.tokens_per_target_token, now - began)

    def _updates(self) -> Iterator[tuple[float, float]]:
        """When each update was done, and its target tokens."""
        assert self.contender.update_of is not None
        before = time.perf_counter()
        while True:
            line = self._line()
            now = time.perf_counter()
            tokens = self.contender.update_of(line, now - before)
            if tokens is not None:
                yield now, tokens
                before = now

    def _pause(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)
        if self.contender.update_of:
            # What it wrote in its last moments would be taken for an update of the next lap.
            while select.select([self._out], [], [], 0.05)[0] and os.read(self._out, 1 << 16):
                pass
            self._unread = b""

    def _line(self, longer: float = 0.0) -> str:
        deadline = time.monotonic() + self._patience + longer
        while b"\n" not in self._unread:
            if not select.select([self._out], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise ContenderFailed(f"{self.contender.name} said nothing for {self._patience:.0f} seconds")
            some = os.read(self._out, 1 << 16)
            if not some:
                raise ContenderFailed(f"{self.contender.name} ended: {self._last_words()}")
            self._unread += some
        line, self._unread = self._unread.split(b"\n", 1)
        self._recent = [*self._recent[-20:], line.decode(errors="replace")]
        return self._recent[-1]

    def _last_words(self) -> str:
        lines = [*self._log.read_text(errors="replace").splitlines(), *self._recent]
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def race(
    contenders: Sequence[Contender], folder: Path, seconds: float, rounds: int, patience: float = PATIENCE
) -> tuple[list[Result], dict[str, str]]:
    """Every contender in every round; gives results, and why those that failed have none."""
    failed: dict[str, str] = {}
    with ExitStack() as stack:
        running: dict[str, tuple[Child, Result]] = {}
        for contender in contenders:
            child = Child(contender, folder, patience)
            stack.callback(child.close)
            try:
                child.prepare()
                running[contender.name] = child, Result(contender)
            except ContenderFailed as error:
                failed[contender.name] = str(error)
        for number in range(rounds):
            # There and back, so that none is always before or behind the same one.
            for name in list(running)[:: -1 if number % 2 else 1]:
                child, result = running[name]
                try:
                    result.add(child, seconds)
                except (ContenderFailed, BrokenPipeError) as error:
                    failed[name] = str(error)
                    del running[name]
        return [result for _, result in running.values()], failed


def _die_with_parent() -> None:
    """A process that is stopped could not notice that nobody waits for it any more."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
