"""The confusion matrix as an SVG picture: each row is a label, and its cells show what texts with it were taken for."""

from html import escape

from heedful.metrics.label_scores import LabelReport

_CELL = 46  # pixels
_MARGIN = 12
_LETTER = 7.2  # width of a letter
_LONGEST_NAME = 24  # letters
_FEWEST = 0.5  # of a row, from which a cell is so dark that its number is white


def draw_confusion(report: LabelReport, title: str) -> str:
    """The matrix; the shade of a cell is its share of the row."""
    names = [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…" for name in report.labels]
    side = _CELL * len(names)
    left = round(_MARGIN + _LETTER * max(map(len, names)) + 40)
    top = round(_MARGIN + 44 + _LETTER * max(map(len, names)))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + side + _MARGIN}" height="{top + side + 30}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{_MARGIN}" y="{_MARGIN + 10}" font-size="14" font-weight="600">{escape(title)}</text>',
        f'<text x="{left}" y="{top + side + 20}">found</text>',
        f'<text transform="translate({_MARGIN + 8} {top + side}) rotate(-90)">right</text>',
    ]
    for row, (name, counts) in enumerate(zip(names, report.confusion, strict=True)):
        y, total = top + row * _CELL, max(1, sum(counts))
        middle = y + _CELL // 2 + 4
        parts.append(f'<text x="{left - 6}" y="{middle}" text-anchor="end">{escape(name)}</text>')
        turned = f"translate({left + row * _CELL + _CELL // 2 + 4} {top - 6}) rotate(-90)"
        parts.append(f'<text transform="{turned}">{escape(name)}</text>')
        for column, count in enumerate(counts):
            share, x = count / total, left + column * _CELL
            hue = "31, 119, 180" if row == column else "214, 39, 40"  # right: blue; wrong: red
            ink = "#fff" if share >= _FEWEST else "#222"
            about = f"{report.labels[row]} taken for {report.labels[column]}: {count}"
            parts.append(
                f'<g><title>{escape(about)}</title><rect x="{x}" y="{y}" width="{_CELL - 1}" height="{_CELL - 1}" '
                f'fill="rgba({hue}, {0.04 + 0.96 * share:.3f})"/>'
                + (
                    f'<text x="{x + _CELL // 2}" y="{middle}" text-anchor="middle" fill="{ink}">{count}</text>'
                    if count
                    else ""
                )
                + "</g>"
            )
    return "\n".join([*parts, "</svg>", ""])
