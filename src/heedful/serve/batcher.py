"""Batch the work of concurrent requests.

Each request submits a job and its items (sentences, mostly). Whenever a worker is free, it takes a batch of items of
equal jobs, one item from each request in turn, and runs it in a thread. So a short request need not wait for all of a
long one, and work for disconnected clients is dropped.

Exclusive jobs, which need a model to themselves, are slow. They wait in a lane of their own, with one worker at most.
If both lanes have work, the next turn goes to the lane that has used less of the workers' time.

All of this happens in the event loop; only the work itself runs in threads. So nothing here needs a lock.
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


@dataclass(slots=True, eq=False)
class _Lane:
    """Jobs that wait, in the order of their turns, and the time that workers have spent on their lane."""

    workers: int  # at most, at a time
    jobs: "dict[PendingJob, None]" = field(default_factory=dict)
    queued_cost: int = 0
    running_cost: int = 0
    busy: int = 0  # number of workers
    speed: float | None = None  # cost per second of one worker; 0 after the first batch, which may load a model
    spent: float = 0.0  # seconds of workers' time; raised when an idle lane gets work

    @property
    def ready(self) -> bool:
        return bool(self.jobs) and self.busy < self.workers

    @property
    def budget(self) -> int:
        return next(iter(self.jobs)).job.budget

    @property
    def share(self) -> int:
        """The highest cost of the next batch: no worker gets more than its share of all work, so that none is idle."""
        return min(self.budget, ceil((self.queued_cost + self.running_cost) / self.workers))

    @property
    def wait(self) -> float:
        return min(_LONGEST_RETRY, self.estimate_seconds(self.queued_cost))

    def estimate_seconds(self, cost: int) -> float:
        return cost / (self.speed * self.workers) if self.speed else 1.0

    def measure_speed(self, cost: int, seconds: float) -> None:
        speed = 0.0 if self.speed is None else cost / max(seconds, 1e-6)
        self.speed = 0.8 * self.speed + 0.2 * speed if self.speed else speed
        self.spent += seconds


class PendingJob:
    """The job of one request, waiting or running. Leaving the `with` block drops the items that have not started."""

    def __init__(self, batcher: "Batcher", job: BatchJob, items: Sequence[JobItem]) -> None:
        self.job = job
        loop = asyncio.get_running_loop()
        self.queued = deque(_QueuedItem(item, loop.create_future()) for item in items)
        self._results = [queued.result for queued in self.queued]
        self.size = len(self._results)
        self._batcher = batcher

    def __enter__(self) -> "PendingJob":
        return self

    def __exit__(self, *_: object) -> None:
        self._batcher.drop(self)
        for result in self._results:
            if not result.cancel() and not result.cancelled():
                result.exception()  # retrieve it, or asyncio would log it

    async def results(self) -> list[Any]:
        """All results, in the order of the items; the first failure is raised."""
        return await asyncio.gather(*self._results)

    def __iter__(self) -> "Iterator[asyncio.Future[Any]]":
        return iter(self._results)


class Batcher:
    """Workers, and the jobs that wait for them."""

    def __init__(
        self, workers: int, room: int, seconds: float = inf, observe: Callable[[int, float], None] = lambda *_: None
    ) -> None:
        """`room` bounds the total cost of what waits, `seconds` how long it may wait.

        `observe` is called after each batch with its size and the seconds it took.
        """
        self._room = room
        self._seconds = seconds
        self._observe = observe
        self._shared, self._exclusive = _Lane(workers), _Lane(1)
        self._lanes = (self._shared, self._exclusive)
        self._spent = 0.0  # of the lane that had the last turn, before it
        self._work_available = asyncio.Event()
        self._forming = asyncio.Lock()  # one batch is put together at a time
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="translate")
        self._tasks: list[asyncio.Task[None]] = []
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
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._shared.workers)]

    async def close(self) -> None:
        """Finish all accepted jobs, then stop the workers."""
        self._closing = True
        while any(lane.jobs or lane.busy for lane in self._lanes):
            await asyncio.sleep(0.01)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown()

    def submit(self, job: BatchJob, items: Sequence[JobItem]) -> PendingJob:
        """Queue a job, to be used in a `with` block; raise `QueueFull` at once if there is no room."""
        pending, lane = PendingJob(self, job, items), self._lane_of(job)
        if not items:
            return pending
        cost = sum(item.cost for item in items)
        if self._closing or not self._has_room(lane, cost):
            raise QueueFull(lane.wait)
        if not lane.jobs:  # a lane cannot save up time that it did not need
            lane.spent = max(lane.spent, self._spent)
        lane.jobs[pending] = None
        lane.queued_cost += cost
        self._update_work_available()
        return pending

    def estimate_wait(self) -> float:
        """Roughly the seconds until everything that waits now is done."""
        return max(lane.wait for lane in self._lanes)

    def drop(self, pending: PendingJob) -> None:
        """Remove a job from the queue; items that have started are finished."""
        lane = self._lane_of(pending.job)
        if pending in lane.jobs:
            del lane.jobs[pending]
            lane.queued_cost -= sum(queued.item.cost for queued in pending.queued)
        self._update_work_available()

    def _lane_of(self, job: BatchJob) -> _Lane:
        return self._exclusive if job.exclusive else self._shared

    def _has_room(self, lane: _Lane, cost: int) -> bool:
        """Whether the queue has room and time for this cost. An empty queue takes anything."""
        if self.queued_cost and self.queued_cost + cost > self._room:
            return False
        return not lane.jobs or lane.estimate_seconds(lane.queued_cost + cost) <= self._seconds

    def _update_work_available(self) -> None:
        if any(lane.ready for lane in self._lanes):
            self._work_available.set()
        else:
            self._work_available.clear()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            job, batch = await self._next_batch()
            lane, start, cost = self._lane_of(job), monotonic(), sum(queued.item.cost for queued in batch)
            try:
                values = [queued.item.value for queued in batch]
                results = await loop.run_in_executor(self._threads, _run_batch, job, values)
                seconds = monotonic() - start
                lane.measure_speed(cost, seconds)
                self._observe(len(batch), seconds)
                for queued, result in zip(batch, results, strict=True):
                    _set_result(queued.result, result)
            finally:
                lane.busy -= 1
                lane.running_cost -= cost
                self._update_work_available()

    async def _next_batch(self) -> tuple[BatchJob, list[_QueuedItem]]:
        """The next batch. A request to an idle server does not wait for others."""
        async with self._forming:
            while True:
                await self._work_available.wait()
                await self._linger()
                if self._work_available.is_set():
                    return self._take_batch(self._choose_lane())

    async def _linger(self) -> None:
        """Let a batch grow while other workers are busy: first to see whether more arrives, then until it is full."""
        for turn in range(_LINGERS):
            before = self.queued_cost
            if not self.busy or not self._work_available.is_set():
                return
            lane = self._choose_lane()
            if lane.queued_cost >= (lane.share if turn else lane.budget):
                return
            await asyncio.sleep(_LINGER)
            if self.queued_cost <= before:
                return

    def _choose_lane(self) -> _Lane:
        """Of the lanes that are ready, the one that has used less time."""
        return min((lane for lane in self._lanes if lane.ready), key=lambda lane: lane.spent)

    def _take_batch(self, lane: _Lane) -> tuple[BatchJob, list[_QueuedItem]]:
        """Take one item from each equal job in turn, again and again, until the batch is full.

        It is full when it has its worker's share of all work. While several requests wait, it takes no more items of a
        long one than the shortest has in total, so that the shortest is done with this batch.
        """
        job = next(iter(lane.jobs)).job
        turns = deque(pending for pending in lane.jobs if pending.job == job)
        rounds = min(pending.size for pending in turns) if len(turns) > 1 else None
        most = lane.share
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
            del lane.jobs[pending]
            if pending.queued:
                lane.jobs[pending] = None
        self._spent = max(self._spent, lane.spent)
        lane.queued_cost -= cost
        lane.running_cost += cost
        lane.busy += 1
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
