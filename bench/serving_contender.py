"""heedful's server and its clients over HTTP, each of which waits for an answer and then sends the next request.

Clients share the server's cores, so they cost as little as possible: one loop, bare sockets, requests made beforehand,
answers checked afterwards.

Arguments: a run folder, a file of texts, the number of clients, texts per request, and a file for the answers and for
the shares of CPU time that the clients and the server used.
"""

import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from contender import Lap, serve
from load_generator import serving, translate_request
from race import processor_seconds
from translation_contenders import read_lines

_WARM_UP = 2.0  # seconds
_CHUNK = 1 << 18  # bytes
_SILENCE = 90.0  # seconds without an answer to any client


@dataclass(frozen=True, slots=True)
class Request:
    """Some of the texts, and the bytes that send them."""

    texts: range
    sent: bytes


@dataclass(slots=True)
class Asked:
    """The answers, and the time that they took."""

    answers: list[tuple[Request, bytes]] = field(default_factory=list)
    seconds: float = 0.0
    processor_seconds: float = 0.0  # of the clients

    @property
    def texts(self) -> int:
        """The number of texts that were answered."""
        return sum(len(request.texts) for request, _ in self.answers)

    def translations(self) -> dict[int, set[str]]:
        """All translations of each text; an invalid answer ends the process."""
        found: dict[int, set[str]] = {}
        for request, answer in self.answers:
            for number, text in zip(request.texts, _translations(answer), strict=True):
                found.setdefault(number, set()).add(text)
        return found


class _Client:
    """One connection and its current request."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), _SILENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request: Request
        self._come = b""

    def send(self, request: Request) -> None:
        self.request, self._come = request, b""
        self.socket.sendall(request.sent)

    def receive(self) -> bytes:
        """The complete answer, or empty bytes."""
        some = self.socket.recv(_CHUNK)
        if not some:
            raise SystemExit(f"a connection was closed after {self._come[-200:]!r}")
        self._come += some
        head, end, body = self._come.partition(b"\r\n\r\n")
        return self._come if end and len(body) >= _length(head) else b""


def requests_of(texts: Sequence[str], size: int) -> list[Request]:
    """Requests with this many texts each; a remainder is not sent."""
    starts = range(0, len(texts) - size + 1, size)
    return [Request(range(n, n + size), translate_request(texts[n : n + size])) for n in starts]


def ask(port: int, clients: int, requests: Sequence[Request], seconds: float) -> Asked:
    """Let all clients send requests for this long, then wait for the remaining answers."""
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
        raise SystemExit(f"an answer has no content length: {head!r}")
    return int(rest.partition(b"\r\n")[0])


def _translations(answer: bytes) -> list[str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"an answer was {answer[:300]!r}")
    found = json.loads(body)["translatedText"]
    return [found] if isinstance(found, str) else found


def main() -> None:
    run, source, clients, together, report = sys.argv[1:]
    requests = requests_of(read_lines(Path(source)), int(together))
    found: dict[int, set[str]] = {}
    shares: dict[str, list[float]] = {"clients": [], "server": []}
    with TemporaryDirectory() as folder, serving(Path(run), Path(folder)) as server:

        def lap(seconds: float) -> Lap:
            worker, before = server.worker, processor_seconds(server.worker)
            asked = ask(server.port, int(clients), requests, seconds)
            all_there_was = asked.seconds * (os.cpu_count() or 1)
            shares["clients"].append(asked.processor_seconds / all_there_was)
            shares["server"].append((processor_seconds(worker) - before) / all_there_was)
            for number, several in asked.translations().items():
                found[number] = found.get(number, set()) | several
            texts = {number: sorted(several) for number, several in found.items()}
            Path(report).write_text(json.dumps({"texts": texts, "shares": shares}), encoding="utf-8")
            return Lap(asked.texts, asked.seconds)

        ask(server.port, int(clients), requests, _WARM_UP)
        serve(lap)


if __name__ == "__main__":
    main()
