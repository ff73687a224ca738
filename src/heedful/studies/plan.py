"""What a study is told."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from heedful.runs.report import Reporter

Scale = Literal["smoke", "laptop", "paper"]


class Stopped(Exception):
    """A signal has asked to stop. All that was done is kept, and the same study goes on from there."""

    def __init__(self, signal: str) -> None:
        super().__init__(f"stopped by {signal}")
        self.signal = signal


def _never() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Plan:
    """How large to run it, on what, and where its rows and results are kept."""

    scale: Scale
    folder: Path
    recipe: Mapping[str, Any] | None  # the tables of a recipe, as far as given; smoke needs none
    report: Reporter
    rows: tuple[str, ...] = ()  # of a study that trains rows only these; none: all
    processes: int = 1  # that train one row together
    dry_run: bool = False  # tell what would be trained
    interrupted: Callable[[], str] = _never  # the name of a signal that came, or nothing
