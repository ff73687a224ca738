"""The process that listens: one socket, signals, and connections that must not dawdle."""

import asyncio
import signal
import socket
from asyncio import Task, TimerHandle, Transport
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from ipaddress import ip_address
from threading import current_thread, main_thread
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from heedful.errors import ConfigError
from heedful.process_memory import freeze_loaded_objects
from heedful.serve.supervisor import let_through

_HEAD = 65_536  # bytes before the body of a request
_HEAD_SECONDS = 10.0  # until all of them are there
_IDLE_SECONDS = 75  # more than clients are sent away for: who comes back must not find a door that is being closed
_BACKLOG = 2048  # connections that wait to be taken
_STUCK_SECONDS = 10.0  # in which a client takes nothing of what is to be sent to it


class Server(uvicorn.Server):
    """Ends at SIGTERM and Ctrl-C, when all that was accepted is answered; at SIGHUP takes up new models and keys."""

    def __init__(self, app: ASGIApp, renew: Callable[[], Awaitable[None]]) -> None:
        """Whatever was accepted comes to its end by itself, so none of it is cut off."""
        config = uvicorn.Config(
            app,
            http=Patient,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
        )
        super().__init__(config)
        self._renew = renew
        self._renewing: set[Task[None]] = set()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Unlike uvicorn, do not send the signal once more when all is done: to be ended by it is a good end."""
        if current_thread() is not main_thread():  # which alone can hear them
            yield
            return
        wanted = dict.fromkeys((signal.SIGINT, signal.SIGTERM), self.handle_exit)
        before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
        freeze_loaded_objects()  # this process does nothing else, and by now it has loaded all that it needs
        loop = asyncio.get_running_loop()
        if hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, self._begin_to_renew)
            let_through(signal.SIGHUP)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _begin_to_renew(self) -> None:
        task = asyncio.ensure_future(self._renewed())
        self._renewing.add(task)
        task.add_done_callback(self._renewing.discard)

    async def _renewed(self) -> None:
        await self._renew()
        freeze_loaded_objects()


class Patient(HttpToolsProtocol):
    """Closes a connection whose client sends too much around the body of a request, too slowly, or does not listen."""

    _timer: TimerHandle | None = None
    _checking: TimerHandle | None = None
    _around = 0  # bytes since the last of a body

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(transport)
        self._watch()
        self._check(0)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        self._rest()
        if self._checking:
            self._checking.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some of a request, or of several."""
        self._around += len(data)
        super().data_received(data)
        if self._around > _HEAD and not self.transport.is_closing():
            if self._timer:
                self.send_400_response("Too much before the body of the request.")
            else:  # there may be an answer on its way already
                self.transport.close()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._watch()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """All before its body is there."""
        self._rest()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Some of its body."""
        self._around = 0
        super().on_body(body)

    def _watch(self) -> None:
        self._rest()
        self._timer = self.loop.call_later(_HEAD_SECONDS, self._give_up)

    def _rest(self) -> None:
        self._around = 0
        if self._timer:
            self._timer.cancel()
        self._timer = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _check(self, before: int) -> None:
        """Leave a client that takes nothing: to close the connection would mean to wait for it."""
        unsent = self.transport.get_write_buffer_size()
        if unsent and unsent == before:
            self.transport.abort()
        else:
            self._checking = self.loop.call_later(_STUCK_SECONDS, self._check, unsent)


def listen(host: str, port: int) -> socket.socket:
    """A socket at this address; port 0 is any that is free."""
    try:
        (family, *_, address) = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Named as TCP, or asyncio would not switch off Nagle's algorithm, which holds every answer back for 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(_BACKLOG)  # who comes before all is ready waits
        except OSError:
            listener.close()
            raise
        return listener
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{host}, port {port}, cannot be used ({reason}); give another --port, or 0 for any"
        ) from error


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_of(listener: socket.socket) -> str:
    """Where it listens."""
    address: Any = listener.getsockname()
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"http://{host}:{address[1]}"
