"""What every study is given, and what it gives back: tables, charts, and the files that keep them."""

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
    """A signal has asked to stop. All that was done is kept, and the same study goes on from there."""

    def __init__(self, signal: str) -> None:
        super().__init__(f"stopped by {signal}")
        self.signal = signal


def _never() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class StudyPlan:
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


Cell = str | int | float | None  # None: not known, or not there


@dataclass(frozen=True, slots=True)
class Table:
    """Ours beside the paper's. Numbers are kept as they are and shown with two decimals."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """The column titles and all rows, as they are shown."""
        return [self.columns, *(tuple(map(_shown, row)) for row in self.rows)]

    def markdown(self) -> str:
        """For a page."""
        heads, *rows = self.cells
        lines = [_line(heads), _line(["---"] * len(heads)), *map(_line, rows)]
        return "\n".join([f"## {self.title}", "", *lines, "", *(f"{note}\n" for note in self.notes)])


@dataclass(frozen=True, slots=True)
class StudyResult:
    """All that a study has to show."""

    title: str
    tables: tuple[Table, ...]
    pictures: Mapping[str, bytes] = field(default_factory=dict)  # by file name

    def write(self, folder: Path) -> list[Path]:
        """Keep it: `README.md`, `result.json` and the pictures; tells what was written."""
        folder.mkdir(parents=True, exist_ok=True)
        shown = [f"![{Path(name).stem}]({name})\n" for name in self.pictures]
        page = "\n".join([f"# {self.title}", "", *(table.markdown() for table in self.tables), *shown])
        files: dict[str, str | bytes] = {"README.md": page, "result.json": self.as_json(), **self.pictures}
        for name, content in files.items():
            write_atomically(folder / name, content)
        return [folder / name for name in files]

    def as_json(self) -> str:
        """For a program: the numbers as they are."""
        tables = [
            {
                "title": table.title,
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
