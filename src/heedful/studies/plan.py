"""What a study is told."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from heedful.runs.report import Reporter

Scale = Literal["smoke", "laptop", "paper"]


@dataclass(frozen=True, slots=True)
class Plan:
    """How large to run it, on what, and where its rows and results are kept."""

    scale: Scale
    folder: Path
    recipe: Mapping[str, Any] | None  # the tables of a recipe, as far as given; smoke needs none
    report: Reporter
