"""The pages for translating, labels, pictures and the API, and those of `heedful heads --serve` and `explain --serve`.

All files are read when the server starts, so no request names a path.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from heedful.errors import HeedfulError
from heedful.inspection.attention_page import load_explorer
from heedful.pages.inline import asset, load_modules
from heedful.serve.http_errors import RequestError
from heedful.serve.request_body import media_type_of, read_body
from heedful.serve.service import ArrivingBodies, ServiceLimits

_MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "html": "text/html"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "Cache-Control": "no-cache",
}
_ATTENTION_LIMITS = ServiceLimits(body=65_536)  # more than any sentence that can be shown
_MOST_ATTENTION_BYTES = 1 << 24  # of all requests that are arriving
# The attention page sets a policy of its own for its inlined script, but a page cannot forbid frames by itself.
_ATTENTION_HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'"}

_MOST_EXPLANATIONS = 8  # pages that are kept; each takes a few megabytes

Explain = Callable[[str, list[str], int], Mapping[str, object]]  # text, heads that are off, n-best -> document


class StaticPages:
    """The pages as text, and their assets by name."""

    def __init__(self) -> None:
        explorer = load_explorer()
        folder = resources.files("heedful.serve") / "static"
        files = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.is_file()}
        html, docs, classify, find = (files.pop(f"{name}.html") for name in ("index", "docs", "classify", "find"))
        styles = {
            "theme.css": asset("theme.css"),
            "heads.css": explorer.style,
            "found.css": asset("found.css", "retrieval"),
        }
        self.files = {**files, **styles, **explorer.modules}
        self.html = html.replace("@@explorer@@", explorer.html).replace("@@preloads@@", self._preloads("main.js"))
        self.docs = docs.replace("@@preloads@@", self._preloads("docs.js"))
        self.classify = classify.replace("@@preloads@@", self._preloads("classify.js"))
        self.find = find.replace("@@preloads@@", self._preloads("find.js"))

    @property
    def paths(self) -> list[str]:
        """The paths of all pages and files."""
        return ["/", "/classify", "/find", "/docs", *(f"/assets/{name}" for name in self.files)]

    def _preloads(self, name: str) -> str:
        """Links that let a browser load all modules at once, instead of one after another."""
        modules = load_modules(name, self.files.__getitem__)
        return "".join(f'<link rel="modulepreload" href="assets/{module}">\n' for module in modules if module != name)

    @property
    def router(self) -> APIRouter:
        """Routes for the pages, which contain nothing from a request."""
        router = APIRouter(include_in_schema=False)

        @router.get("/", response_model=None)
        async def main_page() -> Response:
            return _respond(self.html, "html")

        @router.get("/classify", response_model=None)
        async def classification_page() -> Response:
            return _respond(self.classify, "html")

        @router.get("/find", response_model=None)
        async def finding_page() -> Response:
            return _respond(self.find, "html")

        @router.get("/docs", response_model=None)
        async def api_page() -> Response:
            return _respond(self.docs, "html")

        @router.get("/assets/{name}", response_model=None)
        async def asset_file(name: str) -> Response:
            if name not in self.files:
                raise RequestError(404, "there is no such file")
            return _respond(self.files[name], name.rpartition(".")[2])

        return router


def _respond(content: str, suffix: str) -> Response:
    return Response(content, media_type=f"{_MEDIA_TYPES[suffix]}; charset=utf-8", headers=_HEADERS)


class LiveAttentionRequest(BaseModel):
    """A sentence of the page, and the heads that are switched off."""

    text: str
    off: list[str]
    n_best: int = Field(ge=1, le=10)


class ExplanationRequest(BaseModel):
    """A sentence of the page, and its translation; if that is empty, the model translates."""

    text: str
    translation: str = ""


Asked = TypeVar("Asked", bound=BaseModel)
Made = TypeVar("Made")


def _reader_of(model: type[Asked]) -> Callable[[Request], Awaitable[Asked]]:
    """Reads the body of a request from our own page: browsers let no foreign page set this header."""
    bodies = ArrivingBodies(_MOST_ATTENTION_BYTES, _ATTENTION_LIMITS.arriving)

    async def read_request(request: Request) -> Asked:
        if request.headers.get("x-heedful") != "1" or media_type_of(request) != "application/json":
            raise RequestError(403, "a request needs the headers X-Heedful: 1 and Content-Type: application/json")
        return await read_body(request, model, _ATTENTION_LIMITS, bodies)

    return read_request


def explanation_routes(first: str, explain: Callable[[str, str], str]) -> APIRouter:
    """Routes for the first page at /. `explain` makes a page of a sentence and its translation, one at a time."""
    router = APIRouter()
    turn = asyncio.Lock()  # experiments change the model itself
    pages: dict[int, str] = {}
    read_request = _reader_of(ExplanationRequest)

    @router.get("/", response_model=None)
    async def first_page() -> Response:
        return Response(first, media_type="text/html; charset=utf-8", headers=_ATTENTION_HEADERS)

    @router.get("/explanations/{number}", response_model=None)
    async def later_page(number: int) -> Response:
        if number not in pages:
            raise RequestError(404, f"page {number} is no longer kept; explain the sentence again at /")
        return Response(pages[number], media_type="text/html; charset=utf-8", headers=_ATTENTION_HEADERS)

    @router.post("/explanations", response_model=None)
    async def new_page(body: Annotated[ExplanationRequest, Depends(read_request)]) -> Response:
        async with turn:
            page = await asyncio.to_thread(_answer, lambda: explain(body.text, body.translation))
        number = max(pages, default=0) + 1
        pages[number] = page
        pages.pop(number - _MOST_EXPLANATIONS, None)
        return Response(json.dumps({"page": f"/explanations/{number}"}), media_type="application/json")

    return router


def attention_routes(page: str, explain: Explain) -> APIRouter:
    """Routes for this page at /. `explain` answers its requests to /attention, one at a time."""
    router = APIRouter()
    turn = asyncio.Lock()  # heads are switched off in the model itself
    read_request = _reader_of(LiveAttentionRequest)

    @router.get("/", response_model=None)
    async def main_page() -> Response:
        return Response(page, media_type="text/html; charset=utf-8", headers=_ATTENTION_HEADERS)

    @router.post("/attention", response_model=None)
    async def attention(body: Annotated[LiveAttentionRequest, Depends(read_request)]) -> Response:
        async with turn:
            document = await asyncio.to_thread(_answer, lambda: explain(body.text, body.off, body.n_best))
        return Response(json.dumps(document, ensure_ascii=False).encode(), media_type="application/json")

    return router


def _answer(make: Callable[[], Made]) -> Made:
    """What this function makes; its errors become answers."""
    try:
        return make()
    except HeedfulError as error:
        raise RequestError(422, str(error)) from error
    except Exception as error:  # the person who started the server sees the page, and no log
        raise RequestError(500, f"unexpected {type(error).__name__}: {error}") from error
