"""What all endpoints share: models, the batcher, limits, keys; and how a request becomes an answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any, TypeVar

from starlette.requests import Request

from heedful.errors import HeedfulError, UserError
from heedful.serve.api_keys import Keys
from heedful.serve.batcher import Batcher, Full, Order, Piece, Ticket
from heedful.serve.http_errors import Refused
from heedful.serve.limits import Limits
from heedful.serve.model_registry import Shelf
from heedful.serve.monitoring import Metrics
from heedful.serve.request_log import LOG
from heedful.text.language_detection import Detector

Answer = TypeVar("Answer")
_SHORT = 2000  # characters
GONE = 499  # what servers note of a client that did not wait; nobody hears it


class Service:
    """One of them to an application."""

    def __init__(self, shelf: Shelf, limits: Limits, keys: Keys) -> None:
        self.shelf = shelf
        self.limits = limits
        self.keys = keys
        self.metrics = Metrics()
        self.detector = Detector(shelf.trigrams())
        self.batcher: Batcher

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work, as long as this lasts; at its end, finish what was accepted."""
        limits = self.limits
        # Those that come later have their turns between, so half of a request's time is what it may expect to wait.
        self.batcher = Batcher(self.shelf.share(), limits.queue, limits.seconds / 2, self.metrics.batch)
        self.metrics.watch(self.batcher)
        self.batcher.start()
        try:
            yield
        finally:
            await self.batcher.close()
            self.shelf.close()

    async def renew(self) -> None:
        """Take up new keys and new versions of models, while requests go on."""
        await asyncio.to_thread(self.shelf.renew)
        try:
            await asyncio.to_thread(self.keys.renew)
        except Exception as error:
            unexpected = not isinstance(error, HeedfulError)
            LOG.error("goes on with the keys that it has: %s", error, exc_info=unexpected)

    def admit(self, request: Request, given: str | None = None) -> None:
        """Refuse who has no key, or asks too often. A key is in the body, or where such things usually are."""
        bearer = request.headers.get("authorization", "")
        self.keys.admit(given or bearer.removeprefix("Bearer ").strip() or request.query_params.get("api_key"))

    def check_texts(self, texts: Sequence[str], beside: Sequence[str] = ()) -> None:
        """Refuse more text than is allowed, with what comes beside the texts, in LibreTranslate's words."""
        characters = sum(map(len, [*texts, *beside]))
        for size, limit in ((len(texts), self.limits.texts), (characters, self.limits.characters)):
            if size > limit:
                raise Refused(400, f"Invalid request: request ({size}) exceeds text limit ({limit})")

    def check_pieces(self, pieces: Sequence[Piece]) -> None:
        """Refuse more sentences than are allowed, or one that is too long."""
        if len(pieces) > self.limits.sentences:
            raise Refused(400, f"Invalid request: {len(pieces)} sentences, over the limit of {self.limits.sentences}")
        longest = max((piece.cost for piece in pieces), default=0)
        if longest > self.limits.pieces:
            raise Refused(400, f"Invalid request: a sentence has {longest} pieces, over {self.limits.pieces}")

    def submit(self, order: Order, pieces: Sequence[Piece]) -> Ticket:
        """Have it done, with others; refuse it at once where too much waits."""
        try:
            return self.batcher.submit(order, pieces)
        except Full as full:
            raise Refused(503, "Slowdown: too many requests are waiting", full.seconds) from None

    async def done(self, request: Request, order: Order, pieces: Sequence[Piece]) -> list[Any]:
        """The result for each piece, while the client waits for it and the time that a request has is not over."""
        (results,) = await self.all_done(request, [(order, pieces)])
        return results

    async def all_done(self, request: Request, work: Sequence[tuple[Order, Sequence[Piece]]]) -> list[list[Any]]:
        """The same for several orders."""
        with ExitStack() as stack:
            tickets = [stack.enter_context(self.submit(order, pieces)) for order, pieces in work]
            return await self.in_time(while_there(request, _all_results(tickets)))

    def deadline(self) -> float:
        """When a request that is accepted now is to be done, by the clock of the event loop."""
        return asyncio.get_running_loop().time() + self.limits.seconds

    async def in_time(self, work: Awaitable[Answer], until: float | None = None) -> Answer:
        """What comes of it, or a refusal: that it took too long, or what a user can put right."""
        try:
            async with asyncio.timeout_at(self.deadline() if until is None else until):
                return await work
        except TimeoutError:
            message = f"Slowdown: not done after {self.limits.seconds:g} s"
            raise Refused(503, message, self.batcher.wait()) from None
        except UserError as error:
            raise Refused(400, f"Invalid request: {error}") from error
        except HeedfulError as error:
            raise Refused(500, f"Cannot translate text: {error}") from error


async def _all_results(tickets: Sequence[Ticket]) -> list[list[Any]]:
    """Of all of them, which are worked on at the same time. To be cancelled, this must not be a future of futures."""
    return [await ticket.results() for ticket in tickets]


async def prepared(size: int, work: Callable[..., Answer], *given: object) -> Answer:
    """What comes of it, in a thread if so many characters take a while; else a thread would take longer to begin."""
    return await asyncio.to_thread(work, *given) if size > _SHORT else work(*given)


async def while_there(request: Request, work: Awaitable[Answer]) -> Answer:
    """What comes of it, unless the client goes away first: then it is given up."""
    waits = True
    gone = asyncio.ensure_future(_gone(request.receive))

    def give_up(_: object) -> None:
        if waits:
            patience.reschedule(0.0)  # a time that is over

    try:
        async with asyncio.timeout(None) as patience:
            gone.add_done_callback(give_up)
            return await work
    except TimeoutError:
        if patience.expired():
            raise Refused(GONE, "the client has gone") from None
        raise
    finally:
        waits = False
        gone.cancel()


async def _gone(receive: Callable[[], Awaitable[Any]]) -> None:
    """Wait until there is nobody to answer."""
    while (await receive())["type"] != "http.disconnect":
        pass
