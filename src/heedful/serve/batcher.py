"""Batch the work of concurrent requests.

Each request submits a job and its items (sentences, mostly). Whenever a worker is free, it takes a batch of items of
equal jobs, one item from each request in turn, and runs it in a thread. Work for disconnected clients is dropped.

A short request never waits for a long one. Requests wait in three lanes, each with its own room and its own threads, so
that the operating system shares the cores among them:

- the short lane takes requests that cost at most a quarter of a batch;
- the long lane takes all others;
- the exclusive lane takes jobs that need a model to themselves, and has one worker.

All of this happens in the event loop; only the work itself runs in threads. So nothing here needs a lock.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, inf
from time import monotonic
from typing import Any, Protocol

SHARED_LANES = 2  # whose workers use a model at the same time
_SHORT = 4  # this part of a batch, at most, is a short request
_LINGER = 0.004  # seconds that a batch waits for more items while other workers are busy
_LINGERS = 10  # at most, as long as more items arrive: it takes that long to read 64 requests and answer as many
_LONGEST_RETRY = 60.0  # seconds; the longest Retry-After


class BatchJob(Protocol):
    """Work that is done in batches. Items of equal jobs are batched together."""

    @property
    def budget(self) -> int:
        """The highest total cost of a batch."""
        ...

    @property
    def exclusive(self) -> bool:
        """Whether it needs a model to itself. Only one worker at a time runs such jobs."""
        ...

    def run(self, items: Sequence[Any]) -> Sequence[Any]:
        """Do the work, in a thread; return one result per item."""
        ...


class QueueFull(Exception):
    """The queue has no room for a job; there may be room after so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"try again in {seconds:.0f} s")
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class JobItem:
    """An item of work and its cost, in the unit of the job's budget."""

    value: Any
    cost: int


@dataclass(frozen=True, slots=True, eq=False)
class _QueuedItem:
    item: JobItem
    result: "asyncio.Future[Any]"


class PendingJob:
    """The job of one request, waiting or running. Leaving the `with` block drops the items that have not started."""

    def __init__(self, lane: "_Lane", job: BatchJob, items: Sequence[JobItem]) -> None:
        self.job = job
        loop = asyncio.get_running_loop()
        self.queued = deque(_QueuedItem(item, loop.create_future()) for item in items)
        self._results = [queued.result for queued in self.queued]
        self.size = len(self._results)
        self._lane = lane

    def __enter__(self) -> "PendingJob":
        return self

    def __exit__(self, *_: object) -> None:
        self._lane.drop(self)
        for result in self._results:
            if not result.cancel() and not result.cancelled():
                result.exception()  # retrieve it, or asyncio would log it

    async def results(self) -> list[Any]:
        """All results, in the order of the items; the first failure is raised."""
        return await asyncio.gather(*self._results)

    def __iter__(self) -> "Iterator[asyncio.Future[Any]]":
        return iter(self._results)


class Batcher:
    """Three lanes: for short requests, for long ones, and for jobs that need a model to themselves."""

    def __init__(
        self, workers: int, room: int, seconds: float = inf, observe: Callable[[int, float], None] = lambda *_: None
    ) -> None:
        """In each lane, `room` bounds the total cost of what waits, and `seconds` how long it may wait.

        `observe` is called after each batch with its size and the seconds it took.
        """
        self._short = _Lane("short", workers, room, seconds, observe)
        self._long = _Lane("long", workers, room, seconds, observe)
        self._exclusive = _Lane("exclusive", 1, room, seconds, observe)
        self._lanes = (self._short, self._long, self._exclusive)
        self._closing = False

    @property
    def busy(self) -> int:
        """The number of workers that are busy."""
        return sum(lane.busy for lane in self._lanes)

    @property
    def queued_cost(self) -> int:
        """The total cost of all items that wait."""
        return sum(lane.queued_cost for lane in self._lanes)

    def start(self) -> None:
        """Start the workers."""
        for lane in self._lanes:
            lane.start()

    async def close(self) -> None:
        """Finish all accepted jobs, then stop the workers."""
        self._closing = True
        await asyncio.gather(*(lane.close() for lane in self._lanes))

    def submit(self, job: BatchJob, items: Sequence[JobItem]) -> PendingJob:
        """Queue a job, to be used in a `with` block; raise `QueueFull` at once if there is no room."""
        cost = sum(item.cost for item in items)
        lane = self._exclusive if job.exclusive else self._short if _SHORT * cost <= job.budget else self._long
        if self._closing:
            raise QueueFull(lane.wait)
        return lane.submit(job, items, cost)

    def estimate_wait(self) -> float:
        """Roughly the seconds until everything that waits now is done."""
        return max(lane.wait for lane in self._lanes)


class _Lane:
    """Jobs that wait, in the order of their turns, and the workers that take batches of them."""

    def __init__(
        self, name: str, workers: int, room: int, seconds: float, observe: Callable[[int, float], None]
    ) -> None:
        self._workers = workers
        self._room = room
        self._seconds = seconds
        self._observe = observe
        self._jobs: dict[PendingJob, None] = {}
        self.queued_cost = 0
        self._running_cost = 0
        self.busy = 0  # number of workers
        self._speed: float | None = None  # cost per second of one worker; 0 after a first batch, as it may load a model
        self._work_available = asyncio.Event()
        self._forming = asyncio.Lock()  # one batch is put together at a time
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix=f"translate-{name}")
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def wait(self) -> float:
        """Roughly the seconds until everything that waits now is done, but no more than a client should wait."""
        return min(_LONGEST_RETRY, self._estimate_seconds(self.queued_cost))

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._workers)]

    async def close(self) -> None:
        while self._jobs or self.busy:
            await asyncio.sleep(0.01)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown()

    def submit(self, job: BatchJob, items: Sequence[JobItem], cost: int) -> PendingJob:
        pending = PendingJob(self, job, items)
        if items:
            if not self._has_room(cost):
                raise QueueFull(self.wait)
            self._jobs[pending] = None
            self.queued_cost += cost
            self._work_available.set()
        return pending

    def drop(self, pending: PendingJob) -> None:
        """Remove a job from the queue; items that have started are finished."""
        if pending in self._jobs:
            del self._jobs[pending]
            self.queued_cost -= sum(queued.item.cost for queued in pending.queued)
            self._update_work_available()

    def _has_room(self, cost: int) -> bool:
        """Whether the queue has room and time for this cost. An empty queue takes anything."""
        if self.queued_cost and self.queued_cost + cost > self._room:
            return False
        return not self._jobs or self._estimate_seconds(self.queued_cost + cost) <= self._seconds

    def _estimate_seconds(self, cost: int) -> float:
        return cost / (self._speed * self._workers) if self._speed else 1.0

    def _measure_speed(self, cost: int, seconds: float) -> None:
        speed = 0.0 if self._speed is None else cost / max(seconds, 1e-6)
        self._speed = 0.8 * self._speed + 0.2 * speed if self._speed else speed

    def _update_work_available(self) -> None:
        if self._jobs:
            self._work_available.set()
        else:
            self._work_available.clear()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            job, batch = await self._next_batch()
            start, cost = monotonic(), sum(queued.item.cost for queued in batch)
            try:
                values = [queued.item.value for queued in batch]
                results = await loop.run_in_executor(self._threads, _run_batch, job, values)
                seconds = monotonic() - start
                self._measure_speed(cost, seconds)
                self._observe(len(batch), seconds)
                for queued, result in zip(batch, results, strict=True):
                    _set_result(queued.result, result)
            finally:
                self.busy -= 1
                self._running_cost -= cost

    async def _next_batch(self) -> tuple[BatchJob, list[_QueuedItem]]:
        """The next batch. A request to an idle server does not wait for others."""
        async with self._forming:
            while True:
                await self._work_available.wait()
                await self._linger()
                if self._jobs:
                    return self._take_batch()

    async def _linger(self) -> None:
        """Let a batch grow while other workers are busy: first to see whether more arrives, then until it is full."""
        for turn in range(_LINGERS):
            before = self.queued_cost
            if not self.busy or not self._jobs:
                return
            if before >= (self._share if turn else self._budget):
                return
            await asyncio.sleep(_LINGER)
            if self.queued_cost <= before:
                return

    @property
    def _budget(self) -> int:
        return next(iter(self._jobs)).job.budget

    @property
    def _share(self) -> int:
        """The highest cost of the next batch: no worker gets more than its share of all work, so that none is idle."""
        return min(self._budget, ceil((self.queued_cost + self._running_cost) / self._workers))

    def _take_batch(self) -> tuple[BatchJob, list[_QueuedItem]]:
        """Take one item from each equal job in turn, again and again, until the batch is full.

        It is full when it has its worker's share of all work. While several requests wait, it takes no more items of a
        long one than the shortest has in total, so that the shortest is done with this batch.
        """
        job = next(iter(self._jobs)).job
        turns = deque(pending for pending in self._jobs if pending.job == job)
        rounds = min(pending.size for pending in turns) if len(turns) > 1 else None
        most = self._share
        batch: list[_QueuedItem] = []
        taken: dict[PendingJob, int] = {}
        cost = 0
        while turns:
            pending = turns.popleft()
            if taken.get(pending) == rounds and rounds is not None:
                break
            if batch and cost + pending.queued[0].item.cost > most:
                break
            batch.append(pending.queued.popleft())
            cost += batch[-1].item.cost
            taken[pending] = taken.get(pending, 0) + 1
            if pending.queued:
                turns.append(pending)
        for pending in taken:  # after its turn, a job goes to the end of the queue
            del self._jobs[pending]
            if pending.queued:
                self._jobs[pending] = None
        self.queued_cost -= cost
        self._running_cost += cost
        self.busy += 1
        self._update_work_available()
        return job, batch


def _run_batch(job: BatchJob, values: Sequence[Any]) -> Sequence[Any]:
    """Results or errors. If a batch fails, each item is run alone, so that a bad one does not fail the others."""
    if len(values) > 1:
        with suppress(BaseException):
            return job.run(values)
        return [result for value in values for result in _run_batch(job, [value])]
    try:
        return job.run(values)
    except Exception as error:
        return [error]
    except BaseException as error:  # a panic in a Rust library is not an Exception
        return [RuntimeError(repr(error))]


def _set_result(future: "asyncio.Future[Any]", result: object) -> None:
    if future.done():  # the request was cancelled
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
