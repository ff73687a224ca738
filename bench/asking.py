"""Many clients over HTTP that cost as little as can be, for they share the server's cores: one loop, bare sockets.

Each has a connection, sends a request that was made beforehand, waits for the answer and sends the next. What came back
is looked at when the time is over.
"""

import json
import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from load_generator import translate_request

_CHUNK = 1 << 18  # bytes
_SILENCE = 90.0  # seconds without any answer, to anyone


@dataclass(frozen=True, slots=True)
class Request:
    """Some of the texts, and how they are sent."""

    texts: range
    sent: bytes


@dataclass(slots=True)
class Asked:
    """What was answered, and what it took."""

    answers: list[tuple[Request, bytes]] = field(default_factory=list)
    seconds: float = 0.0
    processor_seconds: float = 0.0  # of the clients

    @property
    def texts(self) -> int:
        """How many were answered."""
        return sum(len(request.texts) for request, _ in self.answers)

    def translations(self) -> dict[int, set[str]]:
        """All that each text became; an answer that is none ends the process."""
        found: dict[int, set[str]] = {}
        for request, answer in self.answers:
            for number, text in zip(request.texts, _translations(answer), strict=True):
                found.setdefault(number, set()).add(text)
        return found


class _Client:
    """One connection, and what it waits for."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), _SILENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request: Request
        self._come = b""

    def send(self, request: Request) -> None:
        self.request, self._come = request, b""
        self.socket.sendall(request.sent)

    def receive(self) -> bytes:
        """The whole answer, or nothing yet."""
        some = self.socket.recv(_CHUNK)
        if not some:
            raise SystemExit(f"a connection was closed after {self._come[-200:]!r}")
        self._come += some
        head, end, body = self._come.partition(b"\r\n\r\n")
        return self._come if end and len(body) >= _length(head) else b""


def requests_of(texts: Sequence[str], size: int) -> list[Request]:
    """All texts, so many a request; what is left over is not sent."""
    starts = range(0, len(texts) - size + 1, size)
    return [Request(range(n, n + size), translate_request(texts[n : n + size])) for n in starts]


def ask(port: int, clients: int, requests: Sequence[Request], seconds: float) -> Asked:
    """All clients ask for so long; those that have no answer then are waited for."""
    asked, turn = Asked(), iter(range(1 << 60))
    with selectors.DefaultSelector() as selector:
        for client in [_Client(port) for _ in range(clients)]:
            selector.register(client.socket, selectors.EVENT_READ, client)
        began, before = time.perf_counter(), time.process_time()
        for key in selector.get_map().values():
            key.data.send(requests[next(turn) % len(requests)])
        while selector.get_map():
            for client in _ready(selector):
                if answer := client.receive():
                    asked.answers.append((client.request, answer))
                    if time.perf_counter() - began < seconds:
                        client.send(requests[next(turn) % len(requests)])
                    else:
                        selector.unregister(client.socket)
                        client.socket.close()
        asked.seconds = time.perf_counter() - began
        asked.processor_seconds = time.process_time() - before
    return asked


def _ready(selector: selectors.BaseSelector) -> list[_Client]:
    ready = [key.data for key, _ in selector.select(_SILENCE)]
    if not ready:
        raise SystemExit(f"no answer for {_SILENCE:.0f} s")
    return ready


def _length(head: bytes) -> int:
    _, found, rest = head.lower().partition(b"\r\ncontent-length:")
    if not found:
        raise SystemExit(f"an answer does not tell its length: {head!r}")
    return int(rest.partition(b"\r\n")[0])


def _translations(answer: bytes) -> list[str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"an answer was {answer[:300]!r}")
    found = json.loads(body)["translatedText"]
    return [found] if isinstance(found, str) else found
