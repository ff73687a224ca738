"""The sentences of the paper's figures 3 to 5, and which heads of a model make the links that those show."""

from collections.abc import Iterator
from dataclasses import dataclass

from heedful.attention.head_names import Head, all_heads
from heedful.errors import ConfigError
from heedful.inspection.attention_view import Lens
from heedful.text.words import words_of_text
from heedful.translation.result import Look


@dataclass(frozen=True, slots=True)
class Figure:
    """A sentence of the paper, and the link in it that a head was found to make."""

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
    """How much of what a word looks at is the word that it belongs to."""

    head: Head
    share: float


@dataclass(frozen=True, slots=True)
class Found:
    """A figure as this model sees it; links of all encoder heads, the strongest first."""

    figure: Figure
    look: Look
    links: tuple[Link, ...]
    chance: float  # the share of a head that looks at all pieces alike


def find_figures(lens: Lens) -> Iterator[Found]:
    """Look at each sentence, and for its link in every head of the encoder."""
    heads = [head for head in all_heads(lens.translator.model) if head.kind == "encoder"]
    if not heads:
        raise ConfigError(f"{lens.run} holds a model without attention in its encoder, which the figures are of")
    for figure in FIGURES:
        look = lens.look(figure.text)
        words = words_of_text(lens.translator.tokenizers.source, figure.text)
        places = {word: number for number, word in enumerate(words.texts)}
        queries = [i for i, word in enumerate(words.of_pieces) if word == places[figure.query]]
        keys = [i for i, word in enumerate(words.of_pieces) if word in {places[key] for key in figure.keys}]
        attention = look.inside[0].attention
        links = [Link(head, float(attention[head][queries][:, keys].sum(-1).mean())) for head in heads]
        chance = len(keys) / len(words.of_pieces)
        yield Found(figure, look, tuple(sorted(links, key=lambda link: -link.share)), chance)
