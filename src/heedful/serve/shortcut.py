"""The way to the endpoints that are asked most, past what FastAPI does for all and they do not need."""

from collections.abc import Awaitable, Callable, Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from heedful.serve.http_errors import error_response

Endpoint = Callable[[Request], Awaitable[Response]]


class Shortcut:
    """Around the application, which has the same endpoints, too: its document tells of them."""

    def __init__(self, app: ASGIApp, endpoints: Mapping[str, Endpoint]) -> None:
        """`endpoints` are those of POST, by their paths."""
        self._app = app
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer it here, or pass it on."""
        posted = scope["type"] == "http" and scope["method"] == "POST"
        endpoint = self._endpoints.get(scope["path"]) if posted else None
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        try:
            response = await endpoint(Request(scope, receive, send))
        except HTTPException as error:
            response = error_response(error.status_code, error.detail, error.headers)
        await response(scope, receive, send)
