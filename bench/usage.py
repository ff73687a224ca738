"""What processes and the machine have used, as Linux tells it; elsewhere all is zero."""

import os
from pathlib import Path

_PROC = Path("/proc")
_IDLE = slice(3, 5)  # idle, and idle while a disk works
_ALL = slice(0, 8)  # user, nice, system, idle, disk, interrupts (2), stolen by other machines


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    below = _read(f"{pid}/task/{pid}/children")
    return [pid, *(descendant for child in below.split() for descendant in tree(int(child)))]


def peak_bytes(pid: int) -> int:
    """The most memory that a process ever held."""
    return _status(pid, "VmHWM")


def resident_bytes(pid: int) -> int:
    """The memory that a process holds now."""
    return _status(pid, "VmRSS")


def _status(pid: int, key: str) -> int:
    for line in _read(f"{pid}/status").splitlines():
        if line.startswith(f"{key}:"):
            return 1024 * int(line.split()[1])
    return 0


def processor_seconds(pid: int) -> float:
    """Time of processors that a process has used, all threads together."""
    # The name, in brackets, may hold anything.
    fields = _read(f"{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def machine_seconds() -> tuple[float, float]:
    """Time of processors that was used, by anyone, and all there was."""
    numbers = [int(number) for number in _read("stat").partition("\n")[0].split()[1:]]
    every, idle = sum(numbers[_ALL]), sum(numbers[_IDLE])
    ticks = os.sysconf("SC_CLK_TCK")
    return (every - idle) / ticks, every / ticks


def _read(name: str) -> str:
    try:
        return (_PROC / name).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
