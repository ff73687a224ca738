"""Translate uploaded files, and keep the results in memory until they are fetched."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from time import monotonic
from typing import TypeVar
from urllib.parse import quote

from heedful.documents.file_types import libraries_installed
from heedful.documents.safe_parsing import DocumentTooLarge
from heedful.documents.segmentation import SegmentedDocument, TranslatedSentence
from heedful.errors import HeedfulError, UserError
from heedful.serve.batcher import QueueFull
from heedful.serve.http_errors import RequestError
from heedful.serve.jobs import TranslationJob
from heedful.serve.model_registry import ServedModel
from heedful.serve.schemas import Terms
from heedful.serve.service import Service
from heedful.translation.result import Translation

Result = TypeVar("Result")
_THREADS = 2  # that read and write files, apart from those that translate
_SENTENCES_AT_ONCE = 64  # of a file that wait at a time; other requests get their turns in between
_STORED_SECONDS = 600.0
_STORED_BYTES = 64 << 20  # of all stored files


def can_translate_files() -> bool:
    """Whether the libraries for this are installed."""
    return libraries_installed() and find_spec("python_multipart") is not None


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
        self._arriving_bytes = 0  # of files that are still being sent
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="files")

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Hold a place for a file that has arrived, until it is answered."""
        if self._accepted >= self.service.limits.files:
            raise self._full()
        self._accepted += 1
        try:
            yield
        finally:
            self._accepted -= 1

    @contextmanager
    def count_arriving(self) -> Iterator[Callable[[int], None]]:
        """Bound the bytes of all arriving files. Their number is not bounded, or stalled uploads would block others."""
        limits, own = self.service.limits, 0

        def count(size: int) -> None:
            nonlocal own
            own += size
            self._arriving_bytes += size
            if self._arriving_bytes > limits.files * limits.file:
                raise self._full()

        try:
            yield count
        finally:
            self._arriving_bytes -= own

    def _full(self) -> RequestError:
        seconds = self.service.batcher.estimate_wait()
        return RequestError(503, "Slowdown: too many files are being translated", seconds, close=True)

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
    model: ServedModel
    name: str
    document: SegmentedDocument
    glossary: Terms
    align: bool
    mixed: list[TranslatedSentence] = field(default_factory=list)

    @property
    def total(self) -> int:
        """The number of sentences."""
        return len(self.document.plain) + len(self.document.mixed)

    @property
    def notes(self) -> list[str]:
        """What the translated file does not keep, known once it is written."""
        return self.document.list_notes(self.mixed)

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
        service.check_items(items)
        while True:
            try:
                pending = service.batcher.submit(job, items)
                break
            except QueueFull as full:  # a file can wait, as long as it has time
                await asyncio.sleep(min(1.0, full.seconds))
        with pending:
            translations: list[Translation] = await pending.results()
        return [TranslatedSentence(one.text, _read_alignment(one)) for one in translations]


def _read_alignment(translation: Translation) -> tuple[tuple[int, int], ...]:
    return tuple((link[0], link[1]) for link in translation.alignment or ())
