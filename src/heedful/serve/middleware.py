"""Middleware around the application: request ids, security headers, the log, and checks of host and origin."""

import logging
import re
import secrets
from collections.abc import Callable, Collection, Iterable
from time import perf_counter

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.errors import ConfigError
from heedful.serve.http_errors import error_response
from heedful.serve.request_log import CURRENT_REQUEST

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")  # the names of this machine
_LOG = logging.getLogger("heedful.serve")
_REQUEST_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
_ORIGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:[a-z0-9_.-]+|\[[0-9a-f:]+\])(?::(?P<port>[0-9]+))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}  # which browsers leave out
_OTHER = "other"
_SECURITY_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


def own_hosts(host: str) -> tuple[str, ...]:
    """The names that clients may use for a server that listens at this address of this machine."""
    return (*LOOPBACK, f"[{host}]" if ":" in host else host)


def check_origin(origin: str) -> str:
    """Return an origin that is written as browsers send it; no request would match any other."""
    found = _ORIGIN.fullmatch(origin)
    if not found or found["port"] == _DEFAULT_PORTS.get(found["scheme"], ""):
        raise ConfigError(
            f"--cors {origin} is not an origin as browsers send it; name each one, for example https://example.com"
        )
    return origin


class RequestMiddleware:
    """Gives each request an id, each response security headers, and the log a line for both.

    An unexpected error becomes a response that names the request id and nothing else; the log has the traceback.
    """

    def __init__(self, app: ASGIApp, count: Callable[[str, int, float], None], paths: Collection[str]) -> None:
        """`count` is called with path, status and seconds; a path that is not one of `paths` is called "other"."""
        self._app = app
        self._count = count
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = perf_counter()
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        CURRENT_REQUEST.set(request_id)
        status = 0
        head = scope["method"] == "HEAD"

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _add_headers(message["headers"], request_id)
            elif head:
                message["body"] = b""
            await send(message)

        try:  # HEAD gets the headers of GET
            await self._app({**scope, "method": "GET"} if head else scope, receive, send_with_headers)
        except Exception:
            _LOG.exception("unexpected error", extra={"request": request_id})
            if not status:
                response = error_response(500, f"internal error; the log has more under {request_id}")
                await response(scope, receive, send_with_headers)
        finally:
            seconds = perf_counter() - start
            path = scope["path"] if scope["path"] in self._paths else _OTHER
            self._count(path, status, seconds)
            fields = {"request": request_id, "method": scope["method"], "path": path, "status": status}
            _LOG.info("request", extra=fields | {"ms": round(1000 * seconds, 1)})


class OriginMiddleware:
    """Refuses requests for foreign hosts and from pages of foreign origins.

    A page of another origin, open in a browser on this machine, could send forms to this server. So a request must
    come from no page, from our own, or from one of `origins`. If `hosts` are given, it must also name one of them as
    its host: that stops DNS rebinding, where a foreign name resolves to this machine.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], origins: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and (reason := self._find_reason_to_refuse(Headers(scope=scope))):
            app = error_response(403, reason)
        await app(scope, receive, send)

    def _find_reason_to_refuse(self, headers: Headers) -> str:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._hosts and _strip_port(host) not in self._hosts:
            return "this server is for this machine only"
        own = (f"http://{host}", f"https://{host}")
        if origin is not None and origin not in own and origin not in self._origins:
            return "this server takes no requests from pages of other origins"
        return ""


def _add_headers(headers: Iterable[tuple[bytes, bytes]], request_id: str) -> list[tuple[bytes, bytes]]:
    """These headers, and those of ours that they do not set."""
    own = [(name.lower(), value) for name, value in headers]
    known = {name for name, _ in own}
    return own + [one for one in (*_SECURITY_HEADERS, (b"x-request-id", request_id.encode())) if one[0] not in known]


def _strip_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
