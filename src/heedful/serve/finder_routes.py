"""`/v1/find`: find pictures of the served folders by words, or pictures that are like one; and small copies of them."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Request, Response

from heedful.config import Device
from heedful.errors import ConfigError, DataError, require_library
from heedful.serve import schemas
from heedful.serve.http_errors import RequestError
from heedful.serve.openapi import describe_body_or_pictures, describe_errors
from heedful.serve.request_body import MULTIPART, media_type_of, read_body, read_pictures, validate_fields
from heedful.serve.service import Service, ServiceDependency, cancel_on_disconnect
from heedful.serve.turns import Turns

if TYPE_CHECKING:  # translating needs no PyTorch
    from heedful.retrieval.finder import Finder, FoundPicture, PictureIndex

_MOST_WAITING = 32
_SIDE = 320  # pixels of a small copy
_KEPT = 500  # small copies, about 10 MB
_SMALL_HEADERS = {"Cache-Control": "private, max-age=86400, immutable"}  # another picture has another address

router = APIRouter(prefix="/v1", tags=["heedful"])


class FindingDesk:
    """The served models that find pictures, each with the pictures that it has read, and the turns of requests."""

    def __init__(
        self,
        finders: "Mapping[str, tuple[Finder, PictureIndex]]",
        files: Mapping[str, Path] | None = None,
    ) -> None:
        """`files` are those of the pictures, by the names that clients see."""
        self._finders = finders
        self._identifiers = {name: _identify(name, file) for name, file in (files or {}).items()}
        self._files = {self._identifiers[name]: file for name, file in (files or {}).items()}
        self.turns = Turns(_MOST_WAITING)
        self.thumbnail_turns = Turns(_MOST_WAITING)  # so pictures of earlier answers hold up no search
        self._make_thumbnail = lru_cache(_KEPT)(_make_small)

    def address(self, picture: str) -> str:
        """Where a client gets the small copy of the picture with this name."""
        return f"v1/pictures/{self._identifiers[picture]}"

    def thumbnail(self, identifier: str) -> bytes:
        """The small copy of the picture that was given this identifier; what a client writes is never a path."""
        if identifier not in self._files:
            raise RequestError(404, "no picture has this identifier; /v1/find gives them")
        try:
            return self._make_thumbnail(self._files[identifier])
        except DataError:  # which names the place on this machine
            raise RequestError(404, "this picture can no longer be read") from None

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
    found, files = {}, dict[str, Path]()
    for name, folder in folders.items():
        finder = Finder.load(folder, device)
        index = finder.index(pictures)
        shown = tuple(_name_below(Path(picture), pictures) for picture in index.pictures)
        name_of_most, times = Counter(shown).most_common(1)[0]
        if times > 1:
            raise ConfigError(f"--pictures gives {times} pictures the name {name_of_most}; rename one of the folders")
        files |= {one: Path(picture) for one, picture in zip(shown, index.pictures, strict=True)}
        found[name] = finder, PictureIndex(shown, index.vectors, index.broken)
    return FindingDesk(found, files)


def _make_small(file: Path) -> bytes:
    from heedful.data.pictures import make_thumbnail

    return make_thumbnail(file, _SIDE)


def _identify(name: str, file: Path) -> str:
    """An identifier that stays the same until the file changes."""
    facts = file.stat()
    return hashlib.sha256(f"{name}\0{facts.st_mtime_ns}\0{facts.st_size}".encode()).hexdigest()[:32]


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
    openapi_extra=describe_body_or_pictures(
        schemas.FindRequest,
        "a PNG or JPEG file that the pictures should be like",
        "finding",
        {"n": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10}},
    ),
    response_model=schemas.FindAnswer,
    responses=describe_errors(400, 404, 408, 413, 415, 429, 503),
)
async def find(request: Request, service: ServiceDependency, desk: FindingDependency) -> schemas.FindAnswer:
    """Find the served pictures that fit a text best, or are most like one of them, the best first.

    They can also be like a PNG or JPEG file of yours, in the field `picture` of a form.
    """
    if media_type_of(request) == MULTIPART:
        return await _find_like_own(request, service, desk)
    service.admit(request)
    body = await read_body(request, schemas.FindRequest, service.limits, service.bodies(request))
    if (body.text is None) == (body.like is None):
        raise RequestError(400, "Invalid request: give either text or like")
    service.check_texts([body.text or body.like or ""])
    name, finder, index = desk.select(body.model)
    if body.text is not None and not body.text.strip():
        raise RequestError(400, "Invalid request: text is empty; say what the pictures should show")
    if body.like is not None and body.like not in index.pictures:
        raise RequestError(404, "no picture of this name is served")
    return await _answer(request, service, desk, name, lambda: _find(finder, index, body))


async def _find_like_own(request: Request, service: Service, desk: FindingDesk) -> schemas.FindAnswer:
    fields, ((picture, content),) = await read_pictures(request, service, 1)
    given = {name: value for name, value in fields.items() if value}
    body = validate_fields(given, schemas.FindRequest, service.limits)
    if body.text is not None or body.like is not None:
        raise RequestError(400, "Invalid request: give one of text, like and picture")
    name, finder, index = desk.select(body.model)
    return await _answer(
        request, service, desk, name, lambda: finder.find_like_content(picture, content, index, body.n)
    )


async def _answer(
    request: Request, service: Service, desk: FindingDesk, name: str, search: "Callable[[], list[FoundPicture]]"
) -> schemas.FindAnswer:
    async def search_in_turn() -> "list[FoundPicture]":
        async with desk.turns.take():
            return await asyncio.to_thread(search)

    found = await service.wait_for(cancel_on_disconnect(request, search_in_turn()))
    pictures = [
        schemas.FoundPictureAnswer(picture=one.picture, score=one.score, thumbnail=desk.address(one.picture))
        for one in found
    ]
    return schemas.FindAnswer(model=name, pictures=pictures)


def _find(finder: "Finder", index: "PictureIndex", body: schemas.FindRequest) -> "list[FoundPicture]":
    from heedful.retrieval.finder import rank_pictures

    if body.like is not None:
        place = index.pictures.index(body.like)
        return rank_pictures(index.vectors[place : place + 1], index, body.n)
    return finder.find(body.text or "", index, body.n)


@router.get("/pictures/{identifier}", response_model=None, include_in_schema=False)
async def small_picture(
    request: Request, identifier: str, service: ServiceDependency, desk: FindingDependency
) -> Response:
    """A small JPEG copy of a served picture, at the address that `/v1/find` gave."""
    service.check_key(request)

    async def make() -> bytes:
        async with desk.thumbnail_turns.take():
            return await asyncio.to_thread(desk.thumbnail, identifier)

    content = await service.wait_for(cancel_on_disconnect(request, make()))
    return Response(content, media_type="image/jpeg", headers=_SMALL_HEADERS)
