"""Translate through a third language, if no model translates directly."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from heedful.config import Device, SearchConfig
from heedful.data.stream import TextStream, read_windows
from heedful.errors import ConfigError
from heedful.metrics.alignment import Link
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder
from heedful.text.constraints import Constraints
from heedful.text.languages import language_name
from heedful.text.sentences import Sentences
from heedful.translation.engines import EngineChoice
from heedful.translation.pipeline import TokenizedText
from heedful.translation.result import Alternative, Translation, join_sentences
from heedful.translation.translator import Translator, require_several

if TYPE_CHECKING:
    from heedful.attention.aligner import Aligner


def _ignore(_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class PivotAligners:
    """The aligners of the two models."""

    first: "Aligner"
    second: "Aligner"


class PivotTranslator:
    """Two models in a row: the first translates into the pivot language, and the second from there.

    >>> translator = PivotTranslator.load("fr-en", "en-de")  # doctest: +SKIP
    >>> translator.translate(["Où est la gare ?"])           # doctest: +SKIP
    """

    def __init__(self, first: Translator, second: Translator, languages: tuple[str, str, str]) -> None:
        """`languages` are the codes of source, pivot and target."""
        self.first = first
        self.second = second
        self.source, self.via, self.target = languages

    @classmethod
    def load(
        cls,
        first: str | os.PathLike[str],
        second: str | os.PathLike[str],
        device: Device = "auto",
        engine: EngineChoice = "auto",
    ) -> "PivotTranslator":
        """Load two run folders or built-in models; the first must translate into the language of the second."""
        return cls.from_runs(RunFolder.open(find_model(first)), RunFolder.open(find_model(second)), device, engine)

    @classmethod
    def from_runs(
        cls,
        first: RunFolder,
        second: RunFolder,
        device: Device = "auto",
        engine: EngineChoice = "auto",
        notify: Callable[[str], None] = _ignore,
    ) -> "PivotTranslator":
        """Like `load`, for folders that are already open; `notify` is called with the choice of each engine."""
        before, after = first.experiment().data, second.experiment().data
        if not before.target_language or before.target_language != after.source_language:
            raise ConfigError(
                f"{first.path} translates into {language_name(before.target_language) or 'an unknown language'}, but "
                f"{second.path} translates from {language_name(after.source_language) or 'an unknown language'}; "
                "the language between them must be the same"
            )
        return cls(
            Translator.from_run(first, device, engine, notify=notify),
            Translator.from_run(second, device, engine, notify=notify),
            (before.source_language, after.source_language, after.target_language),
        )

    @property
    def search(self) -> SearchConfig:
        """The search of the second model, which makes the alternatives."""
        return self.second.search

    def translate(
        self,
        texts: Sequence[str],
        *,
        search: SearchConfig | None = None,
        n_best: int = 1,
        aligner: PivotAligners | None = None,
        constraints: Constraints | None = None,
        confidence: bool = False,
        split_sentences: bool = True,
    ) -> list[Translation]:
        """Translate each text, sentence by sentence, as `Translator.translate` does.

        The options are for the second model; the first gives its best translation, which is the `pivot` of every
        alternative. Score, log-probability and confidence are those of the second model, but an alternative is `unsure`
        if one of the two models is. Terms are looked up in the source, and required of the second model.
        """
        return list(
            self.translate_lines(
                texts,
                search=search,
                n_best=n_best,
                aligner=aligner,
                constraints=constraints,
                confidence=confidence,
                split_sentences=split_sentences,
            )
        )

    def translate_lines(
        self,
        texts: Iterable[str] | TextStream,
        *,
        search: SearchConfig | None = None,
        n_best: int = 1,
        aligner: PivotAligners | None = None,
        constraints: Constraints | None = None,
        confidence: bool = False,
        split_sentences: bool = True,
        done: Callable[[int], None] = _ignore,
    ) -> Iterator[Translation]:
        """Translate a stream in its order and in bounded memory; `done` is called with the number decoded so far."""
        require_several(texts)
        before = 0
        for window in read_windows(texts):
            split = [self._split(text) if split_sentences else None for text in window]
            units = [unit for text, own in zip(window, split, strict=True) for unit in (own.texts if own else [text])]
            pivots = self.first.translate(
                units,
                aligner=aligner.first if aligner else None,
                confidence=confidence,
                split_sentences=split_sentences,
            )
            found = self.second.translate(
                prepare_second_leg(self.second, pivots, constraints),
                search=search,
                n_best=n_best,
                aligner=aligner.second if aligner else None,
                constraints=constraints,
                confidence=confidence,
                split_sentences=split_sentences,
            )
            parts = iter(join_legs(pivots, found, self.via))
            for own in split:
                yield join_sentences(own, list(islice(parts, len(own.spans))), self.target) if own else next(parts)
            before += len(window)
            done(before)

    def _split(self, text: str) -> Sentences | None:
        """The sentences of a text; None if there is nothing to split."""
        sentences = Sentences(text, self.source) if text.strip() else None
        return None if sentences is None or sentences.is_whole else sentences


def prepare_second_leg(
    second: Translator, pivots: Sequence[Translation], constraints: Constraints | None
) -> list[str | TokenizedText]:
    """What the second model translates: the texts of the first, with the terms for what that has translated."""
    texts = [pivot.text for pivot in pivots]
    if not constraints or not constraints.glossary:
        return list(texts)
    return [
        replace(text, terms=tuple(constraints.find_terms(pivot.source)))
        for text, pivot in zip(second.tokenize(texts), pivots, strict=True)
    ]


def join_legs(first: Sequence[Translation], second: Sequence[Translation], via: str) -> list[Translation]:
    """One translation of the two of each text, whose alternatives know the text that they went through."""
    return [_join_legs(one, other, via) for one, other in zip(first, second, strict=True)]


def _join_legs(first: Translation, second: Translation, via: str) -> Translation:
    if not first.alternatives:
        return replace(first, via=via)
    pivot = first.alternatives[0]
    return Translation(
        source=first.source,
        text=second.text,
        score=second.score,
        source_pieces=first.source_pieces,
        alternatives=tuple(_pass_on(alternative, pivot) for alternative in second.alternatives),
        redone=first.redone or second.redone,
        via=via,
        failed_terms=second.failed_terms,
    )


def _pass_on(alternative: Alternative, pivot: Alternative) -> Alternative:
    """The alternative with what happened before it."""
    aligned = alternative.alignment is not None and pivot.alignment is not None
    return replace(
        alternative,
        finished=alternative.finished and pivot.finished,
        repeats=alternative.repeats or pivot.repeats,
        alignment=compose_links(pivot.alignment or (), alternative.alignment or ()) if aligned else None,
        pivot=pivot,
    )


def compose_links(first: Iterable[Link], second: Iterable[Link]) -> tuple[Link, ...]:
    """The links from the words of a text to those of its translation, over the words of a text between the two."""
    targets: dict[int, set[int]] = {}
    for middle, target in second:
        targets.setdefault(middle, set()).add(target)
    return tuple(sorted({(source, target) for source, middle in first for target in targets.get(middle, ())}))
