"""Who keeps the service up: a small process that holds the socket and starts another, the worker, which does the work.

If the worker dies, killed by the system for its memory or by a fault in a library, the next one takes over the same
socket. Who connects meanwhile waits; only what the dead one had accepted is lost.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from time import monotonic
from types import FrameType

_FILES = "HEEDFUL_WORKER"  # the worker's environment: the numbers of the socket and of the pipe
_SOON = 10.0  # seconds; a worker that dies sooner may never live
_TRIES = 3  # of those in a row
_LOG = logging.getLogger(__name__)
_ENDING = (signal.SIGTERM, signal.SIGINT)


def inherited() -> socket.socket | None:
    """The socket that a keeper has given to this process; None: this is not a worker."""
    files = os.environ.pop(_FILES, "")
    if not files:
        return None
    listener, pipe = map(int, files.split())
    Thread(target=_end_with, args=(pipe,), daemon=True).start()
    return socket.socket(fileno=listener)


def keep(listener: socket.socket) -> int:
    """Have this very command run as a worker, again and again until it is told to end; give the exit code."""
    keeper = _Keeper(listener)
    before = {number: signal.signal(number, keeper.hear) for number in (*_ENDING, signal.SIGHUP)}
    try:
        return keeper.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Keeper:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._worker: subprocess.Popen[bytes] | None = None
        self._ending = False

    def hear(self, number: int, _: FrameType | None) -> None:
        """Pass a signal on."""
        self._ending = self._ending or number in _ENDING
        if self._worker:
            self._worker.send_signal(number)

    def run(self) -> int:
        died = 0
        while not self._ending:
            began = monotonic()
            code = self._run_one()
            if code >= 0:  # it ended, and was not killed
                return code
            died = died + 1 if monotonic() - began < _SOON else 1
            name = signal.Signals(-code).name
            if died == _TRIES:
                _LOG.error("the worker was ended by %s %d times in a row; giving up", name, died)
                return 128 - code
            if not self._ending:
                _LOG.error("the worker was ended by %s; the next one begins", name)
        return 0

    def _run_one(self) -> int:
        reading, writing = os.pipe()  # which ends when this process does, however that dies
        try:
            files = (self._listener.fileno(), reading)
            with _held_back(signal.SIGHUP):
                self._worker = subprocess.Popen(  # noqa: S603 (the command that the user gave)
                    [sys.executable, "-P", "-m", "heedful", *sys.argv[1:]],  # -P: not what lies in the current folder
                    pass_fds=files,
                    env=os.environ | {_FILES: " ".join(map(str, files))},
                    process_group=0,  # else Ctrl-C in a terminal would reach it twice
                )
            if self._ending:  # a signal came before there was somebody to pass it on to
                self._worker.terminate()
            return self._worker.wait()
        finally:
            os.close(reading)
            os.close(writing)


@contextmanager
def _held_back(number: signal.Signals) -> Iterator[None]:
    """A signal waits. In a process that is begun meanwhile it does until that lets it through: see `let_through`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        let_through(number)


def let_through(number: signal.Signals) -> None:
    """Who can hear this signal now gets it, if it came before."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})


def _end_with(pipe: int) -> None:
    """End this process when the other end of the pipe is gone."""
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)
