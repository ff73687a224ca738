"""The only place that prints. Data goes to standard output, everything else to standard error."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_SECONDS_BETWEEN_LINES = 30.0  # without a terminal


def out(text: str) -> None:
    """Print a line of data."""
    sys.stdout.write(text + "\n")


def say(text: str) -> None:
    """Print a line for a person."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def complain(text: str) -> None:
    """Print an error in one line."""
    say(f"heedful: {' '.join(text.split())}")


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Align columns; numbers go to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(_cell(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _cell(text: str, width: int) -> str:
    number = text.replace(",", "").replace(".", "").replace("-", "").replace("+", "").replace("%", "").strip().isdigit()
    return text.rjust(width) if number else text.ljust(width)


class Display:
    """Shows progress as a `Reporter`: a bar on a terminal, elsewhere a line now and then."""

    def __init__(self, bars: "Progress | None") -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._last: dict[str, float] = {}

    def say(self, sentence: str) -> None:
        """Print a line above the bars."""
        if self._bars:
            self._bars.console.print(sentence, markup=False, highlight=False)
        else:
            say(sentence)

    def progress(self, what: str, done: int, total: int) -> None:
        """Move a bar, or print a line if the last one was a while ago."""
        self.show(what, done, total, "")

    def show(self, what: str, done: int, total: int, note: str) -> None:
        """Like `progress`, with a note after it."""
        if self._bars:
            if what not in self._tasks:
                self._tasks[what] = self._bars.add_task(what, total=total or None, note="")
            self._bars.update(self._tasks[what], completed=done, total=total or None, note=note)
            if total and done >= total:
                self._bars.update(self._tasks[what], visible=what == "training")
            return
        now = time.monotonic()
        if now - self._last.setdefault(what, now) >= _SECONDS_BETWEEN_LINES:
            self._last[what] = now
            say(f"{what}: {done}{f' of {total}' if total else ''}{f'  {note}' if note else ''}")


@contextmanager
def display(*, bars: bool = True) -> Iterator[Display]:
    """Show progress while the block runs. The bars start late, so that short work does not wait for them."""
    if not bars or not sys.stderr.isatty():
        yield Display(None)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as shown:
        yield Display(shown)
