"""LibreTranslate's endpoint for files, and where the translated ones are fetched."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import TypeVar

from fastapi import APIRouter, Request, Response
from pydantic import TypeAdapter, ValidationError
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from heedful.documents.file_types import SUFFIXES, libraries_installed, read_document
from heedful.documents.safe_parsing import DocumentLimits, DocumentTooLarge
from heedful.documents.segmentation import SegmentedDocument, TranslatedSentence
from heedful.errors import HeedfulError, UserError
from heedful.serve.batcher import Full
from heedful.serve.file_results import Results, translated_name
from heedful.serve.http_errors import Refused
from heedful.serve.jobs import Translating
from heedful.serve.libretranslate_routes import found_source, model_between
from heedful.serve.model_registry import Model
from heedful.serve.openapi import gives
from heedful.serve.request_body import PARTS, content_of, media_of, read_parts
from heedful.serve.schemas import FileAnswer, Terms
from heedful.serve.service import Service, while_there
from heedful.translation.result import Translation

Answer = TypeVar("Answer")
_THREADS = 2  # in which files are read and written, apart from those for texts
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
                        "glossary": {
                            "type": "string",
                            "description": "source terms and what must stand for them: JSON",
                        },
                        "api_key": {"type": "string"},
                    },
                }
            }
        },
    }
}


def can_do_files() -> bool:
    """Whether all that it takes is installed."""
    return libraries_installed() and find_spec("python_multipart") is not None


def files(service: Service) -> APIRouter:
    """Its routes."""
    router = APIRouter(tags=["LibreTranslate"])
    results = Results()
    desk = _Desk(service)

    @router.post(
        "/translate_file",
        openapi_extra=_FORM,
        responses=gives(FileAnswer, 400, 408, 413, 415, 429, 503, events=True),
        response_model=None,
    )
    async def translate_file(request: Request) -> Response:
        """Translate a document, whose structure is kept; the answer tells where it is.

        To who accepts text/event-stream, `progress` is told in between, and at the `end` the same; or `error`.
        """
        if not can_do_files():
            raise Refused(403, "Files translation are disabled on this server.", close=True)
        sent = await _sent(desk, request)
        service.admit(request, sent.fields.get("api_key"))
        with ExitStack() as place:
            place.enter_context(desk.place())
            job = await _job(desk, sent)
            address = f"{request.base_url}download_file/"
            if "text/event-stream" in request.headers.get("accept", ""):
                return _Stream(_events(job, results, address), place.pop_all().close)
            content = await while_there(request, _done(job))
            return Response(_answer(job, results, address, content), media_type="application/json")

    @router.get("/download_file/{key}/{name}", response_model=None, include_in_schema=False)
    async def download_file(key: str, name: str) -> Response:
        """A file that was translated; its name in the address is for people."""
        result = results.get(key)
        headers = {"Content-Disposition": result.disposition, "Content-Security-Policy": "sandbox"}
        return Response(result.content, media_type="application/octet-stream", headers=headers)

    return router


class _Desk:
    """Where files are taken in: few at a time, with threads of their own."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._inside = 0
        self._arrived = 0  # bytes of files that are still being sent
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="files")

    @contextmanager
    def place(self) -> Iterator[None]:
        """Room for a file that has come, until it is answered."""
        if self._inside >= self.service.limits.files:
            raise self._full()
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    @contextmanager
    def scale(self) -> Iterator[Callable[[int], None]]:
        """Weighs files while they are sent, not bounding how many: a few that never come would shut others out."""
        limits, own = self.service.limits, 0

        def count(size: int) -> None:
            nonlocal own
            own += size
            self._arrived += size
            if self._arrived > limits.files * limits.file:
                raise self._full()

        try:
            yield count
        finally:
            self._arrived -= own

    def _full(self) -> Refused:
        seconds = self.service.batcher.wait()
        return Refused(503, "Slowdown: too many files are being translated", seconds, close=True)

    def clock(self) -> "_Clock":
        """For a file that has come."""
        return _Clock(self.service, asyncio.get_running_loop().time() + self.service.limits.file_seconds)

    async def thread(self, work: Callable[..., Answer], *given: object) -> Answer:
        """What takes a while."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *given))


@dataclass(frozen=True, slots=True)
class _Clock:
    """When a file is to be done."""

    service: Service
    until: float

    async def in_time(self, work: Awaitable[Answer]) -> Answer:
        """What comes of it, or a refusal: that it took too long, or what a user can put right."""
        try:
            async with asyncio.timeout_at(self.until):
                return await work
        except TimeoutError:
            message = f"Slowdown: the file is not done after {self.service.limits.file_seconds:g} s"
            raise Refused(503, message, self.service.batcher.wait()) from None
        except UserError as error:
            raise Refused(413 if isinstance(error, DocumentTooLarge) else 400, f"Invalid request: {error}") from error
        except HeedfulError as error:
            raise Refused(500, f"Cannot translate file: {error}") from error


class _Stream(StreamingResponse):
    """Events; whether or not anybody hears the first of them, the place is free at the end."""

    def __init__(self, events: AsyncIterator[str], leave: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


@dataclass(slots=True)
class _Job:
    """A file on its way."""

    desk: _Desk
    clock: _Clock
    model: Model
    name: str
    work: SegmentedDocument
    glossary: Terms
    aligned: bool
    mixed: list[TranslatedSentence] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.work.plain) + len(self.work.mixed)

    @property
    def notes(self) -> list[str]:
        return self.work.list_notes(self.mixed)

    async def content(self) -> AsyncIterator[int | bytes]:
        """How many sentences are done, again and again, and in the end the file."""
        plain: list[TranslatedSentence] = []
        orders = ((self.work.plain, plain, False), (self.work.mixed, self.mixed, self.aligned))
        for sentences, into, aligned in orders:
            order = Translating(self.model, alignments=aligned, glossary=tuple(sorted(self.glossary.items())))
            for start in range(0, len(sentences), _TOGETHER):
                some = self._some(order, sentences[start : start + _TOGETHER])
                into.extend(await self.clock.in_time(some))
                yield len(plain) + len(self.mixed)
        size = sum(map(len, self.work.plain + self.work.mixed))
        self.desk.service.metrics.translated(self.model.name, size)
        yield await self.clock.in_time(self.desk.thread(self.work.write, plain, self.mixed, self.model.target))

    async def _some(self, order: Translating, sentences: Sequence[str]) -> list[TranslatedSentence]:
        service = self.desk.service
        pieces = await asyncio.to_thread(order.pieces, sentences)
        service.check_pieces(pieces)
        while True:
            try:
                ticket = service.batcher.submit(order, pieces)
                break
            except Full as full:  # a file can wait, as long as it has time
                await asyncio.sleep(min(1.0, full.seconds))
        with ticket:
            found: list[Translation] = await ticket.results()
        return [TranslatedSentence(one.text, _links(one)) for one in found]


def _links(found: Translation) -> tuple[tuple[int, int], ...]:
    return tuple((link[0], link[1]) for link in found.alignment or ())


@dataclass(frozen=True, slots=True)
class _Sent:
    """What came with a request."""

    name: str
    content: bytes
    fields: dict[str, str]


async def _job(desk: _Desk, sent: _Sent) -> _Job:
    service, limits = desk.service, desk.service.limits
    for name in ("source", "target"):
        if not sent.fields.get(name):
            raise Refused(400, f"Invalid request: missing {name} parameter")
    source, target = sent.fields["source"], sent.fields["target"]
    glossary = _glossary(sent.fields.get("glossary", ""))
    model = None if source == "auto" else model_between(service, source, target)
    clock = desk.clock()
    bounds = DocumentLimits(limits.file_elements, limits.file_passages, limits.file_characters)
    draft = await clock.in_time(desk.thread(read_document, sent.content, sent.name, bounds))
    if model is None:
        texts = ["".join(run.text for run in passage)[:1000] for passage in draft.passages[:20]]
        model = model_between(service, found_source(service, texts, target).language, target)
    work = await clock.in_time(desk.thread(SegmentedDocument, draft, model.source))
    aligned = bool(work.mixed) and await clock.in_time(desk.thread(model.can_align))
    return _Job(desk, clock, model, translated_name(sent.name, model.target), work, glossary, aligned)


def _glossary(given: str) -> Terms:
    try:
        return TypeAdapter(Terms).validate_json(given, strict=True) if given else {}
    except ValidationError:
        raise Refused(400, "Invalid request: glossary: a JSON object of up to 100 terms is wanted") from None


async def _sent(desk: _Desk, request: Request) -> _Sent:
    limits = desk.service.limits
    with desk.scale() as count:
        content = await content_of(request, limits.file, limits.arriving, count)
    if media_of(request) != PARTS:
        raise Refused(415, f"Invalid request: a file comes as {PARTS}")
    form = await read_parts(request, content, files=1)
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
    return list(SUFFIXES) if can_do_files() else []
