"""The page of all heads with a model behind it: for one person, on this machine.

Other pages in the same browser could send requests here, too. They cannot: a request must name this machine as its host
(which stops a foreign name that was pointed here) and carry a header that browsers let no foreign page set.
"""

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import cast

from heedful.errors import ConfigError, HeedfulError

HOST = "127.0.0.1"
_MOST_BYTES = 65_536  # of a request: more than any sentence that can be shown
_MOST_TRANSLATIONS = 10
_USUAL_PORT = 80
_SECONDS = 30.0  # a client that is silent for so long is gone
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

Answer = Callable[[str, list[str], int], Mapping[str, object]]  # text, heads that are off, translations -> a document


class Refused(Exception):
    """A request that gets no document: the status, and a sentence."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Explorer(ThreadingHTTPServer):
    """Listens on loopback; `port` 0 takes any that is free."""

    daemon_threads = True

    def __init__(self, port: int, page: str, answer: Answer) -> None:
        self.page = page.encode()
        self._answer = answer
        self._turn = Lock()  # heads are switched off in the model itself, so one request at a time
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise ConfigError(
                f"--port {port} cannot be used ({error.strerror}); give another, or 0 for any that is free"
            ) from error

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_port}/"

    @property
    def hosts(self) -> tuple[str, ...]:
        """What a browser on this machine calls it; the usual port goes without saying."""
        names = (HOST, "localhost")
        return (*(f"{name}:{self.server_port}" for name in names), *(names if self.server_port == _USUAL_PORT else ()))

    def answer(self, body: bytes) -> Mapping[str, object]:
        """The document that a request asks for."""
        text, off, n_best = _read(body)
        try:
            with self._turn:
                return self._answer(text, off, n_best)
        except HeedfulError as error:
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        except Exception as error:
            what = f"unexpected {type(error).__name__}: {error}"
            raise Refused(HTTPStatus.INTERNAL_SERVER_ERROR, what) from error

    def server_close(self) -> None:
        """Let the last answer come to its end: a process must not end with a thread inside of PyTorch."""
        self._turn.acquire()
        super().server_close()


def _read(body: bytes) -> tuple[str, list[str], int]:
    """Take a request apart; whatever it holds, it is right or refused."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(HTTPStatus.BAD_REQUEST, "the request is not JSON") from error
    match request:
        case {"text": str(text), "off": list(off), "n_best": int(n_best)} if all(isinstance(name, str) for name in off):
            if type(n_best) is not int or not 1 <= n_best <= _MOST_TRANSLATIONS:
                raise Refused(HTTPStatus.BAD_REQUEST, f"n_best must be 1 to {_MOST_TRANSLATIONS}")
            return text, off, n_best
    raise Refused(HTTPStatus.BAD_REQUEST, "a request is an object with text, off (names of heads) and n_best")


class _Handler(BaseHTTPRequestHandler):
    timeout = _SECONDS
    protocol_version = "HTTP/1.1"
    server_version = "heedful"
    sys_version = ""

    @property
    def _explorer(self) -> Explorer:
        return cast(Explorer, self.server)

    def do_GET(self) -> None:
        """The page."""
        self._guarded(self._page)

    def do_POST(self) -> None:
        """A document for the page."""
        self._guarded(self._document)

    def _guarded(self, work: Callable[[], tuple[str, bytes]]) -> None:
        try:
            if self.headers.get("Host") not in self._explorer.hosts:
                raise Refused(HTTPStatus.MISDIRECTED_REQUEST, "this page is for this machine only")
            kind, body = work()
            self._send(HTTPStatus.OK, kind, body)
        except Refused as refused:
            self.close_connection = True  # what is left of its body is not read
            self._send(refused.status, "application/json", json.dumps({"error": str(refused)}).encode())
        except OSError:  # the browser has gone
            self.close_connection = True

    def _page(self) -> tuple[str, bytes]:
        if self.path != "/":
            raise Refused(HTTPStatus.NOT_FOUND, "there is only one page here: /")
        return "text/html; charset=utf-8", self._explorer.page

    def _document(self) -> tuple[str, bytes]:
        if self.path != "/attention":
            raise Refused(HTTPStatus.NOT_FOUND, "requests go to /attention")
        if self.headers.get("X-Heedful") != "1" or self.headers.get_content_type() != "application/json":
            raise Refused(HTTPStatus.FORBIDDEN, "a request needs the headers X-Heedful: 1 and a JSON content type")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "a request needs its length")
        if len(length) > 9 or int(length) > _MOST_BYTES:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {_MOST_BYTES} bytes")
        document = self._explorer.answer(self.rfile.read(int(length)))
        return "application/json", json.dumps(document, ensure_ascii=False).encode()

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_: object) -> None:
        """Say nothing: the terminal is for the person who started it."""
