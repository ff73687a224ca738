"""Texts as a stream: taken as they arrive, sorted by length, worked on by several threads, none of it without bound."""

import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import chain, islice
from threading import Thread
from typing import TypeVar

WINDOW = 4096  # texts that are sorted by length together

_SMALLEST_SHARE = 8  # of a batch for several workers

Text = TypeVar("Text")
Work = TypeVar("Work")
Result = TypeVar("Result")


class Arriving:
    """Texts of a pipe that may stay open: a thread reads ahead, so that what is there is known without waiting."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = texts
        self._queue: queue.Queue[str | BaseException | None] = queue.Queue(2 * WINDOW)

    def begun(self) -> list[str]:
        """The texts up to the first that says something, which is waited for; they are still to arrive, too."""
        texts = iter(self._texts)
        taken: list[str] = []
        while not (taken and taken[-1].strip()) and (text := next(texts, None)) is not None:
            taken.append(text)
        self._texts = chain(taken, texts)
        return taken

    def windows(self) -> Iterator[list[str]]:
        """What has arrived since, at least one text."""
        Thread(target=self._read, daemon=True).start()
        while True:
            window: list[str] = []
            item = self._queue.get()
            while isinstance(item, str):
                window.append(item)
                if len(window) == WINDOW or self._queue.empty():
                    break
                item = self._queue.get()
            if window:
                yield window
            if isinstance(item, BaseException):
                raise item
            if item is None:
                return

    def _read(self) -> None:
        end: BaseException | None = None
        try:
            for text in self._texts:
                self._queue.put(text)
        except BaseException as error:  # it is for who asks for the texts
            end = error
        self._queue.put(end)


def windows(texts: Iterable[Text] | Arriving) -> Iterator[list[Text] | list[str]]:
    """Texts to be worked on together: as many as may be, or those that have arrived."""
    if isinstance(texts, Arriving):
        yield from texts.windows()
        return
    iterator = iter(texts)
    while window := list(islice(iterator, WINDOW)):
        yield window


def batches_by_length(
    indices: Sequence[int], sources: Sequence[Sequence[int]], beam: int, tokens: int, workers: int = 1
) -> Iterator[list[int]]:
    """Sentences of about the same length together, the longest first: if memory is short, it shows at once.

    A batch has at most so many source tokens times beam. Where several work, the last batches are smaller, so that
    nobody waits long for who is last.
    """
    left = beam * sum(len(sources[index]) for index in indices)
    batch: list[int] = []
    most = tokens
    for index in sorted(indices, key=lambda i: -len(sources[i])):
        if batch and (len(batch) + 1) * len(sources[batch[0]]) * beam > most:
            yield batch
            batch = []
        if not batch and workers > 1:
            most = min(tokens, max(tokens // _SMALLEST_SHARE, left // workers))
        batch.append(index)
        left -= beam * len(sources[index])
    if batch:
        yield batch


def at_once(work: Callable[[Work], Result], items: Iterable[Work], workers: int) -> Iterator[Result]:
    """What so many threads make of the items, as they get done."""
    if workers == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        try:
            yield from (future.result() for future in as_completed([pool.submit(work, item) for item in items]))
        finally:  # who stops listening does not want the rest
            pool.shutdown(cancel_futures=True)
