"""The steps of figure 1 as sections of a page, each with the numbers of one sentence in it."""

from collections.abc import Iterable

import numpy as np

from heedful.inspection.explain import ExplainedSentence
from heedful.inspection.layer_sections import LayerSections
from heedful.inspection.markup import (
    number,
    piece,
    power,
)
from heedful.inspection.page_charts import draw_paths
from heedful.pages.inline import text_in_page


class ModelSections(LayerSections):
    """Every step of the data's way, from the text to the beam, as a section."""

    found: ExplainedSentence

    def __init__(self, found: ExplainedSentence) -> None:
        super().__init__(found)
        self.orders = found.orders

    def all(self) -> Iterable[str]:
        """The sections in the order of the data's way."""
        yield self._start()
        yield self._pieces()
        yield self._embedding("encoder")
        yield self._positions()
        for layer in range(1, self.found.layers["encoder"] + 1):
            yield from self._attention(f"encoder.{layer}.attention")
            yield from self._feed_forward(f"encoder.{layer}.feed_forward")
        yield self._memory()
        yield self._embedding("decoder")
        for layer in range(1, self.config.decoder_layers + 1):
            yield from self._attention(f"decoder.{layer}.attention")
            yield from self._attention(f"decoder.{layer}.cross_attention")
            yield from self._feed_forward(f"decoder.{layer}.feed_forward")
        yield self._lens()
        yield self._logits()
        yield self._beam(self.found.tree)

    def _start(self) -> str:
        config, found = self.config, self.found
        per_layer = config.encoder_heads or (config.num_heads,) * config.encoder_layers
        norm = "after the sum, as in the paper" if config.norm == "post" else "before each sub-layer"
        body = f"""
<div class="pair">
  <p class="quote"><span class="muted">in</span> <bdi>{text_in_page(found.text)}</bdi></p>
  <p class="quote strong"><span class="muted">out</span> <bdi>{text_in_page(self.given)}</bdi></p>
</div>
<p class="actions"><a class="button strong" href="#tour.1">Take the tour (3 minutes)</a>
<a class="button" href="#pieces">Go step by step</a></p>
<dl class="facts">
  <div><dt>weights</dt><dd>{found.parameters:,}</dd></div>
  <div><dt>d<sub>model</sub></dt><dd>{config.d_model}</dd></div>
  <div><dt>layers</dt><dd>{config.encoder_layers} + {config.decoder_layers}</dd></div>
  <div><dt>heads per layer</dt><dd>{", ".join(map(str, sorted(set(per_layer))))}</dd></div>
  <div><dt>d<sub>ff</sub></dt><dd>{config.d_ff}</dd></div>
  <div><dt>norm</dt><dd>{norm}</dd></div>
  <div><dt>positions</dt><dd>{config.positions}</dd></div>
</dl>
<p>Every number on this page was recorded while the model computed this translation. Each step follows from the steps
before it, and a test recomputes them all. Click a box of the figure, or use the arrow keys.</p>"""
        body += self.describe_baseline() + self._ranked("sentence")
        return self.section(
            "start", "", "Overview", "One sentence through the Transformer",
            "The model reads a sentence, turns it into numbers, lets the pieces look at each other, and writes the "
            "translation piece by piece.", body, "stack",
        )  # fmt: skip

    def _orders(self) -> str:
        found, body = self.found, ""
        if "swapped" in found.orders:
            body += f"""<aside class="without"><h3>What if two words change places?</h3>{self.reordered("swapped")}
<p>Both have the same vectors as before, at other places.</p></aside>"""
        body += f"""<aside class="without"><h3>What if the words come in the opposite order?</h3>
{self.reordered("reversed")}<p>Without positions, the encoder could not tell the two orders apart: for the same pieces
in the opposite order, its vectors differ by at most {power(found.order_blindness)}. A sentence would be a bag of
pieces.</p></aside>"""
        return body

    def _memory(self) -> str:
        n = self.found.layers["encoder"]
        start = self.steps["encoder.scaled"]
        layers = [self.steps["encoder.input"], *(self.steps[f"encoder.{layer}.output"] for layer in range(1, n + 1))]
        rows = []
        for label, x in zip(["input", *(f"layer {layer}" for layer in range(1, n + 1))], layers, strict=True):
            lengths = np.maximum(np.linalg.norm(x, axis=1) * np.linalg.norm(start, axis=1), 1e-9)
            cosines = (x * start).sum(1) / lengths
            cells = "".join(f'<td class="n">{number(float(each))}</td>' for each in cosines)
            rows.append(f'<tr><th scope="row">{label}</th>{cells}</tr>')
        heads = "".join(f'<th scope="col">{piece(each)}</th>' for each in self.found.source_pieces)
        body = self.figure("matrix", "encoder.output", "source", "plain")
        ways = list(zip(self.found.source_pieces, _flatten(layers), strict=True))
        body += f"""<h3>How meaning moves, layer by layer</h3>
{draw_paths(ways, "The way of each piece from its embedding, a ring, to the memory, a dot")}
<p>Each line is a piece on its way from its embedding (ring) through the layers (small dots) to the memory (dot), seen
from the side where the vectors differ most. Pieces that begin alike can end far apart: the same word means something
else in another sentence.</p>
<h3>How far each piece has moved: the cosine with its own embedding</h3>
<div class="scroll"><table class="ranked"><thead><tr><td></td>{heads}</tr></thead>
<tbody>{"".join(rows)}</tbody></table></div>"""
        return self.section(
            "encoder.output", "encoder.output", "Encoder", "The memory of the source",
            f"After {n} layers, each piece has a vector that knows its whole sentence. The decoder reads only these.",
            body, "stack", shape=" × ".join(map(str, self.steps["encoder.output"].shape)),
        )  # fmt: skip


def _flatten(layers: list[np.ndarray]) -> list[list[tuple[float, float]]]:
    """The direction of each piece's vector after each layer, on the two axes along which all of them differ most."""
    stacked = np.stack([x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9) for x in layers])
    rows = stacked.reshape(-1, stacked.shape[-1])
    centred = rows - rows.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2] * np.sign(axes[:2, np.abs(axes[:2]).argmax(1)].diagonal())[:, None]  # SVD leaves the sign open
    placed = (centred @ axes.T).reshape(len(layers), -1, min(2, len(axes)))
    return [[(float(x), float(y)) for x, y in placed[:, place]] for place in range(placed.shape[1])]
