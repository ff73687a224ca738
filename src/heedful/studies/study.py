"""The plan of a study, and the tables and charts that it returns."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from heedful.errors import FolderError
from heedful.progress import Reporter
from heedful.storage.files import disk_errors, write_atomically

Scale = Literal["smoke", "laptop", "paper"]
_MARK = ".study"


class StudyInterrupted(Exception):
    """A signal stopped the study. Finished work is kept, and the same command continues from there."""

    def __init__(self, signal: str) -> None:
        super().__init__(f"stopped by {signal}")
        self.signal = signal


def _never() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """The scale and recipe of a study, and the folder of its rows and results."""

    scale: Scale
    folder: Path
    recipe: Mapping[str, Any] | None  # the tables of a recipe; smoke needs none
    report: Reporter
    rows: tuple[str, ...] = ()  # names of the rows to train; empty: all
    processes: int = 1  # processes that train one row together
    dry_run: bool = False  # only list what would be trained
    interrupted: Callable[[], str] = _never  # the name of a received signal, or ""
    tune: bool = False  # choose the settings of each row first
    seeds: int = 1  # trainings of each row of the ablations


def claim(folder: Path) -> None:
    """Claim a folder for a study. It must be empty or belong to a study, because studies delete files in it."""
    with disk_errors(folder):
        known = (folder / _MARK).exists() or (folder / "rows").is_dir()
        if folder.exists() and not known and any(folder.iterdir()):
            raise FolderError(
                f"{folder} contains files that do not belong to a study; choose another --out, or empty it"
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / _MARK, "")


Cell = str | int | float | None  # None: unknown


@dataclass(frozen=True, slots=True)
class Table:
    """A table of results. Numbers are kept exactly, and shown with two decimals."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    caveat: str = ""  # shown before the table: what its figures do not show

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """The column titles and all rows as text."""
        return [self.columns, *(tuple(map(_shown, row)) for row in self.rows)]

    def markdown(self) -> str:
        heads, *rows = self.cells
        lines = [_line(heads), _line(["---"] * len(heads)), *map(_line, rows)]
        before = [f"{self.caveat}\n"] if self.caveat else []
        return "\n".join([f"## {self.title}", "", *before, *lines, "", *(f"{note}\n" for note in self.notes)])


@dataclass(frozen=True, slots=True)
class StudyResult:
    """The tables and pictures of a study."""

    title: str
    tables: tuple[Table, ...]
    pictures: Mapping[str, bytes] = field(default_factory=dict)  # by file name

    def write(self, folder: Path) -> list[Path]:
        """Write `README.md`, `result.json` and the pictures; return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        shown = [f"![{Path(name).stem}]({name})\n" for name in self.pictures]
        page = "\n".join([f"# {self.title}", "", *(table.markdown() for table in self.tables), *shown])
        files: dict[str, str | bytes] = {"README.md": page, "result.json": self.as_json(), **self.pictures}
        for name, content in files.items():
            write_atomically(folder / name, content)
        return [folder / name for name in files]

    def as_json(self) -> str:
        """The tables as JSON, with exact numbers."""
        tables = [
            {
                "title": table.title,
                "caveat": table.caveat,
                "rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows],
                "notes": table.notes,
            }
            for table in self.tables
        ]
        return json.dumps({"title": self.title, "tables": tables}, indent=1, ensure_ascii=False)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(cell: Cell) -> str:
    match cell:
        case None:
            return "–"
        case float() if abs(cell) >= 1e6 or 0 < abs(cell) < 1e-3:
            return f"{cell:.2e}"
        case float():
            return f"{cell:.2f}"
        case _:
            return str(cell)
