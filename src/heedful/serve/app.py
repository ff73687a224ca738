"""The application: routes, and what stands around them."""

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from heedful.serve.file_routes import files, kinds
from heedful.serve.http_errors import error_response
from heedful.serve.libretranslate_routes import libre
from heedful.serve.middleware import LOOPBACK, Guard, internal_error
from heedful.serve.openapi import described
from heedful.serve.service import Service
from heedful.serve.shortcut import Endpoint, Shortcut
from heedful.serve.static_pages import Page
from heedful.serve.v1_routes import v1

_BUSY = ("/translate", "/v1/translate")
_ABOUT = "Translation by the Transformer of 'Attention Is All You Need', and what went on inside of it."


def make_app(service: Service, *, only: Collection[str] = LOOPBACK, origins: Collection[str] = ()) -> ASGIApp:
    """All endpoints, and what stands around them.

    `only` are the names by which this server may be asked, () is any; `origins`: whose pages may ask, besides our own.
    """
    page = Page()
    routers = (libre(service, kinds()), files(service), v1(service))
    endpoints = _endpoints(service, routers, page)
    app: ASGIApp = Shortcut(endpoints, _busy(routers))
    if origins:
        app = CORSMiddleware(app, allow_origins=list(origins), allow_methods=["GET", "POST"], allow_headers=["*"])
    paths = {*endpoints.openapi()["paths"], *page.paths, "/metrics", "/openapi.json"}
    return Guard(app, metrics=service.metrics, paths=paths, hosts=only, origins=origins)


def _endpoints(service: Service, routers: Iterable[APIRouter], page: Page) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="heedful",
        version=version("heedful"),
        description=_ABOUT,
        docs_url=None,  # which would load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    for router in (*routers, page.router()):
        app.include_router(router)

    @app.get("/metrics", response_model=None, include_in_schema=False)
    async def metrics(request: Request) -> Response:
        """Numbers for Prometheus."""
        service.admit(request)
        return Response(service.metrics.shown(), media_type="text/plain; version=0.0.4")

    @app.exception_handler(HTTPException)
    async def refuse(_: Request, error: HTTPException) -> Response:
        return error_response(error.status_code, error.detail, error.headers)

    @app.exception_handler(Exception)
    async def fail(request: Request, _: Exception) -> Response:
        return internal_error(request.scope)

    app.openapi = described(app, service.shelf)  # type: ignore[method-assign]
    return app


def _busy(routers: Iterable[APIRouter]) -> dict[str, Endpoint]:
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    return {route.path: route.endpoint for route in routes if route.path in _BUSY}
