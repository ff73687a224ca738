"""What is known of one row of the study, and kept of it."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heedful.errors import FolderError
from heedful.storage.files import read_json, write_atomically


@dataclass(frozen=True, slots=True)
class Row:
    """What came out. Losses are per target token; None: not a number."""

    fingerprint: str  # of all that it depends on
    curve: list[list[float | None]]  # step and validation loss
    training_loss: float | None  # of the last tenth, above the least that label smoothing allows
    validation_loss: float | None  # unsmoothed
    bleu: float
    exact: float  # % of translations that are the reference
    by_length: list[list[float]]  # longest source, sentences, BLEU
    orders_differ: float | None  # the most that an entry of the memory changes when the pieces change places
    orders: list[list[str]]  # either order, and its translation
    alone_bleu: float  # of some sentences, each among others of its length
    together_bleu: float  # of the same in one batch with a longer one
    together_changed: float  # % of these whose translation is another then
    examples: list[list[str]]  # source, reference, output
    steps: int
    stopped: str  # why it ended early
    seconds: float

    @property
    def perplexity(self) -> float | None:
        """Of the validation text."""
        return None if self.validation_loss is None else math.exp(min(self.validation_loss, 700.0))


def write_row(path: Path, row: Row) -> None:
    """Keep it, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(asdict(row), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_row(path: Path, fingerprint: str) -> Row | None:
    """A row that was kept and depends on the same; None where there is none, or a damaged one: it can be had again."""
    try:
        found: Any = read_json(path)
        row = Row(**found)
    except (FolderError, TypeError):
        return None
    return row if row.fingerprint == fingerprint else None


def finite(value: float) -> float | None:
    """JSON has no word for what is no number."""
    return value if math.isfinite(value) else None
