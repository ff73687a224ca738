"""What a study found: tables, pictures and what they mean, printed and kept as Markdown, JSON and files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from heedful.storage.files import write_atomically

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
class Outcome:
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
