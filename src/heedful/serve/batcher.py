"""Requests that arrive together are worked on together.

Every request waits with its pieces of work (sentences, mostly) under an order: what is to be done with them. Whenever a
worker is free it takes a batch of one order, one piece from each request in turn, and does it in a thread. So a request
that comes later need not wait for all of a longer one, and of who has gone nothing more is done.

What needs a model for itself is slow, and waits in a lane of its own, with one worker at most. Where both lanes have
something to do, that one has its turn which has had less of the workers' time.

All of this happens in the event loop; only the work itself is in other threads. So nothing here needs a lock.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil, inf
from time import monotonic
from typing import Any, Protocol

_LINGER = 0.004  # seconds that a batch waits for more, while others work
_LINGERS = 10  # as often, at most, if more came in: to read 64 requests and to answer as many takes that long
_SLOWEST = 60.0  # seconds that a client is sent away for, at most


class Order(Protocol):
    """What is to be done with pieces of work. Those of equal orders are done together."""

    @property
    def budget(self) -> int:
        """What the pieces of one batch may cost together."""
        ...

    @property
    def apart(self) -> bool:
        """Whether it needs a model for itself, so that only one worker at a time can do such."""
        ...

    def do(self, items: Sequence[Any]) -> Sequence[Any]:
        """Do it, in a thread: a result for each."""
        ...


class Full(Exception):
    """There is no room to wait in; after so many seconds there may be."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"try again in {seconds:.0f} s")
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of work and what it costs, in the unit of the order's budget."""

    item: Any
    cost: int


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    piece: Piece
    result: "asyncio.Future[Any]"


@dataclass(slots=True, eq=False)
class _Lane:
    """Who waits, in the order in which they have their turn, and how much time they had."""

    workers: int  # that may work for it at once
    tickets: "dict[Ticket, None]" = field(default_factory=dict)
    cost: int = 0  # of all that waits
    begun: int = 0  # cost of what is worked on
    busy: int = 0  # workers
    speed: float | None = None  # cost a second that one worker does; 0 after the first batch, which may load a model
    spent: float = 0.0  # seconds of workers, and those that passed while nobody wanted any

    @property
    def ready(self) -> bool:
        return bool(self.tickets) and self.busy < self.workers

    @property
    def budget(self) -> int:
        return next(iter(self.tickets)).order.budget

    @property
    def share(self) -> int:
        """What the next batch may cost: no worker has more than its part of all work, so that none is idle."""
        return min(self.budget, ceil((self.cost + self.begun) / self.workers))

    @property
    def wait(self) -> float:
        return min(_SLOWEST, self.seconds_for(self.cost))

    def seconds_for(self, cost: int) -> float:
        return cost / (self.speed * self.workers) if self.speed else 1.0

    def measure(self, cost: int, seconds: float) -> None:
        speed = 0.0 if self.speed is None else cost / max(seconds, 1e-6)
        self.speed = 0.8 * self.speed + 0.2 * speed if self.speed else speed
        self.spent += seconds


class Ticket:
    """A request, for as long as it waits or is worked on. To leave the block gives up what is not begun."""

    def __init__(self, batcher: "Batcher", order: Order, pieces: Sequence[Piece]) -> None:
        self.order = order
        loop = asyncio.get_running_loop()
        self.waiting = deque(_Waiting(piece, loop.create_future()) for piece in pieces)
        self._results = [waiting.result for waiting in self.waiting]
        self.size = len(self._results)
        self._batcher = batcher

    def __enter__(self) -> "Ticket":
        return self

    def __exit__(self, *_: object) -> None:
        self._batcher.forget(self)
        for result in self._results:
            if not result.cancel() and not result.cancelled():
                result.exception()  # seen: nobody else will ask

    async def results(self) -> list[Any]:
        """All results, in the order of the pieces; the first failure is raised."""
        return await asyncio.gather(*self._results)

    def __iter__(self) -> "Iterator[asyncio.Future[Any]]":
        return iter(self._results)


class Batcher:
    """Workers, and who waits for them."""

    def __init__(
        self, workers: int, room: int, seconds: float = inf, seen: Callable[[int, float], None] = lambda *_: None
    ) -> None:
        """`room` is what may wait, by its cost, and for how many `seconds`.

        `seen` is told of each batch: its size and the seconds that it took.
        """
        self._room = room
        self._seconds = seconds
        self._seen = seen
        self._usual, self._apart = _Lane(workers), _Lane(1)
        self._lanes = (self._usual, self._apart)
        self._spent = 0.0  # of the lane that had its turn last, before it
        self._filled = asyncio.Event()
        self._forming = asyncio.Lock()  # one batch is put together at a time
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="translate")
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    @property
    def busy(self) -> int:
        """How many workers are."""
        return sum(lane.busy for lane in self._lanes)

    @property
    def cost(self) -> int:
        """Of all that waits."""
        return sum(lane.cost for lane in self._lanes)

    def start(self) -> None:
        """Let the workers begin."""
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._usual.workers)]

    async def close(self) -> None:
        """Finish what was accepted, then stop."""
        self._closing = True
        while any(lane.tickets or lane.busy for lane in self._lanes):
            await asyncio.sleep(0.01)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown()

    def submit(self, order: Order, pieces: Sequence[Piece]) -> Ticket:
        """Wait in line, to be used as a block; `Full` at once where there is no room."""
        ticket, lane = Ticket(self, order, pieces), self._lane(order)
        if not pieces:
            return ticket
        cost = sum(piece.cost for piece in pieces)
        if self._closing or not self._fits(lane, cost):
            raise Full(lane.wait)
        if not lane.tickets:  # time that it did not want is not saved up
            lane.spent = max(lane.spent, self._spent)
        lane.tickets[ticket] = None
        lane.cost += cost
        self._look()
        return ticket

    def wait(self) -> float:
        """Seconds until what waits now will be done, about."""
        return max(lane.wait for lane in self._lanes)

    def forget(self, ticket: Ticket) -> None:
        """Do nothing more for this one."""
        lane = self._lane(ticket.order)
        if ticket in lane.tickets:
            del lane.tickets[ticket]
            lane.cost -= sum(waiting.piece.cost for waiting in ticket.waiting)
        self._look()

    def _lane(self, order: Order) -> _Lane:
        return self._apart if order.apart else self._usual

    def _fits(self, lane: _Lane, cost: int) -> bool:
        """Whether there is room for it, and time. Where nothing waits, anything fits."""
        if self.cost and self.cost + cost > self._room:
            return False
        return not lane.tickets or lane.seconds_for(lane.cost + cost) <= self._seconds

    def _look(self) -> None:
        """See whether there is anything that a worker could begin."""
        if any(lane.ready for lane in self._lanes):
            self._filled.set()
        else:
            self._filled.clear()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            order, batch = await self._next()
            lane, began, cost = self._lane(order), monotonic(), sum(waiting.piece.cost for waiting in batch)
            try:
                items = [waiting.piece.item for waiting in batch]
                results = await loop.run_in_executor(self._threads, _done, order, items)
                seconds = monotonic() - began
                lane.measure(cost, seconds)
                self._seen(len(batch), seconds)
                for waiting, result in zip(batch, results, strict=True):
                    _tell(waiting.result, result)
            finally:
                lane.busy -= 1
                lane.begun -= cost
                self._look()

    async def _next(self) -> tuple[Order, list[_Waiting]]:
        """The next batch. Who comes to an idle server does not wait for others."""
        async with self._forming:
            while True:
                await self._filled.wait()
                await self._linger()
                if self._filled.is_set():
                    return self._take(self._turn())

    async def _linger(self) -> None:
        """While others work, let a batch grow: at first to see whether more comes in, then until it is full."""
        for turn in range(_LINGERS):
            before = self.cost
            if not self.busy or not self._filled.is_set():
                return
            lane = self._turn()
            if lane.cost >= (lane.share if turn else lane.budget):
                return
            await asyncio.sleep(_LINGER)
            if self.cost <= before:
                return

    def _turn(self) -> _Lane:
        """The lane that has had less time, of those that are ready."""
        return min((lane for lane in self._lanes if lane.ready), key=lambda lane: lane.spent)

    def _take(self, lane: _Lane) -> tuple[Order, list[_Waiting]]:
        """One piece from each request of an order, again and again, until a batch is full.

        It is full when it has its worker's share of all work. While others wait, it has no more of a long request than
        the shortest has in all, which is done with it.
        """
        order = next(iter(lane.tickets)).order
        turn = deque(ticket for ticket in lane.tickets if ticket.order == order)
        rounds = min(ticket.size for ticket in turn) if len(turn) > 1 else None
        most = lane.share
        batch: list[_Waiting] = []
        taken: dict[Ticket, int] = {}
        cost = 0
        while turn:
            ticket = turn.popleft()
            if taken.get(ticket) == rounds and rounds is not None:
                break
            if batch and cost + ticket.waiting[0].piece.cost > most:
                break
            batch.append(ticket.waiting.popleft())
            cost += batch[-1].piece.cost
            taken[ticket] = taken.get(ticket, 0) + 1
            if ticket.waiting:
                turn.append(ticket)
        for ticket in taken:  # who has had a turn is behind all others
            del lane.tickets[ticket]
            if ticket.waiting:
                lane.tickets[ticket] = None
        self._spent = max(self._spent, lane.spent)
        lane.cost -= cost
        lane.begun += cost
        lane.busy += 1
        self._look()
        return order, batch


def _done(order: Order, items: Sequence[Any]) -> Sequence[Any]:
    """Results or errors. One that cannot be done must not take the others with it, so then each is done alone."""
    if len(items) > 1:
        with suppress(BaseException):
            return order.do(items)
        return [result for item in items for result in _done(order, [item])]
    try:
        return order.do(items)
    except Exception as error:
        return [error]
    except BaseException as error:  # what fails inside of a library in Rust is no Exception
        return [RuntimeError(repr(error))]


def _tell(future: "asyncio.Future[Any]", result: object) -> None:
    if future.done():  # who asked has gone
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
