"""LibreTranslate's route for files, and the one that downloads the translated files."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter, ValidationError
from starlette.types import Receive, Scope, Send

from heedful.documents.file_types import read_document
from heedful.documents.safe_parsing import DocumentLimits
from heedful.documents.segmentation import SegmentedDocument
from heedful.serve.file_jobs import FileDesk, FileJob, can_translate_files, translated_name
from heedful.serve.http_errors import RequestError
from heedful.serve.libretranslate_routes import detect_source, find_model_between
from heedful.serve.openapi import EVENT_STREAM, describe_errors
from heedful.serve.request_body import MULTIPART, media_type_of, parse_multipart, read_content
from heedful.serve.schemas import FileAnswer, Terms
from heedful.serve.service import cancel_on_disconnect

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
    with desk.count_arriving() as count:
        content = await read_content(request, limits.file, limits.arriving, count)
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
    source, target = upload.fields["source"], upload.fields["target"]
    glossary = _parse_glossary(upload.fields.get("glossary", ""))
    model = None if source == "auto" else find_model_between(service, source, target)
    deadline = desk.start_deadline()
    bounds = DocumentLimits(limits.file_elements, limits.file_passages, limits.file_characters)
    document = await deadline.wait_for(desk.run_in_thread(read_document, upload.content, upload.name, bounds))
    if model is None:
        texts = ["".join(run.text for run in passage)[:1000] for passage in document.passages[:20]]
        model = find_model_between(service, detect_source(service, texts, target).language, target)
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
