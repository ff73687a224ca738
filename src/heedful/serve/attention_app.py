"""The application of `heedful heads --serve`: the attention page of one model, for one person on this machine."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from pydantic import BaseModel, Field

from heedful.errors import HeedfulError
from heedful.serve.app import assemble_app
from heedful.serve.http_errors import RequestError
from heedful.serve.middleware import LOOPBACK
from heedful.serve.request_body import media_type_of, read_body
from heedful.serve.service import ServiceLimits

_LIMITS = ServiceLimits(body=65_536)  # more than any sentence that can be shown
# The page has a policy of its own, by which it runs its inlined script; only this part cannot stand in a page.
_PAGE_HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'"}

Explain = Callable[[str, list[str], int], Mapping[str, object]]  # text, heads that are off, n-best -> document


class LiveAttentionRequest(BaseModel):
    """A sentence of the page, and the heads that are switched off."""

    text: str
    off: list[str]
    n_best: int = Field(ge=1, le=10)


def create_attention_app(page: str, explain: Explain) -> FastAPI:
    """Serves this page at /; its requests to /attention are answered by `explain`, one at a time."""
    router = APIRouter()
    turn = asyncio.Lock()  # heads are switched off in the model itself

    @router.get("/", response_model=None)
    async def main_page() -> Response:
        return Response(page, media_type="text/html; charset=utf-8", headers=_PAGE_HEADERS)

    @router.post("/attention", response_model=None)
    async def attention(body: Annotated[LiveAttentionRequest, Depends(_read_request)]) -> Response:
        async with turn:
            content = await asyncio.to_thread(_explain_as_json, explain, body)
        return Response(content, media_type="application/json")

    return assemble_app([router], hosts=LOOPBACK)


async def _read_request(request: Request) -> LiveAttentionRequest:
    """The body of a request from our own page: browsers let no foreign page set this header."""
    if request.headers.get("x-heedful") != "1" or media_type_of(request) != "application/json":
        raise RequestError(403, "a request needs the headers X-Heedful: 1 and Content-Type: application/json")
    return await read_body(request, LiveAttentionRequest, _LIMITS)


def _explain_as_json(explain: Explain, body: LiveAttentionRequest) -> bytes:
    try:
        document = explain(body.text, body.off, body.n_best)
    except HeedfulError as error:
        raise RequestError(422, str(error)) from error
    except Exception as error:  # the person who started the server sees the page, and no log
        raise RequestError(500, f"unexpected {type(error).__name__}: {error}") from error
    return json.dumps(document, ensure_ascii=False).encode()
