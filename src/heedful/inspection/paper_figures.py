"""The sentences of the paper's figures 3 to 5, and the heads of a model that make the same links."""

from collections.abc import Iterator
from dataclasses import dataclass

from heedful.attention.head_names import Head, all_heads
from heedful.errors import ConfigError
from heedful.inspection.attention_view import AttentionViewer
from heedful.text.words import words_of_text
from heedful.translation.result import Look


@dataclass(frozen=True, slots=True)
class Figure:
    """A sentence of the paper and the link that its figure shows."""

    name: str
    text: str
    query: str
    keys: tuple[str, ...]


FIGURES = (
    Figure(
        "figure-3",
        "It is in this spirit that a majority of American governments have passed new laws since 2009 making the "
        "registration or voting process more difficult .",
        "making",
        ("more", "difficult"),
    ),
    Figure(
        "figures-4-5",
        "The Law will never be perfect , but its application should be just - this is what we are missing , in my "
        "opinion .",
        "its",
        ("Law",),
    ),
)


@dataclass(frozen=True, slots=True)
class Link:
    """The share of a head's attention that goes to the linked words."""

    head: Head
    share: float


@dataclass(frozen=True, slots=True)
class FigureLinks:
    """A figure for this model: the links of all encoder heads, strongest first."""

    figure: Figure
    look: Look
    links: tuple[Link, ...]
    chance: float  # the share under uniform attention


def find_figures(viewer: AttentionViewer) -> Iterator[FigureLinks]:
    """Translate each sentence and measure its link in every encoder head."""
    heads = [head for head in all_heads(viewer.translator.model) if head.kind == "encoder"]
    if not heads:
        raise ConfigError(f"{viewer.run} has no attention in its encoder, which the figures show; use a Transformer")
    for figure in FIGURES:
        look = viewer.look(figure.text)
        words = words_of_text(viewer.translator.tokenizers.source, figure.text)
        places = {word: number for number, word in enumerate(words.texts)}
        queries = [i for i, word in enumerate(words.of_pieces) if word == places[figure.query]]
        keys = [i for i, word in enumerate(words.of_pieces) if word in {places[key] for key in figure.keys}]
        attention = look.inside[0].attention
        links = [Link(head, float(attention[head][queries][:, keys].sum(-1).mean())) for head in heads]
        chance = len(keys) / len(words.of_pieces)
        yield FigureLinks(figure, look, tuple(sorted(links, key=lambda link: -link.share)), chance)
