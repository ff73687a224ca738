"""The steps of BERT and of ViT as sections of a page, each with the numbers of one text or one picture in it."""

import base64
from collections.abc import Iterable
from math import exp

import numpy as np

from heedful.inspection.encoder_view import make_png
from heedful.inspection.explain_encoder import ExplainedAnswer
from heedful.inspection.figure_one import BESIDE, Box
from heedful.inspection.layer_sections import LayerSections
from heedful.inspection.markup import (
    equation,
    fraction,
    mark_differences,
    mi,
    mn,
    mo,
    number,
    piece,
    space,
    sub,
    times_less_likely,
    words,
)
from heedful.inspection.page_charts import draw_bars, draw_cells
from heedful.inspection.question_sections import QuestionSections
from heedful.pages.inline import text_in_page

_MOST_LABELS = 20  # whose probabilities are drawn


class EncoderSections(LayerSections):
    """Every step of the data's way, from the text or the picture to the answer, as a section."""

    found: ExplainedAnswer

    def __init__(self, found: ExplainedAnswer) -> None:
        super().__init__(found)
        if found.is_picture:
            self.unit, self.units, self.whole_input = "patch", "patches", "picture"

    def all(self) -> Iterable[str]:
        """The sections in the order of the data's way."""
        yield self._start()
        if self.found.is_picture:
            yield self._patches()
            yield self._projection()
            yield self._picture_positions()
        else:
            yield self._pieces()
            yield self._embedding("encoder")
            yield self._positions()
            yield self._sum()
        for layer in range(1, self.found.layers["encoder"] + 1):
            yield from self._attention(f"encoder.{layer}.attention")
            yield from self._feed_forward(f"encoder.{layer}.feed_forward")
        yield self._lens()
        yield self._head_of_model()
        yield self._answers()

    def path(self) -> list[str]:
        """The steps that "next" walks through."""
        below, above = ([step for step, _, _ in boxes] for boxes in (self.below, self.above))
        return ["start", *below, *self.walk("encoder"), "lens", *above]

    @property
    def below(self) -> list[Box]:
        """The boxes of the map below the layers."""
        if self.found.is_picture:
            return [
                ("patches", "patches", "Patches"),
                ("encoder.embedding", "encoder.embedding", "Linear projection"),
                ("encoder.positions", "encoder.positions", "[CLS], positions"),
            ]
        return [
            ("pieces", "pieces", "Pieces and ids"),
            ("encoder.embedding", "encoder.embedding", "Embedding"),
            ("encoder.positions", "encoder.positions", "Positions"),
            ("encoder.sum", "encoder.sum", "Sum &amp; norm"),
        ]

    @property
    def above(self) -> list[Box]:
        """Those above them."""
        return [("head", "head", self._head_title()), ("logits", "logits", "Linear, softmax")]

    @property
    def beside(self) -> list[Box]:
        """Those beside them; the first experiment is the one about what the model reads."""
        return [(step.replace("experiments.parts", "experiments.hiding"), name, label) for step, name, label in BESIDE]

    def _head_title(self) -> str:
        if self.found.is_picture or self.config.head == "sequence":
            return "Mean of all" if self.config.pooling == "mean" else "[CLS]"
        return "Each [MASK]" if self.config.head == "masked" else "Each word"

    # One section each

    def _start(self) -> str:
        config, found = self.config, self.found
        per_layer = config.encoder_heads or (config.num_heads,) * config.encoder_layers
        norm = "after the sum, as in the paper" if config.norm == "post" else "before each sub-layer"
        read = (
            f'<p><img class="seen" src="{self._png()}" alt="The picture, as the model sees it"></p>'
            if found.is_picture
            else ""
        )
        place = f"{self._across()} × {self._across()}" if found.is_picture else config.positions
        likely = f" ({100 * exp(found.log_prob):.1f} %)" if len(found.target_pieces) == 1 else ""
        missing = (
            "the decoder, and with it the mask and the attention to a source. What is read are no words, but the "
            "patches of a picture."
            if found.is_picture
            else "the decoder, and with it the mask and the attention to a source. Every piece sees all others, before "
            "it and behind it."
        )
        body = f"""
<div class="pair">{read}
  <p class="quote"><span class="muted">in</span> <bdi>{text_in_page(found.text)}</bdi></p>
  <p class="quote strong"><span class="muted">{found.noun}</span> <bdi>{text_in_page(self.given)}</bdi>{likely}</p>
</div>
<p class="actions"><a class="button strong" href="#tour.1">Take the tour (3 minutes)</a>
<a class="button" href="#{self.below[0][0]}">Go step by step</a></p>
<dl class="facts">
  <div><dt>weights</dt><dd>{found.parameters:,}</dd></div>
  <div><dt>d<sub>model</sub></dt><dd>{config.d_model}</dd></div>
  <div><dt>layers</dt><dd>{config.encoder_layers}</dd></div>
  <div><dt>heads per layer</dt><dd>{", ".join(map(str, sorted(set(per_layer))))}</dd></div>
  <div><dt>d<sub>ff</sub></dt><dd>{config.d_ff}</dd></div>
  <div><dt>norm</dt><dd>{norm}</dd></div>
  <div><dt>{"patches" if found.is_picture else "positions"}</dt><dd>{place}</dd></div>
</dl>
<p><strong>What figure 1 has and this model has not:</strong> {missing}</p>
<p>Every number on this page was recorded while the model read this very {self.whole_input}. Each step follows from the
steps before it, and a test recomputes them all. Click a box of the figure, or use the arrow keys.</p>
{self.describe_baseline()}{self._ranked(self.whole_input)}"""
        name = "ViT" if found.is_picture else "BERT"
        return self.section(
            "start", "", "Overview", f"One {self.whole_input} through {name}",
            f"The model reads a {self.whole_input}, turns it into numbers, lets the {self.units} look at each other, "
            "and answers. It writes nothing.", body, "vit" if found.is_picture else "bert",
        )  # fmt: skip

    def _across(self) -> int:
        return round((len(self.found.question.pieces) - 1) ** 0.5)

    def _png(self) -> str:
        pixels = self.found.question.pixels
        if pixels is None:
            raise ValueError("there is no picture")
        return f"data:image/png;base64,{base64.b64encode(make_png(pixels)).decode()}"

    def _patches(self) -> str:
        config, across = self.config, self._across()
        side, channels = config.patch_size, config.channels
        value = float(self.steps["encoder.patches"][0, 0])
        byte = round((value + 1) * 127.5)
        body = '<div class="figure" data-view="patches"></div>'
        body += """<p class="muted">The numbers of the patch that is chosen. The model sees the picture at this size,
however large the file is.</p>"""
        return self.section(
            "patches", "patches", "Input", "The picture becomes patches",
            f"The picture is cut into {across} × {across} squares of {side} × {side} pixels. Each is a “word”: "
            f"{side * side * channels} numbers from −1 (black) to 1 (white).", body, "vit",
            equation(words("pixel"), mo("="), fraction(mn(byte), mn("127.5")), mo("−"), mn(1), mo("="), mn(value)),
            shape=f"{config.image_size} × {config.image_size} × {channels} → {across * across} × "
            f"{side * side * channels}",
        )  # fmt: skip

    def _projection(self) -> str:
        config = self.config
        patches, rows = self.steps["encoder.patches"], self.steps["encoder.embedding"]
        body = self.figure("matrix", "encoder.embedding", "source", "plain")
        body += f"""<p>The paper looks a row up for each word, because words can be counted. Pixels cannot, so one
matrix of {patches.shape[1]} × {config.d_model} learned numbers maps every patch, wherever it is.</p>"""
        return self.section(
            "encoder.embedding", "encoder.embedding", "Encoder", "Each patch becomes a vector",
            f"The {patches.shape[1]} numbers of a patch are multiplied by one matrix, the same for all patches. In "
            "front of them stands [CLS], a learned vector that belongs to no patch.", body, "vit",
            equation(sub("x", "i"), mo("="), sub("p", "i"), mi("W"), mo("+"), mi("b"), mo(","), space(),
                     mn(len(patches)), mo("×"), mn(patches.shape[1]), mo("→"), mn(len(patches)), mo("×"),
                     mn(config.d_model)),
            shape=f"{len(rows)} × {config.d_model}",
        )  # fmt: skip

    def _picture_positions(self) -> str:
        rows = self.steps["encoder.positions"][1:]
        normal = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
        cosines, across = normal @ normal.T, self._across()
        place = np.arange(across * across)
        far = np.abs(place[:, None] // across - place // across) + np.abs(place[:, None] % across - place % across)
        beside, others = float(cosines[far == 1].mean()), float(cosines[far > 1].mean())
        body = self.figure("matrix", "encoder.positions", "source", "positions")
        body += f"""<p>Nobody tells the model which patches are neighbours. The mean cosine between the vectors of two
patches side by side is <strong>{beside:.2f}</strong>, of all others <strong>{others:.2f}</strong>. Where the first is
larger, training has found out what is beside what.</p>
<h3>The dot products of all positions</h3>"""
        body += self.figure("products", "encoder.positions", "source", "products")
        body += self.without("What if the model had no positions at all?", "positions")
        return self.section(
            "encoder.positions", "encoder.positions", "Encoder", "Where each patch is",
            "Attention alone cannot tell where a patch is, so each place in the picture has a learned vector, which is "
            "added. There are no rows and columns in it: the places are counted from one end to the other.",
            body, "vit", equation(mi("x"), mo("+"), sub("P", "pos")), shape=f"{len(rows) + 1} × {self.config.d_model}",
        )  # fmt: skip

    def _sum(self) -> str:
        total = self.steps["encoder.summed"]
        parts = [mi("E")] + ([mi("P")] if "encoder.positions" in self.steps else []) + [mi("T")]
        inner = mo("+").join(parts)
        row = min(1, len(total) - 1)
        body = self.figure("matrix", "encoder.input", "source", "plain")
        body += f"""<p>T is one vector for all pieces of a first text; a second text would have another. Before the
norm, the numbers of {piece(self.found.source_pieces[row])} have mean {number(float(total[row].mean()))} and spread
{number(float(total[row].std()))}; then a learned gain and shift are applied.</p>"""
        return self.section(
            "encoder.sum", "encoder.sum", "Encoder", "The sum, normalised",
            "BERT adds the vector of the piece, that of its position if it has one, and that of the text it is in, "
            "and normalises the sum before the first layer. The paper does not.", body, "bert",
            equation(mi("x"), mo("="), mi("LayerNorm"), mo("("), inner, mo(")")),
            shape=f"{total.shape[0]} × {total.shape[1]}",
        )  # fmt: skip

    def _head_of_model(self) -> str:
        found, config = self.found, self.config
        mean = config.pooling == "mean"
        whole = found.is_picture or config.head == "sequence"
        body = self.figure("matrix", "head.output", "inputs", "plain")
        if whole:
            everything = "[CLS] and all patches" if found.is_picture else "all pieces"
            plain = (
                f"The label belongs to the whole {self.whole_input}, so the vectors of {everything} become one: "
                + ("their mean." if mean else "that of [CLS], which has looked at all others in every layer.")
            )
            formula = (
                equation(
                    mi("z"), mo("="), fraction(mn(1), mi("n")), "<munder><mo>∑</mo><mi>i</mi></munder>", sub("x", "i")
                )
                if mean
                else equation(mi("z"), mo("="), sub("x", "[CLS]"))
            )
        else:
            what = "hidden word" if config.head == "masked" else "word"
            plain = (
                f"The model is asked about each {what}, so only the vectors at these {len(found.target_pieces)} places "
                "go on." + (" A word of several pieces is asked about at its first." if config.head == "tokens" else "")
            )
            formula = equation(sub("z", "k"), mo("="), sub("x", "k"))
        if not found.is_picture and config.head != "tokens":
            dense, active = float(self.steps["head.dense"][0, 0]), float(self.steps["head.active"][0, 0])
            name = "tanh" if config.head == "sequence" else "GELU"
            after = "" if config.head == "sequence" else ", and a norm follows"
            body += f"""<p>One more layer prepares it: a matrix of {config.d_model} × {config.d_model}, then
{name}: {name}({number(dense)}) = {number(active)} for the first number{after}.</p>"""
        return self.section(
            "head", "head", "Output", "What the answer is made of", plain, body,
            "vit" if found.is_picture else "bert", formula, shape=" × ".join(map(str, self.steps["head.output"].shape)),
        )  # fmt: skip

    def _answers(self) -> str:
        found = self.found
        log_probs, target = self.steps["log_probs"], self.steps["target"]
        outputs = log_probs.shape[1]
        own = log_probs[np.arange(len(target)), target]
        place = int(own.argmin())
        answer = int(target[place])
        features, weight = self.steps["head.output"][place], found.weight[answer]
        logit = float(self.steps["logits"][place, answer])
        formula = equation(
            sub("s", "w"), mo("="), mi("z"), mo("·"), sub("W", "w"), mo("+"), sub("b", "w"), mo("="),
            mn(float(features @ weight)), mo("+"), mn(float(found.bias[answer])), mo("="), mn(logit), space(),
            sub("p", "w"), mo("="), fraction(f"<msup><mi>e</mi>{sub('s', 'w')}</msup>",
            f"<munder><mo>∑</mo><mi>v</mi></munder><msup><mi>e</mi>{sub('s', 'v')}</msup>"), mo("="),
            mn(exp(float(own[place]))),
        )  # fmt: skip
        if len(target) == 1 and outputs <= _MOST_LABELS:
            order = np.argsort(-log_probs[0], kind="stable").tolist()
            names = found.target.pieces(order)
            body = draw_bars([
                (piece(name), exp(float(log_probs[0, each])), f"{100 * exp(float(log_probs[0, each])):.1f} %")
                for each, name in zip(order, names, strict=True)
            ])  # fmt: skip
        else:
            chips = "".join(
                f'<li><button type="button" class="chip" data-place="{number}">'
                f'<span class="muted">{text_in_page(about)}</span> {piece(each)} '
                f'<span class="muted">{100 * exp(float(value)):.0f} %</span></button></li>'
                for number, (about, each, value) in enumerate(
                    zip(found.input_pieces, found.target_pieces, own, strict=True)
                )
            )
            body = f"""<ul class="chips" id="written">{chips}</ul>
<div class="figure" data-view="logits" data-cell="{place}"></div>"""
        rows = "the same matrix as the embeddings" if self._shares() else "a matrix of its own"
        body += f"""<p>The formula has the numbers of {piece(found.target_pieces[place])}. W has one row for each of the
{outputs:,} answers, from {rows}; b is a number for each.</p>"""
        return self.section(
            "logits", "logits", "Output", "A probability for every answer",
            f"The last vector is multiplied by one row for each of the {outputs:,} possible answers: the larger the "
            "dot product, the likelier the answer.", body, "vit" if found.is_picture else "bert", formula,
            shape=f"{len(target)} × {outputs:,}",
        )  # fmt: skip

    def _shares(self) -> bool:
        return not self.found.is_picture and self.config.head == "masked"


class EncoderQuestions(QuestionSections):
    """The sections that follow the answer."""

    found: ExplainedAnswer

    def __init__(self, found: ExplainedAnswer) -> None:
        super().__init__(found)
        if found.is_picture:
            self.unit, self.units, self.whole_input = "patch", "patches", "picture"

    def about_input(self) -> Iterable[str]:
        yield self._hiding()

    def _hiding(self) -> str:
        """Which pieces or patches the answer depends on: each is hidden once."""
        found = self.found
        costs = [found.log_prob - each.log_prob for each in found.hidden]
        names = found.source_pieces[1 : len(costs) + 1]
        most = int(np.argmax(costs))
        hidden = found.spell(found.hidden[most])
        said = (
            f"Even then the model says the same {self.noun}."
            if hidden == self.baseline
            else f"Then the model says <bdi>{mark_differences(self.baseline, hidden)}</bdi>."
        )
        changed = sum(each.tokens != tuple(self.steps["target"].tolist()) for each in found.hidden)
        if found.is_picture:
            across = round(len(costs) ** 0.5)
            png = EncoderSections(found)._png()
            body = draw_cells(png, np.array(costs).reshape(across, across), "What each patch is worth")
            plain = (
                "Each patch is covered with grey, and the model answers again. The warmer a patch, the more the label "
                "depends on it; without blue ones, the label would be likelier."
            )
            title = "Which patches does the label depend on?"
        else:
            body = draw_bars([(piece(name), cost, number(cost)) for name, cost in zip(names, costs, strict=True)])
            plain = (
                "Each piece is replaced by [MASK], and the model answers again. How much log-probability does the "
                f"{self.noun} lose?"
            )
            title = "Which pieces does the answer depend on?"
        name = f"row {names[most].replace(',', ', column ')}" if found.is_picture else piece(names[most])
        body += f"""<p>Most depends on {name}: without it, the {self.noun} becomes {times_less_likely(costs[most])}.
{said} Hiding one {self.unit} changes the {self.noun} in {changed} of {len(costs)} cases.</p>
<p>This is another question than where heads look: a {self.unit} that all heads look at may not matter, and one that
matters may be looked at by a single head. Compare it with <a href="#experiments.heads">the heads</a>.</p>"""
        return self.section(
            "experiments.hiding", "experiments", self._count(), title, plain, body, "without",
        )  # fmt: skip

    def more_said(self) -> list[tuple[str, str]]:
        found = self.found
        if not found.is_picture:
            return []
        return [
            (
                "“A ViT knows that a picture has rows and columns.”",
                "It does not: it gets the patches as a sentence, and learns a vector for each place. Without these "
                f"vectors, this label becomes {times_less_likely(found.cost_without('positions'))}. "
                '(<a href="#encoder.positions">See the positions</a>.)',
            )
        ]
