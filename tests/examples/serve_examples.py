"""A server in this process, and clients of it."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import pytest

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client", "httpx"):
    pytest.importorskip(needed, reason="needs heedful[serve]")

import httpx
from fastapi import FastAPI

from heedful.serve.api_keys import ApiKeys
from heedful.serve.app import create_app
from heedful.serve.listener import listen, url_of
from heedful.serve.model_registry import ModelRegistry, locate_models
from heedful.serve.server import Server
from heedful.serve.service import Service, ServiceLimits
from heedful.translation.translator import Translator

BASE = "http://127.0.0.1:5000"


def service_of(
    *folders: Path, limits: ServiceLimits | None = None, keys: Path | None = None, languages: Sequence[str] = ()
) -> Service:
    registry = ModelRegistry(locate_models(folders, languages), Translator.load)
    return Service(registry, limits or ServiceLimits(), ApiKeys(keys))


@asynccontextmanager
async def client_of(service: Service, **how: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Asks the application itself, without a socket."""
    app = create_app(service, **how)
    async with service.running(), httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as client:
        yield client


@contextmanager
def listening(service: Service) -> Iterator[str]:
    """A real server of this service on a free port; gives its address."""
    with listening_app(create_app(service)) as url:
        yield url


@contextmanager
def listening_app(app: FastAPI) -> Iterator[str]:
    """A real server of an application, in a thread."""
    listener: socket.socket = listen("127.0.0.1", 0)
    server = Server(app)
    thread = Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            sleep(0.01)
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive()
