"""Figure 1 of the paper, drawn for one model, and the tree of a beam search, as SVG that pages include.

Colours come from the page's style, so both follow its theme.
"""

from collections.abc import Mapping, Sequence

from heedful.config.experiment import Norm
from heedful.decoding.beam_tree import ROOT, BeamTree
from heedful.pages.inline import text_in_page
from heedful.text.tokenizer import Tokenizer

_WIDTH, _BOX, _NORM, _THIN, _GAP = 150, 30, 24, 19, 12
_LEFT, _RIGHT = 26, 230
_DETAILED = 4  # deeper stacks show the layers between the first and the last as one row each

Box = tuple[str, str, str]  # the step that it leads to, its name, and what is written in it
_BESIDE: tuple[Box, ...] = (
    ("training", "training", "One training step"),
    ("cost", "cost", "What it costs"),
    ("experiments.parts", "experiments", "Experiments"),
    ("often-said", "often-said", "Often said"),
)
BESIDE_RIVAL: tuple[Box, ...] = (("experiments.order", "experiments", "Experiment"),)
_LABELS = {
    "attention": "Self-attention",
    "masked": "Masked self-attention",
    "cross_attention": "Attention to source",
    "feed_forward": "Feed forward",
}


class Column:
    """Boxes on top of each other, from the bottom up; y is negative and grows towards zero."""

    @classmethod
    def left(cls) -> "Column":
        """The place of the encoder."""
        return cls(_LEFT)

    @classmethod
    def right(cls) -> "Column":
        """The place of the decoder."""
        return cls(_RIGHT)

    def __init__(self, x: int) -> None:
        self.x, self.y = x, 0
        self.shapes: list[str] = []
        self.centres: dict[str, int] = {}

    def box(self, step: str, name: str, label: str, kind: str, height: int = _BOX) -> None:
        """A box that leads to a step, with a line from what is below it."""
        middle = self.x + _WIDTH // 2
        if self.y:
            self.shapes.append(f'<path class="flow" d="M{middle} {self.y}v{-_GAP}"/>')
            self.y -= _GAP
        self._rectangle(step, name, label, kind, height)

    def _rectangle(self, step: str, name: str, label: str, kind: str, height: int) -> None:
        middle, top = self.x + _WIDTH // 2, self.y - height
        self.shapes.append(
            f'<a href="#{step}" data-box="{name}" class="box {kind}"><rect x="{self.x}" y="{top}" width="{_WIDTH}" '
            f'height="{height}" rx="7"/><text x="{middle}" y="{top + height // 2 + 4}">{label}</text></a>'
        )
        self.centres[name] = top + height // 2
        self.y = top

    def sublayer(self, name: str, label: str, kind: str, norm: Norm) -> None:
        """A sub-layer with the sum above it, the norm where the model has it, and the residual connection beside it."""
        start, residual = self.y, f"{name}.residual"
        if norm == "pre":
            self.box(residual, f"{name}.norm", "Norm", "norm", _THIN)
            self._on_top(name, name, label, kind, _BOX)
            self._on_top(residual, residual, "Add", "norm", _THIN)
        else:
            self.box(name, name, label, kind)
            self._on_top(residual, residual, "Add &amp; norm", "norm", _NORM)
        below, above = start - 3, self.centres[residual]
        self.shapes.append(
            f'<path class="residual" d="M{self.x + _WIDTH // 2} {below}H{self.x - 6}q-6 0 -6 -6V{above + 6}'
            f'q0 -6 6 -6h6"/>'
        )

    def _on_top(self, step: str, name: str, label: str, kind: str, height: int) -> None:
        """A box close to the one below it, since both belong together."""
        self.shapes.append(f'<path class="flow" d="M{self.x + _WIDTH // 2} {self.y}v-5"/>')
        self.y -= 5
        self._rectangle(step, name, label, kind, height)

    def layer(self, stack: str, number: int, parts: Sequence[tuple[str, str]], norm: Norm) -> None:
        """A layer with all its sub-layers in a frame."""
        bottom = self.y - 6
        for part, label in parts:
            kind = "feed" if part == "feed_forward" else "cross" if part == "cross_attention" else "attend"
            self.sublayer(f"{stack}.{number}.{part}", label, kind, norm)
        top = self.y - 6
        self.shapes.insert(
            0,
            f'<rect class="layer" x="{self.x - 18}" y="{top}" width="{_WIDTH + 26}" height="{bottom - top}" rx="10"/>'
            f'<text class="number" x="{self.x + _WIDTH + 5}" y="{top - 3}">{number}</text>',
        )


def draw_figure_one(layers: Mapping[str, int], norm: Norm) -> str:
    """The map of a model whose stacks have this many layers: every box leads to its step."""
    if "encoder" not in layers:
        return _draw_decoder(layers["decoder"], norm)
    encoder, decoder = Column(_LEFT), Column(_RIGHT)
    _begin(encoder, "encoder")
    _stack(encoder, "encoder", layers["encoder"], ("attention", "feed_forward"), norm, "encoder.output")
    encoder.box("encoder.output", "encoder.output", "Memory", "plain", _NORM)
    decoder.box("decoder.embedding", "decoder.embedding", "Embedding of output", "embed")
    _stack(decoder, "decoder", layers["decoder"], ("attention", "cross_attention", "feed_forward"), norm, "lens")
    decoder.box("lens", "decoder.output", "Layer by layer", "plain", _NORM)
    decoder.box("logits", "logits", "Linear, softmax", "out")
    decoder.box("beam", "beam", "Beam search", "out")
    memory = encoder.centres["encoder.output"]
    wires = [
        f'<path class="memory" d="M{_LEFT + _WIDTH} {memory}h16q8 0 8 {8 if centre > memory else -8}'
        f"V{centre + (-8 if centre > memory else 8)}q0 {8 if centre > memory else -8} 8 "
        f'{8 if centre > memory else -8}H{_RIGHT}"/>'
        for name, centre in decoder.centres.items()
        if name.endswith("cross_attention")
    ]
    return draw_map([("Encoder", encoder), ("Decoder", decoder)], wires)


def _draw_decoder(layers: int, norm: Norm) -> str:
    """Figure 1 without its encoder."""
    decoder = Column((_LEFT + _RIGHT) // 2)
    _begin(decoder, "decoder")
    _stack(decoder, "decoder", layers, ("attention", "feed_forward"), norm, "lens")
    decoder.box("lens", "decoder.output", "Layer by layer", "plain", _NORM)
    decoder.box("logits", "logits", "Linear, softmax", "out")
    decoder.box("sampling", "sampling", "Draw a piece", "out")
    return draw_map([("Decoder", decoder)], [])


def _begin(column: Column, stack: str) -> None:
    column.box("pieces", "pieces", "Pieces and ids", "plain")
    column.box(f"{stack}.embedding", f"{stack}.embedding", "Embedding", "embed")
    column.box(f"{stack}.positions", f"{stack}.positions", "Positions", "embed")


def draw_map(columns: Sequence[tuple[str, Column]], wires: Sequence[str], beside: Sequence[Box] = _BESIDE) -> str:
    """Columns side by side, with what is beside the figure below them."""
    places = ((x, y) for y in (38, 70) for x in (_LEFT, _RIGHT))
    others = "".join(
        f'<a href="#{step}" data-box="{box}" class="box plain"><rect x="{x}" y="{y}" width="{_WIDTH}" height="{_NORM}" '
        f'rx="7"/><text x="{x + _WIDTH // 2}" y="{y + _NORM // 2 + 4}">{label}</text></a>'
        for (step, box, label), (x, y) in zip(beside, places, strict=False)
    )
    captions = "".join(
        f'<text class="caption" x="{column.x + _WIDTH // 2}" y="16">{caption}</text>' for caption, column in columns
    )
    height = 124 - min(column.y for _, column in columns)
    shapes = "".join(shape for _, column in columns for shape in column.shapes)
    return f"""<svg viewBox="0 {102 - height} {_RIGHT + _WIDTH + 22} {height}" role="group" aria-label="Figure 1">
{captions}
{"".join(wires)}{shapes}{others}</svg>"""


def _stack(column: Column, stack: str, layers: int, parts: Sequence[str], norm: Norm, last: str) -> None:
    """The layers; with pre-norm, one more norm follows the last of them and leads to the step `last`."""
    labels = [(part, _LABELS["masked" if (stack, part) == ("decoder", "attention") else part]) for part in parts]
    for number in range(1, layers + 1):
        if layers <= _DETAILED or number in (1, layers):
            column.y -= 8
            column.layer(stack, number, labels, norm)
            column.y -= 8
        else:
            column.box(f"{stack}.{number}.attention", f"{stack}.{number}", f"Layer {number}", "folded", _NORM)
    if norm == "pre":
        column.box(last, f"{stack}.norm", "Norm", "norm", _THIN)


_COLUMN, _ROW, _NODE, _HEIGHT = 112, 30, 96, 24
_LETTERS = 7  # of a piece that fit beside its score


def draw_beam(tree: BeamTree, target: Tokenizer) -> str:
    """The tree from left to right: a column for each step, a line from each candidate to its parent."""
    candidates = tree.candidates
    steps = max(one.step for one in candidates)
    rows: dict[int, int] = {ROOT: 0}
    most = 1
    for step in range(1, steps + 1):
        here = [place for place, one in enumerate(candidates) if one.step == step]
        here.sort(key=lambda place: (rows[candidates[place].parent], -candidates[place].log_prob))
        rows |= {place: row for row, place in enumerate(here)}
        most = max(most, len(here))
    won = set(tree.path)
    lines, nodes = [], []
    for place, one in enumerate(candidates):
        x, y = one.step * _COLUMN, rows[place] * _ROW + 4
        fate = "won" if place in won else one.fate
        from_x = (one.step - 1) * _COLUMN + (40 if one.parent == ROOT else _NODE)
        from_y = rows[one.parent] * _ROW + 4 + _HEIGHT // 2
        to_y, half = y + _HEIGHT // 2, (_COLUMN - _NODE) // 2
        lines.append(
            f'<path class="{fate}" d="M{from_x} {from_y}C{from_x + half} {from_y} {x - half} {to_y} {x} {to_y}"/>'
        )
        name = target.pieces([one.token])[0]
        shown = name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"
        so_far = target.decode(tree.tokens(place))
        nodes.append(
            f'<g class="node {fate}" data-said="{text_in_page(so_far)}" data-log="{one.log_prob:.3f}" '
            f'data-score="{one.score:.3f}" data-fate="{one.fate}" data-step="{one.step}" data-row="{rows[place]}" '
            f'data-place="{place}" data-parent="{one.parent}"><rect x="{x}" y="{y}" '
            f'width="{_NODE}" height="{_HEIGHT}" rx="6"/><text x="{x + 8}" y="{y + 16}">{text_in_page(shown)}</text>'
            f'<text class="value" x="{x + _NODE - 6}" y="{y + 16}">{_short(one.score)}</text></g>'
        )
    order = sorted(range(len(lines)), key=lambda place: place in won)  # the winner is drawn last, on top
    width, height = (steps + 1) * _COLUMN, most * _ROW + 8
    return f"""<svg class="beam" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"
 aria-label="{len(candidates)} candidates in {steps} steps">
<g class="node root"><rect x="0" y="4" width="40" height="{_HEIGHT}" rx="6"/><text x="8" y="20">&lt;s&gt;</text></g>
{"".join(lines[place] for place in order)}{"".join(nodes[place] for place in order)}</svg>"""


def _short(value: float) -> str:
    return f"{value:.1f}".replace("-", "−")
