"""What a study is told."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from heedful.errors import FolderError
from heedful.progress import Reporter
from heedful.storage.files import disk_errors, write_atomically

Scale = Literal["smoke", "laptop", "paper"]
_MARK = ".study"


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


def claim(folder: Path) -> None:
    """Make this the folder of a study. Studies write and clear files in it, so nobody else's may be there."""
    with disk_errors(folder):
        known = (folder / _MARK).exists() or (folder / "rows").is_dir()
        if folder.exists() and not known and any(folder.iterdir()):
            raise FolderError(f"{folder} holds other files than those of a study; choose another --out, or empty it")
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / _MARK, "")
