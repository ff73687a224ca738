"""How a run tells what it is doing; the command line shows it, a script may not care."""

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


@runtime_checkable
class Reporter(Protocol):
    """Hears what a run is doing."""

    def say(self, sentence: str) -> None:
        """Something that a person wants to know."""
        ...

    def progress(self, what: str, done: int, total: int) -> None:
        """How far a long piece of work has come; total 0: unknown."""
        ...


class SilentReporter:
    """Says nothing."""

    def say(self, sentence: str) -> None:
        """Say nothing."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Show nothing."""


def report_progress(items: Iterable[T], what: str, total: int, report: Reporter, every: int = 10_000) -> Iterator[T]:
    """The same items, with their number told now and then."""
    done = 0
    for item in items:
        yield item
        done += 1
        if done % every == 0:
            report.progress(what, done, total)
    report.progress(what, done, done)
