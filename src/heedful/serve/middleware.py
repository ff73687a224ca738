"""What every request passes through: an id, who may ask, safe headers, a line in the log, a count."""

import re
import secrets
from collections.abc import Collection, Iterable
from time import perf_counter

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.errors import ConfigError
from heedful.serve.http_errors import error_response
from heedful.serve.monitoring import Metrics
from heedful.serve.request_log import LOG

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")  # what this machine calls itself
_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
_ORIGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:[a-z0-9_.-]+|\[[0-9a-f:]+\])(?::(?P<port>[0-9]+))?")
_USUAL_PORTS = {"http": "80", "https": "443"}  # which browsers leave out
_OTHER = "other"
_NAME = "heedful.request"  # where in a scope a request's id is
_SAFE = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


def own_names(host: str) -> tuple[str, ...]:
    """What a client may call a server that listens at this address of this machine."""
    return (*LOOPBACK, f"[{host}]" if ":" in host else host)


def check_origin(given: str) -> str:
    """An origin as a browser would write it: any other would never be met."""
    found = _ORIGIN.fullmatch(given)
    if not found or found["port"] == _USUAL_PORTS.get(found["scheme"], ""):
        raise ConfigError(f"--cors {given} is not an origin as browsers send it; name each, say https://example.com")
    return given


class Guard:
    """Around the whole application.

    A page of another origin, in a browser on this machine, could send forms here. It cannot: a request must come from
    no page, from our own, or from an origin that was named. Where `hosts` are given, a request must name one of them:
    that stops a foreign name that was pointed at this machine.
    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, paths: Collection[str], hosts: Collection[str], origins: Collection[str]
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._paths = paths
        self._hosts = hosts
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass it on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, headers = perf_counter(), Headers(scope=scope)
        given = headers.get("x-request-id", "")
        name = given if _ID.fullmatch(given) else secrets.token_hex(8)
        scope[_NAME] = name
        status = 0

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _completed(message["headers"], name)
            await send(message)

        try:
            refusal = self._refusal(headers)
            if refusal:
                await error_response(403, refusal)(scope, receive, guarded)
            else:
                await self._app(scope, receive, guarded)
        except Exception:
            LOG.exception("unexpected error", extra={"request": name})
            if not status:
                await internal_error(scope)(scope, receive, guarded)
        finally:
            self._note(scope, name, status, perf_counter() - began)

    def _refusal(self, headers: Headers) -> str:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._hosts and _without_port(host) not in self._hosts:
            return "this server is for this machine only"
        own = (f"http://{host}", f"https://{host}")
        if origin is not None and origin not in own and origin not in self._origins:
            return "this server takes no requests from pages of other origins"
        return ""

    def _note(self, scope: Scope, name: str, status: int, seconds: float) -> None:
        path = scope["path"] if scope["path"] in self._paths else _OTHER
        self._metrics.request(path, status, seconds)
        known = {"request": name, "method": scope["method"], "path": path, "status": status}
        LOG.info("request", extra=known | {"ms": round(1000 * seconds, 1)})


def internal_error(scope: Scope) -> Response:
    """What is answered where we have failed: where to look it up, and nothing else."""
    return error_response(500, f"internal error; the log has more under {scope[_NAME]}")


def _completed(written: Iterable[tuple[bytes, bytes]], name: str) -> list[tuple[bytes, bytes]]:
    """The headers of an answer, and those of ours that it does not set itself."""
    own = [(header.lower(), value) for header, value in written]
    known = {header for header, _ in own}
    return own + [one for one in (*_SAFE, (b"x-request-id", name.encode())) if one[0] not in known]


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
