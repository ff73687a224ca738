"""The signals that ask to stop, and the exit codes that tell of them."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from heedful.cli import console

_SAVED_AND_STOPPED = 75
_CTRL_C = 130


def code_of(name: str) -> int:
    """The exit code after a signal was obeyed and all is saved."""
    return _CTRL_C if name == "SIGINT" else _SAVED_AND_STOPPED


class Signals:
    """The signals that ask to stop. Once training asks for them, one is obeyed after the current step.

    Before that, and at a second Ctrl-C, it is obeyed at once: there is nothing to save, or it is not wanted.
    """

    def __init__(self) -> None:
        self.told = True  # whether to say that one came
        self._came = ""
        self._asked = False

    def __call__(self) -> str:
        """The name of the first that came, or nothing."""
        self._asked = True
        return self._came

    def hear(self, number: int, _: object) -> None:
        """What the operating system calls."""
        name = signal.Signals(number).name
        if number == signal.SIGINT and (self._came or not self._asked):
            raise KeyboardInterrupt
        if not self._asked:
            raise SystemExit(_SAVED_AND_STOPPED)
        self._came = self._came or name
        if not self.told:
            return
        with suppress(RuntimeError):  # the signal may come in the middle of another line to standard error
            console.say(f"{name}: saving after this step (a second Ctrl-C stops at once)")


@contextmanager
def signals() -> Iterator[Signals]:
    """Hear them for as long as the block runs."""
    heard = Signals()
    wanted = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
    before = {number: signal.signal(number, heard.hear) for number in wanted}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
