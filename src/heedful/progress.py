"""How long work reports what it is doing; the command line shows it, a script may ignore it."""

import logging
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar, runtime_checkable

T = TypeVar("T")

_LOGGER = logging.getLogger("heedful")


@runtime_checkable
class Reporter(Protocol):
    """Receives the reports of long work."""

    def say(self, sentence: str) -> None:
        """Report something that a person wants to know."""
        ...

    def progress(self, what: str, done: int, total: int) -> None:
        """Report how far the work has come; total 0: unknown."""
        ...


class SilentReporter:
    """Ignores all reports."""

    def say(self, sentence: str) -> None:
        """Ignore it."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Ignore it."""


class LoggingReporter:
    """Logs sentences to the logger "heedful" at level INFO, so a script hears them if it configures logging."""

    def say(self, sentence: str) -> None:
        """Log it."""
        _LOGGER.info(sentence)

    def progress(self, what: str, done: int, total: int) -> None:
        """Ignore it."""


def report_progress(items: Iterable[T], what: str, total: int, reporter: Reporter, every: int = 10_000) -> Iterator[T]:
    """The same items; their number is reported now and then."""
    done = 0
    for item in items:
        yield item
        done += 1
        if done % every == 0:
            reporter.progress(what, done, total)
    reporter.progress(what, done, done)
