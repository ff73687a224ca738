"""The page, that of the API, and their files. All are read when a server starts: no name in a request is a path."""

from importlib import resources

from fastapi import APIRouter, Response

from heedful.inspection.attention_page import inside
from heedful.pages.inline import asset
from heedful.serve.http_errors import Refused

_KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "html": "text/html"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "Cache-Control": "no-cache",
}


class Page:
    """The pages as text, and their files by name."""

    def __init__(self) -> None:
        heads = inside()
        folder = resources.files("heedful.serve") / "static"
        files = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.is_file()}
        self.html = files.pop("index.html").replace("@@inside@@", heads.html)
        self.docs = files.pop("docs.html")
        self.files = files | {"theme.css": asset("theme.css"), "heads.css": heads.style, "heads.js": heads.script}

    @property
    def paths(self) -> list[str]:
        """Where all of it is."""
        return ["/", "/docs", *(f"/assets/{name}" for name in self.files)]

    def router(self) -> APIRouter:
        """Gives the pages to browsers; they have nothing in them that came with a request."""
        router = APIRouter(include_in_schema=False)

        @router.get("/", response_model=None)
        async def page() -> Response:
            return _response(self.html, "html")

        @router.get("/docs", response_model=None)
        async def docs() -> Response:
            return _response(self.docs, "html")

        @router.get("/assets/{name}", response_model=None)
        async def file(name: str) -> Response:
            if name not in self.files:
                raise Refused(404, "there is no such file")
            return _response(self.files[name], name.rpartition(".")[2])

        return router


def _response(content: str, kind: str) -> Response:
    return Response(content, media_type=f"{_KINDS[kind]}; charset=utf-8", headers=_HEADERS)
