"""The steps of a GPT as sections of a page, each with the numbers of one text in it."""

from collections.abc import Iterable

import numpy as np

from heedful.decoding.sampling import Draw
from heedful.inspection.explain_text import ExplainedText
from heedful.inspection.layer_sections import LayerSections
from heedful.inspection.markup import equation, fraction, mi, mn, mo, space, sub, visible
from heedful.pages.inline import text_in_page

_SHOWN = 8  # candidates of a draw


class TextSections(LayerSections):
    """Every step of the data's way, from the prompt to the draw, as a section."""

    found: ExplainedText

    def all(self) -> Iterable[str]:
        """The sections in the order of the data's way."""
        yield self._start()
        yield self._pieces()
        yield self._embedding("decoder")
        yield self._positions()
        for layer in range(1, self.found.layers["decoder"] + 1):
            yield from self._attention(f"decoder.{layer}.attention")
            yield from self._feed_forward(f"decoder.{layer}.feed_forward")
        yield self._lens()
        yield self._logits()
        yield self._sampling()

    def _start(self) -> str:
        config, found = self.config, self.found
        per_layer = config.decoder_heads or (config.num_heads,) * config.decoder_layers
        body = f"""
<div class="pair">
  <p class="quote"><span class="muted">prompt</span> <bdi>{text_in_page(found.text)}</bdi></p>
  <p class="quote strong"><span class="muted">continuation</span> <bdi>{text_in_page(self.given)}</bdi></p>
</div>
<p class="actions"><a class="button strong" href="#tour.1">Take the tour (3 minutes)</a>
<a class="button" href="#pieces">Go step by step</a></p>
<dl class="facts">
  <div><dt>weights</dt><dd>{found.parameters:,}</dd></div>
  <div><dt>d<sub>model</sub></dt><dd>{config.d_model}</dd></div>
  <div><dt>layers</dt><dd>{config.decoder_layers}</dd></div>
  <div><dt>heads per layer</dt><dd>{", ".join(map(str, sorted(set(per_layer))))}</dd></div>
  <div><dt>d<sub>ff</sub></dt><dd>{config.d_ff}</dd></div>
  <div><dt>context</dt><dd>{config.max_positions} pieces</dd></div>
  <div><dt>positions</dt><dd>{config.positions}</dd></div>
</dl>
<p><strong>What figure 1 has and this model has not:</strong> the encoder, and the decoder's attention to it. Prompt and
continuation are one text, which one stack reads. The norm comes before each sub-layer instead of after the sum.</p>
<p>Every number on this page was recorded while the model read this very text. Each step follows from the steps before
it, and a test recomputes them all. Click a box of the figure, or use the arrow keys.</p>
{self.describe_baseline()}{self._ranked("text")}"""
        return self.section(
            "start", "", "Overview", "One text through GPT",
            "The model reads a text, turns it into numbers, lets each piece look at those before it, and draws the "
            "next piece, again and again.", body, "gpt",
        )  # fmt: skip

    def _sampling(self) -> str:
        found, search = self.found, self.found.search
        draws, others = found.drawn, found.others
        place = next((i for i, draw in enumerate(draws) if draw.token != int(draw.log_probs.argmax())), 0)
        if draws:
            draw = draws[place]
            token = draw.token
            tempered, noise = float(draw.scaled[token]), float(draw.noise[token])
            kept = [int(each.kept.sum()) for each in draws]
            rank = sum(each.token != int(each.log_probs.argmax()) for each in draws)
            formula = equation(
                mi("next"), mo("="), mi("argmax"), mo("("), fraction(f"{mi('log')}{sub('p', 'w')}", mi("T")), mo("+"),
                sub("g", "w"), mo(")"), space(), fraction(mn(float(draw.log_probs[token])), mn(search.temperature)),
                mo("+"), mn(noise), mo("="), mn(tempered + noise),
            )  # fmt: skip
            cut = [
                *([f"the {search.top_k} likeliest (top-k)"] if search.top_k else []),
                *([f"those that together have {100 * search.top_p:g} % (top-p)"] if search.top_p < 1 else []),
            ]
            limits = f"It keeps {' and '.join(cut)}: here {min(kept)} to {max(kept)} pieces. " if cut else ""
            plain = (
                f"The model divides the log-probabilities by the temperature {search.temperature:g}. {limits}To each "
                "it adds a random number g, and the largest sum wins: that draws every piece by its probability."
            )
            body = f"""<div class="figure" data-view="draws" data-cell="{place}"></div>
<p>{rank} of {len(draws)} times another piece won than the likeliest one. The random numbers are a hash of the seed
{search.seed}, the prompt, the position and the piece, so the same seed always gives the same text. (g is Gumbel noise,
−log(−log u) for a u between 0 and 1.)</p>"""
        else:
            formula = equation(mi("next"), mo("="), mi("argmax"), sub("p", "w"))
            plain = (
                "Nothing was drawn here: the continuation was given, or the likeliest piece was taken each time. "
                "These are continuations of the model itself."
            )
            body = ""
        body += f"<h3>The likeliest piece each time</h3>{_quote(others['greedy'][0])}"
        if "draws" in others:
            body += "<h3>Other draws</h3>" + "".join(map(_quote, others["draws"]))
            temperatures = [name for name in others if name not in ("greedy", "draws")]
            rows = "".join(
                f'<tr><th scope="row">{name}</th><td><bdi>{text_in_page(others[name][0])}</bdi></td></tr>'
                for name in temperatures
            )
            body += f"""<h3>The same random numbers at other temperatures</h3>
<div class="scroll"><table class="ranked"><thead><tr><th scope="col">T</th>
<th scope="col">continuation</th></tr></thead>
<tbody>{rows}</tbody></table></div>
<p>A low temperature makes likely pieces likelier still, and the text safe and dull; a high one makes it wild.</p>"""
        return self.section(
            "sampling", "sampling", "Output", "Draw the next piece", plain, body, "sampling", formula
        )  # fmt: skip

    def draws(self) -> list[list[dict[str, object]]]:
        """The candidates of each draw, as the page shows them: the largest sums first."""
        return [self._describe(draw) for draw in self.found.drawn]

    def _describe(self, draw: Draw) -> list[dict[str, object]]:
        log_probs, scaled, noise = (part.double().numpy() for part in (draw.log_probs, draw.scaled, draw.noise))
        kept = draw.kept.numpy()
        shares = np.where(kept, np.exp(scaled - scaled.max()), 0.0)
        shares /= shares.sum()
        likely = np.argsort(-log_probs)[: _SHOWN - 1].tolist()
        chosen = sorted({draw.token, *likely}, key=lambda token: -log_probs[token])
        return [
            {
                "piece": name,
                "probability": round(float(np.exp(log_probs[token])), 6),
                "share": round(float(shares[token]), 6),
                "kept": bool(kept[token]),
                "scaled": round(float(scaled[token]), 4),
                "noise": round(float(noise[token]), 4),
                "won": token == draw.token,
            }
            for token, name in zip(chosen, visible(self.found.target.pieces(chosen)), strict=True)
        ]


def _quote(text: str) -> str:
    return f'<p class="quote"><bdi>{text_in_page(text)}</bdi></p>'
