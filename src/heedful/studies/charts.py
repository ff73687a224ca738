"""Charts of studies, as SVG files."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from jaxtyping import Shaped

# Okabe and Ito's palette: colour-blind readers can tell the colours apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_DASHES = ("-", "--", ":", "-.")


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A matrix of numbers or booleans."""

    title: str
    x: str
    y: str
    values: Shaped[np.ndarray, "_rows _columns"]


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def lines(title: str, x: str, y: str, series: Sequence[Series], *, log_x: bool = False, log_y: bool = False) -> bytes:
    """Draw a line chart with a legend."""
    figure = _figure(9, 5)
    axes = figure.add_subplot(title=title, xlabel=x, ylabel=y)
    draw_lines(axes, series)
    if log_x:
        axes.set_xscale("log", base=2)
    if log_y:
        axes.set_yscale("log")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return as_svg(figure)


def draw_lines(axes: Any, series: Sequence[Series]) -> None:
    """Draw the series on these axes; dashes change when the colours run out."""
    for number, line in enumerate(series):
        colour, dash = COLOURS[number % len(COLOURS)], _DASHES[number // len(COLOURS) % len(_DASHES)]
        axes.plot(line.x, line.y, dash, color=colour, label=line.name, marker="." if len(line.x) < 20 else None)
    axes.grid(alpha=0.3)


def heat_maps(title: str, maps: Sequence[HeatMap], columns: int) -> bytes:
    """Draw heat maps in a grid with this many columns; maps of numbers have a colour bar."""
    rows = -(-len(maps) // columns)
    figure = _figure(11, 0.5 + 11 / columns * 0.9 * rows)
    figure.suptitle(title)
    for number, field in enumerate(maps, 1):
        axes = figure.add_subplot(rows, columns, number, title=field.title, xlabel=field.x, ylabel=field.y)
        if field.values.dtype == bool:
            axes.imshow(field.values, cmap="Blues", vmin=-0.2, vmax=1.5, interpolation="nearest")
            _lines_between(axes, field.values.shape)
        else:
            image = axes.imshow(field.values, cmap="RdBu_r", aspect="auto", interpolation="nearest")
            figure.colorbar(image, ax=axes)
    return as_svg(figure)


def _lines_between(axes: Any, shape: tuple[int, ...]) -> None:
    """Draw white lines between the cells of a small map."""
    for place in range(1, shape[0]):
        axes.axhline(place - 0.5, color="white", linewidth=1.5)
    for place in range(1, shape[1]):
        axes.axvline(place - 0.5, color="white", linewidth=1.5)


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def as_svg(figure: Any) -> bytes:
    """Render a figure as SVG; the same figure gives the same bytes."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "heedful", "svg.fonttype": "none"}):
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
