"""The result of a translation, and the model's confidence in it."""

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from math import exp
from typing import TYPE_CHECKING

from heedful.config.experiment import LOW_CONFIDENCE
from heedful.metrics.alignment import Link
from heedful.text import Tokenizer
from heedful.text.sentences import Sentences
from heedful.text.words import words_of_ids

if TYPE_CHECKING:
    import numpy as np

    from heedful.attention.record import ForcedDecoding
    from heedful.decoding.beam_tree import BeamTree


@dataclass(frozen=True, slots=True)
class WordConfidence:
    """A word, and the mean and the lowest probability of its pieces."""

    word: str
    mean: float
    least: float


def measure_word_confidence(
    tokenizer: Tokenizer, ids: Sequence[int], log_probs: Sequence[float]
) -> tuple[WordConfidence, ...]:
    """The confidence in each word that these ids decode to; `log_probs` has one number for each id."""
    words = words_of_ids(tokenizer, ids)
    probabilities: list[list[float]] = [[] for _ in words.texts]
    for number, log_prob in zip(words.of_pieces, log_probs, strict=True):
        if number is not None:
            probabilities[number].append(exp(log_prob))
    return tuple(
        WordConfidence(word, sum(several) / len(several), min(several))
        for word, several in zip(words.texts, probabilities, strict=True)
        if several  # a piece that spans two words counts for the first
    )


@dataclass(frozen=True, slots=True)
class Alternative:
    """One translation of a text."""

    text: str
    score: float  # ranks alternatives: log-probability over length penalty; with mbr, the mean chrF to all samples
    log_prob: float
    pieces: tuple[str, ...]
    finished: bool = True  # False: cut off at the maximum length
    alignment: tuple[Link, ...] | None = None  # which source word each word comes from; None: not requested
    repeats: bool = False  # True: it says the same thing many times in a row, and the source does not
    confidence: tuple[WordConfidence, ...] | None = None  # the model's confidence in each word; None: not requested
    pivot: "Alternative | None" = None  # the text in a third language that this was translated from, if there is one
    low_confidence: float = LOW_CONFIDENCE  # a mean probability below this is low for this model

    @property
    def mean_probability(self) -> float:
        """The geometric mean of the probabilities of the pieces; 1 if there are none."""
        return exp(self.log_prob / max(1, len(self.pieces)))

    @property
    def unsure(self) -> bool:
        """Whether the confidence of the model, or of the one before it, is so low that you should check this."""
        return self.mean_probability < self.low_confidence or (self.pivot is not None and self.pivot.unsure)


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of one text, with the requested alternatives: best first, or samples in the order drawn."""

    source: str
    text: str
    score: float
    source_pieces: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    redone: bool = False  # True: the first output looped or did not end, and this is the result of a retry
    sentences: tuple["Translation", ...] = ()  # of a text that was split; empty if it was translated as one
    via: str = ""  # the language that two models went through; empty: one model translated directly
    failed_terms: tuple[str, ...] = ()  # terms of the glossary that were given up, such as "animal = Viech"

    @property
    def mean_probability(self) -> float:
        """That of the best alternative, by which the mark decides; of several sentences, the lowest."""
        if self.sentences:
            return min(sentence.mean_probability for sentence in self.sentences)
        return self.alternatives[0].mean_probability if self.alternatives else 1.0

    @property
    def unsure(self) -> bool:
        """Whether you should check the best alternative, or that of any sentence."""
        if self.sentences:
            return any(sentence.unsure for sentence in self.sentences)
        return bool(self.alternatives) and self.alternatives[0].unsure

    def in_capitals(self, source: str) -> "Translation":
        """The translation of this text in capitals; its pieces stay those that the model wrote."""
        alternatives = tuple(
            replace(
                one,
                text=one.text.upper(),
                confidence=one.confidence and tuple(replace(word, word=word.word.upper()) for word in one.confidence),
            )
            for one in self.alternatives
        )
        return replace(self, source=source, text=self.text.upper(), alternatives=alternatives)

    @property
    def pieces(self) -> tuple[str, ...]:
        """The pieces of the best alternative."""
        return self.alternatives[0].pieces if self.alternatives else ()

    @property
    def alignment(self) -> tuple[Link, ...] | None:
        """The alignment of the best alternative; an empty text has no links."""
        return self.alternatives[0].alignment if self.alternatives else ()

    def _repr_html_(self) -> str:
        """Source, translation and alternatives, as a notebook shows them."""
        rows = [("source", self.source), ("translation", self.text)]
        rows += [(f"{one.score:.2f}", one.text) for one in self.alternatives[1:]]
        cells = (f"<tr><th>{label}</th><td style='text-align:left'>{escape(text)}</td></tr>" for label, text in rows)
        return f"<table>{''.join(cells)}</table>"


def join_sentences(sentences: Sentences, parts: Sequence[Translation], language: str) -> Translation:
    """The translation of a text from those of its sentences, with all white space in its place.

    Alternative n joins the nth alternatives of all sentences; its score and its log-probability are their sums.
    """
    ranks = range(max((len(part.alternatives) for part in parts), default=0))
    via = next((part.via for part in parts if part.via), "")
    alternatives = tuple(
        _join_alternatives(sentences, [_pick_rank(part, rank) for part in parts], language, via) for rank in ranks
    )
    return Translation(
        source=sentences.text,
        text=alternatives[0].text if alternatives else sentences.join(["" for _ in parts], language),
        score=alternatives[0].score if alternatives else 0.0,
        source_pieces=tuple(piece for part in parts for piece in part.source_pieces),
        alternatives=alternatives,
        redone=any(part.redone for part in parts),
        sentences=tuple(parts) if len(parts) > 1 else (),
        via=via,
        failed_terms=tuple(dict.fromkeys(term for part in parts for term in part.failed_terms)),
    )


def _pick_rank(part: Translation, rank: int) -> Alternative | None:
    """The alternative of this rank, or else the last; None if there was nothing to translate."""
    return part.alternatives[min(rank, len(part.alternatives) - 1)] if part.alternatives else None


def _join_alternatives(
    sentences: Sentences, chosen: Sequence[Alternative | None], language: str, via: str
) -> Alternative:
    joined, places = sentences.place([one.text if one else "" for one in chosen], language)
    known = [one for one in chosen if one]
    return Alternative(
        text=joined,
        score=sum(one.score for one in known),
        log_prob=sum(one.log_prob for one in known),
        pieces=tuple(piece for one in known for piece in one.pieces),
        finished=all(one.finished for one in known),
        alignment=_join_alignments(sentences, joined, places, chosen),
        repeats=any(one.repeats for one in known),
        confidence=None
        if any(one.confidence is None for one in known)
        else tuple(word for one in known for word in one.confidence or ()),
        pivot=_join_alternatives(sentences, [one and one.pivot for one in chosen], via, "") if via else None,
        low_confidence=max((one.low_confidence for one in known), default=LOW_CONFIDENCE),
    )


def _join_alignments(
    sentences: Sentences,
    joined: str,
    places: Sequence[tuple[int, int]],
    chosen: Sequence[Alternative | None],
) -> tuple[Link, ...] | None:
    """The links of all sentences, by the numbers of words in the whole text and the whole translation."""
    if any(one and one.alignment is None for one in chosen):
        return None
    before, after = _find_word_starts(sentences.text), _find_word_starts(joined)
    links: list[Link] = []
    for (source, _), (target, _), one in zip(sentences.spans, places, chosen, strict=True):
        shifts = bisect_right(before, source) - 1, bisect_right(after, target) - 1
        links += [(link[0] + shifts[0], link[1] + shifts[1]) for link in (one and one.alignment) or ()]
    return tuple(links)


def _find_word_starts(text: str) -> list[int]:
    return [word.start() for word in re.finditer(r"\S+", text)]


@dataclass(frozen=True, eq=False)
class Look:
    """A translation, and what happened inside the model.

    `inside` has the heads and the probabilities of each alternative. `steps` and `tree` are computed when you first ask
    for them, by the model as it was, with the heads that were off then.
    """

    translation: Translation
    inside: "tuple[ForcedDecoding, ...]"
    _record: "Callable[[], Mapping[str, np.ndarray]]" = field(repr=False)
    _grow: "Callable[[], BeamTree]" = field(repr=False)

    @cached_property
    def steps(self) -> "Mapping[str, np.ndarray]":
        """Every step of the best alternative as arrays by name, such as `encoder.1.attention.scores`.

        `heedful.attention.steps` lists the names.
        """
        return self._record()

    @cached_property
    def tree(self) -> "BeamTree":
        """The beam search that the model itself makes, and greedy search beside it."""
        return self._grow()

    def _repr_html_(self) -> str:
        """The best alternative, and how much each of its pieces attends to each source piece, as a notebook shows it.

        The weights are the means over the heads of the last layer.
        """
        shown = self.translation._repr_html_()
        if not self.inside or not self.inside[0].attention.cross:
            return shown
        columns = "".join(f"<th>{escape(piece)}</th>" for piece in self.translation.source_pieces)
        weights = self.inside[0].attention.cross[-1].mean(axis=0)
        rows = (
            f"<tr><th>{escape(piece)}</th>{''.join(map(_shade, row))}</tr>"
            for piece, row in zip(self.translation.pieces, weights.tolist(), strict=False)
        )
        return f"{shown}<table><tr><th></th>{columns}</tr>{''.join(rows)}</table>"


def _shade(weight: float) -> str:
    """A cell that is the darker, the larger the weight."""
    return f"<td style='background:rgba(31,119,180,{weight:.2f})'>{weight:.2f}</td>"
