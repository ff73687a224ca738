"""Streams of texts in bounded memory: read them as they arrive, batch them by length, process them in threads."""

import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import chain, islice
from threading import Thread
from typing import TypeVar

WINDOW = 4096  # texts that are sorted by length together

_SMALLEST_SHARE = 8  # the last batches for several workers have at least 1/8 of the tokens of a full one

Text = TypeVar("Text")
Work = TypeVar("Work")
Result = TypeVar("Result")


class TextStream:
    """Texts from a pipe that may stay open. A thread reads ahead, so that arrived texts are available at once."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = texts
        self._queue: queue.Queue[str | BaseException | None] = queue.Queue(2 * WINDOW)

    def peek(self) -> list[str]:
        """Wait for the first text that is not empty; returns all texts up to it, and leaves them in the stream."""
        texts = iter(self._texts)
        taken: list[str] = []
        while not (taken and taken[-1].strip()) and (text := next(texts, None)) is not None:
            taken.append(text)
        self._texts = chain(taken, texts)
        return taken

    def read_windows(self) -> Iterator[list[str]]:
        """All texts that have arrived since the last window; waits for at least one."""
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
        except BaseException as error:  # passed on to the thread that reads the windows
            end = error
        self._queue.put(end)


def read_windows(texts: Iterable[Text] | TextStream) -> Iterator[list[Text] | list[str]]:
    """Lists of texts to process together: `WINDOW` texts, or all that have arrived from a stream."""
    if isinstance(texts, TextStream):
        yield from texts.read_windows()
        return
    iterator = iter(texts)
    while window := list(islice(iterator, WINDOW)):
        yield window


def batches_by_length(
    indices: Sequence[int], sources: Sequence[Sequence[int]], beam: int, tokens: int, workers: int = 1
) -> Iterator[list[int]]:
    """Batches of sentences of similar length, the longest first, so that a lack of memory shows at once.

    A batch has at most `tokens` source tokens times beam. With several workers, the last batches are smaller, so that
    all workers finish at about the same time.
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


def map_in_threads(work: Callable[[Work], Result], items: Iterable[Work], workers: int) -> Iterator[Result]:
    """Apply `work` to all items in so many threads; results come in the order in which they are ready."""
    if workers == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        try:
            yield from (future.result() for future in as_completed([pool.submit(work, item) for item in items]))
        finally:  # if the caller stops early, the rest is not needed
            pool.shutdown(cancel_futures=True)
