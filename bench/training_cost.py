"""How the cost of training grows: tokens per second while one size varies, around the shape `tiny`.

    .venv/bin/python bench/training_cost.py --seconds 3 --out scaling.png

The exponent of a size is the slope of the seconds per token on logarithmic axes: 0 means that the size costs nothing,
1 that twice the size takes twice the time. The same slope of the counted operations is printed beside it.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from race import Contender, python, race
from training_speed import flops_per_token
from workload import TINY, Shape


@dataclass(frozen=True, slots=True)
class Axis:
    """A size, its values, and the shape for each value."""

    name: str
    values: Sequence[int]
    shape: Callable[[int], Shape]


@dataclass(frozen=True, slots=True)
class Point:
    """The measurement of one shape."""

    value: int
    tokens_per_second: float
    flop_per_token: float
    peak_megabytes: int


# Long shapes need fewer pairs, because a lap sees only some batches.
AXES = (
    Axis(
        "d_model",
        (64, 128, 256, 512),
        lambda value: replace(TINY, d_model=value, d_ff=2 * value, num_heads=value // 32),
    ),
    Axis("layers", (1, 2, 4, 8), lambda value: replace(TINY, layers=value)),
    Axis("vocabulary", (1250, 2500, 5000, 10_000, 20_000, 40_000), lambda value: replace(TINY, vocabulary=value)),
    Axis(
        "length",
        (8, 16, 32, 64, 128, 256, 512, 1024),
        lambda value: replace(TINY, length=value, pairs=max(64, 80_000 // value)),
    ),
    Axis("batch_tokens", (256, 512, 1024, 2048, 4096, 8192), lambda value: replace(TINY, batch_tokens=value)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how the cost of training grows.")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds per shape in each of two rounds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--axis", choices=[axis.name for axis in AXES], action="append", help="measure only this axis; can be repeated"
    )
    parser.add_argument("--out", type=Path, help="write a plot to this file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    found: dict[str, list[Point]] = {}
    for axis in AXES:
        if axis.name in (options.axis or [axis.name]):
            found[axis.name] = measure(axis, options.seconds, options.threads)
    facts = {name: {**exponents(points), "points": [asdict(p) for p in points]} for name, points in found.items()}
    print(json.dumps(facts) if options.json else "\n\n".join(markdown(name, points) for name, points in found.items()))
    if options.out:
        draw(found, options.out)


def measure(axis: Axis, seconds: float, threads: int) -> list[Point]:
    """All values of one size, which take turns."""
    with TemporaryDirectory() as name:
        contenders = []
        for value in axis.values:
            folder = Path(name) / str(value)
            folder.mkdir()
            axis.shape(value).write(folder / "shape.json")
            contenders.append(Contender(str(value), "heedful", python("training_heedful.py", folder, threads)))
        results, failed = race(contenders, Path(name), seconds, rounds=2)
    for reason in failed.values():
        sys.exit(f"{axis.name}: {reason}")
    return [
        Point(value, round(result.speed, 1), flops_per_token(axis.shape(value)), round(result.peak_bytes / 1e6))
        for value, result in zip(axis.values, results, strict=True)
    ]


def exponents(points: Sequence[Point]) -> dict[str, float]:
    """The slopes of time and operations, over all values and over the two largest."""
    values = [point.value for point in points]
    seconds = [1.0 / point.tokens_per_second for point in points]
    flops = [point.flop_per_token for point in points]
    return {
        "exponent": slope(values, seconds),
        "exponent_of_operations": slope(values, flops),
        "last_exponent": slope(values[-2:], seconds[-2:]),
        "last_exponent_of_operations": slope(values[-2:], flops[-2:]),
    }


def slope(values: Sequence[float], costs: Sequence[float]) -> float:
    """The exponent of the power law that fits best, by least squares on logarithms."""
    return round(float(np.polyfit(np.log(values), np.log(costs), 1)[0]), 3)


def markdown(name: str, points: Sequence[Point]) -> str:
    """A table in Markdown."""
    found = exponents(points)
    rows = [
        f"| {name} | tokens a second | MFLOP a token | GFLOP/s | memory |",
        "|---:|---:|---:|---:|---:|",
        *(
            f"| {point.value:,} | {point.tokens_per_second:,.0f} | {point.flop_per_token / 1e6:.1f} "
            f"| {point.tokens_per_second * point.flop_per_token / 1e9:.0f} | {point.peak_megabytes:,} MB |"
            for point in points
        ),
        "",
        f"Time per token grows as {name}^{found['exponent']:.2f} (operations: {found['exponent_of_operations']:.2f}); "
        f"between the last two as {name}^{found['last_exponent']:.2f} "
        f"(operations: {found['last_exponent_of_operations']:.2f}).",
    ]
    return "\n".join(rows)


def draw(found: dict[str, list[Point]], path: Path) -> None:
    """Plot the microseconds per token against each size, and the time for the operations alone at the best speed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(found), figsize=(3.2 * len(found), 3.2), sharey=True, squeeze=False)
    for panel, (name, points) in zip(panels[0], found.items(), strict=True):
        values = [point.value for point in points]
        times = [1e6 / point.tokens_per_second for point in points]
        rate = max(point.flop_per_token / time for point, time in zip(points, times, strict=True))
        panel.loglog(values, times, "o-", base=2, label=f"measured: {name}^{exponents(points)['exponent']:.2f}")
        panel.loglog(values, [p.flop_per_token / rate for p in points], "--", base=2, label="operations alone")
        panel.set_xlabel(name)
        panel.grid(visible=True, which="both", alpha=0.3)
        panel.legend(fontsize=7)
    panels[0][0].set_ylabel("microseconds per token")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
