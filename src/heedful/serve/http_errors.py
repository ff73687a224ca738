"""A request that is refused: a status and a sentence, in the form that LibreTranslate's clients know."""

from collections.abc import Mapping
from math import ceil

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response


class Refused(HTTPException):
    """What the client is told; `retry` are the seconds after which it may ask again."""

    def __init__(self, status: int, sentence: str, retry: float | None = None, *, close: bool = False) -> None:
        headers = {} if retry is None else {"Retry-After": str(max(1, ceil(retry)))}
        if close:  # what is left of the body is not read
            headers["Connection"] = "close"
        super().__init__(status, sentence, headers)


def error_response(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """Every error has this body."""
    return JSONResponse({"error": sentence}, status, dict(headers or {}))
