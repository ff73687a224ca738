"""The page that walks through figure 1 with the numbers of one sentence. Without JavaScript, it is a summary."""

import re
from dataclasses import dataclass

from heedful.inspection.explain import ExplainedSentence, make_document
from heedful.inspection.figure_one import draw_figure_one
from heedful.inspection.model_sections import ModelSections
from heedful.inspection.question_sections import QuestionSections
from heedful.pages.inline import asset, digest, json_in_page, load_script, text_in_page


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop of the tour, and its story."""

    step: str
    story: str


def make_explanation_page(found: ExplainedSentence, live: bool = False) -> str:
    """The page as one HTML file that works from disk, loads nothing, and runs no script but its own.

    With `live`, it asks the server that it came from to explain other sentences.
    """
    style = asset("theme.css") + asset("explain.css", "inspection")
    script = load_script("explain.js", "inspection")
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'" + ("; connect-src 'self'" if live else "")
    )
    model, questions = ModelSections(found), QuestionSections(found)
    stops = make_tour(model)
    document = make_document(found) | {
        "live": live,
        "path": [*make_path(model), *questions.path()],
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
        "steps": "\n".join([*model.all(), *questions.all()]),
        "stops": str(len(stops)),
    }
    # All at once, so that text that looks like a placeholder stays text.
    return re.sub(r"@@(\w+)@@", lambda mark: parts[mark[1]], asset("explain.html", "inspection"))


def make_path(sections: ModelSections) -> list[str]:
    """The steps that "next" walks through: one head of the first layers in every detail, then each sub-layer."""
    steps = ["start", "pieces", "encoder.embedding", "encoder.positions"]
    for layer in range(1, sections.config.encoder_layers + 1):
        name = f"encoder.{layer}.attention"
        steps += [name]
        if layer == 1:
            steps += [f"{sections.best_head(name)}.{stage}" for stage in sections.stages(name)]
        steps += [f"{name}.output", f"{name}.residual"]
        steps += [f"encoder.{layer}.feed_forward", f"encoder.{layer}.feed_forward.residual"]
    steps += ["encoder.output", "decoder.embedding"]
    for layer in range(1, sections.config.decoder_layers + 1):
        for part in ("attention", "cross_attention"):
            name = f"decoder.{layer}.{part}"
            stages = ("mask", "softmax") if part == "attention" else ("projections", "softmax", "values")
            steps += [name]
            if layer == 1:
                steps += [f"{sections.best_head(name)}.{stage}" for stage in stages]
            steps += [f"{name}.output", f"{name}.residual"]
        steps += [f"decoder.{layer}.feed_forward", f"decoder.{layer}.feed_forward.residual"]
    return [*steps, "lens", "logits", "beam"]


def make_tour(sections: ModelSections) -> list[Stop]:
    """About three minutes: the idea of each part, at the head that matters most for this sentence."""
    encoder_head = sections.best_head("encoder.1.attention")
    masked_head = sections.best_head("decoder.1.attention")
    last = sections.config.decoder_layers
    cross_head = sections.best_head(f"decoder.{last}.cross_attention")
    source, target = len(sections.found.source_pieces), len(sections.found.target_pieces)
    return [
        Stop("start", "This is figure 1 of the paper, drawn for this very model. The sentence goes in at the "
             "bottom left and comes out, in another language, at the top right. Follow it."),
        Stop("pieces", f"A model cannot read letters. The sentence becomes {source} pieces, and each piece a "
             "number. Everything after this is arithmetic."),
        Stop("encoder.embedding", f"Each number selects a list of {sections.config.d_model} numbers, its embedding. "
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
