"""The page that walks through figure 1 with the numbers of one sentence. Without JavaScript, it is a summary."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from math import exp, log, sqrt

import numpy as np

from heedful.decoding.hypothesis import length_penalty
from heedful.inspection.explain import ExplainedSentence, make_document
from heedful.inspection.figure_one import draw_beam, draw_figure_one
from heedful.pages.inline import asset, digest, json_in_page, load_script, text_in_page


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step is in the paper, in the code and in the tests."""

    paper: str
    file: str  # below src/heedful
    name: str
    test: str


PLACES = {
    "text": Place(
        "5.1",
        "text/tokenizer.py",
        "Tokenizer",
        "test_the_stages_of_a_piece_begin_with_its_characters_and_end_with_itself",
    ),
    "embedding": Place(
        "3.4",
        "nn/embedding.py",
        "Embedding",
        "test_its_standard_deviation_is_d_model_to_the_minus_half_and_look_up_scales_it",
    ),
    "positions": Place("3.5", "nn/positions.py", "sinusoids", "test_sine_at_even_and_cosine_at_odd_dimensions"),
    "distances": Place(
        "after the paper", "nn/positions.py", "DistanceBias", "test_every_step_follows_from_the_steps_before_it"
    ),
    "attention": Place("3.2.1, equation 1", "nn/attention.py", "attend", "test_it_is_equation_1_with_the_root_of_d_k"),
    "mask": Place(
        "3.2.3", "nn/masks.py", "causal_mask", "test_a_masked_key_has_weight_exactly_zero_and_rows_sum_to_one"
    ),
    "heads": Place("3.2.2", "nn/attention.py", "SelfAttention", "test_self_attention_is_the_heads_side_by_side"),
    "cross": Place("3.2.3", "nn/attention.py", "CrossAttention", "test_every_step_follows_from_the_steps_before_it"),
    "residual": Place("3.1, 5.4", "nn/residual.py", "Residual", "test_post_norm_is_as_in_the_paper"),
    "feed_forward": Place("3.3, equation 2", "nn/feed_forward.py", "FeedForward", "test_it_is_equation_2"),
    "stack": Place("3.1", "models/transformer.py", "Transformer", "test_no_norm_comes_after_the_stacks"),
    "output": Place(
        "3.4", "models/seq2seq.py", "Seq2Seq", "test_all_three_embeddings_are_one_matrix_without_an_output_bias"
    ),
    "beam": Place("6.1", "decoding/beam.py", "beam_search", "test_its_best_hypothesis_is_that_of_the_search"),
}


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop of the tour, and its story."""

    step: str
    story: str


def make_explanation_page(found: ExplainedSentence) -> str:
    """The page as one HTML file that works from disk, loads nothing, and runs no script but its own."""
    style = asset("theme.css") + asset("explain.css", "inspection")
    script = load_script("explain.js", "inspection")
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    sections = _Sections(found)
    stops = sections.tour()
    document = make_document(found) | {
        "path": sections.path(),
        "tour": [{"step": stop.step, "story": stop.story} for stop in stops],
    }
    parts = {
        "policy": policy,
        "style": style,
        "script": script,
        "document": json_in_page(document),
        "title": text_in_page(f"{found.look.translation.source} – explained"),
        "model": text_in_page(found.model_name),
        "source": text_in_page(found.look.translation.source),
        "target": text_in_page(found.look.translation.text),
        "map": draw_figure_one(found.config),
        "steps": "\n".join(sections.all()),
        "stops": str(len(stops)),
    }
    # All at once, so that text that looks like a placeholder stays text.
    return re.sub(r"@@(\w+)@@", lambda mark: parts[mark[1]], asset("explain.html", "inspection"))


# Mathematics, as MathML, which browsers draw themselves


def _math(*parts: str) -> str:
    # On a phone a long formula scrolls sideways, and the keyboard must reach it.
    return (
        '<div class="formula" role="region" aria-label="Formula" tabindex="0">'
        f'<math display="block">{"".join(parts)}</math></div>'
    )


def _mi(name: str) -> str:
    return f"<mi>{name}</mi>"


def _mo(sign: str) -> str:
    return f"<mo>{sign}</mo>"


def _mn(value: float | int | str) -> str:
    return f"<mn>{value if isinstance(value, (int, str)) else number(value)}</mn>"


def _sub(base: str, index: str) -> str:
    letters = "".join(map(_mi, index)) if index in ("ij", "ik") else _mi(index)
    return f"<msub>{_mi(base)}<mrow>{letters}</mrow></msub>"


def _sup(base: str, index: str) -> str:
    return f"<msup>{_mi(base)}{_mi(index)}</msup>"


def _root(inner: str) -> str:
    return f"<msqrt>{inner}</msqrt>"


def _space() -> str:
    return '<mspace width="1.4em"/>'


def _fraction(above: str, below: str) -> str:
    return f"<mfrac><mrow>{above}</mrow><mrow>{below}</mrow></mfrac>"


def _text(words: str) -> str:
    return f"<mtext>{escape(words)}</mtext>"


def number(value: float) -> str:
    """A number as the page writes it: as many decimals as the page's 16 bits hold, and a true minus sign."""
    decimals = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1
    return f"{value:.{decimals}f}".replace("-", "−")


def piece(text: str) -> str:
    """A piece as the page shows it, isolated from the direction of the text around it."""
    return f'<bdi class="piece">{text_in_page(text)}</bdi>'


def times_less_likely(cost: float) -> str:
    """A difference of log-probabilities in words."""
    if abs(cost) < log(1.05):
        return "as likely as before"
    more = "less" if cost > 0 else "more"
    factor = abs(cost)
    if factor < log(10):
        shown = f"{exp(factor):.1f}"
    elif factor < log(10_000):
        shown = f"{float(f'{exp(factor):.1e}'):,.0f}"
    else:
        shown = f"10<sup>{round(factor / log(10))}</sup>"
    return f"{shown} times {more} likely"


def mark_differences(before: str, after: str) -> str:
    """The second text, with the words marked that the first does not have there."""
    old, new = before.split(), after.split()
    shown = []
    for kind, _, _, start, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        words = text_in_page(" ".join(new[start:end]))
        if words:
            shown.append(words if kind == "equal" else f"<mark>{words}</mark>")
    return " ".join(shown)


def _entropy(rows: np.ndarray) -> float:
    """The mean entropy of rows of weights, in bits."""
    shares = np.where(rows > 0, rows, 1.0)
    return float(-(rows * np.log2(shares)).sum(-1).mean())


def _softmax(rows: np.ndarray) -> np.ndarray:
    powers = np.exp(rows - rows.max(-1, keepdims=True))
    shares: np.ndarray = powers / powers.sum(-1, keepdims=True)
    return shares


class _Sections:
    """Every step as a section of the page."""

    def __init__(self, found: ExplainedSentence) -> None:
        self.found, self.config, self.steps = found, found.config, found.look.steps
        self.given = found.look.translation.text
        self.rank = {name: place for place, name in enumerate(found.ranked_heads(), 1)}

    def all(self) -> Iterable[str]:
        """The sections in the order of the data's way."""
        yield self._start()
        yield self._pieces()
        yield self._embedding("encoder")
        yield self._positions()
        for layer in range(1, self.config.encoder_layers + 1):
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
        yield self._beam()

    def path(self) -> list[str]:
        """The steps that "next" walks through: one head of the first layers in every detail, then each sub-layer."""
        steps = ["start", "pieces", "encoder.embedding", "encoder.positions"]
        for layer in range(1, self.config.encoder_layers + 1):
            name = f"encoder.{layer}.attention"
            steps += [name]
            if layer == 1:
                steps += [f"{self._best_head(name)}.{stage}" for stage in self._stages(name)]
            steps += [f"{name}.output", f"{name}.residual"]
            steps += [f"encoder.{layer}.feed_forward", f"encoder.{layer}.feed_forward.residual"]
        steps += ["encoder.output", "decoder.embedding"]
        for layer in range(1, self.config.decoder_layers + 1):
            for part in ("attention", "cross_attention"):
                name = f"decoder.{layer}.{part}"
                stages = ("mask", "softmax") if part == "attention" else ("projections", "softmax", "values")
                steps += [name]
                if layer == 1:
                    steps += [f"{self._best_head(name)}.{stage}" for stage in stages]
                steps += [f"{name}.output", f"{name}.residual"]
            steps += [f"decoder.{layer}.feed_forward", f"decoder.{layer}.feed_forward.residual"]
        return [*steps, "lens", "logits", "beam"]

    def tour(self) -> list[Stop]:
        """About three minutes: the idea of each part, at the head that matters most for this sentence."""
        encoder_head = self._best_head("encoder.1.attention")
        masked_head = self._best_head("decoder.1.attention")
        last = self.config.decoder_layers
        cross_head = self._best_head(f"decoder.{last}.cross_attention")
        source, target = len(self.found.source_pieces), len(self.found.target_pieces)
        return [
            Stop("start", "This is figure 1 of the paper, drawn for this very model. The sentence goes in at the "
                 "bottom left and comes out, in another language, at the top right. Follow it."),
            Stop("pieces", f"A model cannot read letters. The sentence becomes {source} pieces, and each piece a "
                 "number. Everything after this is arithmetic."),
            Stop("encoder.embedding", f"Each number selects a list of {self.config.d_model} numbers, its embedding. "
                 "Pieces that are used alike have lists that point the same way: look at the neighbours."),
            Stop("encoder.positions", "So far the order of the words is lost. This step puts it back. Read at the "
                 "bottom what the model says without it."),
            Stop(f"{encoder_head}.scores", "Now the heart of the paper. Each piece asks every other piece a question; "
                 "the answer is a dot product. Move over the cells and watch the sum."),
            Stop(f"{encoder_head}.softmax", "The softmax turns the scores of a row into shares that add up to 1: "
                 "where this piece looks."),
            Stop(f"{encoder_head}.values", "Then the piece takes the mean of what the others offer, weighted by "
                 "those shares. That is all attention is."),
            Stop("encoder.1.feed_forward", "After talking to each other, the pieces think alone: the same small "
                 "network works on each of them. Most of its units sleep."),
            Stop(f"{masked_head}.mask", "The decoder writes one piece after another, so no piece may look at later "
                 "ones. The mask sets those scores to minus infinity."),
            Stop(f"{cross_head}.softmax", "Here the two languages meet: each piece of the translation looks back at "
                 "the source. No one taught the model which word belongs to which."),
            Stop("logits", f"At each of the {target} positions, the model gives every piece of its vocabulary a "
                 "probability. Move the slider through the translation."),
            Stop("beam", "Taking the best piece each time can lead astray. The beam keeps several beginnings, and "
                 "this is its tree: what it tried, what it dropped, and what won."),
        ]  # fmt: skip

    def _best_head(self, name: str) -> str:
        return self.found.ranked_heads(f"{name}.head.")[0]

    def _stages(self, name: str) -> list[str]:
        masked = (name.startswith("decoder") and name.endswith(".attention")) or bool(self.config.window)
        stages = ["projections", "scores", "scaled", *(["mask"] if masked else []), "softmax", "values"]
        return stages if not name.endswith("cross_attention") else [each for each in stages if each != "mask"]

    # One section each

    def _start(self) -> str:
        config, found = self.config, self.found
        per_layer = config.encoder_heads or (config.num_heads,) * config.encoder_layers
        norm = "after the sum, as in the paper" if config.norm == "post" else "before each sub-layer"
        body = f"""
<div class="pair">
  <p class="quote"><span class="muted">in</span> <bdi>{text_in_page(found.look.translation.source)}</bdi></p>
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
        ranked = found.ranked_heads()[:6]
        rows = "".join(
            f'<tr><th scope="row"><a href="#{name}">{_head_title(name)}</a></th>'
            f"<td>{times_less_likely(found.cost_without(name))}</td>"
            f"<td><bdi>{mark_differences(self.given, found.text_without(name))}</bdi></td></tr>"
            for name in ranked
        )
        body += f"""
<h3>Which heads matter most for this sentence</h3>
<div class="scroll"><table><thead><tr><th scope="col">without</th><th scope="col">the translation above becomes</th>
<th scope="col">and the model says</th></tr></thead><tbody>{rows}</tbody></table></div>"""
        return self._section(
            "start", "", "Overview", "One sentence through the Transformer",
            "The model reads a sentence, turns it into numbers, lets the pieces look at each other, and writes the "
            "translation piece by piece.", body, "stack",
        )  # fmt: skip

    def _pieces(self) -> str:
        found = self.found
        rows = []
        for name, ids in zip(found.source_pieces, self.steps["source"].tolist(), strict=True):
            stages = found.source.stages(ids)
            merged = " → ".join(" ".join(map(piece, stage)) for stage in stages[-4:]) if len(stages) > 1 else "–"
            more = "… " if len(stages) > 4 else ""
            rows.append(f"<tr><td>{piece(name)}</td><td class='n'>{ids}</td><td>{more}{merged}</td></tr>")
        chips = "".join(f'<span class="chip">{piece(each)}</span>' for each in found.source_pieces)
        body = f"""
<p class="chips">{chips}</p>
<div class="scroll"><table><thead><tr><th scope="col">piece</th><th scope="col">id</th>
<th scope="col">merges that made it</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>
<p class="muted">▁ stands for a space. &lt;/s&gt; ends the sentence.</p>"""
        count = found.source.vocabulary_size
        return self._section(
            "pieces", "pieces", "Input", "Text becomes pieces, pieces become ids",
            f"Frequent words are one piece, rare words are several; the vocabulary has {count:,} pieces.", body, "text",
            _math(_text("text"), _mo("→"), _mn(len(found.source_pieces)), _text(" pieces"), _mo("→"),
                  _mn(len(found.source_pieces)), _text(" ids")),
        )  # fmt: skip

    def _embedding(self, stack: str) -> str:
        found, config = self.found, self.config
        is_encoder = stack == "encoder"
        pieces = found.source_pieces if is_encoder else found.input_pieces
        row = min(1, len(pieces) - 1)
        value = float(self.steps[f"{stack}.embedding"][row, 0])
        scale = sqrt(config.d_model)
        body = self._figure("matrix", f"{stack}.embedding", "source" if is_encoder else "inputs", "embedding")
        if is_encoder:
            rows = "".join(
                f"<tr><td>{piece(each.piece)}</td><td>"
                + " ".join(
                    f'{piece(near)}&nbsp;<span class="muted">{cosine:.2f}</span>' for near, cosine in each.nearest
                )
                + "</td></tr>"
                for each in found.neighbours[:-1]
            )
            body += f"""
<h3>Nearest neighbours in the matrix, and the cosine of the angle</h3>
<div class="scroll"><table><thead><tr><th scope="col">piece</th><th scope="col">neighbours</th></tr></thead>
<tbody>{rows}</tbody></table></div>"""
            body += self._without(
                "What if the embedding were not multiplied by the root of d_model?", "scale-of-embeddings"
            )
        title = "Ids become vectors" if is_encoder else "The translation so far becomes vectors"
        plain = (
            f"Each id selects one row of a matrix of {found.source.vocabulary_size:,} × {config.d_model} learned "
            f"numbers, and the row is multiplied by √{config.d_model} = {scale:.2f}."
            if is_encoder
            else "The decoder reads what it has written, one place later: it begins with a start symbol, whose vector "
            "is zero, and never sees the piece that it is about to write."
        )
        formula = _math(
            _mi("x"), _mo("="), _sub("E", "id"), _mo("·"), _root(_sub("d", "model")), _mo(","), _space(),
            _mn(value), _mo("×"), _mn(scale), _mo("="), _mn(value * scale),
        )  # fmt: skip
        part = "Encoder" if is_encoder else "Decoder"
        return self._section(
            f"{stack}.embedding", f"{stack}.embedding", part, title, plain, body, "embedding", formula,
            shape=f"{len(pieces)} × {config.d_model}",
        )  # fmt: skip

    def _positions(self) -> str:
        found, config = self.found, self.config
        if config.positions == "relative":
            plain = (
                "This model adds no positions to its vectors. Each head of self-attention learns a number for every "
                "distance between two pieces, and adds it to the score."
            )
            bias = self.steps["encoder.1.attention.bias"]
            formula = _math(
                _sub("s", "ij"), _mo("="), _fraction(f"{_sub('q', 'i')}{_mo('·')}{_sub('k', 'j')}",
                _root(_sub("d", "k"))), _mo("+"), _sub("b", "j−i"),
            )  # fmt: skip
            body = self._figure("bias", "encoder.1.attention.bias", "source", "bias")
            shape, where = " × ".join(map(str, bias.shape)), "distances"
        else:
            plain = (
                "Attention alone cannot tell the order of words, so each position has a vector of its own, which is "
                "added to the embedding: sines and cosines from quick to slow."
                if config.positions == "sinusoidal"
                else "Attention alone cannot tell the order of words, so each position has a learned vector, which is "
                "added to the embedding."
            )
            formula = _math(
                _sub("PE", "pos, 2i"), _mo("="), _mi("sin"), _mo("("), _fraction(_mi("pos"),
                "<msup><mn>10000</mn><mrow><mn>2</mn><mi>i</mi><mo>/</mo><mi>d</mi></mrow></msup>"), _mo(")"),
            ) if config.positions == "sinusoidal" else _math(
                _mi("x"), _mo("+"), _sub("P", "pos")
            )  # fmt: skip
            body = self._figure("matrix", "encoder.positions", "source", "positions")
            body += "<h3>The dot product of two positions falls with their distance</h3>"
            body += self._figure("products", "encoder.positions", "source", "products")
            shape, where = f"{len(found.source_pieces)} × {config.d_model}", "positions"
        turned = mark_differences(self.given, found.text_without("reversed"))
        backwards = " ".join(reversed(found.look.translation.source.split()))
        body += self._without("What if the model had no positions at all?", "positions")
        body += f"""
<aside class="without"><h3>What if the words come in the opposite order?</h3>
<p class="quote"><span class="muted">in</span> <bdi>{text_in_page(backwards)}</bdi></p>
<p class="quote"><span class="muted">out</span> <bdi>{turned}</bdi></p>
<p>Without positions, the encoder could not tell the two orders apart: for the same pieces in the opposite order, its
vectors differ by at most {found.order_blindness:.1g}. A sentence would be a bag of pieces.</p></aside>"""
        return self._section(
            "encoder.positions", "encoder.positions", "Encoder", "Where each piece is", plain, body, where, formula,
            shape=shape,
        )  # fmt: skip

    def _attention(self, name: str) -> Iterable[str]:
        found = self.found
        heads, queries, keys = self.steps[f"{name}.weights"].shape
        cross = name.endswith("cross_attention")
        rows, columns = _sides(name)
        cards = "".join(
            f'<li><a class="card" href="#{name}.head.{head + 1}"><span class="mini" data-matrix="{name}.weights" '
            f'data-head="{head}"></span><span class="name">head {head + 1}</span>'
            f'<span class="muted">without it: {times_less_likely(found.cost_without(f"{name}.head.{head + 1}"))}'
            f"</span></a></li>"
            for head in range(heads)
        )
        body = f'<ul class="cards">{cards}</ul>'
        body += self._without(f"What if {_sublayer_title(name)} were left out?", name)
        if cross:
            body += self._without("What if the decoder could not see the source at all?", "cross_attention")
        plain = {
            "encoder": f"{heads} heads look at the sentence at the same time, each in its own way: a row shows where "
            "one piece looks.",
            "decoder": f"{heads} heads look back at the pieces written so far; none may look ahead, so all above the "
            "diagonal is empty.",
            "cross": f"{heads} heads let each piece of the translation look at the source: queries come from the "
            "decoder, keys and values from the encoder.",
        }["cross" if cross else name.partition(".")[0]]
        formula = _math(
            _mi("Attention"), _mo("("), _mi("Q"), _mo(","), _mi("K"), _mo(","), _mi("V"), _mo(")"), _mo("="),
            _mi("softmax"), _mo("("), _fraction(_mi("Q") + _sup("K", "T"), _root(_sub("d", "k"))), _mo(")"), _mi("V"),
        )  # fmt: skip
        yield self._section(
            name, name, _layer_title(name), _sublayer_title(name, capital=True), plain, body,
            "cross" if cross else "heads", formula, shape=f"{heads} heads × {queries} × {keys}",
        )  # fmt: skip
        for head in range(heads):
            yield self._head(name, head, rows, columns)
        yield self._heads_output(name)
        yield self._residual(name)

    def _head(self, name: str, head: int, rows: str, columns: str) -> str:
        found, steps = self.found, self.steps
        full = f"{name}.head.{head + 1}"
        q, k, weights, scores = (steps[f"{name}.{part}"][head] for part in ("query", "key", "weights", "scores"))
        row_pieces, column_pieces = self._labels(rows), self._labels(columns)
        i, j = _telling_cell(weights, rows == columns)
        d_k, score = q.shape[-1], float(scores[i, j])
        scaled = score / sqrt(d_k)
        asks, looked_at = piece(row_pieces[i]), piece(column_pieces[j])
        cross = name.endswith("cross_attention")
        read = "the encoder's output, once for the whole translation" if cross else "the same vectors"
        width = self.config.d_model
        bias = steps[f"{name}.bias"][head] if f"{name}.bias" in steps else np.zeros_like(scores)
        unscaled = _softmax(np.where(steps[f"{name}.mask"], scores + bias, -np.inf))
        hidden = int((~steps[f"{name}.mask"]).sum())
        given = sum(found.unmasked)
        stages = {
            "projections": (
                "Query, key, value",
                f"Each piece gets three short vectors: a query, which says what it looks for; a key, by which it is "
                f"found; and a value, which it passes on. Keys and values come from {read}.",
                _math(_mi("Q"), _mo("="), _mi("x"), _sup("W", "Q"), _mo(","), _space(), _mi("K"), _mo("="),
                      _mi("m" if cross else "x"), _sup("W", "K"), _mo(","), _space(), _mi("V"), _mo("="),
                      _mi("m" if cross else "x"), _sup("W", "V"), _space(), _mn(len(row_pieces)), _mo("×"),
                      _mn(width), _mo("→"), _mn(len(row_pieces)), _mo("×"), _mn(d_k)),
                "",
            ),
            "scores": (
                "One score is a dot product",
                f"To see how much {asks} should look at {looked_at}, multiply the query of the one by the key of the "
                f"other, number by number, and add up {d_k} products.",
                _math(_sub("s", "ij"), _mo("="), _sub("q", "i"), _mo("·"), _sub("k", "j"), _mo("="),
                      _mn(float(q[i, 0])), _mo("×"), _mn(float(k[j, 0])), _mo("+"), _mo("…"), _mo("+"),
                      _mn(float(q[i, -1])), _mo("×"), _mn(float(k[j, -1])), _mo("="), _mn(score)),
                self._without("What if every score were zero, so that all pieces count alike?", "scores"),
            ),
            "scaled": (
                "Divide by the root of d_k",
                "A sum of many products is large, and the softmax of large numbers picks one key and ignores the rest. "
                f"Dividing by √{d_k} = {sqrt(d_k):.2f} keeps it soft.",
                _math(_fraction(_mn(score), _root(_mn(d_k))), _mo("="), _mn(scaled)),
                self._without(
                    "What if the scores were not scaled?", "scale-of-scores",
                    f"In this head, the shares of a row have {_entropy(weights):.2f} bits of entropy with the scale, "
                    f"and {_entropy(unscaled):.2f} without it. (This model was trained with it.)",
                ),
            ),
            "mask": (
                "No looking ahead",
                "The score of every later piece becomes minus infinity, so its share will be exactly 0. That is why a "
                "mask is added before the softmax, and not multiplied after it.",
                _math(_sub("s", "ij"), _mo("="), _mo("−"), _mi("∞"), _space(), _text("if"), _space(), _mi("j"),
                      _mo("&gt;"), _mi("i"), _space(), _text(f"{hidden} of {scores.size} cells")),
                f"""<aside class="without"><h3>What if there were no mask?</h3>
<p>Let the decoder read the whole translation at once without the mask, and its pieces see their own future. It was
trained never to see it, so its predictions fall apart: the translation above becomes
{times_less_likely(found.log_prob - given)}. The mask is needed at inference too, whenever a whole prefix is run at
once. A search that goes piece by piece needs none, because the future does not exist yet.</p></aside>""",
            ),
            "softmax": (
                "Softmax: shares that add up to 1",
                f"Raise e to each score, and divide by the sum of the row: {asks} gives {looked_at} "
                f"{100 * float(weights[i, j]):.1f} % of its attention.",
                _math(_sub("w", "ij"), _mo("="), _fraction(f"<msup><mi>e</mi>{_sub('s', 'ij')}</msup>",
                      f"<munder><mo>∑</mo><mi>k</mi></munder><msup><mi>e</mi>{_sub('s', 'ik')}</msup>"),
                      _mo("="), _mn(float(weights[i, j]))),
                self._without(
                    f"What if {_head_title(full)} were switched off?", full,
                    f"By this measure it is number {self.rank[full]} of {len(self.rank)} heads for this sentence. "
                    "A large weight alone explains nothing: look at what happens without the head.",
                ),
            ),
            "values": (
                "The weighted mean of the values",
                f"The result for {asks} is the mean of all values, each weighted by its share. Whatever distance lies "
                "between two pieces, the way between them is one step long.",
                _math(_sub("z", "i"), _mo("="), "<munder><mo>∑</mo><mi>j</mi></munder>", _sub("w", "ij"),
                      _sub("v", "j"), _space(), _mn(len(row_pieces)), _mo("×"), _mn(len(column_pieces)), _mo("·"),
                      _mn(len(column_pieces)), _mo("×"), _mn(steps[f"{name}.value"].shape[-1])),
                "",
            ),
        }  # fmt: skip
        if f"{name}.bias" in steps:
            own = float(bias[i, j])
            title, plain, _, after = stages["scaled"]
            formula = _math(_fraction(_mn(score), _root(_mn(d_k))), _mo("+"), _mn(own), _mo("="), _mn(scaled + own))
            stages["scaled"] = title, f"{plain} Then comes the bias of the distance.", formula, after
        wanted = self._stages(name)
        tabs = "".join(f'<a class="tab" href="#{full}.{stage}">{_TABS[stage]}</a>' for stage in wanted)
        bodies = "".join(
            f'<div class="stage" data-stage="{stage}"><h3 class="stage-title">{stages[stage][0]}</h3>'
            f'<p class="plain">{stages[stage][1]}</p>{stages[stage][2]}</div>'
            for stage in wanted
        )
        afters = "".join(f'<div class="after" data-stage="{stage}">{stages[stage][3]}</div>' for stage in wanted)
        body = f"""<nav class="tabs" aria-label="Steps of this head">{tabs}</nav>{bodies}
<div class="figure" data-view="head" data-matrix="{name}" data-head="{head}" data-rows="{rows}" data-columns="{columns}"
 data-cell="{i},{j}"></div>{afters}"""
        return self._section(
            full, name, _layer_title(name), _head_title(full, capital=True), "", body,
            "mask" if "mask" in wanted else "cross" if cross else "attention",
            shape=f"Q {q.shape[0]} × {d_k}, K {k.shape[0]} × {d_k}, weights {weights.shape[0]} × {weights.shape[1]}",
        )  # fmt: skip

    def _heads_output(self, name: str) -> str:
        heads, queries, width = self.steps[f"{name}.heads"].shape
        shares = self.steps[f"{name}.shares"]
        strongest = int(shares.mean(0).argmax())
        formula = _math(
            _mi("MultiHead"), _mo("="), _mi("Concat"), _mo("("), _sub("head", "1"), _mo(","), _mo("…"), _mo(","),
            _sub("head", str(heads)), _mo(")"), _sup("W", "O"), _space(), _mn(queries), _mo("×"),
            _mn(f"{heads}·{width}"), _mo("→"), _mn(queries), _mo("×"), _mn(self.config.d_model),
        )  # fmt: skip
        body = "<h3>How long each head's part of the result is</h3>"
        body += self._figure("shares", f"{name}.shares", _sides(name)[0], "shares")
        body += "<h3>The result</h3>" + self._figure("matrix", f"{name}.output", _sides(name)[0], "plain")
        return self._section(
            f"{name}.output", name, _layer_title(name), "The heads side by side, mixed by one matrix",
            f"The results of all {heads} heads stand side by side and go through one matrix. In this sentence, head "
            f"{strongest + 1} adds most: on average {100 * shares[:, strongest].mean() / shares.mean(0).sum():.0f} % "
            "of the lengths.", body, "heads", formula, shape=f"{queries} × {self.config.d_model}",
        )  # fmt: skip

    def _residual(self, name: str) -> str:
        pre = self.config.norm == "pre"
        x, result = self.steps[f"{name}.before"], self.steps[f"{name}.result"]
        kept = (x * result).sum(1) / np.maximum(np.linalg.norm(x, axis=1) * np.linalg.norm(result, axis=1), 1e-9)
        sub = [_mi("x"), _mo("+"), _mi("Sublayer"), _mo("("), _mi("x"), _mo(")")]
        formula = (
            _math(
                _mi("x"), _mo("+"), _mi("Sublayer"), _mo("("), _mi("LayerNorm"), _mo("("), _mi("x"), _mo(")"), _mo(")")
            )
            if pre
            else _math(_mi("LayerNorm"), _mo("("), *sub, _mo(")"))
        )
        plain = (
            "The result is added to what came in, so that x has a way past every sub-layer. This model normalises what "
            "the sub-layer reads (pre-norm); the paper normalises the sum."
            if pre
            else "The result is added to what came in, and the sum is normalised: mean 0 and spread 1, then a learned "
            "gain and shift."
        )
        after = (
            f"<p>How much of x survives: the cosine between x and the result is {kept.mean():.2f} on average "
            f"({kept.min():.2f} to {kept.max():.2f}).</p>"
        )
        body = self._figure("residual", name, _sides(name)[0], "residual") + after
        body += self._without("What if this sum did not add x?", f"{name}.residual")
        return self._section(
            f"{name}.residual", f"{name}.residual", _layer_title(name), "Add and normalise", plain, body, "residual",
            formula, shape=f"{x.shape[0]} × {x.shape[1]}",
        )  # fmt: skip

    def _feed_forward(self, name: str) -> Iterable[str]:
        active = self.steps[f"{name}.active"]
        awake = (active > 0).sum(1)
        relu = self.config.activation == "relu"
        side = _sides(name)[0]
        body = self._figure("units", f"{name}.active", side, "units")
        body += self._without(f"What if {_sublayer_title(name)} were left out?", name)
        plain = "The same small network works on each piece alone, with the same weights at every position. " + (
            f"Of its {active.shape[1]} units, {awake.min()} to {awake.max()} are awake for a piece of this "
            "sentence; the others are 0."
            if relu
            else f"It has {active.shape[1]} units."
        )
        inner = f"{_mi('x')}{_sub('W', '1')}{_mo('+')}{_sub('b', '1')}"
        hidden = (
            _mi("max") + _mo("(") + _mn(0) + _mo(",") + inner + _mo(")")
            if relu
            else _mi(self.config.activation) + _mo("(") + inner + _mo(")")
        )
        formula = _math(
            _mi("FFN"),
            _mo("("),
            _mi("x"),
            _mo(")"),
            _mo("="),
            hidden,
            _sub("W", "2"),
            _mo("+"),
            _sub("b", "2"),
        )
        yield self._section(
            name, name, _layer_title(name), "The feed-forward network", plain, body, "feed_forward", formula,
            shape=f"{active.shape[0]} × {self.config.d_model} → {active.shape[0]} × {active.shape[1]} → "
            f"{active.shape[0]} × {self.config.d_model}",
        )  # fmt: skip
        yield self._residual(name)

    def _memory(self) -> str:
        n = self.config.encoder_layers
        start = self.steps["encoder.scaled"]
        layers = [self.steps["encoder.input"], *(self.steps[f"encoder.{layer}.output"] for layer in range(1, n + 1))]
        rows = []
        for label, x in zip(["input", *(f"after layer {layer}" for layer in range(1, n + 1))], layers, strict=True):
            lengths = np.maximum(np.linalg.norm(x, axis=1) * np.linalg.norm(start, axis=1), 1e-9)
            cosines = (x * start).sum(1) / lengths
            cells = "".join(f'<td class="n">{number(float(each))}</td>' for each in cosines)
            rows.append(f'<tr><th scope="row">{label}</th>{cells}</tr>')
        heads = "".join(f'<th scope="col">{piece(each)}</th>' for each in self.found.source_pieces)
        body = self._figure("matrix", "encoder.output", "source", "plain")
        body += f"""<h3>How far each piece has moved: the cosine with its own embedding</h3>
<div class="scroll"><table><thead><tr><td></td>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>"""
        return self._section(
            "encoder.output", "encoder.output", "Encoder", "The memory of the source",
            f"After {n} layers, each piece has a vector that knows its whole sentence. The decoder reads only these.",
            body, "stack", shape=" × ".join(map(str, self.steps["encoder.output"].shape)),
        )  # fmt: skip

    def _lens(self) -> str:
        n, target = self.config.decoder_layers, self.found.target
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
        return self._section(
            "lens", "decoder.output", "Decoder", "What the model would say already here",
            "Send the vectors of each layer straight to the output: you see how the answer forms (a logit lens). "
            "Shaded cells already have the piece that was written.", body, "stack",
            shape=f"{n} layers × {len(rows)} positions",
        )  # fmt: skip

    def _logits(self) -> str:
        found = self.found
        size = self.steps["logits"].shape[1]
        own = self.steps["log_probs"][np.arange(len(found.target_pieces)), self.steps["target"]]
        place = int(own.argmin())
        chips = "".join(
            f'<li><button type="button" class="chip" data-place="{number}">{piece(each)} '
            f'<span class="muted">{100 * exp(float(value)):.0f} %</span></button></li>'
            for number, (each, value) in enumerate(zip(found.target_pieces, own, strict=True))
        )
        shared = "the same matrix as the embeddings" if self.config.sharing != "none" else "a matrix of its own"
        formula = _math(
            _sub("z", "w"), _mo("="), _mi("x"), _mo("·"), _sub("E", "w"), _mo(","), _space(), _sub("p", "w"),
            _mo("="), _fraction(f"<msup><mi>e</mi>{_sub('z', 'w')}</msup>",
            f"<munder><mo>∑</mo><mi>v</mi></munder><msup><mi>e</mi>{_sub('z', 'v')}</msup>"),
        )  # fmt: skip
        body = f"""<ul class="chips" id="written">{chips}</ul>
<div class="figure" data-view="logits" data-cell="{place}"></div>
<p>The model is least sure of {piece(found.target_pieces[place])}: {100 * exp(float(own[place])):.0f} %. All
{len(own)} probabilities together make {exp(found.log_prob):.2g}; their logarithms add up to
{number(found.log_prob)}.</p>"""
        return self._section(
            "logits", "logits", "Output", "A probability for every piece",
            f"The last vector is multiplied by each of the {size:,} rows of {shared}: the larger the dot product, the "
            "likelier the piece.", body, "output", formula, shape=f"{len(own)} × {size:,}",
        )  # fmt: skip

    def _beam(self) -> str:
        found, tree, search = self.found, self.found.look.tree, self.found.search
        best, greedy = tree.best, tree.greedy
        decode = found.target.decode
        penalty = length_penalty(float(len(best.tokens)), search.alpha, search.penalty)
        kept = sum(one.fate == "kept" for one in tree.candidates)
        pruned = sum(one.fate == "pruned" for one in tree.candidates)
        formula = _math(
            _mi("score"),
            _mo("="),
            _fraction(_mi("log") + _mi("P"), _mi("lp")),
            _mo("="),
            _fraction(_mn(best.log_prob), _mn(penalty)),
            _mo("="),
            _mn(best.score),
            _space(),
            _mi("lp"),
            _mo("="),
            f"<msup><mrow><mo>(</mo><mfrac><mrow><mn>5</mn><mo>+</mo><mn>{len(best.tokens)}</mn></mrow><mn>6</mn>"
            f"</mfrac><mo>)</mo></mrow><mn>{search.alpha:g}</mn></msup>"
            if search.penalty == "paper"
            else f"<msup><mn>{len(best.tokens)}</mn><mn>{search.alpha:g}</mn></msup>",
        )
        same = decode(best.tokens) == self.given
        alone = mark_differences(decode(best.tokens), decode(greedy.tokens))
        note = (
            ""
            if same
            else f"<p>The tree is that of the model's own search, which finds <bdi>{text_in_page(decode(best.tokens))}"
            "</bdi>. The steps of this page are those of the translation that was given.</p>"
        )
        body = f"""<div class="scroll tree" tabindex="0" role="region" aria-label="The tree of the search">
{draw_beam(tree, found.target)}</div>
<p class="legend"><span class="key kept"></span> kept <span class="key pruned"></span> dropped
<span class="key finished"></span> finished <span class="key won"></span> the winner</p>
<p id="candidate" role="status" class="readout">Point at a piece of the tree, or tap it.</p>{note}
<aside class="without"><h3>What if the search were greedy?</h3>
<p class="quote"><span class="muted">beam {search.beam}</span> <bdi>{text_in_page(decode(best.tokens))}</bdi>
<span class="muted">log P = {number(best.log_prob)}</span></p>
<p class="quote"><span class="muted">greedy</span> <bdi>{alone}</bdi>
<span class="muted">log P = {number(greedy.log_prob)}</span></p></aside>
<aside class="without"><h3>What if there were no length penalty?</h3>
<p class="quote"><bdi>{mark_differences(decode(best.tokens), found.text_without("no-penalty"))}</bdi></p>
<p>Each piece makes a translation less likely, so without the penalty short ones would win.</p></aside>"""
        return self._section(
            "beam", "beam", "Output", "The beam's tree",
            f"At each step the search extends {search.beam} beginnings and keeps the best {search.beam}. It looked at "
            f"{len(tree.candidates)} candidates, went on with {kept} and dropped {pruned}.", body, "beam", formula,
        )  # fmt: skip

    # Parts of sections

    def _labels(self, side: str) -> tuple[str, ...]:
        found = self.found
        return {"source": found.source_pieces, "inputs": found.input_pieces, "target": found.target_pieces}[side]

    def _figure(self, view: str, matrix: str, rows: str, arithmetic: str) -> str:
        return (
            f'<div class="figure" data-view="{view}" data-matrix="{matrix}" data-rows="{rows}" '
            f'data-arithmetic="{arithmetic}"></div>'
        )

    def _without(self, question: str, name: str, more: str = "") -> str:
        text = self.found.text_without(name)
        said = (
            "The translation stays the same"
            if text == self.given
            else f"<bdi>{mark_differences(self.given, text)}</bdi>"
        )
        verdict = times_less_likely(self.found.cost_without(name))
        given = "and the translation above is" if text == self.given else "The translation above becomes"
        sentence = f"{said}, {given} {verdict}." if text == self.given else f"{given} {verdict}."
        quote = "" if text == self.given else f'<p class="quote">{said}</p>'
        return f"""<aside class="without"><h3>{escape(question)}</h3>{quote}<p>{sentence} {more}</p></aside>"""

    def _section(
        self,
        step: str,
        box: str,
        part: str,
        title: str,
        plain: str,
        body: str,
        place: str,
        formula: str = "",
        shape: str = "",
    ) -> str:
        where = PLACES[place]
        shapes = f"<div><dt>shape</dt><dd>{shape}</dd></div>" if shape else ""
        paper = f"section {where.paper}" if where.paper[0].isdigit() else where.paper
        lead = f'<p class="plain lead">{plain}</p>' if plain else ""
        return f"""<section class="step" id="{step}" data-box="{box}" aria-labelledby="title.{step}">
<p class="part">{part}</p><h2 id="title.{step}" tabindex="-1">{title}</h2>{lead}{formula}
{body}
<dl class="places">{shapes}<div><dt>paper</dt><dd>{paper}</dd></div>
<div><dt>code</dt><dd><code>{where.file}</code> <code>{where.name}</code></dd></div>
<div><dt>test</dt><dd><code>{where.test}</code></dd></div></dl>
</section>"""


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


def _sides(name: str) -> tuple[str, str]:
    """What the rows and the columns of an attention are."""
    if name.startswith("encoder"):
        return "source", "source"
    return "inputs", "source" if name.endswith("cross_attention") else "inputs"


def _layer_title(name: str) -> str:
    stack, layer, *_ = name.split(".")
    return f"{stack.capitalize()} · layer {layer}"


_SUBLAYERS = {
    "attention": "self-attention",
    "cross_attention": "attention to the source",
    "feed_forward": "the feed-forward network",
}


def _sublayer_title(name: str, capital: bool = False) -> str:
    stack, _, part, *_ = name.split(".")
    title = "masked self-attention" if (stack, part) == ("decoder", "attention") else _SUBLAYERS[part]
    return title[0].upper() + title[1:] if capital else title


def _head_title(name: str, capital: bool = False) -> str:
    stack, layer, part, _, head = name.split(".")
    of = {"attention": f"the {stack}'s layer {layer}", "cross_attention": f"the decoder's layer {layer}, to the source"}
    title = f"head {head} of {of[part]}"
    return title[0].upper() + title[1:] if capital else title
