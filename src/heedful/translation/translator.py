"""Text in, translation out."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Literal

from heedful.config import Device, SearchConfig
from heedful.data.stream import Arriving, windows
from heedful.decoding.engine import Engine, EngineName, Ids
from heedful.decoding.hypothesis import Hypothesis
from heedful.errors import ConfigError, DataError
from heedful.storage.files import check_manifest
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder, Tokenizers, require_compatible
from heedful.tasks import Task, find_task
from heedful.tasks.translation import TRANSLATION
from heedful.text.constraints import Constraints
from heedful.translation.constraint_encoding import ConstraintEncoder, TreeConstraintEncoder
from heedful.translation.pipeline import Asked, Found, Job, Searcher
from heedful.translation.repetition import has_loop
from heedful.translation.result import Alternative, Look, Translation

if TYPE_CHECKING:  # with another engine nothing waits for PyTorch
    import torch

    from heedful.attention.aligner import Aligner
    from heedful.decoding.torch_engine import TorchEngine
    from heedful.models.seq2seq import AnySeq2Seq

_LONGEST = 8192  # pieces of one input; attention needs memory for their square
LONGEST_LOOK = 400  # pieces of a text that is looked into: every head has as many weights as their square
EngineChoice = Literal["auto", "torch", "ctranslate2"]


class Translator:
    """What runs a trained model, and its tokenizers.

    >>> translator = Translator.load("en-de")           # doctest: +SKIP
    >>> translator.translate(["A man rides a horse."])  # doctest: +SKIP
    """

    def __init__(
        self,
        engine: Engine,
        tokenizers: Tokenizers,
        search: SearchConfig,
        task: Task = TRANSLATION,
        spare: "Callable[[], TorchEngine] | None" = None,
        *,
        insist: bool = False,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`spare` makes an engine of the same model for what the first cannot do; `notice` hears why it was taken.

        Who insists on the first does without it, except to look inside and to search again where an output loops.
        """
        self.tokenizers = tokenizers
        self.search = search
        self.task = task
        self._trees = TreeConstraintEncoder(tokenizers.target) if task.searches_trees else None
        self._searcher = Searcher(engine, tokenizers, task, spare, insist, notice)

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str],
        device: Device = "auto",
        engine: EngineChoice = "auto",
        others: Sequence[str | os.PathLike[str]] = (),
    ) -> "Translator":
        """Read a run folder, one that was exported, or a built-in model by its name; others translate together with it.

        Nothing in it is executed; damage is an error.
        """
        first, *more = (RunFolder.open(find_model(one)) for one in (model, *others))
        return cls.using(first, device, engine, more)

    @classmethod
    def using(
        cls,
        run: RunFolder,
        device: Device = "auto",
        engine: EngineChoice = "auto",
        others: Sequence[RunFolder] = (),
        notice: Callable[[str], None] = lambda _: None,
    ) -> "Translator":
        """The same for folders that are open already."""

        def on_torch() -> Translator:
            from heedful.device import choose_device

            return cls.of(run, choose_device(device), others)

        if choose_engine(run, engine, device, others) == "torch":
            return on_torch()
        from heedful.decoding.ctranslate2_engine import CTranslate2Engine

        experiment = run.experiment()
        check_manifest(run.ctranslate2)
        fast = CTranslate2Engine(run.ctranslate2)
        return cls(
            fast,
            run.tokenizers(),
            experiment.search,
            find_task(experiment.task),
            lambda: on_torch()._searcher.torch,
            insist=engine != "auto",
            notice=notice,
        )

    @classmethod
    def of(cls, run: RunFolder, device: "torch.device", others: Sequence[RunFolder] = ()) -> "Translator":
        """The torch engine, on this very device."""
        experiment = run.experiment()
        for other in others:
            require_compatible(run, other)
        models = [one.model().to(device) for one in (run, *others)]
        return cls.with_model(models[0], run.tokenizers(), experiment.search, find_task(experiment.task), models[1:])

    @classmethod
    def with_model(
        cls,
        model: "AnySeq2Seq",
        tokenizers: Tokenizers,
        search: SearchConfig,
        task: Task = TRANSLATION,
        others: "Sequence[AnySeq2Seq]" = (),
    ) -> "Translator":
        """The torch engine of a model that is in memory."""
        from heedful.decoding.torch_engine import TorchEngine

        return cls(TorchEngine(model, tokenizers.target.eos_id, others), tokenizers, search, task)

    @property
    def engine(self) -> Engine:
        """What translates."""
        return self._searcher.engine

    @property
    def model(self) -> "AnySeq2Seq":
        """The model itself, for who looks into it."""
        return self._searcher.torch.model

    def translate(
        self,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        search: SearchConfig | None = None,
        n_best: int = 1,
        aligner: "Aligner | None" = None,
        constraints: Constraints | None = None,
        confidence: bool = False,
        workers: int = 0,
    ) -> list[Translation]:
        """Translate each text; the result does not depend on which texts are translated together.

        The search is the model's own unless another is given; `beam` changes only its width. With an aligner, words
        are linked to those that they come from; `translation.word_alignment.find_aligner` knows the best one of a run.
        `constraints` are terms and a beginning that translations must have; `confidence` tells how sure each word is.
        `workers` may work on it at the same time, 0: one a core; who asks from several threads of their own gives 1.
        """
        _require_several(texts)
        search = search or self.search
        search = search if beam is None else replace(search, beam=beam)
        encoder = ConstraintEncoder(self.tokenizers.target, constraints or Constraints(), self._trees)
        job = Job(search, n_best, encoder, aligner, confidence, workers)
        return list(self._all(texts, job))

    def translate_lines(
        self,
        texts: Iterable[str] | Arriving,
        *,
        search: SearchConfig | None = None,
        n_best: int = 1,
        aligner: "Aligner | None" = None,
        constraints: Constraints | None = None,
        confidence: bool = False,
        done: Callable[[int], None] = lambda _: None,
    ) -> Iterator[Translation]:
        """The same for a stream, in its order and in bounded memory; `done` hears how many are translated so far.

        Of a stream that is `Arriving`, nothing is waited for: what has arrived is translated.
        """
        _require_several(texts)
        encoder = ConstraintEncoder(self.tokenizers.target, constraints or Constraints(), self._trees)
        yield from self._all(texts, Job(search or self.search, n_best, encoder, aligner, confidence), done)

    def _all(
        self, texts: Iterable[str] | Arriving, job: Job, done: Callable[[int], None] = lambda _: None
    ) -> Iterator[Translation]:
        """Window by window."""
        before = 0
        for window in windows(texts):

            def tell(count: int, start: int = before) -> None:
                done(start + count)

            yield from self._window(window, before, job, tell)
            before += len(window)

    def _window(
        self, texts: Sequence[str], before: int, job: Job, done: Callable[[int], None]
    ) -> Iterator[Translation]:
        """Each translation as soon as it and those before it are there."""
        sources = self.encode(texts)
        for number, source in enumerate(sources, before + 1):
            if len(source) > _LONGEST:
                raise DataError(f"text {number} has {len(source)} pieces, over {_LONGEST}; split it into sentences")
        asked = [Asked(*both, job.encoder.of(both[0])) for both in zip(texts, sources, strict=True)]
        # A foreign tokenizer may leave nothing of a text but its end.
        wanted = [number for number, one in enumerate(asked) if one.text.strip() and len(one.source) > 1]
        empty = sorted(set(range(len(asked))).difference(wanted))
        found: dict[int, Found] = {}
        given = 0
        for batch, several in chain([(empty, [Found(())] * len(empty))], self._searcher.batches(asked, wanted, job)):
            found |= dict(zip(batch, several, strict=True))
            done(given + len(found))
            while given in found:
                yield self._finish(texts[given], sources[given], found.pop(given))
                given += 1

    def look(self, text: str, *, search: SearchConfig | None = None, n_best: int = 1) -> Look:
        """Translate one text and look inside: what every head attended to, and how sure the model was of each piece."""
        from heedful.attention.forced_decoding import force_decode

        if not self.model.attentions:
            raise ConfigError("this model has no attention, so there are no heads to look at; it can only translate")
        if not text.strip():
            raise DataError("there is nothing to look at in an empty text; give a sentence")
        (source,) = self.encode([text])
        if len(source) > LONGEST_LOOK:
            raise DataError(
                f"the text has {len(source)} pieces, over the {LONGEST_LOOK} that can be shown; give it in sentences"
            )
        encoder = ConstraintEncoder(self.tokenizers.target, Constraints(), self._trees)
        found = self._searcher.look_for(
            Asked(text, source, encoder.of(text)), Job(search or self.search, n_best, encoder)
        )
        hypotheses = found.hypotheses
        inside = force_decode(self.model, [source] * len(hypotheses), [hypothesis.tokens for hypothesis in hypotheses])
        return Look(self._finish(text, source, found), tuple(inside))

    @contextmanager
    def switch_off_heads(self, names: Iterable[str]) -> Iterator[None]:
        """Within this context, the model runs without these heads, such as `["cross.1.2"]`."""
        from heedful.attention.head_names import find_heads
        from heedful.attention.pruning import switch_off_heads

        with self._searcher.only_torch(), switch_off_heads(self.model, find_heads(self.model, names)):
            yield

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts in, ids out."""
        return self.tokenizers.source.encode_all([self.task.source_symbols(text) for text in texts])

    def decode(self, sources: Sequence[Ids], search: SearchConfig, n_best: int) -> list[list[Hypothesis]]:
        """Ids in, hypotheses out."""
        return self._searcher.engine_for(search).decode(sources, search, n_best)

    def _finish(self, text: str, source: Sequence[int], found: Found) -> Translation:
        target, hypotheses = self.tokenizers.target, found.hypotheses
        calm = not self.task.repeats_by_mistake or has_loop(source)
        nothing = [None] * len(hypotheses)
        alternatives = tuple(
            Alternative(
                self.task.finish(text, target.decode(h.tokens)),
                h.score,
                h.log_prob,
                tuple(target.pieces(h.tokens)),
                h.finished,
                links,
                not calm and has_loop(h.tokens),
                sure,
            )
            for h, links, sure in zip(hypotheses, found.links or nothing, found.confidence or nothing, strict=True)
        )
        pieces = tuple(self.tokenizers.source.pieces(source))
        if not alternatives:  # an empty line stays one
            return Translation(text, "", 0.0, pieces, ())
        return Translation(text, alternatives[0].text, alternatives[0].score, pieces, alternatives, found.redone)


def _require_several(texts: Iterable[str] | Arriving) -> None:
    if isinstance(texts, str):  # which is an iterable of characters, too
        raise DataError("translate() takes a list of texts, but got one string; write translate([text])")


def choose_engine(
    run: RunFolder, wanted: EngineChoice, device: Device = "auto", others: Sequence[RunFolder] = ()
) -> EngineName:
    """The engine of this name; "auto" takes the fastest that can run what the folder has."""
    if wanted == "ctranslate2":
        if not run.ctranslate2.is_dir():
            raise ConfigError(
                f"{run.path} has no model for the ctranslate2 engine; add one: "
                f"heedful export {run.path} --to ctranslate2"
            )
        if not run.has_fresh_ctranslate2:
            raise ConfigError(
                f"what {run.path} has for the ctranslate2 engine is an older model; export it again: "
                f"heedful export {run.path} --to ctranslate2"
            )
        if others:
            raise ConfigError("the ctranslate2 engine runs one model, not several together; use --engine torch")
        if device not in ("auto", "cpu"):
            raise ConfigError(f"the ctranslate2 engine runs on the processor, not on {device}; use --engine torch")
        return wanted
    if wanted == "torch" or others or device not in ("auto", "cpu"):
        return "torch"
    return "ctranslate2" if run.has_fresh_ctranslate2 and find_spec("ctranslate2") else "torch"
