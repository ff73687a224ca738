"""`/v1/embed`: turn texts into vectors with a served model."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Request

from heedful.config import Device
from heedful.errors import require_library
from heedful.serve import schemas
from heedful.serve.model_desk import ModelDesk
from heedful.serve.openapi import describe_body, describe_errors
from heedful.serve.request_body import Body
from heedful.serve.service import ServiceDependency, cancel_on_disconnect

if TYPE_CHECKING:  # translating needs no PyTorch
    from heedful.embedding.embedder import Embedder

_MOST_WAITING = 32

router = APIRouter(prefix="/v1", tags=["heedful"])


class EmbeddingDesk(ModelDesk["Embedder"]):
    """The served models that turn texts into vectors."""

    def __init__(self, embedders: "Mapping[str, Embedder]") -> None:
        super().__init__(embedders, _MOST_WAITING, "vectors", "embedding")

    @property
    def notices(self) -> list[str]:
        """What to know about vectors of models that have not learnt to compare texts."""
        return [embedder.notice for embedder in self._models.values() if embedder.notice]


def load_embedders(folders: Mapping[str, Path], device: Device) -> EmbeddingDesk:
    """Load the models in these folders."""
    if not folders:
        return EmbeddingDesk({})
    require_library("turning a text into a vector", "torch")
    from heedful.embedding.embedder import Embedder

    return EmbeddingDesk({name: Embedder.load(folder, device) for name, folder in folders.items()})


async def get_embedding_desk(request: Request) -> EmbeddingDesk:
    """The models of this application, for routes."""
    desk: EmbeddingDesk = request.app.state.embeddings
    return desk


EmbeddingDependency = Annotated[EmbeddingDesk, Depends(get_embedding_desk)]


@router.post(
    "/embed",
    openapi_extra=describe_body(schemas.EmbedRequest),
    response_model=schemas.EmbedAnswer,
    responses=describe_errors(400, 404, 408, 413, 415, 429, 503),
)
async def embed(
    request: Request,
    service: ServiceDependency,
    desk: EmbeddingDependency,
    body: Annotated[schemas.EmbedRequest, Depends(Body(schemas.EmbedRequest))],
) -> schemas.EmbedAnswer:
    """Turn texts into vectors, in their order; similar texts have vectors with a high cosine."""
    texts = [body.text] if isinstance(body.text, str) else body.text
    service.check_texts(texts)
    name, embedder = desk.select(body.model)
    vectors = await service.wait_for(cancel_on_disconnect(request, _embed(desk, embedder, texts)))
    return schemas.EmbedAnswer(model=name, dimensions=embedder.dimensions, vectors=vectors)


async def _embed(desk: EmbeddingDesk, embedder: "Embedder", texts: list[str]) -> list[list[float]]:
    def run() -> list[list[float]]:
        vectors: list[list[float]] = embedder.embed(texts).tolist()
        return vectors

    async with desk.turns.take():
        return await asyncio.to_thread(run)
