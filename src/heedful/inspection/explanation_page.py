"""The page that walks through figure 1 with the numbers of one sentence. Without JavaScript, it is a summary."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from heedful.errors import ConfigError
from heedful.inspection.explain import Explained, ExplainedSentence, make_document, measure_layers
from heedful.inspection.explain_rival import ExplainedRival
from heedful.inspection.explain_text import ExplainedText
from heedful.inspection.figure_one import BESIDE_RIVAL, Column, draw_figure_one, draw_map
from heedful.inspection.model_sections import ModelSections
from heedful.inspection.question_sections import QuestionSections
from heedful.inspection.rival_sections import RivalSections
from heedful.inspection.text_sections import TextSections
from heedful.pages.inline import asset, digest, json_in_page, load_script, text_in_page


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop of the tour, and its story."""

    step: str
    story: str


def make_explanation_page(found: Explained, live: bool = False) -> str:
    """The page as one HTML file that works from disk, loads nothing, and runs no script but its own.

    With `live`, it asks the server that it came from to explain other sentences.
    """
    style = asset("theme.css") + asset("explain.css", "inspection")
    script = load_script("explain.js", "inspection")
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'" + ("; connect-src 'self'" if live else "")
    )
    told = _tell(found)
    document = make_document(found, told.matrices) | {
        **told.document,
        "live": live,
        "path": told.path,
        "tour": [{"step": stop.step, "story": stop.story} for stop in told.tour],
    }
    parts = {
        "policy": policy,
        "style": style,
        "script": script,
        "document": json_in_page(document),
        "title": text_in_page(f"{found.text} – explained"),
        "model": text_in_page(found.model_name),
        "source": text_in_page(found.text),
        "target": text_in_page(found.given),
        "noun": found.noun,
        "map": told.map,
        "steps": "\n".join(told.sections),
        "stops": str(len(told.tour)),
    }
    # All at once, so that text that looks like a placeholder stays text.
    return re.sub(r"@@(\w+)@@", lambda mark: parts[mark[1]], asset("explain.html", "inspection"))


@dataclass(frozen=True, slots=True)
class _Told:
    """What the page has of a model of one kind."""

    sections: list[str]
    path: list[str]
    tour: list[Stop]
    map: str
    matrices: Mapping[str, np.ndarray]
    document: Mapping[str, object]


def _tell(found: Explained) -> _Told:
    match found:
        case ExplainedSentence():
            model, questions = ModelSections(found), QuestionSections(found)
            return _Told(
                [*model.all(), *questions.all()], [*make_path(model), *questions.path()], make_tour(model),
                draw_figure_one(found.layers, found.config.norm), measure_layers(found), {},
            )  # fmt: skip
        case ExplainedText():
            text, questions = TextSections(found), QuestionSections(found)
            return _Told(
                [*text.all(), *questions.all()], [*make_text_path(text), *questions.path()], make_text_tour(text),
                draw_figure_one(found.layers, found.config.norm), measure_layers(found), {"draws": text.draws()},
            )  # fmt: skip
        case ExplainedRival():
            rival = RivalSections(found)
            return _Told([*rival.all()], rival.path(), make_rival_tour(rival), draw_rival(found), {}, {})
    raise ConfigError(f"there is no page for {type(found).__name__}")


def make_path(sections: ModelSections) -> list[str]:
    """The steps that "next" walks through: one head of the first layers in every detail, then each sub-layer."""
    steps = ["start", "pieces", "encoder.embedding", "encoder.positions"]
    for layer in range(1, sections.found.layers["encoder"] + 1):
        name = f"encoder.{layer}.attention"
        steps += [name]
        if layer == 1:
            steps += [f"{sections.best_head(name)}.{stage}" for stage in sections.stages(name)]
        steps += [f"{name}.output", f"{name}.residual"]
        steps += [f"encoder.{layer}.feed_forward", f"encoder.{layer}.feed_forward.residual"]
    steps += ["encoder.output", "decoder.embedding"]
    for layer in range(1, sections.found.layers["decoder"] + 1):
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
    last = sections.found.layers["decoder"]
    cross_head = sections.best_head(f"decoder.{last}.cross_attention")
    source, target = len(sections.found.source_pieces), len(sections.found.target_pieces)
    return [
        Stop("start", "This is figure 1 of the paper, drawn for this very model. The sentence goes in at the "
             "bottom left and comes out, in another language, at the top right. Follow it."),
        Stop("pieces", f"A model cannot read letters. The sentence becomes {source} pieces, and each piece a "
             "number. Everything after this is arithmetic."),
        Stop("encoder.embedding", f"Each number selects a list of {sections.config.d_model} numbers, its embedding. "
             "Pieces that are used alike have lists that point the same way: look at the neighbours."),
        Stop("encoder.positions", "So far the order of the words is lost. This step puts it back. Read "
             "below what the model says without it."),
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


def make_text_path(sections: TextSections) -> list[str]:
    """The steps of a model without an encoder."""
    steps = ["start", "pieces", "decoder.embedding", "decoder.positions"]
    for layer in range(1, sections.found.layers["decoder"] + 1):
        name = f"decoder.{layer}.attention"
        steps += [name]
        if layer == 1:
            steps += [f"{sections.best_head(name)}.{stage}" for stage in sections.stages(name)]
        steps += [f"{name}.output", f"{name}.residual"]
        steps += [f"decoder.{layer}.feed_forward", f"decoder.{layer}.feed_forward.residual"]
    return [*steps, "lens", "logits", "sampling"]


def make_text_tour(sections: TextSections) -> list[Stop]:
    """Under three minutes: the same idea with one stack."""
    found = sections.found
    head = sections.best_head("decoder.1.attention")
    read = len(found.read_pieces)
    kind = "character" if found.are_characters else "piece"
    return [
        Stop("start", "This is what GPT keeps of the paper's figure 1: the decoder, without its look at a source. The "
             f"text goes in at the bottom, and the next {kind} comes out at the top. Follow it."),
        Stop("pieces", f"A model cannot read letters. Prompt and continuation become {read} pieces, and each piece a "
             "number. Everything after this is arithmetic."),
        Stop("decoder.embedding", f"Each number selects a list of {sections.config.d_model} numbers, its embedding. "
             "Pieces that are used alike have lists that point the same way: look at the neighbours."),
        Stop("decoder.positions", "So far the order is lost. This step puts it back. Read below what the model says "
             "without it."),
        Stop(f"{head}.scores", "Now the heart of the paper. Each piece asks every piece before it a question; the "
             "answer is a dot product. Move over the cells and watch the sum."),
        Stop(f"{head}.mask", "No piece may look at later ones, or the model would only copy. The mask sets those "
             "scores to minus infinity."),
        Stop(f"{head}.softmax", "The softmax turns the scores of a row into shares that add up to 1: where this piece "
             "looks."),
        Stop(f"{head}.values", "Then the piece takes the mean of what the others offer, weighted by those shares. "
             "That is all attention is."),
        Stop("decoder.1.feed_forward", "After talking to each other, the pieces think alone: the same small network "
             "works on each of them."),
        Stop("lens", "Send each layer's vectors straight to the output, and you see the answer form."),
        Stop("logits", f"At each position, the model gives every {kind} of its vocabulary a probability. Move the "
             "slider through the text."),
        Stop("sampling", f"A dice decides. Taking the likeliest {kind} each time repeats itself soon, so the model "
             "draws: here you see every draw, with its random numbers."),
    ]  # fmt: skip


def make_rival_tour(sections: RivalSections) -> list[Stop]:
    """One minute: what a rival shares with the Transformer."""
    found = sections.found
    attention = [
        Stop(f"decoder.{found.attentions}.cross_attention", "This is where attention was invented: each piece of the "
             "translation looks back at the source. The Transformer keeps it, and drops the rest.")
    ] if found.attentions else []  # fmt: skip
    return [
        Stop("start", "This model is older than the Transformer, or its rival. See what figure 1 has and it has not."),
        Stop("pieces", f"The sentence becomes {len(found.source_pieces)} pieces, and each piece a number."),
        Stop("encoder.embedding", f"Each number selects a list of {found.config.d_model} numbers."),
        *attention,
        Stop("logits", "At each position, the model gives every piece of its vocabulary a probability."),
        Stop("beam", "The beam keeps several beginnings, and this is its tree."),
    ]


def draw_rival(found: ExplainedRival) -> str:
    """The map of a rival, in the places of figure 1."""
    encoder, decoder = Column.left(), Column.right()
    recurrent = found.config.family == "recurrent"
    layers = "Recurrent layers" if recurrent else "Convolutions"
    encoder.box("pieces", "pieces", "Pieces and ids", "plain")
    encoder.box("encoder.embedding", "encoder.embedding", "Embedding", "embed")
    if not recurrent:
        encoder.box("encoder.positions", "encoder.positions", "Positions", "embed")
    if "encoder.output" in found.steps:
        encoder.box("encoder.output", "encoder.output", layers, "feed")
    decoder.box("decoder.embedding", "decoder.embedding", "Embedding of output", "embed")
    for layer in range(1, found.attentions + 1):
        name = f"decoder.{layer}.cross_attention"
        decoder.box(name, name, "Attention to source", "cross")
    decoder.box("logits", "logits", "Linear, softmax", "out")
    decoder.box("beam", "beam", "Beam search", "out")
    return draw_map([("Encoder", encoder), ("Decoder", decoder)], [], BESIDE_RIVAL)
