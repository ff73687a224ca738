"""Signals that ask a training to stop, and their exit codes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from heedful.cli import console

_SAVED_AND_STOPPED = 75
_CTRL_C = 130


def code_of(name: str) -> int:
    """The exit code after a signal, when everything is saved."""
    return _CTRL_C if name == "SIGINT" else _SAVED_AND_STOPPED


class Signals:
    """Received signals that ask to stop. A training polls them and stops after the current step.

    Before the first poll, and at a second Ctrl-C, the program stops at once.
    """

    def __init__(self) -> None:
        self.announces = True  # whether to print a line when a signal comes
        self._came = ""
        self._asked = False

    def __call__(self) -> str:
        """The name of the first received signal, or an empty string."""
        self._asked = True
        return self._came

    def hear(self, number: int, _: object) -> None:
        """Record a signal; called by the operating system."""
        name = signal.Signals(number).name
        if number == signal.SIGINT and (self._came or not self._asked):
            raise KeyboardInterrupt
        if not self._asked:
            raise SystemExit(_SAVED_AND_STOPPED)
        self._came = self._came or name
        if not self.announces:
            return
        with suppress(RuntimeError):  # the signal may interrupt another write to standard error
            console.say(f"{name}: saving after this step (a second Ctrl-C stops at once)")


@contextmanager
def signals() -> Iterator[Signals]:
    """Handle signals while the block runs."""
    heard = Signals()
    wanted = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
    before = {number: signal.signal(number, heard.hear) for number in wanted}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
