"""LibreTranslate's route for files: take in a document, translate it, and keep the result until it is fetched."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Annotated, TypeVar
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter, ValidationError
from starlette.types import Receive, Scope, Send

from heedful.documents import read_document
from heedful.documents.safe_parsing import DocumentLimits, DocumentTooLarge
from heedful.documents.segmentation import SegmentedDocument, TranslatedSentence
from heedful.errors import HeedfulError, UserError
from heedful.serve.batcher import QueueFull
from heedful.serve.http_errors import RequestError
from heedful.serve.jobs import TranslationJob
from heedful.serve.libretranslate_routes import detect_source, find_model_between
from heedful.serve.model_registry import PivotModel, ServedModel
from heedful.serve.openapi import EVENT_STREAM, describe_errors
from heedful.serve.request_body import MULTIPART, media_type_of, parse_multipart, read_content
from heedful.serve.schemas import FileAnswer, Terms
from heedful.serve.service import Service, can_translate_files, cancel_on_disconnect
from heedful.text.languages import language_name
from heedful.translation.result import Translation

Result = TypeVar("Result")
_THREADS = 2  # that read and write files, apart from those that translate
_SENTENCES_AT_ONCE = 64  # of a file that wait at a time; other requests get their turns in between
_STORED_SECONDS = 600.0
_STORED_BYTES = 64 << 20  # of all stored files
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
                        "source": {"type": "string", "description": "a language code from /languages, or auto"},
                        "target": {"type": "string"},
                        "glossary": {
                            "type": "string",
                            "description": "source terms and their required translations, as JSON",
                        },
                        "api_key": {"type": "string"},
                    },
                }
            }
        },
    }
}


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A translated file, and when it is deleted."""

    name: str
    content: bytes
    until: float

    @property
    def disposition(self) -> str:
        """The header that makes browsers save the file instead of showing it."""
        return f"attachment; filename*=UTF-8''{quote(self.name, safe='')}"


class FileStore:
    """Translated files by keys that nobody can guess, for ten minutes and up to a total size."""

    def __init__(self) -> None:
        self._files: dict[str, StoredFile] = {}

    def add(self, name: str, content: bytes) -> str:
        """Store a file; return the last part of its address."""
        now = monotonic()
        self._files = {key: file for key, file in self._files.items() if file.until > now}
        while self._files and sum(len(one.content) for one in self._files.values()) + len(content) > _STORED_BYTES:
            del self._files[next(iter(self._files))]  # the oldest
        key = secrets.token_urlsafe(24)
        self._files[key] = StoredFile(name, content, now + _STORED_SECONDS)
        return f"{key}/{quote(name, safe='')}"

    def get(self, key: str) -> StoredFile:
        """The file with this key."""
        file = self._files.get(key)
        if file is None or file.until <= monotonic():
            raise RequestError(404, "there is no such file; files are deleted after ten minutes, so translate it again")
        return file


def translated_name(name: str, language: str) -> str:
    """strings.po becomes strings.de.po. The name is only displayed and never used as a path."""
    last = name.replace("\\", "/").rpartition("/")[2]
    clean = "".join(character for character in last if character.isprintable())[-100:] or "file"
    stem, dot, suffix = clean.rpartition(".")
    return f"{stem}.{language}.{suffix}" if dot else f"{clean}.{language}"


class FileDesk:
    """Takes in files, few at a time, and has threads to read and write them."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.store = FileStore()
        self._accepted = 0
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="files")

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Hold a place for a file that has arrived, until it is answered."""
        if self._accepted >= self.service.limits.files:
            seconds = self.service.batcher.estimate_wait()
            raise RequestError(503, "Slowdown: too many files are being translated", seconds)
        self._accepted += 1
        try:
            yield
        finally:
            self._accepted -= 1

    def start_deadline(self) -> "FileDeadline":
        """The deadline of a file that arrives now."""
        return FileDeadline(self.service, asyncio.get_running_loop().time() + self.service.limits.file_seconds)

    async def run_in_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Call a function in a thread for files."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *arguments))


@dataclass(frozen=True, slots=True)
class FileDeadline:
    """When a file must be done."""

    service: Service
    until: float

    async def wait_for(self, work: Awaitable[Result]) -> Result:
        """Await this work until the deadline; lateness and users' errors become a `RequestError`."""
        try:
            async with asyncio.timeout_at(self.until):
                return await work
        except TimeoutError:
            message = f"Slowdown: the file is not done after {self.service.limits.file_seconds:g} s"
            raise RequestError(503, message, self.service.batcher.estimate_wait()) from None
        except UserError as error:
            status = 413 if isinstance(error, DocumentTooLarge) else 400
            raise RequestError(status, f"Invalid request: {error}") from error
        except HeedfulError as error:
            raise RequestError(500, f"Cannot translate file: {error}") from error


@dataclass(slots=True)
class FileJob:
    """A file that is being translated."""

    desk: FileDesk
    deadline: FileDeadline
    model: ServedModel | PivotModel
    name: str
    document: SegmentedDocument
    glossary: Terms
    align: bool
    mixed: list[TranslatedSentence] = field(default_factory=list)
    failed_terms: dict[str, None] = field(default_factory=dict)  # in the order in which they failed

    @property
    def total(self) -> int:
        """The number of sentences."""
        return len(self.document.plain) + len(self.document.mixed)

    @property
    def notes(self) -> list[str]:
        """How it was translated if not directly, and what the file does not keep; complete once it is written."""
        through = [f"translated through {language_name(self.model.via)}"] if self.model.via else []
        failed = [f"term not used, because it does not fit: {term}" for term in self.failed_terms]
        return through + failed + self.document.list_notes(self.mixed)

    async def run(self) -> AsyncIterator[int | bytes]:
        """Yield the number of translated sentences as it grows, and at the end the file."""
        plain: list[TranslatedSentence] = []
        parts = ((self.document.plain, plain, False), (self.document.mixed, self.mixed, self.align))
        for sentences, into, align in parts:
            job = TranslationJob(self.model, alignments=align, glossary=tuple(sorted(self.glossary.items())))
            for start in range(0, len(sentences), _SENTENCES_AT_ONCE):
                some = self._translate(job, sentences[start : start + _SENTENCES_AT_ONCE])
                into.extend(await self.deadline.wait_for(some))
                yield len(plain) + len(self.mixed)
        size = sum(map(len, self.document.plain + self.document.mixed))
        self.desk.service.metrics.count_characters(self.model.name, size)
        writing = self.desk.run_in_thread(self.document.write, plain, self.mixed, self.model.target)
        yield await self.deadline.wait_for(writing)

    async def _translate(self, job: TranslationJob, sentences: Sequence[str]) -> list[TranslatedSentence]:
        service = self.desk.service
        items = await asyncio.to_thread(job.make_items, sentences)
        service.check_items(items, job.search.beam)
        while True:
            try:
                pending = service.batcher.submit(job, items)
                break
            except QueueFull as full:  # a file can wait, as long as it has time
                await asyncio.sleep(min(1.0, full.seconds))
        with pending:
            translations: list[Translation] = await pending.results()
        self.failed_terms.update(dict.fromkeys(term for one in translations for term in one.failed_terms))
        return [TranslatedSentence(one.text, _read_alignment(one)) for one in translations]


def _read_alignment(translation: Translation) -> tuple[tuple[int, int], ...]:
    return tuple((link[0], link[1]) for link in translation.alignment or ())


router = APIRouter(tags=["LibreTranslate"])


async def get_desk(request: Request) -> FileDesk:
    """The file desk of this application."""
    desk: FileDesk = request.app.state.files
    return desk


DeskDependency = Annotated[FileDesk, Depends(get_desk)]


@router.post(
    "/translate_file",
    openapi_extra=_FORM,
    response_model=FileAnswer,
    responses=EVENT_STREAM | describe_errors(400, 408, 413, 415, 429, 503),
)
async def translate_file(request: Request, desk: DeskDependency) -> FileAnswer | Response:
    """Translate a document and keep its structure; the answer has the address of the result.

    If the client accepts text/event-stream, `progress` events are sent meanwhile, and at the `end` the same answer; or
    `error`.
    """
    if not can_translate_files():
        raise RequestError(403, "Files translation are disabled on this server.", close=True)
    upload = await _read_upload(desk, request)
    desk.service.admit(request, upload.fields.get("api_key"))
    with ExitStack() as stack:
        stack.enter_context(desk.reserve())
        job = await _start_job(desk, upload)
        address = f"{request.base_url}download_file/"
        if "text/event-stream" in request.headers.get("accept", ""):
            return _EventStream(_write_events(job, address), stack.pop_all().close)
        content = await cancel_on_disconnect(request, _run_to_end(job))
        return _store_result(job, address, content)


@router.get("/download_file/{key}/{name}", response_model=None, include_in_schema=False)
async def download_file(key: str, name: str, desk: DeskDependency) -> Response:
    """Download a translated file; the name in its address is for people only."""
    file = desk.store.get(key)
    headers = {"Content-Disposition": file.disposition, "Content-Security-Policy": "sandbox"}
    return Response(file.content, media_type="application/octet-stream", headers=headers)


@dataclass(frozen=True, slots=True)
class _Upload:
    """A file and the form fields beside it."""

    name: str
    content: bytes
    fields: dict[str, str]


async def _read_upload(desk: FileDesk, request: Request) -> _Upload:
    limits = desk.service.limits
    content = await read_content(request, limits.file, desk.service.bodies(request))
    if media_type_of(request) != MULTIPART:
        raise RequestError(415, f"Invalid request: send the file as {MULTIPART}")
    form = await parse_multipart(request, content, files=1)
    try:
        file = form.get("file")
        if file is None or isinstance(file, str):
            raise RequestError(400, "Invalid request: missing file parameter")
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        return _Upload(file.filename or "", await file.read(), fields)
    finally:
        await form.close()


async def _start_job(desk: FileDesk, upload: _Upload) -> FileJob:
    """Parse the file and choose the model."""
    service, limits = desk.service, desk.service.limits
    for name in ("source", "target"):
        if not upload.fields.get(name):
            raise RequestError(400, f"Invalid request: missing {name} parameter")
    source, target = (service.registry.match_language(upload.fields[name]) for name in ("source", "target"))
    glossary = _parse_glossary(upload.fields.get("glossary", ""))
    model = None if source == "auto" else find_model_between(service, source, target)
    deadline = desk.start_deadline()
    bounds = DocumentLimits(limits.file_elements, limits.file_passages, limits.file_characters)
    document = await deadline.wait_for(desk.run_in_thread(read_document, upload.content, upload.name, bounds))
    if model is None:
        texts = ["".join(run.text for run in passage)[:1000] for passage in document.passages[:20]]
        model = find_model_between(service, detect_source(service, texts, target), target)
    segmented = await deadline.wait_for(desk.run_in_thread(SegmentedDocument, document, model.source))
    align = bool(segmented.mixed) and await deadline.wait_for(desk.run_in_thread(model.can_align))
    return FileJob(desk, deadline, model, translated_name(upload.name, model.target), segmented, glossary, align)


def _parse_glossary(given: str) -> Terms:
    try:
        return TypeAdapter(Terms).validate_json(given, strict=True) if given else {}
    except ValidationError:
        raise RequestError(400, "Invalid request: glossary: give a JSON object of up to 100 terms") from None


async def _run_to_end(job: FileJob) -> bytes:
    content = b""
    async for step in job.run():
        if isinstance(step, bytes):
            content = step
    return content


def _store_result(job: FileJob, address: str, content: bytes) -> FileAnswer:
    return FileAnswer(translatedFileUrl=address + job.desk.store.add(job.name, content), notes=job.notes)


class _EventStream(StreamingResponse):
    """Events of a file job; its place is freed at the end, even if the client never reads the first event."""

    def __init__(self, events: AsyncIterator[str], free_place: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._free_place = free_place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._free_place()


async def _write_events(job: FileJob, address: str) -> AsyncIterator[str]:
    """Write progress and the answer. When the client disconnects, the work is dropped."""
    event = partial("event: {}\ndata: {}\n\n".format)
    yield event("progress", json.dumps({"done": 0, "total": job.total}))
    try:
        async for step in job.run():
            if isinstance(step, bytes):
                yield event("end", _store_result(job, address, step).model_dump_json())
            else:
                yield event("progress", json.dumps({"done": step, "total": job.total}))
    except RequestError as error:
        yield event("error", json.dumps({"error": error.detail}))
