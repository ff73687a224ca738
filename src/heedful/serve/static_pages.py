"""The translation page, the API page and their files, all read when a server starts: no request names a path."""

from importlib import resources

from fastapi import APIRouter, Response

from heedful.inspection.attention_view import load_explorer
from heedful.pages.inline import asset, load_modules
from heedful.serve.http_errors import RequestError

_MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "html": "text/html"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "Cache-Control": "no-cache",
}


class StaticPages:
    """The pages as text, and their assets by name."""

    def __init__(self) -> None:
        explorer = load_explorer()
        folder = resources.files("heedful.serve") / "static"
        files = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.is_file()}
        html, docs = files.pop("index.html"), files.pop("docs.html")
        styles = {"theme.css": asset("theme.css"), "heads.css": explorer.style}
        self.files = {**files, **styles, **explorer.modules}
        self.html = html.replace("@@explorer@@", explorer.html).replace("@@preloads@@", self._preloads("main.js"))
        self.docs = docs.replace("@@preloads@@", self._preloads("docs.js"))

    @property
    def paths(self) -> list[str]:
        """The paths of all pages and files."""
        return ["/", "/docs", *(f"/assets/{name}" for name in self.files)]

    def _preloads(self, name: str) -> str:
        """Links by which a browser loads all modules at once, rather than as it finds one in another."""
        modules = load_modules(name, self.files.__getitem__)
        return "".join(f'<link rel="modulepreload" href="assets/{module}">\n' for module in modules if module != name)

    @property
    def router(self) -> APIRouter:
        """Routes for the pages, which contain nothing from a request."""
        router = APIRouter(include_in_schema=False)

        @router.get("/", response_model=None)
        async def main_page() -> Response:
            return _respond(self.html, "html")

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
