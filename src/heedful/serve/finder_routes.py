"""`/v1/find`: find pictures of the served folders by words, or pictures that are like one of them."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Request

from heedful.config import Device
from heedful.errors import ConfigError, require_library
from heedful.serve import schemas
from heedful.serve.http_errors import RequestError
from heedful.serve.openapi import describe_body, describe_errors
from heedful.serve.request_body import Body
from heedful.serve.service import ServiceDependency, cancel_on_disconnect
from heedful.serve.turns import Turns

if TYPE_CHECKING:  # translating needs no PyTorch
    from heedful.retrieval.finder import Finder, PictureIndex

_MOST_WAITING = 32

router = APIRouter(prefix="/v1", tags=["heedful"])


class FindingDesk:
    """The served models that find pictures, each with the pictures that it has read, and the turns of requests."""

    def __init__(self, finders: "Mapping[str, tuple[Finder, PictureIndex]]") -> None:
        self._finders = finders
        self.turns = Turns(_MOST_WAITING)

    @property
    def names(self) -> list[str]:
        """The names of the models, in the order of the command line."""
        return list(self._finders)

    def select(self, name: str | None) -> "tuple[str, Finder, PictureIndex]":
        """The model of this name, or the only one, and its pictures."""
        if name is None and len(self._finders) == 1:
            (name,) = self._finders
        if name is None and self._finders:
            raise RequestError(400, f"Invalid request: name a model, one of {', '.join(self._finders)}")
        if name is None or name not in self._finders:
            raise RequestError(404, "no such model of captions is loaded; /v1/models lists them under finding")
        return name, *self._finders[name]


def load_finders(folders: Mapping[str, Path], pictures: Sequence[Path], device: Device) -> FindingDesk:
    """Load the models of captions in these folders, and let each read the pictures.

    Clients see the name of a picture below its folder, after that of the folder if there are several.
    """
    if pictures and not folders:
        raise ConfigError(f"--pictures {pictures[0]} are for a model that finds pictures; name one: runs/clip")
    if folders and not pictures:
        raise ConfigError(f"{next(iter(folders))} finds pictures, but there are none; name a folder: --pictures FOLDER")
    if not folders:
        return FindingDesk({})
    require_library("finding a picture", "torch")
    from heedful.retrieval.finder import Finder, PictureIndex

    if any(not place.is_dir() for place in pictures):
        raise ConfigError(f"--pictures {next(p for p in pictures if not p.is_dir())} is no folder; name one")
    found = {}
    for name, folder in folders.items():
        finder = Finder.load(folder, device)
        index = finder.index(pictures)
        shown = tuple(_name_below(Path(picture), pictures) for picture in index.pictures)
        found[name] = finder, PictureIndex(shown, index.vectors, index.broken)
    return FindingDesk(found)


def _name_below(picture: Path, folders: Sequence[Path]) -> str:
    folder = next(each for each in folders if picture.is_relative_to(each))
    below = picture.relative_to(folder)
    return (Path(folder.resolve().name) / below if len(folders) > 1 else below).as_posix()


async def get_finding_desk(request: Request) -> FindingDesk:
    """The models of this application, for routes."""
    desk: FindingDesk = request.app.state.findings
    return desk


FindingDependency = Annotated[FindingDesk, Depends(get_finding_desk)]


@router.post(
    "/find",
    openapi_extra=describe_body(schemas.FindRequest),
    response_model=schemas.FindAnswer,
    responses=describe_errors(400, 404, 408, 413, 415, 429, 503),
)
async def find(
    request: Request,
    service: ServiceDependency,
    desk: FindingDependency,
    body: Annotated[schemas.FindRequest, Depends(Body(schemas.FindRequest))],
) -> schemas.FindAnswer:
    """Find the served pictures that fit a text best, or are most like one of them, the best first."""
    if (body.text is None) == (body.like is None):
        raise RequestError(400, "Invalid request: give either text or like")
    service.check_texts([body.text or body.like or ""])
    name, finder, index = desk.select(body.model)
    if body.text is not None and not body.text.strip():
        raise RequestError(400, "Invalid request: text is empty; say what the pictures should show")
    if body.like is not None and body.like not in index.pictures:
        raise RequestError(404, "no picture of this name is served")
    return await service.wait_for(cancel_on_disconnect(request, _answer(desk, name, finder, index, body)))


async def _answer(
    desk: FindingDesk, name: str, finder: "Finder", index: "PictureIndex", body: schemas.FindRequest
) -> schemas.FindAnswer:
    async with desk.turns.take():
        return await asyncio.to_thread(_find, name, finder, index, body)


def _find(name: str, finder: "Finder", index: "PictureIndex", body: schemas.FindRequest) -> schemas.FindAnswer:
    from heedful.retrieval.finder import rank_pictures

    if body.like is not None:
        place = index.pictures.index(body.like)
        found = rank_pictures(index.vectors[place : place + 1], index, body.n)
    else:
        found = finder.find(body.text or "", index, body.n)
    pictures = [schemas.FoundPictureAnswer(picture=one.picture, score=one.score) for one in found]
    return schemas.FindAnswer(model=name, pictures=pictures)
