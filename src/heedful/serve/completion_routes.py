"""`/v1/complete`: continue a text with a served model of plain text, whole or piece by piece."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from heedful.config import Device
from heedful.errors import HeedfulError, UserError, require_library
from heedful.serve import schemas
from heedful.serve.http_errors import RequestError
from heedful.serve.model_desk import ModelDesk
from heedful.serve.openapi import EVENT_STREAM, describe_body, describe_errors
from heedful.serve.request_body import Body
from heedful.serve.service import ServiceDependency, ServiceLimits, cancel_on_disconnect

if TYPE_CHECKING:  # translating needs no PyTorch
    from heedful.completion.completer import Completer
    from heedful.config import SearchConfig

_MOST_WAITING = 32
_ERRORS = describe_errors(400, 404, 408, 413, 415, 429, 503)

router = APIRouter(prefix="/v1", tags=["heedful"])


class CompletionDesk(ModelDesk["Completer"]):
    """The served models of plain text."""

    def __init__(self, completers: "Mapping[str, Completer]") -> None:
        super().__init__(completers, _MOST_WAITING, "text", "completion")


def load_completers(folders: Mapping[str, Path], device: Device) -> CompletionDesk:
    """Load the models of plain text in these folders."""
    if not folders:
        return CompletionDesk({})
    require_library("continuing a text", "torch")
    from heedful.completion.completer import Completer

    return CompletionDesk({name: Completer.load(folder, device) for name, folder in folders.items()})


async def get_completion_desk(request: Request) -> CompletionDesk:
    """The models of this application, for routes."""
    desk: CompletionDesk = request.app.state.completions
    return desk


DeskDependency = Annotated[CompletionDesk, Depends(get_completion_desk)]


@router.post(
    "/complete",
    openapi_extra=describe_body(schemas.CompleteRequest),
    response_model=schemas.CompleteAnswer,
    responses=EVENT_STREAM | _ERRORS,
)
async def complete(
    request: Request,
    service: ServiceDependency,
    desk: DeskDependency,
    body: Annotated[schemas.CompleteRequest, Depends(Body(schemas.CompleteRequest))],
) -> schemas.CompleteAnswer | Response:
    """Continue a text with a model that has learnt from plain text.

    With `stream`, the answer is text/event-stream: a `piece` event for each piece of the text, then `end`; or `error`.
    """
    service.check_texts([body.prompt])
    name, completer = desk.select(body.model)
    try:
        search = completer.change_search(body.length, body.temperature, body.top_k, body.top_p, body.seed)
        if body.n > 1 and search.method != "sample":
            raise RequestError(400, "Invalid request: with temperature 0 there is only one continuation; set n to 1")
    except UserError as error:
        raise RequestError(400, f"Invalid request: {error}") from error
    found = _Continuations(name, completer, body.prompt, body.n, search)
    if body.stream:
        return StreamingResponse(found.write_events(desk, service.limits), media_type="text/event-stream")
    return await service.wait_for(cancel_on_disconnect(request, found.answer(desk)))


class _Continuations:
    """What a request asks for. Models run in threads, and between two pieces the client may leave."""

    def __init__(self, name: str, completer: "Completer", prompt: str, n: int, search: "SearchConfig") -> None:
        self._name = name
        self._completer = completer
        self._prompt = prompt
        self._n = n
        self._search = search

    async def answer(self, desk: CompletionDesk) -> schemas.CompleteAnswer:
        """All continuations."""
        async with desk.turns.take():
            (found,) = await asyncio.to_thread(self._completer.complete, [self._prompt], n=self._n, search=self._search)
        return schemas.CompleteAnswer(
            model=self._name,
            prompt=self._prompt,
            continuations=[
                schemas.ContinuationAnswer(
                    text=one.text, log_prob=one.log_prob, tokens=one.tokens, finished=one.finished
                )
                for one in found.continuations
            ],
        )

    async def write_events(self, desk: CompletionDesk, limits: ServiceLimits) -> AsyncIterator[str]:
        """The continuations piece by piece, one after another, within the time of the request."""
        try:
            async with asyncio.timeout(limits.seconds), desk.turns.take():
                for number in range(self._n):
                    pieces = self._completer.stream(self._prompt, number=number, search=self._search)
                    while (piece := await asyncio.to_thread(_next_piece, pieces)) is not None:
                        yield _format_event("piece", schemas.PieceAnswer(index=number, text=piece))
            yield _format_event("end", schemas.EndAnswer(model=self._name))
        except TimeoutError:
            yield _format_event("error", schemas.ErrorAnswer(error=f"Slowdown: not done after {limits.seconds:g} s"))
        except RequestError as error:
            yield _format_event("error", schemas.ErrorAnswer(error=error.detail))
        except HeedfulError as error:
            yield _format_event("error", schemas.ErrorAnswer(error=f"Cannot continue the text: {error}"))


def _next_piece(pieces: Iterator[str]) -> str | None:
    return next(pieces, None)


def _format_event(name: str, content: BaseModel) -> str:
    return f"event: {name}\ndata: {content.model_dump_json()}\n\n"
