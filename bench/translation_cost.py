"""How the cost of translation grows: the time per text while one size varies, for each engine of heedful.

    .venv/bin/python bench/translation_cost.py

The model has the sizes of `tiny` and random weights, and every output has as many pieces as its source, so only the
sizes matter. The values of an axis take turns.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from race import python, race
from random_run import random_texts
from translation_contenders import Job
from translators import FLOAT, INT8, TORCH, entrants, prepare

_ENGINES = (TORCH, FLOAT, INT8)


@dataclass(frozen=True, slots=True)
class Point:
    """The sizes of one measurement; lengths are in pieces, with EOS."""

    length: int = 20
    beam: int = 4
    together: int = 64  # texts per call
    vocabulary: int = 10_000


AXES = {
    "length": (10, 20, 40, 80, 160),
    "beam": (1, 4, 8),
    "together": (1, 4, 16, 64, 256),
    "vocabulary": (2000, 10_000, 32_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how the cost of translation grows.")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds per point in each of two rounds, at least")
    parser.add_argument("--axis", choices=tuple(AXES), action="append", help="measure only this axis; can be repeated")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        found = {axis: measure(axis, Path(name), options.seconds) for axis in options.axis or AXES}
    print(json.dumps(found) if options.json else "\n\n".join(markdown(axis, rows) for axis, rows in found.items()))


def points(axis: str) -> list[Point]:
    """The points of an axis: one size changes, the others stay."""
    return [replace(Point(), **{axis: value}) for value in AXES[axis]]


def measure(axis: str, folder: Path, seconds: float) -> list[dict[str, float]]:
    """The texts per second of every engine, for every value."""
    contenders = []
    for point in points(axis):
        formats = folder / str(point.vocabulary)
        if not formats.exists():
            make_model(point.vocabulary, formats)
        source = folder / f"{axis}-{getattr(point, axis)}.txt"
        lines = random_texts(point.vocabulary, point.length, max(64, point.together))
        source.write_text("\n".join(lines) + "\n", encoding="utf-8")
        for entrant in entrants():
            if entrant.name in _ENGINES:
                name = f"{entrant.name} {getattr(point, axis)}"
                path = folder / f"{axis} {name}.json"
                job = Job(model=str(formats / entrant.model), source=str(source), report=f"{path}.report", extra=0)
                job = replace(job, beam=point.beam, together=point.together, settings=entrant.stages[0])
                job.write(path)
                contenders.append(replace(entrant.contender(path, "race"), name=name))
    results, failed = race(contenders, folder, seconds, rounds=2)
    for reason in failed.values():
        sys.exit(f"{axis}: {reason}")
    speeds = {result.contender.name: result.speed for result in results}
    return [
        {axis: value, **{engine: round(speeds[f"{engine} {value}"], 2) for engine in _ENGINES}} for value in AXES[axis]
    ]


def make_model(vocabulary: int, formats: Path) -> None:
    """A random model in the formats of both engines."""
    formats.mkdir()
    run = formats / "random"
    subprocess.run(python("random_run.py", run, "--vocabulary", vocabulary), check=True)
    for format, reason in prepare(run, formats, ["float32", "int8"]).items():
        sys.exit(f"{format}: {reason}")


def markdown(axis: str, rows: Sequence[dict[str, float]]) -> str:
    """A table in Markdown: milliseconds per text, and pieces per second."""
    lines = [f"| {axis} | {' | '.join(_ENGINES)} |", f"|---:|{'---:|' * len(_ENGINES)}"]
    for row, point in zip(rows, points(axis), strict=True):
        cells = (f"{1e3 / row[engine]:.1f} ms, {row[engine] * point.length:,.0f}/s" for engine in _ENGINES)
        lines.append(f"| {row[axis]:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
