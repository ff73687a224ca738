"""The steps of a recurrent or convolutional translator as sections of a page, each with the numbers of one sentence."""

from collections.abc import Iterable

import numpy as np

from heedful.inspection.explain_rival import ExplainedRival
from heedful.inspection.markup import equation, fraction, mi, mn, mo, piece, space, sub, sup
from heedful.inspection.piece_sections import PieceSections
from heedful.pages.inline import text_in_page


class RivalSections(PieceSections):
    """Every step that the model has in common with figure 1, and what it has instead of the others."""

    found: ExplainedRival

    def __init__(self, found: ExplainedRival) -> None:
        super().__init__(found)
        self.orders = found.orders
        self.is_recurrent = found.config.family == "recurrent"

    def all(self) -> Iterable[str]:
        """The sections in the order of the data's way."""
        yield self._start()
        yield self._pieces()
        yield self._embedding("encoder")
        if not self.is_recurrent:
            yield self._learned_positions()
        if "encoder.output" in self.steps:
            yield self._memory()
        yield self._embedding("decoder")
        for layer in range(1, self.found.attentions + 1):
            yield self._attention(f"decoder.{layer}.cross_attention")
        yield self._logits()
        yield self._beam(self.found.tree)
        yield self._order()

    def path(self) -> list[str]:
        """The steps that "next" walks through."""
        return [
            *("start", "pieces", "encoder.embedding"),
            *([] if self.is_recurrent else ["encoder.positions"]),
            *(["encoder.output"] if "encoder.output" in self.steps else []),
            "decoder.embedding",
            *(f"decoder.{layer}.cross_attention" for layer in range(1, self.found.attentions + 1)),
            *("logits", "beam", "experiments.order"),
        ]

    def _start(self) -> str:
        config, found = self.config, self.found
        kind = f"{config.cell.upper()}, attention: {config.attention}" if self.is_recurrent else "ConvS2S"
        if self.is_recurrent:
            missing = "self-attention, several heads, positions, feed-forward networks, residual connections and norms"
            instead = (
                "Recurrent layers read one piece after another and pass a state on. So they know the order by "
                "themselves, and a word reaches another in as many steps as lie between them."
            )
        else:
            missing = "self-attention, several heads, feed-forward networks and norms"
            instead = (
                f"Convolutions look at {config.kernel_width} pieces at a time, and gates decide what passes. So a word "
                "reaches a distant one only through several layers."
            )
        if not found.attentions:
            missing += ", and the attention to the source: the whole sentence has to fit into one state"
        ranked = self._ranked("sentence", "") if found.attentions else ""
        body = f"""
<div class="pair">
  <p class="quote"><span class="muted">in</span> <bdi>{text_in_page(found.text)}</bdi></p>
  <p class="quote strong"><span class="muted">out</span> <bdi>{text_in_page(self.given)}</bdi></p>
</div>
<p class="actions"><a class="button strong" href="#pieces">Go step by step</a></p>
<dl class="facts">
  <div><dt>weights</dt><dd>{found.parameters:,}</dd></div>
  <div><dt>d<sub>model</sub></dt><dd>{config.d_model}</dd></div>
  <div><dt>layers</dt><dd>{config.encoder_layers} + {config.decoder_layers}</dd></div>
  <div><dt>kind</dt><dd>{kind}</dd></div>
</dl>
<p><strong>What figure 1 has and this model has not:</strong> {missing}. {instead}</p>
<p>Every number on this page was recorded while the model computed this translation. Each step follows from the steps
before it, and a test recomputes them all. Click a box of the figure, or use the arrow keys.</p>
{self.describe_baseline()}{ranked}"""
        return self.section(
            "start", "", "Overview", "One sentence through a rival of the Transformer",
            "Before the Transformer, and beside it, other models translated. This page shows the parts that they "
            "share.", body, "rival",
        )  # fmt: skip

    def _learned_positions(self) -> str:
        body = self.figure("matrix", "encoder.positions", "source", "plain")
        shape = self.steps["encoder.positions"].shape
        return self.section(
            "encoder.positions", "encoder.positions", "Encoder", "Where each piece is",
            "Each position has a learned vector, which is added to the embedding.", body, "rival",
            equation(mi("x"), mo("+"), sub("P", "pos")), shape=f"{shape[0]} × {shape[1]}",
        )  # fmt: skip

    def _memory(self) -> str:
        shape = self.steps["encoder.output"].shape
        plain = (
            "Two recurrent layers read the sentence, one forwards and one backwards. Each piece gets the states of "
            "both, so it knows what is before it and what is behind it."
            if self.is_recurrent
            else f"After {self.config.encoder_layers} convolutions, the vector of each piece knows its neighbourhood."
        )
        return self.section(
            "encoder.output", "encoder.output", "Encoder", "What the encoder passes on", plain,
            self.figure("matrix", "encoder.output", "source", "plain"), "rival", shape=f"{shape[0]} × {shape[1]}",
        )  # fmt: skip

    def _attention(self, name: str) -> str:
        found = self.found
        weights, scores = self.steps[f"{name}.weights"][0], self.steps[f"{name}.scores"][0]
        q, k = self.steps[f"{name}.query"][0], self.steps[f"{name}.key"][0]
        i, j = divmod(int(weights[:, :-1].argmax()), weights.shape[1] - 1)  # away from the end of the sentence
        vector = found.score_vector
        score: tuple[str, ...]
        if vector is None:
            says = (
                f"The score is a dot product of {q.shape[1]} numbers, as in equation 1, but nothing divides it by a "
                "root."
            )
            score = (
                sub("s", "ij"), mo("="), sub("q", "i"), mo("·"), sub("k", "j"), mo("="), mn(float(q[i, 0])), mo("×"),
                mn(float(k[j, 0])), mo("+"), mo("…"), mo("="), mn(float(scores[i, j])),
            )  # fmt: skip
        else:
            says = (
                "The score is not a dot product: a small network with one hidden layer compares query and key "
                "(additive attention). The paper says why it prefers products: they are faster."
            )
            first = float(vector[0] * np.tanh(q[i, 0] + k[j, 0]))
            score = (
                sub("s", "ij"), mo("="), sup("v", "T"), mi("tanh"), mo("("), sub("q", "i"), mo("+"), sub("k", "j"),
                mo(")"), mo("="), mn(first), mo("+"), mo("…"), mo("="), mn(float(scores[i, j])),
            )  # fmt: skip
        share = (
            sub("w", "ij"), mo("="), fraction(f"<msup><mi>e</mi>{sub('s', 'ij')}</msup>",
            f"<munder><mo>∑</mo><mi>k</mi></munder><msup><mi>e</mi>{sub('s', 'ik')}</msup>"), mo("="),
            mn(float(weights[i, j])), space(), sub("z", "i"), mo("="), "<munder><mo>∑</mo><mi>j</mi></munder>",
            sub("w", "ij"), sub("v", "j"),
        )  # fmt: skip
        head = f"{name}.head.1"
        body = f"""<div class="figure" data-view="weights" data-matrix="{name}" data-rows="inputs" data-columns="source"
 data-cell="{i},{j}"></div>
{self.without("What if the decoder could not look at the source here?", head)}"""
        layer = int(name.split(".")[1])
        of = f", layer {layer}" if found.attentions > 1 else ""
        asks, looked_at = piece(found.input_pieces[i]), piece(found.source_pieces[j])
        return self.section(
            name, name, f"Decoder{of}", "Attention to the source",
            f"There is one head. After reading {asks}, the decoder gives {looked_at} "
            f"{100 * float(weights[i, j]):.1f} % of its attention. {says}", body, "rival",
            equation(*score, space(), *share),
            shape=f"{weights.shape[0]} × {weights.shape[1]}",
        )  # fmt: skip

    def _order(self) -> str:
        titles = {
            "swapped": "Two words change places",
            "shuffled": "The words are shuffled",
            "reversed": "The words come in the opposite order",
        }
        body = "".join(
            f'<aside class="without"><h3>{title}</h3>{self.reordered(name)}</aside>'
            for name, title in titles.items()
            if name in self.orders
        )
        return self.section(
            "experiments.order", "experiments", "Experiment", "Does the order of the words matter?",
            "The same words in another order are another sentence.", body, "rival",
        )  # fmt: skip
