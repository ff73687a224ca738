"""Requests are queued, batched, dropped and refused; no test here needs a model."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest

from heedful.errors import DataError
from heedful.serve.batcher import Batcher, JobItem, PendingJob, QueueFull


@dataclass(eq=False)
class UpperCaseJob:
    """Puts texts into capitals once its gate is open, and records its batches."""

    budget: int = 100
    exclusive: bool = False
    batches: list[list[str]] = field(default_factory=list)
    gate: Event = field(default_factory=Event)

    def run(self, items: Sequence[str]) -> list[str]:
        self.batches.append(list(items))
        assert self.gate.wait(20)
        if "bad" in items:
            raise DataError("bad cannot be put into capitals")
        if "panic" in items:
            raise SystemExit
        return [item.upper() for item in items]


def make_items(*texts: str, cost: int = 1) -> list[JobItem]:
    return [JobItem(text, cost) for text in texts]


def run(
    work: Callable[[Batcher], Coroutine[Any, Any, None]], workers: int = 1, room: int = 100, seconds: float = 100.0
) -> None:
    async def run_and_close() -> None:
        batcher = Batcher(workers, room, seconds)
        batcher.start()
        await asyncio.wait_for(work(batcher), 20)
        await asyncio.wait_for(batcher.close(), 20)

    asyncio.run(run_and_close())


async def occupy_worker(batcher: Batcher, job: UpperCaseJob, cost: int = 1) -> PendingJob:
    """Keep the only worker of a lane busy, so that other requests wait."""
    pending = batcher.submit(job, make_items("first", cost=cost))
    while not job.batches:
        await asyncio.sleep(0.001)
    return pending


def test_requests_that_arrive_during_a_batch_form_the_next_batch() -> None:
    job = UpperCaseJob()

    async def work(batcher: Batcher) -> None:
        first = await occupy_worker(batcher, job)
        others = [batcher.submit(job, make_items(text)) for text in ("a", "b", "c")]
        job.gate.set()
        assert [await pending.results() for pending in (first, *others)] == [["FIRST"], ["A"], ["B"], ["C"]]

    run(work)
    assert job.batches == [["first"], ["a", "b", "c"]]


def test_a_batch_keeps_to_its_budget() -> None:
    job = UpperCaseJob(budget=5)

    async def work(batcher: Batcher) -> None:
        first = await occupy_worker(batcher, job)
        pending = batcher.submit(job, make_items("a", "b", "c", "d", cost=2))
        over = batcher.submit(job, make_items("large", cost=50))
        job.gate.set()
        assert await pending.results() == ["A", "B", "C", "D"]
        assert await over.results() == ["LARGE"]
        assert await first.results() == ["FIRST"]

    run(work)
    assert all(batch == ["large"] or len(batch) <= 2 for batch in job.batches)


def test_a_short_request_does_not_wait_for_any_long_ones() -> None:
    """It is done while every worker of the other lanes is stuck, even if there is only one core."""
    long, exclusive, short = UpperCaseJob(budget=10), UpperCaseJob(exclusive=True), UpperCaseJob(budget=10)
    short.gate.set()

    async def work(batcher: Batcher) -> None:
        stuck = [batcher.submit(long, make_items("long", cost=9)) for _ in range(20)]
        stuck += [batcher.submit(exclusive, make_items("exclusive")) for _ in range(20)]
        while not (long.batches and exclusive.batches):
            await asyncio.sleep(0.001)
        assert await batcher.submit(short, make_items("short")).results() == ["SHORT"]
        assert not any(result.done() for pending in stuck for result in pending)
        long.gate.set()
        exclusive.gate.set()
        assert [await pending.results() for pending in stuck] == [["LONG"]] * 20 + [["EXCLUSIVE"]] * 20

    run(work, room=1000)


def test_long_requests_leave_room_for_short_ones() -> None:
    long, short = UpperCaseJob(budget=10), UpperCaseJob(budget=10)
    short.gate.set()

    async def work(batcher: Batcher) -> None:
        jobs = [batcher.submit(long, make_items("long", cost=9)) for _ in range(2)]
        with pytest.raises(QueueFull):
            batcher.submit(long, make_items("long", cost=9))
        assert await batcher.submit(short, make_items("short")).results() == ["SHORT"]
        long.gate.set()
        assert [await pending.results() for pending in jobs] == [["LONG"]] * 2

    run(work, room=20)


def test_a_batch_takes_no_more_of_a_long_request_than_the_shortest_has() -> None:
    job = UpperCaseJob(budget=10)

    async def work(batcher: Batcher) -> None:
        first = await occupy_worker(batcher, job, cost=9)
        longest = batcher.submit(job, make_items(*(f"longest {number}" for number in range(40))))
        other = batcher.submit(job, make_items(*"abc"))
        job.gate.set()
        assert await other.results() == ["A", "B", "C"]
        assert await longest.results() == [f"LONGEST {number}" for number in range(40)]
        await first.results()

    run(work)
    assert job.batches[1] == ["longest 0", "a", "longest 1", "b", "longest 2", "c"]
    assert [len(batch) for batch in job.batches[2:]] == [10, 10, 10, 7]


def test_the_rest_of_a_long_request_does_not_count_as_a_short_one() -> None:
    job = UpperCaseJob(budget=6)

    async def work(batcher: Batcher) -> None:
        first = await occupy_worker(batcher, job)
        jobs = [batcher.submit(job, make_items(*"abcde")), batcher.submit(job, make_items(*"ABCDEFGH"))]
        job.gate.set()
        assert [await pending.results() for pending in jobs] == [list("ABCDE"), list("ABCDEFGH")]
        await first.results()

    run(work)
    assert ["".join(batch) for batch in job.batches[1:]] == ["aAbBcC", "dDeEFG", "H"]


def test_different_jobs_are_not_mixed_and_take_turns() -> None:
    job, other = UpperCaseJob(budget=2), UpperCaseJob(budget=2)
    other.gate.set()

    async def work(batcher: Batcher) -> None:
        first = await occupy_worker(batcher, job)
        jobs = [batcher.submit(job, make_items(*"abcd")), batcher.submit(other, make_items(*"ef"))]
        job.gate.set()
        assert [await pending.results() for pending in jobs] == [["A", "B", "C", "D"], ["E", "F"]]
        await first.results()

    run(work)
    assert (job.batches, other.batches) == ([["first"], ["a", "b"], ["c", "d"]], [["e", "f"]])


def test_exclusive_jobs_share_one_worker() -> None:
    exclusive, other, job = UpperCaseJob(exclusive=True), UpperCaseJob(exclusive=True), UpperCaseJob()
    job.gate.set()

    async def work(batcher: Batcher) -> None:
        first = await occupy_worker(batcher, exclusive)
        second = batcher.submit(other, make_items("second"))
        assert await batcher.submit(job, make_items("short")).results() == ["SHORT"]
        await asyncio.sleep(0.05)
        assert (batcher.busy, other.batches) == (1, [])
        exclusive.gate.set()
        other.gate.set()
        assert [*await first.results(), *await second.results()] == ["FIRST", "SECOND"]

    run(work, workers=2)


def test_an_exclusive_job_does_not_wait_for_others() -> None:
    short, long, exclusive = UpperCaseJob(budget=10), UpperCaseJob(budget=10), UpperCaseJob(exclusive=True)
    exclusive.gate.set()

    async def work(batcher: Batcher) -> None:
        stuck = [await occupy_worker(batcher, short), await occupy_worker(batcher, long, cost=9)]
        assert await batcher.submit(exclusive, make_items("exclusive")).results() == ["EXCLUSIVE"]
        short.gate.set()
        long.gate.set()
        assert [await pending.results() for pending in stuck] == [["FIRST"]] * 2

    run(work)


def test_a_full_queue_refuses_a_request_at_once() -> None:
    job = UpperCaseJob()

    async def work(batcher: Batcher) -> None:
        first = await occupy_worker(batcher, job)
        waits = batcher.submit(job, make_items(*"abcdef"))
        with pytest.raises(QueueFull) as refused:
            batcher.submit(job, make_items(*"abcdef"))
        assert refused.value.seconds > 0
        job.gate.set()
        assert len(await waits.results()) == 6
        await first.results()
        assert batcher.queued_cost == 0
        large = batcher.submit(job, make_items(*"abcdefghijklmn"))  # an empty queue takes anything
        assert len(await large.results()) == 14

    run(work, room=10)


def test_a_request_that_cannot_finish_in_time_is_refused_at_once() -> None:
    job = UpperCaseJob()

    async def work(batcher: Batcher) -> None:
        with await occupy_worker(batcher, job) as first:
            job.gate.set()
            await first.results()  # now the batcher knows the speed
        job.gate.clear()
        job.batches.clear()
        with await occupy_worker(batcher, job) as first, batcher.submit(job, make_items("second")) as second:
            with pytest.raises(QueueFull):
                batcher.submit(job, make_items("third"))
            job.gate.set()
            assert [*await first.results(), *await second.results()] == ["FIRST", "SECOND"]

    run(work, seconds=0.0)


def test_the_first_batch_does_not_count_for_the_speed() -> None:
    """The first batch may load a model."""
    job = UpperCaseJob(exclusive=True)

    async def work(batcher: Batcher) -> None:
        with await occupy_worker(batcher, job) as first:
            await asyncio.sleep(0.05)
            job.gate.set()
            await first.results()
        job.gate.clear()
        job.batches.clear()
        with await occupy_worker(batcher, job) as second, batcher.submit(job, make_items("third")) as third:
            fourth = batcher.submit(job, make_items("fourth", cost=90))  # would take 4.5 seconds
            job.gate.set()
            assert [*await second.results(), *await third.results()] == ["FIRST", "THIRD"]
            assert await fourth.results() == ["FOURTH"]

    run(work, seconds=2.0)


def test_work_for_a_client_that_left_is_dropped() -> None:
    job = UpperCaseJob()

    async def work(batcher: Batcher) -> None:
        first = await occupy_worker(batcher, job)
        with batcher.submit(job, make_items(*"abcdef")):
            stays = batcher.submit(job, make_items("stays"))
        assert batcher.queued_cost == 1
        with first:
            pass  # its client leaves while it is running
        job.gate.set()
        assert await stays.results() == ["STAYS"]

    run(work)
    assert job.batches == [["first"], ["stays"]]


def test_the_queue_works_on_after_all_waiting_clients_left() -> None:
    job = UpperCaseJob()

    async def work(batcher: Batcher) -> None:
        first = await occupy_worker(batcher, job)
        with batcher.submit(job, make_items("gone")):
            await asyncio.sleep(0)
        job.gate.set()
        await first.results()
        await asyncio.sleep(0.01)
        assert await batcher.submit(job, make_items("later")).results() == ["LATER"]

    run(work, workers=2)
    assert sorted(job.batches) == [["first"], ["later"]]


@pytest.mark.parametrize(("word", "kind"), [("bad", DataError), ("panic", RuntimeError)])
def test_a_failing_item_does_not_fail_the_others(word: str, kind: type[Exception]) -> None:
    job = UpperCaseJob()

    async def work(batcher: Batcher) -> None:
        first = await occupy_worker(batcher, job)
        jobs = [batcher.submit(job, make_items(text)) for text in ("a", word, "b")]
        job.gate.set()
        assert await jobs[0].results() == ["A"]
        assert await jobs[2].results() == ["B"]
        with pytest.raises(kind):
            await jobs[1].results()
        await first.results()

    run(work)


def test_closing_finishes_accepted_jobs_and_refuses_new_ones() -> None:
    job = UpperCaseJob()

    async def work(batcher: Batcher) -> None:
        async with AsyncExitStack() as stack:
            first = stack.enter_context(await occupy_worker(batcher, job))
            waits = stack.enter_context(batcher.submit(job, make_items(*"ab")))
            closing = asyncio.create_task(batcher.close())
            await asyncio.sleep(0.01)
            with pytest.raises(QueueFull):
                batcher.submit(job, make_items("late"))
            assert not closing.done()
            job.gate.set()
            await closing
            assert [await pending.results() for pending in (first, waits)] == [["FIRST"], ["A", "B"]]

    run(work)


def test_several_workers_work_at_once() -> None:
    job = UpperCaseJob(budget=1)

    async def work(batcher: Batcher) -> None:
        jobs = [batcher.submit(job, make_items(text)) for text in "ab"]
        while len(job.batches) < 2:
            await asyncio.sleep(0.001)
        assert batcher.busy == 2
        job.gate.set()
        assert [await pending.results() for pending in jobs] == [["A"], ["B"]]

    run(work, workers=2)


def test_every_worker_gets_its_share() -> None:
    job = UpperCaseJob()
    job.gate.set()

    async def work(batcher: Batcher) -> None:
        assert await batcher.submit(job, make_items(*"abcdefgh")).results() == list("ABCDEFGH")

    run(work, workers=2)
    assert job.batches[0] == list("abcd")


def test_a_job_without_items_has_no_results() -> None:
    async def work(batcher: Batcher) -> None:
        assert await batcher.submit(UpperCaseJob(), []).results() == []

    run(work)
