"""Requests that end in an error: a status and a sentence, in the form that LibreTranslate's clients expect."""

from collections.abc import Mapping
from math import ceil

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response


class RequestError(HTTPException):
    """Ends a request with this status and sentence; the client may try again after `retry` seconds."""

    def __init__(self, status: int, sentence: str, retry: float | None = None, *, close: bool = False) -> None:
        """`close` ends the connection, because the rest of the body is not read."""
        headers = {} if retry is None else {"Retry-After": str(max(1, ceil(retry)))}
        if close:
            headers["Connection"] = "close"
        super().__init__(status, sentence, headers)


def error_response(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """The response for an error; every error has this body."""
    return JSONResponse({"error": sentence}, status, dict(headers or {}))
