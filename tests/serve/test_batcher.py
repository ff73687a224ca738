"""Requests wait, are worked on together, give up and are refused; all without a model."""

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
class Shouting:
    """Puts texts into capitals, once it is let; keeps what it was given."""

    budget: int = 100
    exclusive: bool = False
    batches: list[list[str]] = field(default_factory=list)
    gate: Event = field(default_factory=Event)

    def run(self, items: Sequence[str]) -> list[str]:
        self.batches.append(list(items))
        assert self.gate.wait(20)
        if "bad" in items:
            raise DataError("bad cannot be said")
        if "panic" in items:
            raise SystemExit
        return [item.upper() for item in items]


def pieces(*texts: str, cost: int = 1) -> list[JobItem]:
    return [JobItem(text, cost) for text in texts]


def run(
    work: Callable[[Batcher], Coroutine[Any, Any, None]], workers: int = 1, room: int = 100, seconds: float = 100.0
) -> None:
    async def all_of_it() -> None:
        batcher = Batcher(workers, room, seconds)
        batcher.start()
        await asyncio.wait_for(work(batcher), 20)
        await asyncio.wait_for(batcher.close(), 20)

    asyncio.run(all_of_it())


async def held(batcher: Batcher, order: Shouting) -> PendingJob:
    """A request that the only worker is busy with, so that others wait."""
    ticket = batcher.submit(order, pieces("first"))
    while not order.batches:
        await asyncio.sleep(0.001)
    return ticket


def test_what_arrives_while_another_is_done_is_done_together() -> None:
    order = Shouting()

    async def work(batcher: Batcher) -> None:
        first = await held(batcher, order)
        others = [batcher.submit(order, pieces(text)) for text in ("a", "b", "c")]
        order.gate.set()
        assert [await ticket.results() for ticket in (first, *others)] == [["FIRST"], ["A"], ["B"], ["C"]]

    run(work)
    assert order.batches == [["first"], ["a", "b", "c"]]


def test_a_batch_has_its_budget() -> None:
    order = Shouting(budget=5)

    async def work(batcher: Batcher) -> None:
        first = await held(batcher, order)
        ticket = batcher.submit(order, pieces("a", "b", "c", "d", cost=2))
        over = batcher.submit(order, pieces("large", cost=50))
        order.gate.set()
        assert await ticket.results() == ["A", "B", "C", "D"]
        assert await over.results() == ["LARGE"]
        assert await first.results() == ["FIRST"]

    run(work)
    assert all(batch == ["large"] or len(batch) <= 2 for batch in order.batches)


def test_a_short_request_is_not_held_up_by_a_long_one() -> None:
    order = Shouting(budget=10)

    async def work(batcher: Batcher) -> None:
        first = await held(batcher, order)
        long = batcher.submit(order, pieces(*(f"long {number}" for number in range(40))))
        short = batcher.submit(order, pieces("short"))
        order.gate.set()
        await short.results()
        assert await long.results() == [f"LONG {number}" for number in range(40)]
        await first.results()

    run(work)
    assert order.batches[1] == ["long 0", "short"]  # no more of the other than of itself
    assert [len(batch) for batch in order.batches[2:]] == [10, 10, 10, 9]


def test_what_is_left_of_a_long_request_is_no_short_one() -> None:
    order = Shouting(budget=6)

    async def work(batcher: Batcher) -> None:
        first = await held(batcher, order)
        tickets = [batcher.submit(order, pieces(*"abcde")), batcher.submit(order, pieces(*"ABCDEFGH"))]
        order.gate.set()
        assert [await ticket.results() for ticket in tickets] == [list("ABCDE"), list("ABCDEFGH")]
        await first.results()

    run(work)
    assert ["".join(batch) for batch in order.batches[1:]] == ["aAbBcC", "dDeEFG", "H"]


def test_orders_are_not_mixed_and_have_their_turn() -> None:
    order, other = Shouting(budget=2), Shouting(budget=2)
    other.gate.set()

    async def work(batcher: Batcher) -> None:
        first = await held(batcher, order)
        tickets = [batcher.submit(order, pieces(*"abcd")), batcher.submit(other, pieces(*"ef"))]
        order.gate.set()
        assert [await ticket.results() for ticket in tickets] == [["A", "B", "C", "D"], ["E", "F"]]
        await first.results()

    run(work)
    assert (order.batches, other.batches) == ([["first"], ["a", "b"], ["c", "d"]], [["e", "f"]])


def test_what_needs_a_model_for_itself_holds_up_nobody_else() -> None:
    done: list[str] = []
    looks = [Shouting(exclusive=True, batches=[]) for _ in range(3)]
    order = Shouting()
    order.gate.set()

    async def result(ticket: PendingJob) -> None:
        done.extend(await ticket.results())

    async def work(batcher: Batcher) -> None:
        tickets = [await held(batcher, looks[0])]
        tickets += [batcher.submit(look, pieces(f"look {number}")) for number, look in enumerate(looks[1:])]
        tickets.append(batcher.submit(order, pieces("short")))
        waits = asyncio.gather(*map(result, tickets))
        for look in looks:
            look.gate.set()
        await waits

    run(work)
    assert done == ["FIRST", "SHORT", "LOOK 0", "LOOK 1"]


def test_what_needs_a_model_for_itself_has_one_worker() -> None:
    look, other, order = Shouting(exclusive=True), Shouting(exclusive=True), Shouting()
    order.gate.set()

    async def work(batcher: Batcher) -> None:
        first = await held(batcher, look)
        second = batcher.submit(other, pieces("second"))
        assert await batcher.submit(order, pieces("short")).results() == ["SHORT"]
        await asyncio.sleep(0.05)
        assert (batcher.busy, other.batches) == (1, [])
        look.gate.set()
        other.gate.set()
        assert [*await first.results(), *await second.results()] == ["FIRST", "SECOND"]

    run(work, workers=2)


def test_what_needs_a_model_for_itself_has_its_turn_while_others_come() -> None:
    order, look = Shouting(budget=1), Shouting(exclusive=True)
    look.gate.set()

    async def work(batcher: Batcher) -> None:
        first = await held(batcher, order)
        others = batcher.submit(order, pieces(*"abcdef"))
        waits = batcher.submit(look, pieces("look"))
        order.gate.set()
        assert await waits.results() == ["LOOK"]
        assert len(order.batches) < 7
        await others.results()
        await first.results()

    run(work)


def test_time_that_was_not_wanted_is_not_saved_up() -> None:
    """Looks that were alone for long have had all the time; who comes then is not behind, nor much before them."""
    order, look = Shouting(budget=1), Shouting(exclusive=True)
    look.gate.set()

    async def work(batcher: Batcher) -> None:
        for _ in range(20):
            await batcher.submit(look, pieces("look")).results()
        first = await held(batcher, order)
        others = batcher.submit(order, pieces(*"abcdefgh"))
        waits = batcher.submit(look, pieces("look"))
        await asyncio.sleep(0.02)  # longer than any look took
        order.gate.set()
        assert await waits.results() == ["LOOK"]
        assert len(order.batches) < 9
        await others.results()
        await first.results()

    run(work)


def test_where_there_is_no_room_a_request_is_refused_at_once() -> None:
    order = Shouting()

    async def work(batcher: Batcher) -> None:
        first = await held(batcher, order)
        waits = batcher.submit(order, pieces(*"abcdef"))
        with pytest.raises(QueueFull) as refused:
            batcher.submit(order, pieces(*"abcdef"))
        assert refused.value.seconds > 0
        order.gate.set()
        assert len(await waits.results()) == 6
        await first.results()
        assert batcher.queued_cost == 0
        large = batcher.submit(order, pieces(*"abcdefghijklmn"))  # alone, it has to be possible
        assert len(await large.results()) == 14

    run(work, room=10)


def test_what_could_not_be_done_in_time_is_refused_at_once() -> None:
    order = Shouting()

    async def work(batcher: Batcher) -> None:
        with await held(batcher, order) as first:
            order.gate.set()
            await first.results()  # now it is known how fast the work is
        order.gate.clear()
        order.batches.clear()
        with await held(batcher, order) as first, batcher.submit(order, pieces("second")) as second:
            with pytest.raises(QueueFull):
                batcher.submit(order, pieces("third"))
            order.gate.set()
            assert [*await first.results(), *await second.results()] == ["FIRST", "SECOND"]

    run(work, seconds=0.0)


def test_the_first_batch_tells_nothing_of_how_long_others_take() -> None:
    """It may have loaded a model."""
    order = Shouting(exclusive=True)

    async def work(batcher: Batcher) -> None:
        with await held(batcher, order) as first:
            await asyncio.sleep(0.05)
            order.gate.set()
            await first.results()
        order.gate.clear()
        order.batches.clear()
        with await held(batcher, order) as second, batcher.submit(order, pieces("third")) as third:
            fourth = batcher.submit(order, pieces("fourth", cost=90))  # would take 4.5 seconds
            order.gate.set()
            assert [*await second.results(), *await third.results()] == ["FIRST", "THIRD"]
            assert await fourth.results() == ["FOURTH"]

    run(work, seconds=2.0)


def test_of_who_has_gone_nothing_more_is_done() -> None:
    order = Shouting()

    async def work(batcher: Batcher) -> None:
        first = await held(batcher, order)
        with batcher.submit(order, pieces(*"abcdef")):
            stays = batcher.submit(order, pieces("stays"))
        assert batcher.queued_cost == 1
        with first:
            pass  # is being worked on, and has gone, too
        order.gate.set()
        assert await stays.results() == ["STAYS"]

    run(work)
    assert order.batches == [["first"], ["stays"]]


def test_all_who_waited_may_go() -> None:
    order = Shouting()

    async def work(batcher: Batcher) -> None:
        first = await held(batcher, order)
        with batcher.submit(order, pieces("gone")):
            await asyncio.sleep(0)
        order.gate.set()
        await first.results()
        await asyncio.sleep(0.01)
        assert await batcher.submit(order, pieces("later")).results() == ["LATER"]

    run(work, workers=2)
    assert sorted(order.batches) == [["first"], ["later"]]


@pytest.mark.parametrize(("word", "kind"), [("bad", DataError), ("panic", RuntimeError)])
def test_one_that_cannot_be_done_does_not_take_the_others_with_it(word: str, kind: type[Exception]) -> None:
    order = Shouting()

    async def work(batcher: Batcher) -> None:
        first = await held(batcher, order)
        tickets = [batcher.submit(order, pieces(text)) for text in ("a", word, "b")]
        order.gate.set()
        assert await tickets[0].results() == ["A"]
        assert await tickets[2].results() == ["B"]
        with pytest.raises(kind):
            await tickets[1].results()
        await first.results()

    run(work)


def test_what_was_accepted_is_finished_and_nothing_more_is_accepted() -> None:
    order = Shouting()

    async def work(batcher: Batcher) -> None:
        async with AsyncExitStack() as stack:
            first = stack.enter_context(await held(batcher, order))
            waits = stack.enter_context(batcher.submit(order, pieces(*"ab")))
            closing = asyncio.create_task(batcher.close())
            await asyncio.sleep(0.01)
            with pytest.raises(QueueFull):
                batcher.submit(order, pieces("late"))
            assert not closing.done()
            order.gate.set()
            await closing
            assert [await ticket.results() for ticket in (first, waits)] == [["FIRST"], ["A", "B"]]

    run(work)


def test_several_workers_work_at_once() -> None:
    order = Shouting(budget=1)

    async def work(batcher: Batcher) -> None:
        tickets = [batcher.submit(order, pieces(text)) for text in "ab"]
        while len(order.batches) < 2:
            await asyncio.sleep(0.001)
        assert batcher.busy == 2
        order.gate.set()
        assert [await ticket.results() for ticket in tickets] == [["A"], ["B"]]

    run(work, workers=2)


def test_every_worker_has_its_share() -> None:
    order = Shouting()
    order.gate.set()

    async def work(batcher: Batcher) -> None:
        assert await batcher.submit(order, pieces(*"abcdefgh")).results() == list("ABCDEFGH")

    run(work, workers=2)
    assert order.batches[0] == list("abcd")


def test_nothing_is_nothing() -> None:
    async def work(batcher: Batcher) -> None:
        assert await batcher.submit(Shouting(), []).results() == []

    run(work)
