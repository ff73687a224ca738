"""The steps beside figure 1: experiments on this sentence, a training step, the cost, and what is often said."""

from collections.abc import Iterable
from math import exp

import numpy as np

from heedful.inspection.explain import ExplainedLayers, ExplainedSentence
from heedful.inspection.markup import (
    amount,
    byte_size,
    equation,
    fraction,
    mark_differences,
    mi,
    mn,
    mo,
    number,
    piece,
    power,
    space,
    sub,
    times_less_likely,
)
from heedful.inspection.page_charts import Axis, Dot, draw_bars, draw_dots, draw_heat, draw_lines
from heedful.inspection.section_writer import SectionWriter, head_title, short_head_title

_PART_NAMES = {
    "positions": "all positions",
    "cross_attention": "the look at the source",
    "feed_forward": "all feed-forward networks",
    "scores": "the scores: all pieces count alike",
    "scale-of-scores": "the division by √d<sub>k</sub>",
    "scale-of-embeddings": "the factor √d<sub>model</sub>",
}
_COST_NAMES = {
    "embedding": "embeddings",
    "encoder.attention": "encoder: self-attention",
    "encoder.feed_forward": "encoder: feed-forward",
    "decoder.attention": "decoder: masked self-attention",
    "decoder.cross_attention": "decoder: attention to the source",
    "decoder.feed_forward": "decoder: feed-forward",
    "output": "output: one row for each piece",
}


class QuestionSections(SectionWriter):
    """The sections that follow the output, for models that are made of the layers of figure 1."""

    found: ExplainedLayers

    def __init__(self, found: ExplainedLayers) -> None:
        super().__init__(found)
        self.is_translated = isinstance(found, ExplainedSentence)
        if isinstance(found, ExplainedSentence):
            self.orders = found.orders
        self._number = 0  # of the last experiment

    def _count(self) -> str:
        """The name of the next experiment."""
        self._number += 1
        return f"Experiment {self._number}"

    def all(self) -> Iterable[str]:
        """The sections in the order in which "next" shows them."""
        self._number = 0
        yield self._training()
        yield self._cost()
        if isinstance(self.found, ExplainedSentence):
            yield self._order(self.found)
        yield self._parts()
        yield self._heads()
        yield self._mask()
        yield self._path()
        yield self._neighbours()
        yield self._often_said()

    def path(self) -> list[str]:
        """The names of these steps."""
        order = ["experiments.order"] if self.orders else []
        others = [f"experiments.{name}" for name in ("parts", "heads", "mask", "path", "neighbours")]
        return ["training", "cost", *order, *others, "often-said"]

    # One section each

    def _training(self) -> str:
        found, step = self.found, self.found.training
        place = int(np.argmax(step.plain))
        right, p = found.target_pieces[place], exp(-step.plain[place])
        size = len(self.steps["logits"][0])
        config = step.config
        formula = equation(
            mi("L"), mo("="), mo("−"), "<munder><mo>∑</mo><mi>w</mi></munder>", sub("q", "w"), mi("log"),
            sub("p", "w"), space(), fraction(f"<mo>∂</mo>{mi('L')}", f"<mo>∂</mo>{sub('z', 'w')}"), mo("="),
            sub("p", "w"), mo("−"), sub("q", "w"), mo("="), mn(p), mo("−"), mn(step.gold), mo("="), mn(p - step.gold),
        )  # fmt: skip
        pieces = "".join(
            f'<tr><th scope="row">{piece(name)}</th><td class="n">{100 * exp(-plain):.1f} %</td>'
            f'<td class="n">{number(plain)}</td><td class="n">{number(smoothed)}</td></tr>'
            for name, plain, smoothed in zip(found.target_pieces, step.plain, step.smoothed, strict=True)
        )
        names = {"embedding": "embeddings and last norms"}
        gradients = draw_bars([
            (names.get(name, name.replace(".", ", layer ")), value, number(value))
            for name, value in step.gradients.items()
        ])  # fmt: skip
        surer = [name for name, plain in zip(found.target_pieces, step.plain, strict=True) if exp(-plain) > step.gold]
        past = (
            f"<p>The model is surer than that of {len(surer)} of {len(step.plain)} pieces"
            + (f", such as {piece(surer[0])}: training pushes their logits down" if surer else "")
            + ". Smoothing keeps it from ever being too sure. The paper found that this makes perplexity worse, but "
            "accuracy and BLEU better.</p>"
            if config.label_smoothing
            else ""
        )
        highest = max(rate for _, rate in step.rates)
        rates = draw_lines(
            [("learning rate", step.rates)], Axis("update", 0, step.rates[-1][0]), Axis("learning rate", 0, highest)
        )
        after = "".join(
            f'<tr><th scope="row">{factor:g} × the rate</th><td class="n">{power(step.rate * factor, 2)}</td>'
            f'<td class="n">{number(loss)}</td><td>{"better" if loss < step.loss else "worse"}</td></tr>'
            for factor, loss in step.after.items()
        )
        body = f"""
<h3>1. The target: smoothed</h3>
<p>At the position of {piece(right)}, training wants {100 * step.gold:.0f} % for this piece and shares the other
{100 * config.label_smoothing:.0f} % among the {size - 1:,} others: {power(step.other, 2)} each (label smoothing,
ε = {config.label_smoothing:g}). So even a perfect model has a loss of {number(step.best)} for each piece.</p>{past}
<h3>2. The loss of each piece</h3>
<div class="scroll"><table><thead><tr><th scope="col">right piece</th><th scope="col" class="n">p</th>
<th scope="col" class="n">−log p</th><th scope="col" class="n">smoothed loss</th></tr></thead><tbody>{pieces}
<tr><th scope="row">mean</th><td></td><td class="n">{number(float(np.mean(step.plain)))}</td>
<td class="n">{number(step.loss)}</td></tr></tbody></table></div>
<p>All positions are computed at once: the decoder reads the right {found.whole}, shifted by one place, and the mask
hides what comes later (teacher forcing). The logit of {piece(right)} is pushed up by {number(step.gold - p)},
those of all others are pushed down.</p>
<h3>3. The gradient, carried back to every layer: its length</h3>
{gradients}
<h3>4. The learning rate: {power(step.rate, 2)} in the middle of this model's training, at update {step.step:,}</h3>
{rates}
<p class="muted">Schedule "{config.schedule}", {config.warmup_steps:,} updates of warm-up, optimizer
{config.optimizer.capitalize()}. The paper's schedule rises for 4,000 updates and then falls with the root of the
step.</p>
<h3>5. The update: the loss was {number(step.loss)}; after one step it is …</h3>
<div class="scroll"><table><thead><tr><th scope="col">step</th><th scope="col">rate</th><th scope="col">loss after
it</th><td></td></tr></thead><tbody>{after}</tbody></table></div>
<p>Too small a step changes little, and too large a step breaks what the model knew. (Computed on a copy of this model,
without dropout, with an optimizer that begins here. Real training takes the mean over a batch of
{config.batch_tokens:,} pieces.)</p>"""
        return self.section(
            "training", "training", "Training", "One training step",
            f"Training shows the model the right {found.whole}, measures how surprised it is at each piece, and moves "
            "every weight a little so that it would be less surprised.", body, "training", formula,
            shape=f"{len(step.plain)} losses → {found.parameters:,} derivatives",
        )  # fmt: skip

    def _cost(self) -> str:
        found = self.found
        weights = sum(part.weights for part in found.costs)
        operations = sum(part.operations for part in found.costs)
        rows = "".join(
            f'<tr><th scope="row">{_COST_NAMES[part.name]}</th><td class="n">{part.weights:,}</td>'
            f'<td class="n">{100 * part.weights / weights:.0f} %</td><td class="n">{byte_size(part.weight_bytes)}</td>'
            f'<td class="n">{amount(part.operations) if part.operations else "0 (a look-up)"}</td>'
            f'<td class="n">{100 * part.operations / operations:.0f} %</td>'
            f'<td class="n">{byte_size(part.activation_bytes)}</td></tr>'
            for part in found.costs
        )
        longer = "".join(
            f'<tr><th scope="row">{each.pieces:,}</th><td class="n">{amount(each.operations)}</td>'
            f'<td class="n">{100 * each.pair_share:.1f} %</td></tr>'
            for each in found.lengths
        )
        m, config = len(found.target_pieces), self.config
        n = len(found.read_pieces)
        counted = (
            f"{n} pieces read and {m} pieces written once, as one candidate"
            if self.is_translated
            else f"a text of {n} pieces, read once"
        )
        source_too = " Those of the source are computed once for the whole translation." if self.is_translated else ""
        cache = sum(
            self.steps[f"decoder.{layer}.attention.{part}"].size // m
            for layer in range(1, config.decoder_layers + 1)
            for part in ("key", "value")
        )
        body = f"""
<div class="scroll"><table><thead><tr><th scope="col">part (all layers)</th>
<th scope="col" class="n">weights</th><td></td>
<th scope="col" class="n">in 32 bits each</th><th scope="col" class="n">operations</th><td></td>
<th scope="col" class="n">numbers it makes</th></tr></thead><tbody>{rows}
<tr><th scope="row">all</th><td class="n">{weights:,}</td><td></td><td class="n">{byte_size(4 * weights)}</td>
<td class="n">{amount(operations)}</td><td></td>
<td class="n">{byte_size(sum(part.activation_bytes for part in found.costs))}</td></tr></tbody></table></div>
<p class="muted">Operations are those of the matrix products, for {counted}; a
multiplication with its addition counts as two. A shared matrix counts as a weight once. Training takes
three times as many: forwards, and two products backwards for each.</p>
<h3>Longer texts: attention grows with the square</h3>
<div class="scroll"><table><thead><tr><th scope="col">pieces{", each side" if self.is_translated else ""}</th>
<th scope="col" class="n">operations</th>
<th scope="col" class="n">share of the products between pairs of pieces</th></tr></thead>
<tbody>{longer}</tbody></table></div>
<p>In a sentence, most work is in the matrices, not in the attention between pairs. Ten times the length means ten times
the work in the matrices and a hundred times in the pairs, so for a book it is the other way round.</p>
<h3>While it writes</h3>
<p>Keys and values of the pieces written so far are kept, {byte_size(4 * cache)} for each piece, so no piece is computed
twice.{source_too}</p>"""
        formula = equation(
            mn(2), mo("·"), mi("n"), mo("·"), sub("d", "in"), mo("·"), sub("d", "out"), mo("="), mn(2), mo("·"), mn(n),
            mo("·"), mn(config.d_model), mo("·"), mn(config.d_ff), mo("="),
            mn(f"{2 * n * config.d_model * config.d_ff:,}"),
        )  # fmt: skip
        return self.section(
            "cost", "cost", "Cost", "What it costs",
            f"This model has {amount(weights)} weights, and this text takes {amount(operations)} operations. A "
            "matrix product of n pieces costs two operations for each weight and each piece.", body, "cost", formula,
        )  # fmt: skip

    def _order(self, found: ExplainedSentence) -> str:
        titles = {
            "swapped": "Two words change places",
            "shuffled": "The words are shuffled",
            "reversed": "The words come in the opposite order",
        }
        cases = "".join(
            f'<aside class="without"><h3>{title}</h3>{self.reordered(name)}</aside>'
            for name, title in titles.items()
            if name in found.orders
        )
        body = f"""{cases}{self.without("What if the model had no positions at all?", "positions")}
<p>Without positions, the encoder gives each piece the same vector in either order: for the same pieces backwards, its
vectors differ by at most {power(found.order_blindness)}, which is rounding. Attention itself does not know where
anything is.</p>"""
        return self.section(
            "experiments.order", "experiments", self._count(), "Does the order of the words matter?",
            "The same words in another order are another sentence. The positions carry the order, and nothing else "
            "does.", body, "positions",
        )  # fmt: skip

    def _parts(self) -> str:
        found = self.found
        names = {name: title for name, title in _PART_NAMES.items() if name in found.without}
        for stack, layers in found.layers.items():
            names |= {f"{stack}.{layer}": f"layer {layer} of the {stack}" for layer in range(1, layers + 1)}
        ranked = sorted(names, key=lambda name: -found.cost_without(name))
        rows = "".join(
            f'<tr><th scope="row">{names[name]}</th>'
            f'<td class="fixed">{times_less_likely(found.cost_without(name))}</td>'
            f"<td><bdi>{mark_differences(self.baseline, found.text_without(name)) or '–'}</bdi></td></tr>"
            for name in ranked
        )
        chart = draw_bars([
            (names[name], max(0.0, found.cost_without(name)), number(found.cost_without(name))) for name in ranked
        ])  # fmt: skip
        body = f"""<h3>How much log-probability the {self.noun} loses without a part</h3>{chart}
<h3>What the model says then</h3>
<div class="scroll"><table class="ranked"><thead><tr><th scope="col">without</th>
<th scope="col">the {self.noun} becomes</th>
<th scope="col">and the model says</th></tr></thead><tbody>{rows}</tbody></table></div>
<p>The model was trained with all its parts, so this shows what it relies on now. What a model learns that never had a
part is another question: <code>heedful study ablations</code> trains one for each.</p>"""
        return self.section(
            "experiments.parts", "experiments", self._count(), "What can it do without?",
            f"Each part is switched off alone, and the model writes again. Some parts carry the {self.noun}; without "
            "others it hardly notices.", body, "without",
        )  # fmt: skip

    def _heads(self) -> str:
        found = self.found
        ranked = found.ranked_heads()
        strength = {name: self.strength(name) for name in ranked}
        costs = {name: found.cost_without(name) for name in ranked}
        slots = {"encoder": 0, "cross": 1, "decoder": 2}
        dots = [
            Dot(
                strength[name], costs[name], short_head_title(name), name,
                slots["cross" if "cross" in name else name.partition(".")[0]],
            )
            for name in ranked
        ]  # fmt: skip
        low = min(0.0, *costs.values())
        chart = draw_dots(
            dots,
            Axis("mean of the largest weight of each row", 0, 1),
            Axis("log P lost without it", low, max(costs.values())),
        )

        def role(name: str) -> str:
            return f'<td class="fixed">{found.role_of(name)}</td>' if found.roles else ""

        rows = "".join(
            f'<tr><td class="n">{place}</td><th scope="row"><a href="#{name}">{short_head_title(name)}</a></th>'
            f"{role(name)}"
            f'<td class="n">{strength[name]:.2f}</td><td class="n">{number(costs[name])}</td>'
            f"<td><bdi>{mark_differences(self.baseline, found.text_without(name))}</bdi></td></tr>"
            for place, name in enumerate(ranked, 1)
        )
        agreement = rank_correlation([strength[name] for name in ranked], [costs[name] for name in ranked])
        sharpest = max(ranked, key=lambda name: strength[name])
        kinds = dict.fromkeys(dot.slot for dot in sorted(dots, key=lambda dot: dot.slot))
        titles = ("encoder", "to the source", "decoder")
        legend = " ".join(f'<span class="slot-{slot}">{titles[slot]}</span>' for slot in kinds)
        body = f"""<p class="legend series">{legend}</p>{chart}
<p>If large weights meant large effects, the points would lie on a rising line. The rank correlation is
{agreement:.2f}: 1 would be perfect agreement, 0 none. The sharpest head, {head_title(sharpest)}, is number
{self.rank[sharpest]} of {len(ranked)} by its effect.</p>
<h3>All heads, ranked by what the {self.noun} loses without them</h3>
<div class="scroll"><table class="ranked"><thead><tr><th scope="col">no.</th>
<th scope="col">head</th>
{'<th scope="col">mostly</th>' if found.roles else ""}<th scope="col" class="n">largest weights</th>
<th scope="col" class="n">log P lost</th><th scope="col">the model then says</th></tr>
</thead><tbody>{rows}</tbody></table></div>"""
        return self.section(
            "experiments.heads", "experiments", self._count(), f"Which heads matter for this {self.noun}?",
            "Each head is switched off alone. The weights of a head show where it looks, not how much depends on it, "
            "so look at both.", body, "heads",
        )  # fmt: skip

    def strength(self, name: str) -> float:
        """How sharp a head is: the mean of the largest weight of each row."""
        sublayer, _, head = name.rpartition(".head.")
        return float(self.steps[f"{sublayer}.weights"][int(head) - 1].max(1).mean())

    def _mask(self) -> str:
        found = self.found
        own = self.steps["log_probs"][np.arange(len(found.target_pieces)), self.steps["target"]][found.first_written :]
        rows = "".join(
            f'<tr><th scope="row">{piece(name)}</th><td class="n">{100 * exp(float(with_it)):.1f} %</td>'
            f'<td class="n">{100 * exp(without):.1f} %</td></tr>'
            for name, with_it, without in zip(
                found.target_pieces[found.first_written :], own, found.unmasked, strict=True
            )
        )
        body = f"""<div class="scroll"><table><thead><tr><th scope="col">piece</th>
<th scope="col" class="n">p with the mask</th>
<th scope="col" class="n">p without it</th></tr></thead><tbody>{rows}</tbody></table></div>
<p>Without the mask, the {self.noun} becomes {times_less_likely(found.log_prob - sum(found.unmasked))}. A model that saw
the future while it was trained would copy it, and could write nothing by itself. This one never saw it, so the future
confuses it.</p>
<p>When the model writes piece by piece, later pieces do not exist yet, and nothing has to be hidden. When a whole
beginning is run at once, in training, in scoring or for a given prefix, the mask is needed.</p>"""
        return self.section(
            "experiments.mask", "experiments", self._count(), f"What if the decoder saw the whole {found.whole}?",
            f"The decoder reads the whole {found.whole} at once, first with the look-ahead mask and then without it.",
            body, "mask",
        )  # fmt: skip

    def _path(self) -> str:
        found, reach = self.found, self.found.reach
        pieces = found.read_pieces
        layers = [f"layer {layer}" for layer in range(1, len(reach.whole) + 1)]
        reached = [int((row > 1e-6).sum()) for row in reach.restricted]
        first, window = int((reach.whole[0] > 1e-6).sum()), self.config.window
        far = ", the farthest too: the path is one step long" if first == len(pieces) else ""
        every = "every piece" if found.first_stack == "encoder" else "itself and every piece before it"
        sees = f"{window} to either side" if window else every
        body = f"""<p>{piece(pieces[0])} becomes {piece(reach.other)}. Each number says how much a vector changes, as a
share of its length.</p>
<h3>This model: every piece sees {sees}</h3>
{draw_heat(layers, pieces, reach.whole.tolist(), "Change of each piece after each layer")}
<p>After the first layer, {first} of {len(pieces)} pieces have changed{far}.</p>
<h3>The same model, if each piece saw only its neighbours</h3>
{draw_heat(layers, pieces, reach.restricted.tolist(), "Change of each piece after each layer, with a window of one")}
<p>Now the news travels one place with each layer: {", ".join(map(str, reached))} pieces know of it after layers 1 to
{len(reached)}. A recurrent network would need {len(pieces) - 1} steps to reach the end.</p>"""
        return self.section(
            "experiments.path", "experiments", self._count(), "Is the way between two words really one step?",
            "Change the first piece, and see which vectors change after each layer.", body, "path",
        )  # fmt: skip

    def _neighbours(self) -> str:
        found, alike = self.found, self.found.similarity
        rows = "".join(
            f"<tr><td>{piece(a)}</td><td>{piece(b)}</td><td class='n'>{cosine:.2f}</td></tr>"
            for a, b, cosine in alike.examples
        )
        spelled = (
            f"""<p>The vocabulary has {alike.pairs:,} pairs of pieces that differ only in a capital letter. The mean
cosine between their vectors is <strong>{alike.alike:.2f}</strong>, between random pieces
<strong>{alike.random:.2f}</strong>. Nobody told the model that they are the same word: both occur in the same places.
</p>
<div class="scroll"><table><thead><tr><th scope="col">piece</th><th scope="col">piece</th>
<th scope="col">cosine</th></tr></thead><tbody>{rows}</tbody></table></div>"""
            if alike.pairs
            else "<p>This vocabulary has no pieces that differ only in a capital letter.</p>"
        )
        nearest = "".join(
            f"<tr><td>{piece(each.piece)}</td><td>"
            + " ".join(f'{piece(near)}&nbsp;<span class="muted">{cosine:.2f}</span>' for near, cosine in each.nearest)
            + "</td></tr>"
            for each in found.neighbours
        )
        both = " If both languages share one matrix, a neighbour may be a translation." if self.is_translated else ""
        body = f"""{spelled}<h3>The nearest neighbours of the pieces of this text</h3>
<div class="scroll"><table><thead><tr><th scope="col">piece</th><th scope="col">neighbours</th></tr></thead>
<tbody>{nearest}</tbody></table></div>{self.explain_bytes()}
<p>A cosine of 1 means the same direction, 0 means nothing in common.{both}</p>"""
        return self.section(
            "experiments.neighbours", "experiments", self._count(), "Do similar words lie close together?",
            "Pieces that can stand in the same places get similar vectors, although training never compares two "
            "pieces.", body, "embedding",
        )  # fmt: skip

    def _often_said(self) -> str:
        found, gains = self.found, self.found.gains
        ranked = found.ranked_heads()
        agreement = rank_correlation([self.strength(name) for name in ranked], [found.cost_without(n) for n in ranked])
        pairs = next((each for each in found.lengths if each.pieces == 100), found.lengths[0])
        post = self.config.norm == "post"
        norm = (
            "This model does as the paper does."
            if post
            else "This model normalises before each sub-layer, as most do today; that is not the paper's figure."
        )
        said = (
            (
                "“Position-wise means that each position has a network of its own.”",
                "There is one network, and every position uses it with the same weights. On this text, all pieces "
                f"at once and each piece alone give the same numbers (they differ by at most {power(found.alone)}, "
                "which is rounding). What differs from position to position is only the input.",
            ),
            (
                "“The derivative of x + F(x) is always at least 1, so gradients cannot vanish.”",
                "The derivative is 1 + F′(x), and F′(x) can be negative. Measured here, around the feed-forward "
                f"network of the {found.first_stack}'s first layer: a small change of x leaves between "
                f"{number(gains.smallest)} and {number(gains.largest)} times as long, and "
                f"{100 * gains.below_one:.0f} % of the directions become shorter. The sum keeps "
                "gradients alive in practice, but it guarantees nothing.",
            ),
            (
                "“The mask is only for training.”",
                f"Whatever runs a whole beginning at once needs it. Without it, this {self.noun} becomes "
                f"{times_less_likely(found.log_prob - sum(found.unmasked))}. Only a search that goes piece by piece "
                'can do without, because the future does not exist yet. (<a href="#experiments.mask">See '
                "the experiment</a>.)",
            ),
            (
                "“The weights of attention explain why the model said something.”",
                "They show where a head looked. Whether it mattered shows only when the head is switched off. For the "
                f"{len(ranked)} heads and this {self.noun}, the two agree with a rank correlation of {agreement:.2f}. "
                '(<a href="#experiments.heads">See the experiment</a>.)',
            ),
            (
                "“The Transformer handles all words at once.”",
                ("The encoder does, and the decoder in training." if self.is_translated else "It does in training.")
                + " When it writes, the decoder makes one piece after another: "
                f"{len(found.target_pieces) - found.first_written} steps for this {self.noun}, each with everything "
                "written before.",
            ),
            (
                "“Each sub-layer begins with a norm.”",
                f"In the paper, the norm comes after the sum: LayerNorm(x + Sublayer(x)). {norm}",
            ),
            (
                "“Attention is what makes Transformers expensive.”",
                f"For sentences, the matrices are. At 100 pieces{' on each side' if self.is_translated else ''}, "
                "products between pairs of pieces are "
                f"{100 * pairs.pair_share:.1f} % of this model's operations. They grow with the square of the length, "
                'so for very long texts it is true. (<a href="#cost">See the cost</a>.)',
            ),
        )  # fmt: skip
        body = "".join(f'<aside class="said"><h3>{claim}</h3><p>{answer}</p></aside>' for claim, answer in said)
        return self.section(
            "often-said", "often-said", "Misunderstandings", "Often said, and not quite so",
            "Good explanations simplify, and some simplifications travel far. Here is what this model has to say.",
            body, "without",
        )  # fmt: skip


def rank_correlation(first: list[float], second: list[float]) -> float:
    """Spearman's correlation of two lists; 0 if one of them is constant."""
    x, y = _mean_ranks(first), _mean_ranks(second)
    return float(np.corrcoef(x, y)[0, 1]) if x.std() and y.std() else 0.0


def _mean_ranks(values: list[float]) -> np.ndarray:
    """The rank of each value; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: np.ndarray = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return ranks
