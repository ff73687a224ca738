"""Charts as SVG that needs no script. Colours come from the page's style, so they follow its theme."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10

import numpy as np

from heedful.pages.inline import text_in_page

_WIDTH, _HEIGHT = 620, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 14, 42


@dataclass(frozen=True, slots=True)
class Axis:
    """A label, and the range that is shown; a logarithmic axis has no zero."""

    label: str
    least: float
    most: float
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Where a value is between both ends, from 0 to 1."""
        if self.logarithmic:
            return (log10(value) - log10(self.least)) / (log10(self.most) - log10(self.least) or 1.0)
        return (value - self.least) / (self.most - self.least or 1.0)

    def ticks(self) -> list[float]:
        """About five round values."""
        if self.logarithmic:
            return [10.0**power for power in range(-12, 13) if self.least <= 10.0**power <= self.most]
        span = self.most - self.least or 1.0
        step = 10.0 ** int(log10(span) // 1)
        step *= next(factor for factor in (0.1, 0.2, 0.5, 1, 2, 5) if span / (step * factor) <= 6)
        first = -int(-self.least // step)
        return [place * step for place in range(first, int(self.most / step + 1e-9) + 1)]


def region(svg: str, label: str) -> str:
    """A chart that scrolls sideways on a narrow screen, where the keyboard reaches it."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{text_in_page(label)}">{svg}</div>'


def draw_lines(series: Sequence[tuple[str, Sequence[tuple[float, float]]]], x: Axis, y: Axis) -> str:
    """A line for each series, with its name at the end."""
    lines = []
    for slot, (name, points) in enumerate(series):
        path = "L".join(f"{_at_x(x, a):.1f} {_at_y(y, b):.1f}" for a, b in points)
        lines.append(f'<path class="line slot-{slot % 6}" d="M{path}"><title>{text_in_page(name)}</title></path>')
    names = "".join(
        f'<span class="slot-{slot % 6}">{text_in_page(name)}</span> ' for slot, (name, _) in enumerate(series) if name
    )
    legend = f'<p class="legend series">{names}</p>' if names and len(series) > 1 else ""
    return legend + region(_frame(x, y, "".join(lines)), f"{y.label} by {x.label}")


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of a scatter plot, which leads to a step."""

    x: float
    y: float
    name: str
    step: str
    slot: int


def draw_dots(dots: Sequence[Dot], x: Axis, y: Axis) -> str:
    """A scatter plot whose points are links; the largest few have their names beside them."""
    named: list[Dot] = []  # the highest, as far as their names do not overlap
    for dot in sorted(dots, key=lambda dot: -dot.y)[:6]:
        if all(abs(_at_y(y, dot.y) - _at_y(y, other.y)) > 14 for other in named):
            named.append(dot)
    shapes = []
    for dot in dots:
        a, b = _at_x(x, dot.x), _at_y(y, dot.y)
        end = a > _WIDTH * 0.6
        label = (
            f'<text class="name{" end" if end else ""}" x="{a + (-10 if end else 10):.1f}" y="{b + 4:.1f}">'
            f"{text_in_page(dot.name)}</text>"
            if dot in named
            else ""
        )
        shapes.append(
            f'<a href="#{dot.step}" aria-label="{text_in_page(dot.name)}"><circle class="slot-{dot.slot}" '
            f'cx="{a:.1f}" cy="{b:.1f}" r="6"><title>{text_in_page(dot.name)}</title></circle>{label}</a>'
        )
    return region(_frame(x, y, "".join(shapes), "group"), f"{y.label} by {x.label}")


def draw_bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """A horizontal bar for each row: its label as HTML, a value, and the value as text."""
    most = max((abs(value) for _, value, _ in rows), default=0.0) or 1.0
    cells = "".join(
        f'<tr><th scope="row">{label}</th><td class="wide"><svg class="hbar" viewBox="0 0 100 10" '
        f'preserveAspectRatio="none" aria-hidden="true"><rect class="{"slot-0" if value >= 0 else "slot-1"}" '
        f'width="{100 * abs(value) / most:.2f}" height="10"/></svg></td><td class="n">{shown}</td></tr>'
        for label, value, shown in rows
    )
    return f'<div class="scroll"><table class="bars-table"><tbody>{cells}</tbody></table></div>'


def draw_heat(rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]], label: str) -> str:
    """Shares between 0 and 1 as a table of shaded cells; a value of exactly zero is empty."""
    width, height, left, top = 46, 26, 76, 64
    shapes = []
    for place, column in enumerate(columns):
        x = left + (place + 0.5) * width
        shapes.append(
            f'<text class="turned" transform="translate({x:.0f} {top - 8}) rotate(-40)">{_short(column)}</text>'
        )
    for line, (name, numbers) in enumerate(zip(rows, values, strict=True)):
        y = top + line * height
        shapes.append(f'<text class="end" x="{left - 8}" y="{y + 17}">{_short(name)}</text>')
        for place, value in enumerate(numbers):
            x = left + place * width
            if value > 1e-6:
                shade = min(1.0, value) ** 0.5
                light = " strong" if shade > 0.62 else ""
                shapes.append(
                    f'<rect class="shade" x="{x}" y="{y}" width="{width - 2}" height="{height - 2}" '
                    f'fill-opacity="{shade:.2f}"/><text class="cell{light}" x="{x + width / 2 - 1}" y="{y + 17}">'
                    f"{value:.2f}</text>"
                )
            else:
                shapes.append(f'<rect class="empty" x="{x}" y="{y}" width="{width - 2}" height="{height - 2}"/>')
                shapes.append(f'<text class="cell none" x="{x + width / 2 - 1}" y="{y + 17}">0</text>')
    wide, tall = left + len(columns) * width + 40, top + len(rows) * height + 4
    svg = (
        f'<svg class="chart fixed" viewBox="0 0 {wide} {tall}" width="{wide}" height="{tall}" role="img" '
        f'aria-label="{text_in_page(label)}">{"".join(shapes)}</svg>'
    )
    return region(svg, label)


def draw_cells(picture: str, values: np.ndarray, label: str) -> str:
    """Values over the squares of a picture, a data address: warm above zero and blue below, by their size."""
    rows, columns = values.shape
    side = 44
    largest = float(np.abs(values).max()) or 1.0
    cells = "".join(
        f'<rect class="{"gain" if value > 0 else "loss"}" x="{column * side}" y="{row * side}" width="{side}" '
        f'height="{side}" fill-opacity="{0.85 * abs(float(value)) / largest:.3f}"><title>row {row + 1}, column '
        f"{column + 1}: {_tick(round(float(value), 3))}</title></rect>"
        for row in range(rows)
        for column, value in enumerate(values[row])
    )
    svg = (
        f'<svg class="chart cells" viewBox="0 0 {columns * side} {rows * side}" role="img" '
        f'aria-label="{text_in_page(label)}"><image href="{picture}" width="{columns * side}" height="{rows * side}"/>'
        f"{cells}</svg>"
    )
    return region(svg, label)


def draw_paths(paths: Sequence[tuple[str, Sequence[tuple[float, float]]]], label: str) -> str:
    """The way of each piece over a plane, from a ring to a dot with its name."""
    xs, ys = ([point[axis] for _, points in paths for point in points] for axis in (0, 1))
    x, y = Axis("", min(xs), max(xs)), Axis("", min(ys), max(ys))
    wide, tall, edge = 720, 420, 34

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return edge + x.place(point[0]) * (wide - 3.4 * edge), tall - edge - y.place(point[1]) * (tall - 2 * edge)

    shapes = []
    for place, (name, points) in enumerate(paths):
        placed = [at(point) for point in points]
        line = "L".join(f"{a:.1f} {b:.1f}" for a, b in placed)
        dots = "".join(f'<circle class="step-dot" cx="{a:.1f}" cy="{b:.1f}" r="2"/>' for a, b in placed[1:-1])
        (a, b), (c, d) = placed[0], placed[-1]
        shapes.append(
            f'<g class="way slot-{place % 6}"><path d="M{line}"/>{dots}<circle class="from" cx="{a:.1f}" '
            f'cy="{b:.1f}" r="4.5"/><circle class="to" cx="{c:.1f}" cy="{d:.1f}" r="5.5"/>'
            f'<text x="{c + 8:.1f}" y="{d + 4:.1f}">{_short(name, 14)}</text><title>{text_in_page(name)}</title></g>'
        )
    svg = (
        f'<svg class="chart paths" viewBox="0 0 {wide} {tall}" role="img" aria-label="{text_in_page(label)}">'
        f"{''.join(shapes)}</svg>"
    )
    return region(svg, label)


def _short(text: str, most: int = 11) -> str:
    return text_in_page(text if len(text) <= most else f"{text[: most - 1]}…")


def _at_x(axis: Axis, value: float) -> float:
    return _LEFT + axis.place(value) * (_WIDTH - _LEFT - _RIGHT)


def _at_y(axis: Axis, value: float) -> float:
    return _HEIGHT - _BOTTOM - axis.place(value) * (_HEIGHT - _TOP - _BOTTOM)


def _frame(x: Axis, y: Axis, inside: str, role: str = "img") -> str:
    ticks = "".join(
        f'<path class="grid" d="M{_LEFT} {_at_y(y, value):.1f}H{_WIDTH - _RIGHT}"/><text class="end" x="{_LEFT - 8}" '
        f'y="{_at_y(y, value) + 4:.1f}">{_tick(value)}</text>'
        for value in y.ticks()
    )
    ticks += "".join(
        f'<text class="middle" x="{_at_x(x, value):.1f}" y="{_HEIGHT - _BOTTOM + 18}">{_tick(value)}</text>'
        for value in x.ticks()
    )
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="{role}" '
        f'aria-label="{text_in_page(f"{y.label} by {x.label}")}">{ticks}'
        f'<path class="axis" d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}"/>{inside}'
        f'<text class="middle label" x="{(_LEFT + _WIDTH - _RIGHT) // 2}" y="{_HEIGHT - 6}">'
        f"{text_in_page(x.label)}</text>"
        f'<text class="label turned-up" transform="translate(11 {(_HEIGHT - _BOTTOM) // 2}) rotate(-90)">'
        f"{text_in_page(y.label)}</text></svg>"
    )


def _tick(value: float) -> str:
    text = f"{value:,.0f}" if abs(value) >= 10 else f"{value:.6f}".rstrip("0").rstrip(".")
    return text.replace("-", "−")
