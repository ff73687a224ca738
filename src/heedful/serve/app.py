"""The application: routes, and what stands around them."""

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from heedful.serve.document import described
from heedful.serve.files import files, kinds
from heedful.serve.guard import LOOPBACK, Guard
from heedful.serve.libre import libre
from heedful.serve.page import Page
from heedful.serve.refusal import error_response
from heedful.serve.service import Service
from heedful.serve.shortcut import Endpoint, Shortcut
from heedful.serve.v1 import v1

_BUSY = ("/translate", "/v1/translate")
_ABOUT = "Translation by the Transformer of 'Attention Is All You Need', and what went on inside of it."


def make_app(service: Service, *, only: Collection[str] = LOOPBACK, origins: Collection[str] = ()) -> FastAPI:
    """All endpoints.

    `only` are the names by which this server may be asked, () is any; `origins`: whose pages may ask, besides our own.
    """

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
    routers = (libre(service, kinds()), files(service), v1(service))
    for router in routers:
        app.include_router(router)
    page = Page()
    app.include_router(page.router())

    @app.get("/metrics", response_model=None, include_in_schema=False)
    async def metrics(request: Request) -> Response:
        """Numbers for Prometheus."""
        service.admit(request)
        return Response(service.metrics.shown(), media_type="text/plain; version=0.0.4")

    @app.exception_handler(HTTPException)
    async def refuse(_: Request, error: HTTPException) -> Response:
        return error_response(error.status_code, error.detail, error.headers)

    app.openapi = described(app, service.shelf)  # type: ignore[method-assign]
    app.add_middleware(Shortcut, endpoints=_busy(routers))
    if origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(origins), allow_methods=["GET", "POST"], allow_headers=["*"]
        )
    paths = {*app.openapi()["paths"], *page.paths, "/metrics", "/openapi.json"}
    app.add_middleware(Guard, metrics=service.metrics, paths=paths, hosts=only, origins=origins)
    return app


def _busy(routers: Iterable[APIRouter]) -> dict[str, Endpoint]:
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    return {route.path: route.endpoint for route in routes if route.path in _BUSY}
