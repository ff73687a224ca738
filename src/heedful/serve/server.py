"""The HTTP server process: one socket, signals, and connections with time limits."""

import asyncio
import errno
import logging
import signal
import socket
import sys
from asyncio import Task, TimerHandle, Transport
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from math import inf
from threading import current_thread, main_thread
from typing import Any

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from heedful.process_memory import freeze_loaded_objects
from heedful.serve.listener import BACKLOG, count_allowed_connections
from heedful.serve.supervisor import unblock_signal

_MOST_HEAD_BYTES = 65_536  # before the body of a request
_HEAD_SECONDS = 10.0  # until all of them have arrived
_IDLE_SECONDS = 75  # longer than any Retry-After, so that a client that waits for it finds its connection open
_ACCEPTED_AT_ONCE = 100  # connections
_REPORT_SECONDS = 60.0  # between two log lines about a lack of descriptors
_LOG = logging.getLogger("heedful.serve")
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_STUCK_SECONDS = 10.0  # in which a client reads nothing of its response


class Server(uvicorn.Server):
    """Stops at SIGTERM or Ctrl-C when all accepted requests are answered; SIGHUP calls `reload`, if given."""

    def __init__(self, app: ASGIApp, reload: Callable[[], Awaitable[None]] | None = None) -> None:
        # No timeout_graceful_shutdown: accepted requests have deadlines of their own and are never cut off.
        config = uvicorn.Config(
            app,
            http=TimeLimitedProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
            backlog=_ACCEPTED_AT_ONCE,
        )
        super().__init__(config)
        self._reload = reload
        self._reloading: set[Task[None]] = set()
        self._reported = -inf  # when a lack of descriptors was last logged

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        asyncio.get_running_loop().set_exception_handler(self._handle_loop_error)
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # uvicorn has set it to what it accepts at once

    def _handle_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log one line if descriptors run out; asyncio would log a traceback for each connection that waits."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _NO_DESCRIPTORS:
            loop.default_exception_handler(context)
        elif loop.time() > self._reported + _REPORT_SECONDS:
            self._reported = loop.time()
            _LOG.error("cannot accept connections: %s", error.strerror)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle signals; unlike uvicorn, do not raise them again at the end: stopping by a signal is a success."""
        if current_thread() is not main_thread():  # the only one that can handle signals
            yield
            return
        handlers = dict.fromkeys((signal.SIGINT, signal.SIGTERM), self.handle_exit)
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        freeze_loaded_objects()  # this process does nothing else, and by now it has loaded all that it needs
        if self._reload and hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._start_reload, self._reload)
            unblock_signal(signal.SIGHUP)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _start_reload(self, reload: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            await reload()
            freeze_loaded_objects()

        task = asyncio.ensure_future(run())
        self._reloading.add(task)
        task.add_done_callback(self._reloading.discard)


class TimeLimitedProtocol(HttpToolsProtocol):
    """Closes a connection whose client sends too much besides a body, sends too slowly, or does not read.

    If there are too many connections, the one that has been idle for longest makes room. A request to upgrade to
    another protocol is answered in this one, as HTTP allows.
    """

    idle_since = 0.0  # by the clock of the event loop
    _timer: TimerHandle | None = None
    _read_check: TimerHandle | None = None
    _head_bytes = 0  # since the last byte of a body
    _data = b""  # that the parser is given
    _rest: bytes | None = None  # of the data, after a head that asks for another protocol
    _repeating_head = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self.idle_since = self.loop.time()
        self._start_timer()
        self._check_reading(0)
        if len(self.connections) > count_allowed_connections():
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._stop_timer()
        if self._read_check:
            self._read_check.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Part of a request has arrived, or of several."""
        self._head_bytes += len(data)
        self._rest = data
        while self._rest is not None:
            self._data, self._rest = self._rest, None
            super().data_received(self._data)
        if self._head_bytes > _MOST_HEAD_BYTES and not self.transport.is_closing():
            if self._timer:
                self.send_400_response("Too much before the body of the request.")
            else:  # a response may have been started already
                self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Go on as if the client had not asked for another protocol.

        The parser stops after such a head. A new one gets the fields that say where the body ends, and then the body.
        """
        upgrade = sys.exception()
        offset = upgrade.args[0] if isinstance(upgrade, httptools.HttpParserUpgrade) else len(self._data)
        fields = [b": ".join(field) for field in self.headers if field[0] in (b"content-length", b"transfer-encoding")]
        self.parser = httptools.HttpRequestParser(self)
        self._repeating_head = True
        try:
            self.parser.feed_data(b"\r\n".join([b"POST / HTTP/1.1", *fields, b"", b""]))
        finally:
            self._repeating_head = False
        self._rest = self._data[offset:]

    def on_message_begin(self) -> None:
        """A request begins."""
        if not self._repeating_head:
            self._start_timer()
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Part of the address has arrived."""
        if not self._repeating_head:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head has arrived."""
        if not self._repeating_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head of the request is complete."""
        if not self._repeating_head:
            self._stop_timer()
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Part of the body has arrived."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete; not after a head that asks for another protocol, whose body is still to come."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """A request has been answered."""
        self.idle_since = self.loop.time()
        super().on_response_complete()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _make_room(self) -> None:
        others = [one for one in self.connections if isinstance(one, TimeLimitedProtocol) and one is not self]
        idle = min((one for one in others if one.is_idle), key=lambda one: one.idle_since, default=None)
        if idle:
            idle.transport.abort()
        else:
            self.transport.write(_BUSY)
            self.transport.close()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(_HEAD_SECONDS, self._close)

    def _stop_timer(self) -> None:
        self._head_bytes = 0
        if self._timer:
            self._timer.cancel()
        self._timer = None

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _check_reading(self, before: int) -> None:
        """Abort if the client reads nothing: a normal close would wait for it to read the rest."""
        unsent = self.transport.get_write_buffer_size()
        if unsent and unsent == before:
            self.transport.abort()
        else:
            self._read_check = self.loop.call_later(_STUCK_SECONDS, self._check_reading, unsent)
