"""The sections that the page of every model has: its pieces, its embeddings, its logits and the beam's tree."""

from math import exp

import numpy as np

from heedful.decoding.beam_tree import BeamTree
from heedful.decoding.hypothesis import length_penalty
from heedful.inspection.figure_one import draw_beam
from heedful.inspection.markup import (
    equation,
    fraction,
    mark_differences,
    mi,
    mn,
    mo,
    number,
    piece,
    power,
    root,
    space,
    sub,
    words,
)
from heedful.inspection.section_writer import SectionWriter
from heedful.pages.inline import text_in_page


class PieceSections(SectionWriter):
    """Sections about what goes into a model and what comes out."""

    def _pieces(self) -> str:
        found = self.found
        rows = []
        ids = self.steps["source" if found.first_stack == "encoder" else "target_in"].tolist()
        for name, own in dict(zip(found.read_pieces, ids, strict=True)).items():
            stages = found.source.stages(own)
            merged = " → ".join(" ".join(map(piece, stage)) for stage in stages[-4:]) if len(stages) > 1 else "–"
            more = "… " if len(stages) > 4 else ""
            rows.append(f"<tr><td>{piece(name)}</td><td class='n'>{own}</td><td>{more}{merged}</td></tr>")
        chips = "".join(f'<span class="chip">{piece(each)}</span>' for each in found.read_pieces)
        body = f"""
<p class="chips">{chips}</p>
<div class="scroll"><table><thead><tr><th scope="col">piece</th><th scope="col">id</th>
<th scope="col">merges that made it</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>
<p class="muted">▁ stands for a space. &lt;/s&gt; ends a text.</p>"""
        count = found.source.vocabulary_size
        plain = (
            f"Each character is a piece, or each of its bytes if it is rare; the vocabulary has {count:,} pieces."
            if self.found.are_characters
            else f"Frequent words are one piece, rare words are several; the vocabulary has {count:,} pieces."
        )
        return self.section(
            "pieces", "pieces", "Input", "Text becomes pieces, pieces become ids",
            plain, body, "text",
            equation(words("text"), mo("→"), mn(len(found.read_pieces)), words(" pieces"), mo("→"),
                  mn(len(found.read_pieces)), words(" ids")),
        )  # fmt: skip

    def _embedding(self, stack: str) -> str:
        found, config = self.found, self.config
        is_first = stack == found.first_stack
        pieces = found.read_pieces if is_first else found.input_pieces
        row = min(1, len(pieces) - 1)
        value = float(self.steps[f"{stack}.embedding"][row, 0])
        scale = float(found.scale)
        body = self.figure("matrix", f"{stack}.embedding", sides(stack)[0], "embedding" if scale != 1.0 else "plain")
        if is_first:
            rows = "".join(
                f"<tr><td>{piece(each.piece)}</td><td>"
                + " ".join(
                    f'{piece(near)}&nbsp;<span class="muted">{cosine:.2f}</span>' for near, cosine in each.nearest
                )
                + "</td></tr>"
                for each in found.neighbours
            )
            body += f"""
<h3>Nearest neighbours in the matrix, and the cosine of the angle</h3>
<div class="scroll"><table><thead><tr><th scope="col">piece</th><th scope="col">neighbours</th></tr></thead>
<tbody>{rows}</tbody></table></div>{self.explain_bytes()}"""
            if "scale-of-embeddings" in found.without:
                rows_of = self.steps[f"{stack}.embedding"]
                body += (
                    "<p>Why the root? The rows are short"
                    + (", because the same matrix makes the logits" if config.sharing == "all" else "")
                    + f": their numbers have a spread of {number(float(rows_of.std()))}. The root brings it to "
                    f"{number(scale * float(rows_of.std()))}, so that the paper's positions, sines between −1 and 1, "
                    "do not drown the word when they are added.</p>"
                )
                body += self.without(
                    "What if the embedding were not multiplied by the root of d_model?", "scale-of-embeddings"
                )
        title = "Ids become vectors" if is_first else "The translation so far becomes vectors"
        plain = (
            f"Each id selects one row of a matrix of {found.source.vocabulary_size:,} × {config.d_model} learned "
            + (
                f"numbers, and the row is multiplied by √{config.d_model} = {scale:.2f}."
                if scale != 1.0
                else "numbers. The paper multiplies the row by the root of d_model; this model does not."
            )
            if is_first
            else "The decoder reads what it has written, one place later: it begins with a start symbol, whose vector "
            "is zero, and never sees the piece that it is about to write. If it saw that piece, it would learn to copy "
            "it."
        )
        scaled = mo("·") + root(sub("d", "model")) if scale != 1.0 else ""
        numbers = mn(value) + mo("×") + mn(scale) + mo("=") + mn(value * scale) if scale != 1.0 else mn(value)
        formula = equation(mi("x"), mo("="), sub("E", "id"), scaled, mo(","), space(), numbers)
        part = stack.capitalize()
        return self.section(
            f"{stack}.embedding", f"{stack}.embedding", part, title, plain, body, "embedding", formula,
            shape=f"{len(pieces)} × {config.d_model}",
        )  # fmt: skip

    def _logits(self) -> str:
        found = self.found
        size = self.steps["logits"].shape[1]
        own = self.steps["log_probs"][np.arange(len(found.target_pieces)), self.steps["target"]]
        first = found.first_written
        place = first + int(own[first:].argmin())
        chips = "".join(
            f'<li><button type="button" class="chip" data-place="{number}">{piece(each)} '
            f'<span class="muted">{100 * exp(float(value)):.0f} %</span></button></li>'
            for number, (each, value) in enumerate(zip(found.target_pieces, own, strict=True))
        )
        shared = "the same matrix as the embeddings" if self.config.sharing != "none" else "a matrix of its own"
        formula = equation(
            sub("z", "w"), mo("="), mi("x"), mo("·"), sub("E", "w"), mo(","), space(), sub("p", "w"),
            mo("="), fraction(f"<msup><mi>e</mi>{sub('z', 'w')}</msup>",
            f"<munder><mo>∑</mo><mi>v</mi></munder><msup><mi>e</mi>{sub('z', 'v')}</msup>"),
        )  # fmt: skip
        body = f"""<ul class="chips" id="written">{chips}</ul>
<div class="figure" data-view="logits" data-cell="{place}"></div>
<p>The model is least sure of {piece(found.target_pieces[place])}: {100 * exp(float(own[place])):.0f} %. All
{len(own) - first} probabilities{" of the continuation" if first else ""}, multiplied, make
{power(exp(found.log_prob), 2)}; their logarithms add up to {number(found.log_prob)}.</p>"""
        return self.section(
            "logits", "logits", "Output", "A probability for every piece",
            f"The last vector is multiplied by each of the {size:,} rows of {shared}: the larger the dot product, the "
            "likelier the piece.", body, "output", formula, shape=f"{len(own)} × {size:,}",
        )  # fmt: skip

    def _beam(self, tree: BeamTree) -> str:
        found, search = self.found, self.found.search
        best, greedy = tree.best, tree.greedy
        decode = found.target.decode
        penalty = length_penalty(float(len(best.tokens)), search.alpha, search.penalty)
        kept = sum(one.fate == "kept" for one in tree.candidates)
        pruned = sum(one.fate == "pruned" for one in tree.candidates)
        formula = equation(
            mi("score"),
            mo("="),
            fraction(mi("log") + mi("P"), mi("lp")),
            mo("="),
            fraction(mn(best.log_prob), mn(penalty)),
            mo("="),
            mn(best.score),
            space(),
            mi("lp"),
            mo("="),
            f"<msup><mrow><mo>(</mo><mfrac><mrow><mn>5</mn><mo>+</mo><mn>{len(best.tokens)}</mn></mrow><mn>6</mn>"
            f"</mfrac><mo>)</mo></mrow><mn>{search.alpha:g}</mn></msup>"
            if search.penalty == "paper"
            else f"<msup><mn>{len(best.tokens)}</mn><mn>{search.alpha:g}</mn></msup>",
        )
        own = self.steps["target"].tolist()
        own_score = found.log_prob / length_penalty(float(len(own)), search.alpha, search.penalty)
        ended = sum(one.fate == "finished" for one in tree.candidates)
        alone = mark_differences(decode(best.tokens), decode(greedy.tokens))
        note = (
            ""
            if decode(best.tokens) == self.given
            else f"<p>This search finds “<bdi>{text_in_page(decode(best.tokens))}</bdi>” with the score "
            f"{number(best.score)}. The translation at the top of this page has {number(own_score)}. "
            + (
                "Somebody else wrote it."
                if found.requested
                else "<code>heedful translate</code> found it by a faster engine, which rounds numbers and may end "
                "earlier: that can decide between two that are almost as good."
            )
            + "</p>"
        )
        unpunished = found.text_without("no-penalty")
        without_penalty = (
            "Here it finds the same."
            if unpunished == found.baseline_text
            else f'</p><p class="quote"><bdi>{mark_differences(found.baseline_text, unpunished)}</bdi>'
        )
        body = f"""<div class="scroll tree" tabindex="0" role="region" aria-label="The tree of the search">
{draw_beam(tree, found.target)}</div>
<p class="legend"><span class="key kept"></span> kept <span class="key pruned"></span> dropped
<span class="key finished"></span> finished <span class="key won"></span> the winner</p>
<p id="candidate" role="status" class="readout">Point at a piece of the tree, tap it, or move
with the arrow keys.</p>{note}
<aside class="without"><h3>What if the search were greedy?</h3>
<p class="quote"><span class="muted">beam {search.beam}</span> <bdi>{text_in_page(decode(best.tokens))}</bdi>
<span class="muted">log P = {number(best.log_prob)}</span></p>
<p class="quote"><span class="muted">greedy</span> <bdi>{alone}</bdi>
<span class="muted">log P = {number(greedy.log_prob)}</span></p></aside>
<aside class="without"><h3>What if there were no length penalty?</h3>
<p>Each piece makes a translation less likely, so a search without the penalty prefers short ones. {without_penalty}
</p></aside>
<h3>How it ends</h3>
<p>A beginning ends with the piece &lt;/s&gt;, and leaves the beam: {ended} did. The search stops when none that goes on
could still beat the best of them, at the latest after {len(found.read_pieces) + search.max_extra} pieces, which is
{search.max_extra} more than the source has.</p>"""
        return self.section(
            "beam", "beam", "Output", "The beam's tree",
            f"At each step the search extends {search.beam} beginnings and keeps the best {search.beam}. It looked at "
            f"{len(tree.candidates)} candidates, went on with {kept}, dropped {pruned}, and {ended} ended.",
            body, "beam", formula,
        )  # fmt: skip


def sides(name: str) -> tuple[str, str]:
    """What the rows and the columns of an attention are."""
    if name.startswith("encoder"):
        return "source", "source"
    return "inputs", "source" if name.endswith("cross_attention") else "inputs"
