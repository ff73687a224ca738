"""Contenders in their own processes that take turns: only one works at a time, and the others are stopped.

A machine that is shared or throttled changes its speed from minute to minute, so each contender has a turn in every
round. They need their own processes, because thread and memory settings belong to a process.
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

_PROC = Path("/proc")
_IDLE = slice(3, 5)  # idle, and idle while a disk works
_ALL = slice(0, 8)  # user, nice, system, idle, disk, interrupts (2), stolen by other machines

HERE = Path(__file__).resolve().parent
PATIENCE = 300.0  # seconds of silence after which a contender has failed
# The user's own settings must not help or hurt any contender.
_THREAD_AND_MEMORY_SETTINGS = ("OMP_", "GOMP_", "KMP_", "MKL_", "MALLOC_", "LD_PRELOAD")

Kind = Literal["heedful", "shipped", "tuned", "machine"]
UpdateOf = Callable[[str, float], float | None]  # (line of a log, seconds since the last update) -> target tokens

TUNED = {  # makes glibc keep its pages instead of returning large temporaries to the kernel
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}


class ContenderFailed(Exception):
    """A contender ended or fell silent; the message says why."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A process to measure. With `update_of`, it is another program that trains until stopped and writes a log."""

    name: str
    kind: Kind
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    update_of: UpdateOf | None = None
    tokens_per_target_token: float = 1.0


@dataclass(slots=True)
class Result:
    """The laps of one contender."""

    contender: Contender
    laps: list[Lap] = field(default_factory=list)
    peak_bytes: int = 0
    elsewhere: list[float] = field(default_factory=list)  # share of the machine that other programs used, lap by lap

    def add(self, child: "Child", seconds: float) -> None:
        """Run one more lap."""
        (busy, every), own = machine_seconds(), child.processor_seconds()
        self.laps.append(child.lap(seconds))
        (busy_then, every_then), own_then = machine_seconds(), child.processor_seconds()
        others = (busy_then - busy) - (own_then - own)
        self.elsewhere.append(max(0.0, others) / max(every_then - every, 1e-9))
        self.peak_bytes = max(self.peak_bytes, child.peak_bytes())

    @property
    def speed(self) -> float:
        """Work per second, averaged over the rounds."""
        return sum(lap.speed for lap in self.laps) / len(self.laps)


def python(script: str, *arguments: object) -> list[str]:
    """The command that runs a file of this folder."""
    return [sys.executable, str(HERE / script), *map(str, arguments)]


def environment(contender: Contender) -> dict[str, str]:
    """The environment of its process: ours without thread and memory settings, plus its own."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(_THREAD_AND_MEMORY_SETTINGS)}
    return {**inherited, "PYTHONUNBUFFERED": "1", **contender.environment}


class Child:
    """A contender's process; between two laps it is stopped, with all its threads and children."""

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
        """Wait until the first update is done, then stop the process."""
        if self.contender.update_of is None:
            self._line()
        else:
            next(self._updates())
        self._pause()

    def lap(self, seconds: float) -> Lap:
        """Let it work for about this long."""
        os.killpg(self._process.pid, signal.SIGCONT)
        lap = self._ask(seconds) if self.contender.update_of is None else self._watch(seconds)
        self._pause()
        return lap

    def peak_bytes(self) -> int:
        """The peak memory of its largest process; 0 if the system does not report it.

        Data-loading workers are copies that share most of their pages, so a sum would count those twice.
        """
        return max(map(peak_bytes, tree(self._process.pid)))

    def processor_seconds(self) -> float:
        """The CPU time that all its processes have used."""
        return sum(map(processor_seconds, tree(self._process.pid)))

    def close(self) -> None:
        """Kill it and its children."""
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
        """Count updates in the log. The first one began before the stop, so the clock starts when it ends."""
        updates = self._updates()
        began, _ = next(updates)
        target_tokens = 0.0
        for now, tokens in updates:
            target_tokens += tokens
            if now - began >= seconds:
                break
        return Lap(target_tokens * self.contender.tokens_per_target_token, now - began)

    def _updates(self) -> Iterator[tuple[float, float]]:
        """The time at which each update ended, and its target tokens."""
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
            # Its last output must not be taken for an update of the next lap.
            while select.select([self._out], [], [], 0.05)[0] and os.read(self._out, 1 << 16):
                pass
            self._unread = b""

    def _line(self, longer: float = 0.0) -> str:
        deadline = time.monotonic() + self._patience + longer
        while b"\n" not in self._unread:
            if not select.select([self._out], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise ContenderFailed(f"{self.contender.name} wrote nothing for {self._patience:.0f} seconds")
            some = os.read(self._out, 1 << 16)
            if not some:
                raise ContenderFailed(f"{self.contender.name} ended: {self._last_words()}")
            self._unread += some
        line, self._unread = self._unread.split(b"\n", 1)
        self._recent = [*self._recent[-20:], line.decode(errors="replace")]
        return self._recent[-1]

    def _last_words(self) -> str:
        lines = [*self._log.read_text(errors="replace").splitlines(), *self._recent]
        return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")


def race(
    contenders: Sequence[Contender], folder: Path, seconds: float, rounds: int, patience: float = PATIENCE
) -> tuple[list[Result], dict[str, str]]:
    """Run every contender in every round; return the results, and why some contenders failed."""
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
            # Alternate the order, so that no contender always follows the same one.
            for name in list(running)[:: -1 if number % 2 else 1]:
                child, result = running[name]
                try:
                    result.add(child, seconds)
                except (ContenderFailed, BrokenPipeError) as error:
                    failed[name] = str(error)
                    del running[name]
        return [result for _, result in running.values()], failed


def _die_with_parent() -> None:
    """Ask the kernel to kill the process with its parent, because a stopped process cannot notice that itself."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


# Linux reports what processes and the machine have used in /proc; elsewhere all of this is zero.


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    below = _read(f"{pid}/task/{pid}/children")
    return [pid, *(descendant for child in below.split() for descendant in tree(int(child)))]


def peak_bytes(pid: int) -> int:
    """The peak memory of a process."""
    return _status(pid, "VmHWM")


def resident_bytes(pid: int) -> int:
    """The current memory of a process."""
    return _status(pid, "VmRSS")


def _status(pid: int, key: str) -> int:
    for line in _read(f"{pid}/status").splitlines():
        if line.startswith(f"{key}:"):
            return 1024 * int(line.split()[1])
    return 0


def processor_seconds(pid: int) -> float:
    """The CPU time that a process has used in all its threads."""
    # The name, in brackets, may contain anything.
    fields = _read(f"{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def machine_seconds() -> tuple[float, float]:
    """The CPU time that all programs have used, and all that was available."""
    numbers = [int(number) for number in _read("stat").partition("\n")[0].split()[1:]]
    every, idle = sum(numbers[_ALL]), sum(numbers[_IDLE])
    ticks = os.sysconf("SC_CLK_TCK")
    return (every - idle) / ticks, every / ticks


def _read(name: str) -> str:
    try:
        return (_PROC / name).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
