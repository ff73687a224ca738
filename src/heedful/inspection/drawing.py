"""Draw attention and head roles as PNG or SVG files."""

import io
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, UInt8

from heedful.attention.head_names import KINDS, Head
from heedful.attention.record import START_PIECE, Attention, HeadWeights
from heedful.attention.roles import ROLE_COLOURS, Role
from heedful.errors import ConfigError, extra
from heedful.nn.multi_head import Kind

PictureFormat = Literal["png", "svg"]

TITLES: dict[Kind, str] = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross attention",
}

_MOST_LABELS = 40  # pieces on an axis; more would be too small to read
_LONGEST_LABEL = 12  # characters
_HEAT = (1.0, 0.42, 0.0)  # seen on white and on black
_PICTURE = 1.6  # inches of a picture with a head
_PER_PIECE = 0.11  # inches
_SMALLEST, _LARGEST = 1.2, 3.0  # inches of one head
_GAP, _FOR_TITLE, _FOR_LABELS = 0.1, 0.4, 0.9  # inches
_SMALL = 5  # points
_DPI = 130


def draw_attention(
    attention: Attention,
    source_pieces: Sequence[str],
    target_pieces: Sequence[str],
    form: PictureFormat,
    kind: Kind | None = None,
) -> bytes:
    """Draw all heads for one sentence pair, layer by layer, for one kind of attention or all kinds."""
    kinds = [one for one in KINDS if attention.of(one) and kind in (None, one)]
    if not kinds:
        raise ConfigError(
            f"this model has no {kind + ' ' if kind else ''}attention to draw; draw another kind or another model"
        )
    fed_in = [START_PIECE, *target_pieces[:-1]]
    text = [*source_pieces, *target_pieces[:-1]]  # what a model without attention to a source reads as one
    axes: dict[Kind, tuple[Sequence[str], Sequence[str]]] = {
        "encoder": (source_pieces, source_pieces),
        "decoder": (target_pieces, fed_in) if attention.cross else (text, text),
        "cross": (target_pieces, source_pieces),
    }
    blocks = [_Block(one, attention.of(one), *axes[one]) for one in kinds]
    with _drawing_settings():
        width, top = max(block.width for block in blocks), sum(block.height for block in blocks)
        figure = _figure(width, top)
        # One pair of axes for all heads, because axes and ticks take most of matplotlib's time.
        canvas = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, top))
        canvas.set_axis_off()
        for block in blocks:
            _draw_block(canvas, block, top)
            top -= block.height
        return _render(figure, form)


def draw_picture_attention(
    layers: Sequence[Float[np.ndarray, "heads patches"]],
    pixels: UInt8[np.ndarray, "rows columns channels"],
    form: PictureFormat,
) -> bytes:
    """Draw how much each head attends to each patch, over the picture; a row for each layer."""
    size, columns = len(pixels), max(map(len, layers))
    shown = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    with _drawing_settings():
        figure = _figure(columns * (_PICTURE + _GAP) + _GAP, len(layers) * (_PICTURE + 2.5 * _GAP) + _GAP)
        figure.set_layout_engine("constrained")
        for place, axes in enumerate(figure.subplots(len(layers), columns, squeeze=False).ravel()):
            axes.set_axis_off()
            layer, head = divmod(place, columns)
            if head >= len(layers[layer]):  # some heads of this layer were removed
                continue
            weights = layers[layer][head]
            across = round(len(weights) ** 0.5)
            axes.imshow(shown, cmap="gray", vmin=0, vmax=255)
            # Many patches share the weight, so the colours of each head end at its own largest one.
            heat = np.empty((across, across, 4))
            heat[..., :3] = _HEAT
            heat[..., 3] = 0.85 * weights.reshape(across, across) / weights.max()
            axes.imshow(heat, interpolation="none", extent=(-0.5, size - 0.5, size - 0.5, -0.5))
            axes.set_title(f"{layer + 1}.{head + 1}: at most {weights.max():.2f}", fontsize=7)
        return _render(figure, form)


def draw_roles(roles: Mapping[Head, Role], form: PictureFormat) -> bytes:
    """Draw all heads as boxes, coloured and labelled by role, with the measure behind it."""
    kinds = [kind for kind in KINDS if any(head.kind == kind for head in roles)]
    heads = {kind: [head for head in roles if head.kind == kind] for kind in kinds}
    layers = [1 + max(head.layer for head in heads[kind]) for kind in kinds]
    most = 1 + max(head.index for head in roles)
    with _drawing_settings():
        figure = _figure(1.25 * most + 0.8, 0.55 * sum(layers) + 0.8 * len(kinds))
        figure.set_layout_engine("constrained")
        rows = figure.subplots(len(kinds), 1, height_ratios=[count + 1.0 for count in layers], squeeze=False)[:, 0]
        for axes, kind, count in zip(rows, kinds, layers, strict=True):
            axes.set(title=TITLES[kind], xlim=(0.5, most + 0.5), ylim=(count + 0.5, 0.5), ylabel="layer")
            axes.set_xticks(range(1, most + 1), [f"head {number}" for number in range(1, most + 1)])
            axes.set_yticks(range(1, count + 1))
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            for head in heads[kind]:
                _draw_box(axes, head, roles[head])
        return _render(figure, form)


def _draw_box(axes: Any, head: Head, role: Role) -> None:
    from matplotlib.patches import Rectangle

    x, y = head.index + 1, head.layer + 1
    axes.add_patch(Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, facecolor=ROLE_COLOURS[role.name]))
    axes.text(x, y, f"{role.name}\n{role.figure}".strip(), ha="center", va="center", fontsize=8, color="black")


@dataclass(frozen=True, slots=True)
class _Block:
    """One kind of attention and its size in inches."""

    kind: Kind
    layers: tuple[HeadWeights, ...]
    rows: Sequence[str]
    columns: Sequence[str]

    @property
    def head(self) -> tuple[float, float]:
        width, height = (
            min(_LARGEST, max(_SMALLEST, _PER_PIECE * len(pieces))) for pieces in (self.columns, self.rows)
        )
        return width, height

    @property
    def width(self) -> float:
        return _FOR_LABELS + max(map(len, self.layers)) * (self.head[0] + _GAP)

    @property
    def height(self) -> float:
        return _FOR_TITLE + len(self.layers) * (self.head[1] + 2 * _GAP) + _FOR_LABELS


def _draw_block(canvas: Any, block: _Block, top: float) -> None:
    width, height = block.head
    middle = (_FOR_LABELS + block.width) / 2
    canvas.text(middle, top - _FOR_TITLE / 2, TITLES[block.kind], ha="center", va="center", fontweight="bold")
    for layer, weights in enumerate(block.layers):
        bottom = top - _FOR_TITLE - (layer + 1) * (height + 2 * _GAP)
        for index, grid in enumerate(weights):
            left = _FOR_LABELS + index * (width + _GAP)
            _draw_head(canvas, grid, (left, left + width, bottom, bottom + height), f"{layer + 1}.{index + 1}")
        if len(block.rows) <= _MOST_LABELS:
            for number, piece in enumerate(block.rows):
                y = bottom + height * (1 - (number + 0.5) / len(block.rows))
                canvas.text(_FOR_LABELS - 0.03, y, shorten_label(piece), ha="right", va="center", fontsize=_SMALL)
    if len(block.columns) <= _MOST_LABELS:
        for index in range(max(map(len, block.layers))):
            # After pruning, the lowest head of a column may not belong to the last layer.
            lowest = max(layer for layer, weights in enumerate(block.layers) if index < len(weights))
            y = top - _FOR_TITLE - (lowest + 1) * (height + 2 * _GAP) - 0.03
            for number, piece in enumerate(block.columns):
                x = _FOR_LABELS + index * (width + _GAP) + width * (number + 0.5) / len(block.columns)
                canvas.text(x, y, shorten_label(piece), ha="center", va="top", fontsize=_SMALL, rotation=90)


def _draw_head(
    canvas: Any, grid: Float[np.ndarray, "query key"], extent: tuple[float, float, float, float], name: str
) -> None:
    from matplotlib.patches import Rectangle

    left, right, bottom, top = extent
    # Every head has the same colour scale. It shows the square root of a weight, as the page does; otherwise heads that
    # attend to many keys would look blank.
    canvas.imshow(np.sqrt(grid), cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto", interpolation="none", extent=extent)
    canvas.add_patch(Rectangle((left, bottom), right - left, top - bottom, fill=False, linewidth=0.4, edgecolor="grey"))
    canvas.text((left + right) / 2, top + 0.03, name, ha="center", va="bottom", fontsize=7)


def shorten_label(piece: str) -> str:
    """A piece as one short line; unprintable characters become U+FFFD."""
    shown = "".join(character if character.isprintable() else "\ufffd" for character in piece)
    return shown if len(shown) <= _LONGEST_LABEL else shown[: _LONGEST_LABEL - 1] + "…"


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), facecolor="white")


def _render(figure: Any, form: PictureFormat) -> bytes:
    """The figure as a file; the same figure gives the same bytes."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # matplotlib draws a box instead
        figure.savefig(file, format=form, dpi=_DPI, metadata={"Date": None} if form == "svg" else None)
    return file.getvalue()


def _drawing_settings() -> AbstractContextManager[None]:
    """Settings that do not depend on the user's matplotlibrc."""
    if find_spec("matplotlib") is None:
        raise ConfigError(f"pictures need matplotlib, which is not installed; {extra('plot')}")
    import matplotlib

    return matplotlib.rc_context(
        {
            "text.parse_math": False,  # a dollar sign in a piece is not a formula
            "text.usetex": False,
            "font.family": ["DejaVu Sans"],
            "image.composite_image": False,  # heads differ in size
            # Keep text as text, so that the viewer's fonts can show any script.
            "svg.fonttype": "none",
            "svg.hashsalt": "heedful",
        }
    )
