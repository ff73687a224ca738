"""The state that all routes share (models, batcher, limits, keys), and how the job of a request runs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from heedful.documents import libraries_installed
from heedful.errors import HeedfulError, UserError
from heedful.process_memory import release_freed_memory
from heedful.serve.api_keys import ApiKeys
from heedful.serve.batcher import Batcher, BatchJob, JobItem, PendingJob, QueueFull
from heedful.serve.http_errors import RequestError
from heedful.serve.metrics import ServiceMetrics
from heedful.serve.model_registry import ModelRegistry
from heedful.text.languages import Detector, known_languages

Result = TypeVar("Result")
_LOG = logging.getLogger(__name__)
_RELEASE_SECONDS = 10.0  # between two releases of freed memory
_SHORT = 2000  # characters that are prepared faster than a thread starts
CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that did not wait; only the log shows it


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Limits on one request and on all requests together. The defaults suit one machine with a few users."""

    body: int = 1 << 20  # bytes of a request
    texts: int = 1000  # in a request
    characters: int = 50_000  # in a request
    sentences: int = 2000  # in a request
    pieces: int = 500  # tokens of a sentence
    rows: int = 4000  # tokens of a sentence times the beam; bounds the time of one sentence
    alternatives: int = 10
    file: int = 10 << 20  # bytes of a request with a file
    files: int = 8  # at once; all of them are in memory, many times larger than they arrived
    file_characters: int = 500_000  # of its text
    file_passages: int = 50_000  # such as paragraphs
    file_elements: int = 300_000  # of its markup
    seconds: float = 60.0  # until a request is answered or given up
    arriving: float = 15.0  # seconds until a request has arrived
    queue: int = 100_000  # tokens that may wait; beyond that, requests are refused at once

    @property
    def file_seconds(self) -> float:
        """A file takes longer than a text; this covers everything from reading to writing."""
        return 5 * self.seconds


class ArrivingBodies:
    """Bounds the time in which a body arrives, and the bytes of all bodies that are arriving.

    If there are too many bytes, the body that has been arriving for longest is given up. So clients that stall or send
    slowly cannot keep others out.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._total = 0
        self._sizes: dict[asyncio.Timeout, int] = {}  # of all bodies, in the order in which they began
        self._given_up: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def receive(self) -> AsyncIterator[Callable[[int], None]]:
        """Read a body within this block, and call what it yields with the size of each chunk."""
        try:
            async with asyncio.timeout(self._seconds) as timeout:
                self._sizes[timeout] = 0
                yield partial(self._count, timeout)
        except TimeoutError:
            if timeout in self._given_up:
                message = "Slowdown: too many requests are arriving"
                raise RequestError(503, message, 1.0, close=True) from None
            raise RequestError(408, "the request did not arrive in time", close=True) from None
        finally:
            self._total -= self._sizes.pop(timeout, 0)
            self._given_up.discard(timeout)

    def _count(self, timeout: asyncio.Timeout, size: int) -> None:
        if timeout in self._given_up:
            return
        self._sizes[timeout] += size
        self._total += size
        while self._total > self._most:
            oldest = next(iter(self._sizes))
            self._total -= self._sizes.pop(oldest)
            self._given_up.add(oldest)
            oldest.reschedule(0.0)  # a time in the past


class Service:
    """The state behind one application."""

    def __init__(self, registry: ModelRegistry, limits: ServiceLimits, keys: ApiKeys) -> None:
        self.registry = registry
        self.limits = limits
        self.keys = keys
        self.metrics = ServiceMetrics()
        self.detector = Detector(known_languages(), registry.learn_languages())
        most = limits.files * limits.file
        self._trusted_bodies = ArrivingBodies(most, limits.arriving)
        self._other_bodies = ArrivingBodies(most, limits.arriving)
        self.batcher: Batcher

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Accept jobs inside this block; at its end, finish those that were accepted."""
        limits = self.limits
        # Later requests get turns in between, so a request may expect to wait for half of its time.
        workers = self.registry.share_engines()
        self.batcher = Batcher(workers, limits.queue, limits.seconds / 2, self.metrics.count_batch)
        self.metrics.watch(self.batcher)
        self.batcher.start()
        releasing = asyncio.create_task(_release_memory())
        try:
            yield
        finally:
            releasing.cancel()
            await self.batcher.close()
            self.registry.close()

    async def reload(self) -> None:
        """Load new keys and new versions of models, while requests are running."""
        await asyncio.to_thread(self.registry.reload)
        try:
            await asyncio.to_thread(self.keys.reload)
        except Exception as error:
            unexpected = not isinstance(error, HeedfulError)
            _LOG.error("keeping the old keys: %s", error, exc_info=unexpected)

    def admit(self, request: Request, given: str | None = None) -> None:
        """Check the API key, from the body if given, otherwise from the header or the query; and count the request."""
        self.keys.admit(given or _find_key(request))

    def check_key(self, request: Request) -> None:
        """Refuse a request without a valid API key, without counting it: what a counted answer is shown with."""
        if not self.keys.accepts(_find_key(request)):
            self.admit(request)

    def bodies(self, request: Request) -> ArrivingBodies:
        """Where to count the body of this request: bodies without a valid key never keep out those with one."""
        return self._trusted_bodies if self.keys.accepts(_find_key(request)) else self._other_bodies

    def check_texts(self, texts: Sequence[str], others: Sequence[str] = ()) -> None:
        """Refuse too many texts, or too many characters in them and the `others`, in LibreTranslate's words."""
        characters = sum(map(len, [*texts, *others]))
        for size, limit in ((len(texts), self.limits.texts), (characters, self.limits.characters)):
            if size > limit:
                raise RequestError(400, f"Invalid request: request ({size}) exceeds text limit ({limit})")

    def check_items(self, items: Sequence[JobItem], beam: int = 1) -> None:
        """Refuse too many sentences, or one that is too long for this beam."""
        if len(items) > self.limits.sentences:
            message = f"{len(items)} sentences, over the limit of {self.limits.sentences}"
            raise RequestError(400, f"Invalid request: {message}")
        longest = max((item.cost for item in items), default=0)
        if longest > self.limits.pieces:
            message = f"a sentence has {longest} tokens, over the limit of {self.limits.pieces}; split it"
            raise RequestError(400, f"Invalid request: {message}")
        if longest * beam > self.limits.rows:
            most = self.limits.rows // beam
            message = f"a sentence has {longest} tokens, over the limit of {most} for a beam of {beam}; split it"
            raise RequestError(400, f"Invalid request: {message}")

    def submit(self, job: BatchJob, items: Sequence[JobItem]) -> PendingJob:
        """Queue a job; refuse it at once if the queue is full."""
        try:
            return self.batcher.submit(job, items)
        except QueueFull as full:
            raise RequestError(503, "Slowdown: too many requests are waiting", full.seconds) from None

    async def run_job(self, request: Request, job: BatchJob, items: Sequence[JobItem]) -> list[Any]:
        """The results of a job, if the client waits for them and the time of a request suffices."""
        (results,) = await self.run_jobs(request, [(job, items)])
        return results

    async def run_jobs(self, request: Request, jobs: Sequence[tuple[BatchJob, Sequence[JobItem]]]) -> list[list[Any]]:
        """The results of several jobs, which run at the same time."""
        with ExitStack() as stack:
            pending = [stack.enter_context(self.submit(job, items)) for job, items in jobs]
            return await self.wait_for(cancel_on_disconnect(request, _gather_results(pending)))

    def deadline(self) -> float:
        """When a request that is accepted now must be done, by the clock of the event loop."""
        return asyncio.get_running_loop().time() + self.limits.seconds

    async def wait_for(self, work: Awaitable[Result], until: float | None = None) -> Result:
        """Await this work until a deadline; lateness and users' errors become a `RequestError`."""
        try:
            async with asyncio.timeout_at(self.deadline() if until is None else until):
                return await work
        except TimeoutError:
            message = f"Slowdown: not done after {self.limits.seconds:g} s"
            raise RequestError(503, message, self.batcher.estimate_wait()) from None
        except UserError as error:
            raise RequestError(400, f"Invalid request: {error}") from error
        except HeedfulError as error:
            raise RequestError(500, f"Cannot translate text: {error}") from error


async def _release_memory() -> None:
    """Return freed memory to the system from time to time.

    The allocator keeps what was freed, because the next batch is faster with it. But then the process would stay as
    large as its largest request has ever made it.
    """
    while True:
        await asyncio.sleep(_RELEASE_SECONDS)
        await asyncio.to_thread(release_freed_memory)


def _find_key(request: Request) -> str | None:
    """The API key in the header or the query."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return (key.strip() if scheme.lower() == "bearer" else "") or request.query_params.get("api_key")


async def get_service(request: Request) -> Service:
    """The service of this application, for routes and dependencies."""
    service: Service = request.app.state.service
    return service


ServiceDependency = Annotated[Service, Depends(get_service)]


def can_translate_files() -> bool:
    """Whether the libraries for this are installed."""
    return libraries_installed() and find_spec("python_multipart") is not None


async def _gather_results(jobs: Sequence[PendingJob]) -> list[list[Any]]:
    """All results. A coroutine and not a future of futures, so that it can be cancelled."""
    return [await pending.results() for pending in jobs]


async def run_in_thread_if_long(characters: int, work: Callable[..., Result], *arguments: object) -> Result:
    """Call a function, in a thread if so many characters take a while."""
    return await asyncio.to_thread(work, *arguments) if characters > _SHORT else work(*arguments)


async def cancel_on_disconnect(request: Request, work: Awaitable[Result]) -> Result:
    """Await this work, and cancel it when the client disconnects."""
    working = True
    disconnected = asyncio.ensure_future(_wait_for_disconnect(request.receive))

    def cancel(_: object) -> None:
        if working:
            timeout.reschedule(0.0)  # a time in the past

    try:
        async with asyncio.timeout(None) as timeout:
            disconnected.add_done_callback(cancel)
            return await work
    except TimeoutError:
        if timeout.expired():
            raise RequestError(CLIENT_CLOSED_REQUEST, "the client disconnected") from None
        raise
    finally:
        working = False
        disconnected.cancel()


async def _wait_for_disconnect(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
