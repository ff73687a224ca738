"""Turns: how many requests may run a model of PyTorch at the same time, and how many may wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from heedful.serve.http_errors import RequestError

_MOST_RUNNING = 2  # at the same time; more would only make each of them slower
_RETRY = 5.0  # seconds


class Turns:
    """The turns that requests take; at most `most_waiting` wait for theirs."""

    def __init__(self, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        self._running = asyncio.Semaphore(_MOST_RUNNING)
        self._waiting = 0

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Run a model inside this block; refuses at once if too many requests wait for their turn."""
        if self._waiting >= self._most_waiting:
            raise RequestError(503, "Slowdown: too many requests are waiting", _RETRY)
        self._waiting += 1
        try:
            await self._running.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._running.release()
