"""Keep the service running: a small supervisor process holds the socket and starts a worker process.

If the worker dies, killed by the system for its memory or by a fault in a library, the next worker takes over the same
socket. Clients that connect meanwhile wait; only requests that the dead worker had accepted are lost. A worker that
dies three times in a row before it was ready, or soon after, is not started again.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from time import monotonic
from types import FrameType

_ENVIRONMENT = "HEEDFUL_WORKER"  # holds the file descriptors of the socket and two pipes
_EARLY = 10.0  # seconds after it was ready; a worker that dies within them may never work
_MOST_EARLY_DEATHS = 3  # in a row
_LOG = logging.getLogger(__name__)
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Worker:
    """What a worker process gets from its supervisor."""

    listener: socket.socket
    _ready: int  # a pipe to the supervisor

    @classmethod
    def inherit(cls) -> "Worker | None":
        """None if this process is not a worker. A worker stops when its supervisor dies."""
        descriptors = os.environ.pop(_ENVIRONMENT, "")
        if not descriptors:
            return None
        listener, alive, ready = map(int, descriptors.split())
        Thread(target=_stop_when_closed, args=(alive,), daemon=True).start()
        return cls(socket.socket(fileno=listener), ready)

    def report_ready(self) -> None:
        """Tell the supervisor that this worker takes requests from now on."""
        os.write(self._ready, repr(monotonic()).encode())
        os.close(self._ready)


def supervise(listener: socket.socket) -> int:
    """Run this command as a worker, and restart it until a signal stops the supervisor; return the exit code."""
    supervisor = _Supervisor(listener)
    before = {number: signal.signal(number, supervisor.forward) for number in (*_STOP_SIGNALS, signal.SIGHUP)}
    try:
        return supervisor.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Supervisor:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._worker: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def forward(self, number: int, _: FrameType | None) -> None:
        """Forward a signal to the worker."""
        self._stopping = self._stopping or number in _STOP_SIGNALS
        if self._worker:
            self._worker.send_signal(number)

    def run(self) -> int:
        deaths = 0
        while not self._stopping:
            code, seconds = self._run_worker()
            if code >= 0:  # it was not killed
                return code
            deaths = deaths + 1 if seconds < _EARLY else 1
            name = signal.Signals(-code).name
            if deaths == _MOST_EARLY_DEATHS:
                _LOG.error("the worker was killed by %s %d times in a row; giving up", name, deaths)
                return 128 - code
            if not self._stopping:
                _LOG.error("the worker was killed by %s; starting another", name)
        return 0

    def _run_worker(self) -> tuple[int, float]:
        """Start a worker and wait for its end: its exit code, and the seconds for which it was ready."""
        with ExitStack() as stack:
            alive, _ = _open_pipe(stack)  # it closes when this process dies, for whatever reason
            ready, written = _open_pipe(stack)
            descriptors = (self._listener.fileno(), alive, written)
            with _block_signal(signal.SIGHUP):
                self._worker = subprocess.Popen(  # noqa: S603 (the command that the user gave)
                    [sys.executable, "-P", "-m", "heedful", *sys.argv[1:]],  # -P: no modules of the current folder
                    pass_fds=descriptors,
                    env=os.environ | {_ENVIRONMENT: " ".join(map(str, descriptors))},
                    process_group=0,  # otherwise Ctrl-C in a terminal would reach it twice
                )
            if self._stopping:  # a signal arrived before there was a worker
                self._worker.terminate()
            code, end = self._worker.wait(), monotonic()
            os.set_blocking(ready, False)
            with suppress(BlockingIOError):
                return code, end - float(os.read(ready, 100))
            return code, 0.0


def _open_pipe(stack: ExitStack) -> tuple[int, int]:
    """The two ends of a pipe, which the stack closes."""
    ends = os.pipe()
    for end in ends:
        stack.callback(os.close, end)
    return ends


@contextmanager
def _block_signal(number: signal.Signals) -> Iterator[None]:
    """Hold back a signal; a process that is started meanwhile inherits this until it calls `unblock_signal`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        unblock_signal(number)


def unblock_signal(number: signal.Signals) -> None:
    """Deliver this signal again, including one that arrived while it was blocked."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})


def _stop_when_closed(pipe: int) -> None:
    """Stop this process when the other end of the pipe is closed."""
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)
