"""A server process, and clients that use little of the CPU, which they share with it."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from race import tree

_START = 60.0  # seconds until a server answers
_TIMEOUT = 90.0  # seconds for an answer


class Hung(Exception):
    """A client waited too long for an answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response; status 0 if the connection ended without one."""

    status: int
    head: str = ""
    body: bytes = b""

    @property
    def retry_after(self) -> float:
        """The seconds of Retry-After, or 0."""
        found = [line for line in self.head.lower().splitlines() if line.startswith("retry-after:")]
        return float(found[0].partition(":")[2]) if found else 0.0


@dataclass(slots=True)
class Server:
    """A running server."""

    port: int
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def worker(self) -> int:
        """The process that translates; the other one is its supervisor."""
        return next(iter(tree(self.process.pid)[1:]), 0)

    def terminate(self, seconds: float = _TIMEOUT) -> int:
        """Stop it with SIGTERM; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


@contextmanager
def serving(run: Path, folder: Path, *options: str) -> Iterator[Server]:
    """`heedful serve` on a free port."""
    log = folder / "serve.log"
    command = [sys.executable, "-m", "heedful", "serve", str(run), "--languages", "xx-yy", "--port", "0", *options]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield Server(_port(process, log), process, log)
    finally:
        process.kill()
        process.wait()


def _port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text().splitlines():
            if " is ready; " in line:
                return int(line.partition(" is ready; ")[0].rpartition(":")[2])
        time.sleep(0.05)
    raise SystemExit(f"the server did not start:\n{log.read_text()[-2000:]}")


class Client:
    """A connection that is kept open, and opened again if the server closes it."""

    def __init__(self, port: int, timeout: float = _TIMEOUT) -> None:
        self._port = port
        self._timeout = timeout
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, *request: bytes) -> Answer:
        """Send these bytes in their parts, and read the answer."""
        try:
            return await asyncio.wait_for(self._send(request), self._timeout)
        except TimeoutError:
            self.close()
            raise Hung from None
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            self.close()
            return Answer(0)

    async def connect(self) -> None:
        """Connect before the first request."""
        self._streams = self._streams or await asyncio.open_connection("127.0.0.1", self._port)

    def close(self) -> None:
        """Disconnect."""
        if self._streams:
            self._streams[1].close()
        self._streams = None

    async def _send(self, request: Sequence[bytes]) -> Answer:
        await self.connect()
        assert self._streams is not None
        reader, writer = self._streams
        for part in request:
            writer.write(part)
            await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        fields = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
        body = await reader.readexactly(int(fields["content-length"])) if "content-length" in fields else b""
        if "content-length" not in fields:
            body = await reader.read()  # until the server closes the connection
        if fields.get("connection") == "close" or "content-length" not in fields:
            self.close()
        return Answer(int(head.split()[1]), head, body)


def post(path: str, body: Mapping[str, Any]) -> bytes:
    """A POST request with a JSON body."""
    return raw_post(path, json.dumps(body).encode())


def raw_post(path: str, body: bytes, *fields: bytes, kind: bytes = b"application/json") -> bytes:
    """A POST request with these bytes as its body."""
    head = [b"POST " + path.encode() + b" HTTP/1.1", b"Host: localhost", b"Content-Type: " + kind]
    return b"\r\n".join([*head, b"Content-Length: %d" % len(body), *fields, b"", body])


def translate_request(texts: Sequence[str]) -> bytes:
    """A request of a LibreTranslate client."""
    return post("/translate", {"q": list(texts) if len(texts) > 1 else texts[0], "source": "xx", "target": "yy"})


@dataclass(slots=True)
class Load:
    """The answers to many clients."""

    answers: dict[int, int] = field(default_factory=dict)
    hung: int = 0
    texts: int = 0

    def count(self, answer: Answer, texts: int) -> None:
        """Count an answer."""
        self.answers[answer.status] = self.answers.get(answer.status, 0) + 1
        self.texts += texts if answer.status == 200 else 0


async def load_server(clients: Sequence[Client], requests: Sequence[tuple[int, bytes]], seconds: float) -> Load:
    """All clients send one request after another for so many seconds; then the last answers are awaited.

    A client waits as long as Retry-After says.
    """
    load = Load()
    end = time.perf_counter() + seconds
    turn = iter(range(1 << 60))

    async def work(client: Client) -> None:
        while time.perf_counter() < end:
            texts, request = requests[next(turn) % len(requests)]
            try:
                answer = await client.send(request)
            except Hung:
                load.hung += 1
                continue
            load.count(answer, texts)
            if answer.retry_after:
                await asyncio.sleep(min(answer.retry_after, max(0.0, end - time.perf_counter())))

    await asyncio.gather(*map(work, clients))
    return load
