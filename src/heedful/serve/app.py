"""The application: routes, error responses and middleware."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from importlib.metadata import version

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from heedful.serve import (
    classification_routes,
    completion_routes,
    embedding_routes,
    file_routes,
    libretranslate_routes,
    v1_routes,
)
from heedful.serve.classification_routes import ClassificationDesk
from heedful.serve.completion_routes import CompletionDesk
from heedful.serve.embedding_routes import EmbeddingDesk
from heedful.serve.file_routes import FileDesk
from heedful.serve.http_errors import error_response
from heedful.serve.middleware import LOOPBACK, OriginMiddleware, RequestMiddleware
from heedful.serve.openapi import make_document
from heedful.serve.page_routes import Explain, StaticPages, attention_routes, explanation_routes
from heedful.serve.service import Service, ServiceDependency

_ABOUT = "Translation by the Transformer of 'Attention Is All You Need', and a look inside it."
_DOCUMENT = "/openapi.json"


def create_app(
    service: Service,
    *,
    hosts: Collection[str] = LOOPBACK,
    origins: Collection[str] = (),
    completions: CompletionDesk | None = None,
    classifications: ClassificationDesk | None = None,
    embeddings: EmbeddingDesk | None = None,
) -> FastAPI:
    """The translation service, and the models that continue or label texts or give vectors.

    Clients must call it by one of `hosts`; () allows any name. Pages of `origins` may send requests, besides our own.
    """
    pages = StaticPages()
    app = _assemble_app(
        (
            *(libretranslate_routes.router, file_routes.router, v1_routes.router, completion_routes.router),
            *(classification_routes.router, embedding_routes.router, pages.router, _metrics),
        ),
        hosts=hosts,
        origins=origins,
        running=service.running,
        count=service.metrics.count_request,
        paths=(*pages.paths, _DOCUMENT),
    )
    app.state.service = service
    app.state.files = FileDesk(service)
    app.state.completions = completions or CompletionDesk({})
    app.state.classifications = classifications or ClassificationDesk({})
    app.state.embeddings = embeddings or EmbeddingDesk({})
    app.openapi = make_document(app, service.registry)  # type: ignore[method-assign]
    return app


def create_attention_app(page: str, explain: Explain) -> FastAPI:
    """The application of `heedful heads --serve`: the attention page of one model, for one person on this machine."""
    return _assemble_app([attention_routes(page, explain)], hosts=LOOPBACK)


def create_explanation_app(page: str, explain: Callable[[str, str], str]) -> FastAPI:
    """The application of `heedful explain --serve`, for one person on this machine."""
    return _assemble_app([explanation_routes(page, explain)], hosts=LOOPBACK)


def _assemble_app(
    routers: Sequence[APIRouter],
    *,
    hosts: Collection[str],
    origins: Collection[str] = (),
    running: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    count: Callable[[str, int, float], None] = lambda *_: None,
    paths: Collection[str] = (),
) -> FastAPI:
    """An application of these routes with our error responses and middleware.

    `running` surrounds its lifetime; `count` is called with path, status and seconds of each request. A path counts as
    "other" unless it is that of a route or one of `paths`.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with running():
            yield

    app = FastAPI(
        title="heedful",
        version=version("heedful"),
        description=_ABOUT,
        openapi_url=_DOCUMENT if _DOCUMENT in paths else None,
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        exception_handlers={HTTPException: _answer_error},
    )
    for router in routers:
        app.include_router(router)
    own = {route.path for router in routers for route in router.routes if isinstance(route, APIRoute)}
    if origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(origins), allow_methods=["GET", "POST"], allow_headers=["*"]
        )
    app.add_middleware(OriginMiddleware, hosts=hosts, origins=origins)
    app.add_middleware(RequestMiddleware, count=count, paths={*own, *paths})  # the outermost
    return app


async def _answer_error(_: Request, error: HTTPException) -> Response:
    return error_response(error.status_code, error.detail, error.headers)


_metrics = APIRouter(include_in_schema=False)


@_metrics.get("/metrics", response_model=None)
async def metrics(request: Request, service: ServiceDependency) -> Response:
    """Metrics for Prometheus."""
    service.admit(request)
    return Response(service.metrics.render(), media_type="text/plain; version=0.0.4")
