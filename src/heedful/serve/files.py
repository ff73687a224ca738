"""LibreTranslate's endpoint for files, and where the translated ones are fetched."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from heedful.documents.choose import ENDINGS, installed, read_document
from heedful.documents.work import Rendered, Work
from heedful.errors import HeedfulError
from heedful.serve.batcher import Full
from heedful.serve.body import content_of
from heedful.serve.document import gives
from heedful.serve.libre import found_source, model_between
from heedful.serve.orders import Translating
from heedful.serve.refusal import Refused
from heedful.serve.results import Results, translated_name
from heedful.serve.service import Service, while_there
from heedful.serve.shelf import Model
from heedful.serve.wire import FileAnswer
from heedful.translation import Translation

_TOGETHER = 64  # sentences of a file that wait at a time; others have their turn in between
_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "source", "target"],
                    "properties": {
                        "file": {"type": "string", "contentMediaType": "application/octet-stream"},
                        "source": {"type": "string", "description": "a language of /languages, or auto"},
                        "target": {"type": "string"},
                        "api_key": {"type": "string"},
                    },
                }
            }
        },
    }
}


def can_do_files() -> bool:
    """Whether all that it takes is installed."""
    return installed() and find_spec("python_multipart") is not None


def files(service: Service) -> APIRouter:
    """Its routes."""
    router = APIRouter(tags=["LibreTranslate"])
    results = Results()

    @router.post(
        "/translate_file",
        openapi_extra=_FORM,
        responses=gives(FileAnswer, 400, 408, 413, 415, 429, 501, 503, events=True),
        response_model=None,
    )
    async def translate_file(request: Request) -> Response:
        """Translate a document, whose structure is kept; the answer tells where it is.

        To who accepts text/event-stream, `progress` is told in between, and at the `end` the same; or `error`.
        """
        if not can_do_files():
            raise Refused(501, "Files translation are disabled on this server.", close=True)
        job = await _job(service, request)
        address = f"{request.base_url}download_file/"
        if "text/event-stream" in request.headers.get("accept", ""):
            return StreamingResponse(_events(job, results, address), media_type="text/event-stream")
        content = await while_there(request, _done(job))
        return Response(_answer(job, results, address, content), media_type="application/json")

    @router.get("/download_file/{key}/{name}", response_model=None, include_in_schema=False)
    async def download_file(key: str, name: str) -> Response:
        """A file that was translated; its name in the address is for people."""
        result = results.get(key)
        headers = {"Content-Disposition": result.disposition, "Content-Security-Policy": "sandbox"}
        return Response(result.content, media_type="application/octet-stream", headers=headers)

    return router


@dataclass(slots=True)
class _Job:
    """A file on its way."""

    service: Service
    model: Model
    name: str
    work: Work
    aligned: bool
    mixed: list[Rendered] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.work.plain) + len(self.work.mixed)

    @property
    def notes(self) -> list[str]:
        return self.work.notes(self.mixed)

    async def content(self) -> AsyncIterator[int | bytes]:
        """How many sentences are done, again and again, and in the end the file."""
        plain: list[Rendered] = []
        orders = ((self.work.plain, plain, False), (self.work.mixed, self.mixed, self.aligned))
        for sentences, into, aligned in orders:
            order = Translating(self.model, alignments=aligned)
            for start in range(0, len(sentences), _TOGETHER):
                into.extend(await self._some(order, sentences[start : start + _TOGETHER]))
                yield len(plain) + len(self.mixed)
        self.service.metrics.translated(self.model.name, sum(map(len, self.work.plain + self.work.mixed)))
        yield await asyncio.to_thread(self.work.written, plain, self.mixed, self.model.target)

    async def _some(self, order: Translating, sentences: Sequence[str]) -> list[Rendered]:
        pieces = await asyncio.to_thread(order.pieces, sentences)
        self.service.check_pieces(pieces)
        while True:
            try:
                ticket = self.service.batcher.submit(order, pieces)
                break
            except Full as full:  # a file can wait
                await asyncio.sleep(min(1.0, full.seconds))
        with ticket:
            found: list[Translation] = await self.service.in_time(ticket.results())
        return [Rendered(one.text, _links(one)) for one in found]


def _links(found: Translation) -> tuple[tuple[int, int], ...]:
    return tuple((link[0], link[1]) for link in found.alignment or ())


@dataclass(frozen=True, slots=True)
class _Sent:
    """What came with a request."""

    name: str
    content: bytes
    fields: dict[str, str]


async def _job(service: Service, request: Request) -> _Job:
    sent = await _sent(service, request)
    service.admit(request, sent.fields.get("api_key"))
    for name in ("source", "target"):
        if not sent.fields.get(name):
            raise Refused(400, f"Invalid request: missing {name} parameter")
    try:
        draft = await asyncio.to_thread(read_document, sent.content, sent.name)
    except HeedfulError as error:
        raise Refused(400, f"Invalid request: {error}") from error
    texts = ["".join(run.text for run in passage) for passage in draft.passages]
    if (size := sum(map(len, texts))) > service.limits.file_characters:
        raise Refused(400, f"Invalid request: file ({size}) exceeds text limit ({service.limits.file_characters})")
    source, target = sent.fields["source"], sent.fields["target"]
    if source == "auto":
        source = found_source(service, [text[:1000] for text in texts[:20]], target).language
    model = model_between(service, source, target)
    work = await asyncio.to_thread(Work, draft, model.source)
    aligned = bool(work.mixed) and await asyncio.to_thread(model.can_align)
    return _Job(service, model, translated_name(sent.name, model.target), work, aligned)


async def _sent(service: Service, request: Request) -> _Sent:
    from starlette.formparsers import MultiPartException, MultiPartParser

    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    content = await content_of(request, service.limits.file, service.limits.arriving)
    if media != "multipart/form-data":
        raise Refused(415, "Invalid request: a file comes as multipart/form-data")

    async def stream() -> AsyncGenerator[bytes, None]:
        yield content

    parser = MultiPartParser(request.headers, stream(), max_files=1, max_fields=10)
    parser.spool_max_size = service.limits.file + 1  # it stays in memory
    try:
        form = await parser.parse()
    except (MultiPartException, UnicodeError, LookupError, ValueError) as error:
        raise Refused(400, "Invalid request: the body is not a form with a file") from error
    try:
        file = form.get("file")
        if file is None or isinstance(file, str):
            raise Refused(400, "Invalid request: missing file parameter")
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        return _Sent(file.filename or "", await file.read(), fields)
    finally:
        await form.close()


async def _done(job: _Job) -> bytes:
    content = b""
    async for step in job.content():
        if isinstance(step, bytes):
            content = step
    return content


def _answer(job: _Job, results: Results, address: str, content: bytes) -> str:
    url = address + results.add(job.name, content)
    return FileAnswer(translatedFileUrl=url, notes=job.notes).model_dump_json()


async def _events(job: _Job, results: Results, address: str) -> AsyncIterator[str]:
    """When the client goes, the work ends, too."""
    event = partial("event: {}\ndata: {}\n\n".format)
    yield event("progress", json.dumps({"done": 0, "total": job.total}))
    try:
        async for step in job.content():
            if isinstance(step, bytes):
                yield event("end", _answer(job, results, address, step))
            else:
                yield event("progress", json.dumps({"done": step, "total": job.total}))
    except Refused as refused:
        yield event("error", json.dumps({"error": refused.detail}))


def kinds() -> list[str]:
    """How the names of files that can be translated end."""
    return list(ENDINGS) if can_do_files() else []
