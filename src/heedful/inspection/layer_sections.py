"""The sections that every model made of the layers of figure 1 has, each with the numbers of one text in it."""

from collections.abc import Iterable
from math import exp, pi, sqrt

import numpy as np
import torch

from heedful.attention.roles import ROLE_MEANINGS
from heedful.inspection.explain import ExplainedLayers
from heedful.inspection.markup import (
    entropy_in_bits,
    equation,
    fraction,
    mi,
    mn,
    mo,
    piece,
    root,
    softmax,
    space,
    sub,
    sup,
    times_less_likely,
    words,
)
from heedful.inspection.page_charts import Axis, draw_lines
from heedful.inspection.piece_sections import PieceSections, sides
from heedful.inspection.section_writer import head_title, layer_title, sublayer_title
from heedful.nn.positions import sinusoids


class LayerSections(PieceSections):
    """Sections about positions and layers."""

    found: ExplainedLayers

    def best_head(self, name: str) -> str:
        return self.found.ranked_heads(f"{name}.head.")[0]

    def stages(self, name: str) -> list[str]:
        masked = (name.startswith("decoder") and name.endswith(".attention")) or bool(self.config.window)
        stages = ["projections", "scores", "scaled", *(["mask"] if masked else []), "softmax", "values"]
        return stages if not name.endswith("cross_attention") else [each for each in stages if each != "mask"]

    def _positions(self) -> str:
        found, config = self.found, self.config
        stack = found.first_stack
        side = sides(stack)[0]
        if config.positions == "relative":
            plain = (
                "This model adds no positions to its vectors. Each head of self-attention learns a number for every "
                "distance between two pieces, and adds it to the score."
            )
            bias = self.steps[f"{stack}.1.attention.bias"]
            formula = equation(
                sub("s", "ij"), mo("="), fraction(f"{sub('q', 'i')}{mo('·')}{sub('k', 'j')}",
                root(sub("d", "k"))), mo("+"), sub("b", "j−i"),
            )  # fmt: skip
            body = self.figure("bias", f"{stack}.1.attention.bias", side, "bias")
            shape, where = " × ".join(map(str, bias.shape)), "distances"
        else:
            plain = (
                "Attention alone cannot tell the order of words, so each position has a vector of its own, which is "
                "added to the embedding: sines and cosines from quick to slow."
                if config.positions == "sinusoidal"
                else "Attention alone cannot tell the order of words, so each position has a learned vector, which is "
                "added to the embedding."
            )
            formula = equation(
                sub("PE", "pos, 2i"), mo("="), mi("sin"), mo("("), fraction(mi("pos"),
                "<msup><mn>10000</mn><mrow><mn>2</mn><mi>i</mi><mo>/</mo><mi>d</mi></mrow></msup>"), mo(")"),
            ) if config.positions == "sinusoidal" else equation(
                mi("x"), mo("+"), sub("P", "pos")
            )  # fmt: skip
            body = self.figure("matrix", f"{stack}.positions", side, "positions")
            if config.positions == "sinusoidal":
                body += self._wavelengths()
            body += "<h3>The dot product of two positions falls with their distance</h3>"
            body += self._products_by_distance(self.steps[f"{stack}.positions"])
            body += self.figure("products", f"{stack}.positions", side, "products")
            body += self._why_added()
            shape, where = f"{len(found.read_pieces)} × {config.d_model}", "positions"
        body += self.without("What if the model had no positions at all?", "positions")
        body += self._orders()
        if config.positions == "relative":
            body += self._paper_positions()
        return self.section(
            f"{stack}.positions", f"{stack}.positions", stack.capitalize(), "Where each piece is", plain, body, where,
            formula, shape=shape,
        )  # fmt: skip

    def _orders(self) -> str:
        """What the model makes of the words in other orders."""
        return ""

    def _wavelengths(self) -> str:
        """Each pair of columns is a wave; the first are short and the last are long."""
        d_model = self.config.d_model
        waves = [2 * pi * 10_000 ** (2 * pair / d_model) for pair in range(d_model // 2)]
        chart = draw_lines(
            [("wavelength", [(2.0 * pair, wave) for pair, wave in enumerate(waves)])],
            Axis("column", 0, d_model), Axis("positions for one whole wave", 1, 1e5, logarithmic=True),
        )  # fmt: skip
        return f"""<h3>Wavelengths: from {waves[0]:.1f} to {waves[-1]:,.0f} positions</h3>{chart}
<p>The first columns are like the seconds hand of a clock and tell neighbours apart; the last hardly move within a
sentence and tell its beginning from its end.</p>"""

    def _paper_positions(self) -> str:
        """What the paper does in place of this model's biases, with the size of this model."""
        d_model = self.config.d_model
        rows = sinusoids(torch.arange(max(2, len(self.found.read_pieces))), d_model).numpy()
        return f"""<aside class="said"><h3>What the paper does: it adds sines to the vectors</h3>
<p>Position pos gets a vector of {d_model} numbers: sin(pos / 10000<sup>2i/{d_model}</sup>) and the cosine of the same,
from quick to slow. It is added to the embedding. This model has none of these vectors; they are drawn here for its
size.</p></aside>
{self._wavelengths()}<h3>The dot product of two positions falls with their distance</h3>
{self._products_by_distance(rows)}{self._why_added()}"""

    def _why_added(self) -> str:
        """Why positions are added and not set beside the embeddings."""
        d_model, stack = self.config.d_model, self.found.first_stack
        measured = ""
        if self.config.positions != "relative":
            x, p = self.steps[f"{stack}.scaled"], self.steps[f"{stack}.positions"]
            lengths = np.maximum(np.linalg.norm(x, axis=1) * np.linalg.norm(p, axis=1), 1e-9)
            cosine = float(np.abs((x * p).sum(1) / lengths).mean())
            measured = (
                f" Here, the cosine between an embedding and the position that is added to it is {cosine:.2f} on "
                "average, regardless of the sign; 0 means that they share no direction."
            )
        return f"""<h3>Why add a position, and not set it beside the embedding?</h3>
<p>Side by side, a vector would have {2 * d_model} numbers, and the next matrix W would turn it into W₁x + W₂p: also a
sum. Adding first gives Wx + Wp, which is the same with one matrix for both. It costs no column and no weight, and
works if x and p keep to different directions, of which there are {d_model}.{measured}</p>"""

    def _products_by_distance(self, rows: np.ndarray) -> str:
        distances = range(len(rows))
        means = [(float(each), float(np.trace(rows @ rows.T, offset=each) / (len(rows) - each))) for each in distances]
        values = [value for _, value in means]
        least = min(0.0, *values)
        return draw_lines(
            [("dot product", means)], Axis("distance between two positions", 0, max(1, len(rows) - 1)),
            Axis("dot product, on average", least, max(*values, least + 1e-9)),
        ) if len(rows) > 1 else ""  # fmt: skip

    def _attention(self, name: str) -> Iterable[str]:
        found = self.found
        heads, queries, keys = self.steps[f"{name}.weights"].shape
        cross = name.endswith("cross_attention")
        rows, columns = sides(name)
        cards = "".join(
            f'<li><a class="card" href="#{name}.head.{head + 1}"><span class="mini" data-matrix="{name}.weights" '
            f'data-head="{head}"></span><span class="name">head {head + 1}</span>'
            f"{self._role(f'{name}.head.{head + 1}')}"
            f'<span class="muted">without it: {times_less_likely(found.cost_without(f"{name}.head.{head + 1}"))}'
            f"</span></a></li>"
            for head in range(heads)
        )
        body = f'<ul class="cards">{cards}</ul>{self._role_meanings(name, heads)}'
        d_k = self.steps[f"{name}.query"].shape[-1]
        body += (
            "<p>In self-attention, queries, keys and values all come from the same vectors. Here the queries ask in "
            "one language, and the keys and values answer in the other. Nothing is masked: the whole source is "
            "known.</p>"
            if cross
            else f"<p>Several heads cost no more than one: the matrices of {heads} heads with {d_k} numbers each are "
            f"together as large as those of one head with {heads * d_k}.</p>"
        )
        body += self.without(f"What if {sublayer_title(name)} were left out?", name)
        if cross:
            body += self.without("What if the decoder could not see the source at all?", "cross_attention")
        plain = {
            "encoder": f"{heads} heads look at the text at the same time: a row shows where one piece looks. One "
            "head can look for one kind of thing at a time, so there are several.",
            "decoder": f"{heads} heads look back at the pieces written so far; none may look ahead, so all above the "
            "diagonal is empty.",
            "cross": f"{heads} heads let each piece of the translation look at the source: queries come from the "
            "decoder, keys and values from the encoder.",
        }["cross" if cross else name.partition(".")[0]]
        formula = equation(
            mi("Attention"), mo("("), mi("Q"), mo(","), mi("K"), mo(","), mi("V"), mo(")"), mo("="),
            mi("softmax"), mo("("), fraction(mi("Q") + sup("K", "T"), root(sub("d", "k"))), mo(")"), mi("V"),
        )  # fmt: skip
        yield self.section(
            name, name, layer_title(name), sublayer_title(name, capital=True), plain, body,
            "cross" if cross else "heads", formula, shape=f"{heads} heads × {queries} × {keys}",
        )  # fmt: skip
        for head in range(heads):
            yield self._head(name, head, rows, columns)
        yield self._heads_output(name)
        yield self._residual(name)

    def _role_meanings(self, name: str, heads: int) -> str:
        """What the roles of these heads mean."""
        named = dict.fromkeys(self.found.role_of(f"{name}.head.{head + 1}") for head in range(heads))
        meant = [f"<strong>{role}</strong> {ROLE_MEANINGS[role]}" for role in ROLE_MEANINGS if role in named]
        return f'<p class="muted">Over many sentences: {"; ".join(meant)}.</p>' if meant else ""

    def _role(self, head: str) -> str:
        role = self.found.role_of(head)
        return f'<span class="role">{role}</span>' if role else ""

    def _head(self, name: str, head: int, rows: str, columns: str) -> str:
        found, steps = self.found, self.steps
        full = f"{name}.head.{head + 1}"
        q, k, weights, scores = (steps[f"{name}.{part}"][head] for part in ("query", "key", "weights", "scores"))
        row_pieces, column_pieces = self.labels(rows), self.labels(columns)
        i, j = _telling_cell(weights, rows == columns)
        d_k, score = q.shape[-1], float(scores[i, j])
        scaled = score / sqrt(d_k)
        asks, looked_at = piece(row_pieces[i]), piece(column_pieces[j])
        cross = name.endswith("cross_attention")
        read = "the encoder's output, once for the whole translation" if cross else "the same vectors"
        width = self.config.d_model
        bias = steps[f"{name}.bias"][head] if f"{name}.bias" in steps else np.zeros_like(scores)
        unscaled = softmax(np.where(steps[f"{name}.mask"], scores + bias, -np.inf))
        hidden = int((~steps[f"{name}.mask"]).sum())
        given = sum(found.unmasked)
        stages = {
            "projections": (
                "Query, key, value",
                f"Each piece gets three short vectors: a query, which says what it looks for; a key, by which it is "
                f"found; and a value, which it passes on. Keys and values come from {read}.",
                equation(mi("Q"), mo("="), mi("x"), sup("W", "Q"), mo(","), space(), mi("K"), mo("="),
                      mi("m" if cross else "x"), sup("W", "K"), mo(","), space(), mi("V"), mo("="),
                      mi("m" if cross else "x"), sup("W", "V"), space(), mn(len(row_pieces)), mo("×"),
                      mn(width), mo("→"), mn(len(row_pieces)), mo("×"), mn(d_k)),
                "",
            ),
            "scores": (
                "One score is a dot product",
                f"To see how much {asks} should look at {looked_at}, multiply the query of the one by the key of the "
                f"other, number by number, and add up {d_k} products.",
                equation(sub("s", "ij"), mo("="), sub("q", "i"), mo("·"), sub("k", "j"), mo("="),
                      mn(float(q[i, 0])), mo("×"), mn(float(k[j, 0])), mo("+"), mo("…"), mo("+"),
                      mn(float(q[i, -1])), mo("×"), mn(float(k[j, -1])), mo("="), mn(score)),
                self.without("What if every score were zero, so that all pieces count alike?", "scores"),
            ),
            "scaled": (
                "Divide by the root of d_k",
                "A sum of many products is large, and the softmax of large numbers picks one key and ignores the rest: "
                "its gradient is almost zero, and the head could not learn to look elsewhere. "
                f"Dividing by √{d_k} = {sqrt(d_k):.2f} keeps it soft.",
                equation(fraction(mn(score), root(mn(d_k))), mo("="), mn(scaled)),
                self.without(
                    "What if the scores were not scaled?", "scale-of-scores",
                    f"In this head, the shares of a row have {entropy_in_bits(weights):.2f} bits of entropy with the "
                    f"scale, and {entropy_in_bits(unscaled):.2f} without it. (This model was trained with it.)",
                ),
            ),
            "mask": (
                "No looking ahead",
                "The score of every later piece becomes minus infinity, so its share will be exactly 0: e to the power "
                "of minus infinity is 0, while a score of 0 would still get e⁰ = 1. The mask comes before the softmax, "
                "so the other shares still add up to 1.",
                equation(sub("s", "ij"), mo("="), mo("−"), mi("∞"), space(), words("if"), space(), mi("j"),
                      mo("&gt;"), mi("i"), space(), words(f"{hidden} of {scores.size} cells")),
                f"""<aside class="without"><h3>What if there were no mask?</h3>
<p>Let the decoder read the whole {self.noun} at once without the mask, and its pieces see their own future. It was
trained never to see it, so its predictions fall apart: the {self.noun} above becomes
{times_less_likely(found.log_prob - given)}. The mask is needed at inference too, whenever a whole prefix is run at
once. A search that goes piece by piece needs none, because the future does not exist yet.</p></aside>""",
            ),
            "softmax": (
                "Softmax: shares that add up to 1",
                f"Raise e to each score, and divide by the sum of the row: {asks} gives {looked_at} "
                f"{100 * float(weights[i, j]):.1f} % of its attention."
                + (f" This row has just read {asks} and is about to write {piece(self.labels('target')[i])}."
                   if rows == "inputs" else ""),
                equation(sub("w", "ij"), mo("="), fraction(f"<msup><mi>e</mi>{sub('s', 'ij')}</msup>",
                      f"<munder><mo>∑</mo><mi>k</mi></munder><msup><mi>e</mi>{sub('s', 'ik')}</msup>"),
                      mo("="), mn(float(weights[i, j]))),
                self.without(
                    f"What if {head_title(full)} were switched off?", full,
                    f"By this measure it is number {self.rank[full]} of {len(self.rank)} heads for this {self.noun}. "
                    "A large weight alone explains nothing: look at what happens without the head.",
                ),
            ),
            "values": (
                "The weighted mean of the values",
                f"The result for {asks} is the mean of all values, each weighted by its share; it is a mean only if "
                "the shares add up to 1. Whatever distance lies between two pieces, the way between them is one step.",
                equation(sub("z", "i"), mo("="), "<munder><mo>∑</mo><mi>j</mi></munder>", sub("w", "ij"),
                      sub("v", "j"), space(), mn(len(row_pieces)), mo("×"), mn(len(column_pieces)), mo("·"),
                      mn(len(column_pieces)), mo("×"), mn(steps[f"{name}.value"].shape[-1])),
                "",
            ),
        }  # fmt: skip
        if f"{name}.bias" in steps:
            own = float(bias[i, j])
            title, plain, _, after = stages["scaled"]
            formula = equation(fraction(mn(score), root(mn(d_k))), mo("+"), mn(own), mo("="), mn(scaled + own))
            stages["scaled"] = title, f"{plain} Then comes the bias of the distance.", formula, after
        wanted = self.stages(name)
        tabs = "".join(f'<a class="tab" href="#{full}.{stage}">{_TABS[stage]}</a>' for stage in wanted)
        bodies = "".join(
            f'<div class="stage" data-stage="{stage}"><h3 class="stage-title">{stages[stage][0]}</h3>'
            f'<p class="plain">{stages[stage][1]}</p>{stages[stage][2]}</div>'
            for stage in wanted
        )
        afters = "".join(f'<div class="after" data-stage="{stage}">{stages[stage][3]}</div>' for stage in wanted)
        role = found.role_of(full)
        meaning = "".join(f" ({text})" for known, text in ROLE_MEANINGS.items() if known == role)
        mostly = f'<p class="muted">Over many sentences, this head is mostly: {role}{meaning}.</p>' if role else ""
        body = f"""{mostly}
<nav class="tabs" aria-label="Steps of this head">{tabs}</nav>{bodies}
<div class="figure" data-view="head" data-matrix="{name}" data-head="{head}" data-rows="{rows}" data-columns="{columns}"
 data-cell="{i},{j}"></div>{afters}"""
        return self.section(
            full, name, layer_title(name), head_title(full, capital=True), "", body,
            "mask" if "mask" in wanted else "cross" if cross else "attention",
            shape=f"Q {q.shape[0]} × {d_k}, K {k.shape[0]} × {d_k}, weights {weights.shape[0]} × {weights.shape[1]}",
        )  # fmt: skip

    def _heads_output(self, name: str) -> str:
        heads, queries, width = self.steps[f"{name}.heads"].shape
        shares = self.steps[f"{name}.shares"]
        strongest = int(shares.mean(0).argmax())
        formula = equation(
            mi("MultiHead"), mo("="), mi("Concat"), mo("("), sub("head", "1"), mo(","), mo("…"), mo(","),
            sub("head", str(heads)), mo(")"), sup("W", "O"), space(), mn(queries), mo("×"),
            mn(f"{heads}·{width}"), mo("→"), mn(queries), mo("×"), mn(self.config.d_model),
        )  # fmt: skip
        body = "<h3>How long each head's part of the result is</h3>"
        body += self.figure("shares", f"{name}.shares", sides(name)[0], "shares")
        body += "<h3>The result</h3>" + self.figure("matrix", f"{name}.output", sides(name)[0], "plain")
        return self.section(
            f"{name}.output", name, layer_title(name), "The heads side by side, mixed by one matrix",
            f"The results of all {heads} heads stand side by side and go through one matrix. Here, head "
            f"{strongest + 1} adds most: on average {100 * shares[:, strongest].mean() / shares.mean(0).sum():.0f} % "
            "of the lengths.", body, "heads", formula, shape=f"{queries} × {self.config.d_model}",
        )  # fmt: skip

    def _residual(self, name: str) -> str:
        pre = self.config.norm == "pre"
        x, result = self.steps[f"{name}.before"], self.steps[f"{name}.result"]
        kept = (x * result).sum(1) / np.maximum(np.linalg.norm(x, axis=1) * np.linalg.norm(result, axis=1), 1e-9)
        added = [mi("x"), mo("+"), mi("Sublayer"), mo("("), mi("x"), mo(")")]
        formula = (
            equation(mi("x"), mo("+"), mi("Sublayer"), mo("("), mi("LayerNorm"), mo("("), mi("x"), mo(")"), mo(")"))
            if pre
            else equation(mi("LayerNorm"), mo("("), *added, mo(")"))
        )
        plain = (
            "The result is added to what came in, so that x has a way past every sub-layer, and the gradient a way "
            "back. This model normalises what the sub-layer reads (pre-norm): mean 0 and spread 1, then a learned gain "
            "and shift; the paper normalises the sum."
            if pre
            else "The result is added to what came in, so that x has a way past every sub-layer, and the gradient a "
            "way back. Then the sum is normalised: mean 0 and spread 1, then a learned gain and shift."
        )
        after = (
            f"<p>How much of x survives: the cosine between x and the result is {kept.mean():.2f} on average "
            f"({kept.min():.2f} to {kept.max():.2f}).</p>"
        )
        body = self.figure("residual", name, sides(name)[0], "residual") + after
        body += self.without("What if this sum did not add x?", f"{name}.residual")
        return self.section(
            f"{name}.residual", f"{name}.residual", layer_title(name), "Add and normalise", plain, body, "residual",
            formula, shape=f"{x.shape[0]} × {x.shape[1]}",
        )  # fmt: skip

    def _feed_forward(self, name: str) -> Iterable[str]:
        active = self.steps[f"{name}.active"]
        awake = (active > 0).sum(1)
        relu = self.config.activation == "relu"
        side = sides(name)[0]
        body = self.figure("units", f"{name}.active", side, "units")
        body += (
            f"<p>Attention only mixes vectors. Here each one is worked on by itself: widened to {active.shape[1]} "
            f"numbers, bent by {'max(0, ·)' if relu else self.config.activation}, and narrowed to "
            f"{self.config.d_model}. Without the bend, the two matrices would be no more than one.</p>"
        )
        body += self.without(f"What if {sublayer_title(name)} were left out?", name)
        plain = "The same small network works on each piece alone, with the same weights at every position. " + (
            f"Of its {active.shape[1]} units, {awake.min()} to {awake.max()} are awake for a piece of this "
            "sentence; the others are 0."
            if relu
            else f"It has {active.shape[1]} units."
        )
        inner = f"{mi('x')}{sub('W', '1')}{mo('+')}{sub('b', '1')}"
        hidden = (
            mi("max") + mo("(") + mn(0) + mo(",") + inner + mo(")")
            if relu
            else mi(self.config.activation) + mo("(") + inner + mo(")")
        )
        formula = equation(
            mi("FFN"),
            mo("("),
            mi("x"),
            mo(")"),
            mo("="),
            hidden,
            sub("W", "2"),
            mo("+"),
            sub("b", "2"),
        )
        yield self.section(
            name, name, layer_title(name), "The feed-forward network", plain, body, "feed_forward", formula,
            shape=f"{active.shape[0]} × {self.config.d_model} → {active.shape[0]} × {active.shape[1]} → "
            f"{active.shape[0]} × {self.config.d_model}",
        )  # fmt: skip
        yield self._residual(name)

    def _lens(self) -> str:
        n, target = self.found.layers["decoder"], self.found.target
        rows = []
        for place, own in enumerate(self.steps["target"].tolist()):
            cells = ""
            for layer in range(1, n + 1):
                row = self.steps[f"decoder.{layer}.lens"][place]
                best = int(row.argmax())
                right = ' class="right"' if best == own else ""
                cells += (
                    f"<td{right}>{piece(target.pieces([best])[0])} "
                    f'<span class="muted">{100 * exp(float(row[best])):.0f} %</span></td>'
                )
            name = self.found.target_pieces[place]
            rows.append(f'<tr><th scope="row">{piece(name)}</th>{cells}</tr>')
        heads = "".join(f'<th scope="col">after layer {layer}</th>' for layer in range(1, n + 1))
        body = f"""<div class="scroll"><table class="lens"><thead><tr><th scope="col">written</th>{heads}</tr></thead>
<tbody>{"".join(rows)}</tbody></table></div>"""
        return self.section(
            "lens", "decoder.output", "Decoder", "What the model would say already here",
            "Send the vectors of each layer straight to the output: you see how the answer forms (a logit lens). "
            "Shaded cells already have the piece that was written.", body, "stack",
            shape=f"{n} layers × {len(rows)} positions",
        )  # fmt: skip


_TABS = {
    "projections": "Q, K, V",
    "scores": "Scores",
    "scaled": "÷ √d<sub>k</sub>",
    "mask": "Mask",
    "softmax": "Softmax",
    "values": "Mean of values",
}


def _telling_cell(weights: np.ndarray, same_side: bool) -> tuple[int, int]:
    """The cell with the largest weight, off the diagonal and away from the end if both sides are one sentence."""
    shown = weights.copy()
    if same_side:
        np.fill_diagonal(shown, -1.0)
    if shown.shape[1] > 2:
        shown[:, -1] -= 0.5
    place = int(shown.argmax())
    return place // shown.shape[1], place % shown.shape[1]
