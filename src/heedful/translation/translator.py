"""The `Translator`: a model that translates texts and can be inspected."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from heedful.config import Device, Experiment, SearchConfig
from heedful.data.stream import TextStream
from heedful.decoding.engine import Engine, Ids
from heedful.decoding.hypothesis import Hypothesis, length_penalty
from heedful.errors import ConfigError, DataError, require_library
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder, Tokenizers
from heedful.tasks import Task, find_task
from heedful.tasks.translation import TRANSLATION
from heedful.text.constraints import Constraints
from heedful.translation.engines import EngineChoice, Engines, load_engines, load_torch_engine, only_torch
from heedful.translation.pipeline import (
    ConstraintEncoder,
    DecodedText,
    EncodedText,
    Pipeline,
    TokenizedText,
    TranslationOptions,
    TreeConstraintEncoder,
)
from heedful.translation.result import Look, Translation

if TYPE_CHECKING:  # other engines do not wait for PyTorch
    import torch

    from heedful.attention.aligner import Aligner
    from heedful.attention.steps import Steps
    from heedful.decoding.beam_tree import BeamTree
    from heedful.models.seq2seq import AnySeq2Seq

MAX_INSPECTED_PIECES = 400  # every head has as many weights as the square of a text's pieces


def _ignore(_: object) -> None:
    pass


class Translator:
    """A trained model, ready to translate.

    >>> translator = Translator.load("en-de")           # doctest: +SKIP
    >>> translator.translate(["A man rides a horse."])  # doctest: +SKIP
    """

    def __init__(
        self,
        engines: Engines,
        tokenizers: Tokenizers,
        search: SearchConfig,
        task: Task = TRANSLATION,
        languages: tuple[str, str] = ("", ""),
    ) -> None:
        """`languages` are the codes of source and target, by which texts are split into sentences and joined."""
        self.tokenizers = tokenizers
        self.search = search
        self.task = task
        self._languages = languages
        self._trees = TreeConstraintEncoder(tokenizers.target) if task.searches_trees else None
        self._pipeline = Pipeline(engines, tokenizers, task, languages)

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str],
        device: Device = "auto",
        engine: EngineChoice = "auto",
        others: Sequence[str | os.PathLike[str]] = (),
        *,
        callers: int = 1,
    ) -> "Translator":
        """Load a run folder, an exported one, or a built-in model by its name; with `others`, an ensemble.

        Nothing in a folder is executed, and a damaged folder is an error. If several `callers` translate at the same
        time, none waits for another.
        """
        first, *more = (RunFolder.open(find_model(one)) for one in (model, *others))
        return cls.from_run(first, device, engine, more, callers=callers)

    @classmethod
    def from_run(
        cls,
        run: RunFolder,
        device: Device = "auto",
        engine: EngineChoice = "auto",
        others: Sequence[RunFolder] = (),
        notify: Callable[[str], None] = _ignore,
        callers: int = 1,
    ) -> "Translator":
        """Like `load`, for folders that are already open; `notify` is called with the choice of the engine."""
        experiment = _require_source(run)
        engines = load_engines(run, device, engine, others, notify, callers)
        languages = experiment.data.source_language, experiment.data.target_language
        return cls(engines, run.tokenizers(), experiment.search, find_task(experiment.task), languages)

    @classmethod
    def on_device(cls, run: RunFolder, device: "torch.device") -> "Translator":
        """Load the torch engine on exactly this device."""
        experiment = _require_source(run)
        engines = only_torch(load_torch_engine(run, device))
        languages = experiment.data.source_language, experiment.data.target_language
        return cls(engines, run.tokenizers(), experiment.search, find_task(experiment.task), languages)

    @classmethod
    def from_model(
        cls, model: "AnySeq2Seq", tokenizers: Tokenizers, search: SearchConfig, task: Task = TRANSLATION
    ) -> "Translator":
        """Use the torch engine with a model that is already in memory."""
        from heedful.decoding.torch_engine import TorchEngine

        return cls(only_torch(TorchEngine(model, tokenizers.target.eos_id)), tokenizers, search, task)

    @property
    def engine(self) -> Engine:
        """The engine that translates."""
        return self._pipeline.engines.preferred

    @property
    def model(self) -> "AnySeq2Seq":
        """The PyTorch model, to inspect or change; it is loaded when first needed."""
        return self._pipeline.engines.torch.model

    def translate(
        self,
        texts: Sequence[str | TokenizedText],
        *,
        beam: int | None = None,
        search: SearchConfig | None = None,
        n_best: int = 1,
        aligner: "Aligner | None" = None,
        constraints: Constraints | None = None,
        confidence: bool = False,
        workers: int = 0,
        split_sentences: bool = True,
    ) -> list[Translation]:
        """Translate each text; the result does not depend on which texts are translated together.

        A text may have many sentences and paragraphs: each sentence is translated for itself, and all white space stays
        where it was. With `split_sentences=False`, each text is one unit, as in test sets, and so is every text of a
        task other than translation.

        `search` replaces the model's own search; `beam` changes only its width. With an aligner, words are linked to
        the source words that they come from; `translation.word_alignment.find_aligner` finds the best one of a run.
        `constraints` are terms and a prefix that translations must contain. With `confidence`, you get the model's
        confidence in each word. `workers` threads decode at the same time (0: one per core); pass 1 if you call this
        from several threads. Texts may be tokenized already, by `tokenize`.
        """
        require_several(texts)
        search = search or self.search
        search = search if beam is None else replace(search, beam=beam)
        encoder = self._encoder(constraints)
        options = TranslationOptions(search, n_best, encoder, aligner, confidence, workers, split_sentences)
        return list(self._pipeline.translate(texts, options, _ignore))

    def translate_lines(
        self,
        texts: Iterable[str] | TextStream,
        *,
        search: SearchConfig | None = None,
        n_best: int = 1,
        aligner: "Aligner | None" = None,
        constraints: Constraints | None = None,
        confidence: bool = False,
        split_sentences: bool = True,
        done: Callable[[int], None] = _ignore,
    ) -> Iterator[Translation]:
        """Translate a stream in its order and in bounded memory; `done` is called with the number decoded so far.

        Texts of a `TextStream` are translated as they arrive, without waiting for more.
        """
        require_several(texts)
        options = TranslationOptions(
            search or self.search,
            n_best,
            self._encoder(constraints),
            aligner,
            confidence,
            split_sentences=split_sentences,
        )
        yield from self._pipeline.translate(texts, options, done)

    def look(
        self,
        text: str | TokenizedText,
        *,
        search: SearchConfig | None = None,
        n_best: int = 1,
        constraints: Constraints | None = None,
        translation: str | None = None,
    ) -> Look:
        """Translate a text, and look inside: every head, the probability of each piece, and every step by name.

        You see the translation that `translate` gives. A given `translation`, whoever made it, is the first of the
        alternatives instead; the search finds the others.
        """
        require_library("looking inside a model", "torch")
        from heedful.attention.record import force_decode

        search = search or self.search
        options = TranslationOptions(search, n_best, self._encoder(constraints))
        (encoded,) = self._pipeline.encode([text], options)
        if not encoded.text.strip():
            raise DataError("there is nothing to look at in an empty text; give a sentence")
        if (pieces := len(encoded.source)) > MAX_INSPECTED_PIECES:
            most = MAX_INSPECTED_PIECES
            raise DataError(f"the text has {pieces} pieces, over the {most} that can be shown; split it into sentences")
        if translation is None and n_best == 1:  # as `translate` gives it, whichever engine finds it
            translation = self.translate([text], search=search, constraints=constraints)[0].text
        search_too = translation is None or n_best > 1
        decoded = self._pipeline.decode_for_inspection(encoded, options) if search_too else DecodedText(())
        if translation is not None:
            decoded = DecodedText(self._put_first(encoded, translation, decoded, options))
        targets = [list(hypothesis.tokens) for hypothesis in decoded.hypotheses]
        inside = force_decode(self.model, [encoded.source] * len(targets), targets)
        found = self._pipeline.finish(encoded, decoded, options.search)
        if translation is not None:  # the pieces may spell it with an unknown character
            first, *others = found.alternatives
            found = replace(found, text=translation, alternatives=(replace(first, text=translation), *others))
        return Look(found, tuple(inside), *self._look_later(encoded.source, targets[0], search))

    def _look_later(
        self, source: Sequence[int], target: Sequence[int], search: SearchConfig
    ) -> tuple[Callable[[], "Steps"], Callable[[], "BeamTree"]]:
        """The steps and the tree, computed when they are asked for, of the model as it is now."""
        from heedful.attention.pruning import apply_gates, read_gates
        from heedful.attention.rival_steps import record_rival_steps
        from heedful.attention.steps import record_steps
        from heedful.decoding.beam_tree import grow_beam_tree
        from heedful.models.convolutional import Convolutional
        from heedful.models.gpt import GPT
        from heedful.models.recurrent import Recurrent
        from heedful.models.transformer import Transformer

        engine, gates = self._pipeline.engines.torch, read_gates(self.model)

        def record() -> "Steps":
            with apply_gates(engine.model, gates):
                match engine.model:
                    case Transformer() | GPT():
                        return record_steps(engine.model, list(source), list(target))
                    case Recurrent() | Convolutional():
                        return record_rival_steps(engine.model, list(source), list(target))
            raise ConfigError(f"no steps are known of a model of the class {type(engine.model).__name__}")

        def grow() -> "BeamTree":
            with apply_gates(engine.model, gates):
                return grow_beam_tree(engine.model, source, engine.special, search)

        return record, grow

    def _put_first(
        self, encoded: EncodedText, translation: str, decoded: DecodedText, options: TranslationOptions
    ) -> list[Hypothesis]:
        """Hypotheses that begin with this translation; the others are those that the search found besides it."""
        tokens = self.tokenizers.target.encode(self.task.target_symbols(translation))
        if (pieces := len(tokens)) > MAX_INSPECTED_PIECES:
            most = MAX_INSPECTED_PIECES
            raise DataError(f"the translation has {pieces} pieces, over the {most} that can be shown; shorten it")
        log_prob = sum(self._pipeline.engines.torch.score([encoded.source], [tokens])[0])
        score = log_prob / length_penalty(float(pieces), options.search.alpha, options.search.penalty)
        texts = [
            alternative.text for alternative in self._pipeline.finish(encoded, decoded, options.search).alternatives
        ]
        others = [one for one, text in zip(decoded.hypotheses, texts, strict=True) if text != translation]
        return [Hypothesis(tuple(tokens), log_prob, score), *others][: options.n_best]

    @contextmanager
    def switch_off_heads(self, names: Iterable[str]) -> Iterator[None]:
        """Within this context, the model runs without these heads, such as `["cross.1.2"]`."""
        require_library("switching off heads", "torch")
        from heedful.attention.head_names import find_heads
        from heedful.attention.pruning import switch_off_heads

        pipeline = self._pipeline
        self._pipeline = Pipeline(only_torch(pipeline.engines.torch), self.tokenizers, self.task, self._languages)
        try:
            with switch_off_heads(self.model, find_heads(self.model, names)):
                yield
        finally:
            self._pipeline = pipeline

    def tokenize(self, texts: Sequence[str]) -> list[TokenizedText]:
        """The texts with their source ids, for when you need these before you translate."""
        return self._pipeline.tokenize(texts)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The source ids of each text."""
        return [text.source for text in self.tokenize(texts)]

    def decode(self, sources: Sequence[Ids], search: SearchConfig, n_best: int) -> list[list[Hypothesis]]:
        """The best hypotheses of each source, best first."""
        return self._pipeline.engines.choose(search).decode(sources, search, n_best)

    def _encoder(self, constraints: Constraints | None) -> ConstraintEncoder:
        return ConstraintEncoder(self.tokenizers.target, constraints or Constraints(), self._trees)


def _require_source(run: RunFolder) -> Experiment:
    """The experiment of a model that turns a source into a target; refuses one that continues or restores text."""
    experiment = run.experiment()
    if find_task(experiment.task).denoises:
        raise ConfigError(
            f"{run.path} has only learnt to restore text; teach it to translate with: "
            f"heedful train --init {run.path} --source FILE --target FILE --out OUT"
        )
    if find_task(experiment.task).continues_text:
        raise ConfigError(
            f'{run.path} is a model for completion, which cannot translate; use: heedful complete {run.path} "..."'
        )
    if encoder := find_task(experiment.task).encoder:
        raise ConfigError(
            f"{run.path} is a model for {experiment.task}, which cannot translate; "
            f'use: heedful {"classify" if encoder in ("sequence", "tokens") else "embed"} {run.path} "..."'
        )
    return experiment


def require_several(texts: Iterable[str | TokenizedText] | TextStream) -> None:
    """Refuse a single string."""
    if isinstance(texts, str):  # a string is an iterable too, of its characters
        raise DataError("translate() takes a list of texts, but got one string; write translate([text])")
