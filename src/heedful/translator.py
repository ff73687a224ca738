"""Text in, translation out."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Literal, assert_never

from heedful.config import Device, SearchConfig, Task
from heedful.engines.engine import Engine, EngineName
from heedful.errors import ConfigError, DataError
from heedful.metrics.alignment import Link
from heedful.search.hypothesis import Hypothesis
from heedful.store.run_folder import RunFolder, Tokenizers
from heedful.tasks.choose import finish, source_symbols

if TYPE_CHECKING:  # with another engine nothing waits for PyTorch
    import torch

    from heedful.heads.align import Aligner
    from heedful.heads.forced import Forced
    from heedful.models.seq2seq import AnySeq2Seq

_WINDOW = 4096  # lines that are sorted by length together
_LONGEST = 8192  # pieces of one input; attention needs memory for their square
EngineChoice = Literal["auto", "torch", "ctranslate2"]
LONGEST_LOOK = 400  # pieces of a text that is looked into: every head has as many weights as their square


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to say it."""

    text: str
    score: float  # what hypotheses are ranked by: log-probability over length penalty
    log_prob: float
    pieces: tuple[str, ...]
    finished: bool = True  # False: cut off at the maximum length
    alignment: tuple[Link, ...] | None = None  # which source word each word comes from; None: not asked for


@dataclass(frozen=True, slots=True)
class Translation:
    """What became of one source text; `alternatives` has all that were asked for, the best first."""

    source: str
    text: str
    score: float
    source_pieces: tuple[str, ...]
    alternatives: tuple[Alternative, ...]

    @property
    def pieces(self) -> tuple[str, ...]:
        """The pieces of the best alternative."""
        return self.alternatives[0].pieces if self.alternatives else ()

    @property
    def alignment(self) -> tuple[Link, ...] | None:
        """That of the best alternative; of an empty text there is nothing to align."""
        return self.alternatives[0].alignment if self.alternatives else ()


@dataclass(frozen=True, slots=True)
class Look:
    """A translation and what went on inside the model, for each of its alternatives."""

    translation: Translation
    inside: "tuple[Forced, ...]"


class Translator:
    """A trained model and its tokenizers.

    >>> translator = Translator.load("runs/en-de")      # doctest: +SKIP
    >>> translator.translate(["A man rides a horse."])  # doctest: +SKIP
    """

    def __init__(
        self, engine: Engine, tokenizers: Tokenizers, search: SearchConfig, task: Task = "translation"
    ) -> None:
        self.engine = engine
        self.tokenizers = tokenizers
        self.search = search
        self.task: Task = task

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], device: Device = "auto", engine: EngineChoice = "auto"
    ) -> "Translator":
        """Read a run folder, or one that was exported. Nothing in it is executed; damage is an error."""
        return cls.using(RunFolder.open(Path(folder)), device, engine)

    @classmethod
    def using(cls, run: RunFolder, device: Device = "auto", engine: EngineChoice = "auto") -> "Translator":
        """The same for a folder that is open already."""
        match choose_engine(run, engine):
            case "torch":
                from heedful.device import choose_device

                return cls.of(run, choose_device(device))
            case "ctranslate2":
                from heedful.engines.ctranslate2 import CTranslate2Engine

                if device not in ("auto", "cpu"):
                    raise ConfigError(f"the ctranslate2 engine runs on the processor, not on {device}; leave it out")
                experiment = run.experiment()
                return cls(CTranslate2Engine(run.ctranslate2), run.tokenizers(), experiment.search, experiment.task)
            case _ as never:
                assert_never(never)

    @classmethod
    def of(cls, run: RunFolder, device: "torch.device") -> "Translator":
        """The torch engine, on this very device."""
        experiment = run.experiment()
        return cls.with_model(run.model().to(device), run.tokenizers(), experiment.search, experiment.task)

    @classmethod
    def with_model(
        cls, model: "AnySeq2Seq", tokenizers: Tokenizers, search: SearchConfig, task: Task = "translation"
    ) -> "Translator":
        """The torch engine of a model that is in memory."""
        from heedful.engines.torch import TorchEngine

        return cls(TorchEngine(model, tokenizers.target.eos_id), tokenizers, search, task)

    @property
    def model(self) -> "AnySeq2Seq":
        """The model itself, for who looks into it; only the torch engine has one."""
        if self.engine.name == "torch":
            from heedful.engines.torch import TorchEngine

            if isinstance(self.engine, TorchEngine):
                return self.engine.model
        raise ConfigError(
            f"the {self.engine.name} engine only translates; to look into a model, give the run that it came from"
        )

    def translate(
        self,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        search: SearchConfig | None = None,
        n_best: int = 1,
        aligner: "Aligner | None" = None,
    ) -> list[Translation]:
        """Translate each text; the result does not depend on which texts are translated together.

        The search is the model's own unless another is given; `beam` changes only its width. With an aligner, words
        are linked to those that they come from; `heedful.runs.align.find_aligner` knows the best one of a run.
        """
        _require_several(texts)
        search = search or self.search
        search = search if beam is None else replace(search, beam=beam)
        return list(self.translate_lines(texts, search=search, n_best=n_best, aligner=aligner))

    def translate_lines(
        self,
        texts: Iterable[str],
        *,
        search: SearchConfig | None = None,
        n_best: int = 1,
        aligner: "Aligner | None" = None,
        done: Callable[[int], None] = lambda _: None,
    ) -> Iterator[Translation]:
        """The same for a stream, in its order and in bounded memory; `done` hears how many are translated so far."""
        _require_several(texts)
        search = search or self.search
        iterator = iter(texts)
        before = 0
        while window := list(islice(iterator, _WINDOW)):

            def tell(count: int, start: int = before) -> None:
                done(start + count)

            yield from self._window(window, before, search, n_best, aligner, tell)
            before += len(window)

    def _window(
        self,
        texts: Sequence[str],
        before: int,
        search: SearchConfig,
        n_best: int,
        aligner: "Aligner | None",
        done: Callable[[int], None],
    ) -> list[Translation]:
        sources = self.encode(texts)
        for number, source in enumerate(sources, before + 1):
            if len(source) > _LONGEST:
                raise DataError(f"text {number} has {len(source)} pieces, over {_LONGEST}; split it into sentences")
        # A foreign tokenizer may leave nothing of a text but its end.
        wanted = [index for index, text in enumerate(texts) if text.strip() and len(sources[index]) > 1]
        found: dict[int, list[Hypothesis]] = {}
        aligned: dict[int, list[tuple[Link, ...]]] = {}
        for batch in batches_by_length(wanted, sources, search.beam, self.engine.batch_tokens):
            hypotheses = self.decode([sources[index] for index in batch], search, n_best)
            found |= dict(zip(batch, hypotheses, strict=True))
            if aligner:
                links = self._align([texts[index] for index in batch], hypotheses, aligner)
                aligned |= dict(zip(batch, links, strict=True))
            done(len(found) + len(texts) - len(wanted))
        return [self._finish(text, sources[i], found.get(i, []), aligned.get(i)) for i, text in enumerate(texts)]

    def look(self, text: str, *, search: SearchConfig | None = None, n_best: int = 1) -> Look:
        """Translate one text and look inside: what every head attended to, and how sure the model was of each piece."""
        from heedful.heads.forced import forced

        if not self.model.attentions:
            raise ConfigError("this model has no attention, so there are no heads to look at; it can only translate")
        if not text.strip():
            raise DataError("there is nothing to look at in an empty text; give a sentence")
        (source,) = self.encode([text])
        if len(source) > LONGEST_LOOK:
            raise DataError(
                f"the text has {len(source)} pieces, over the {LONGEST_LOOK} that can be shown; give it in sentences"
            )
        (hypotheses,) = self.decode([source], search or self.search, n_best)
        inside = forced(self.model, [source] * len(hypotheses), [hypothesis.tokens for hypothesis in hypotheses])
        return Look(self._finish(text, source, hypotheses), tuple(inside))

    @contextmanager
    def heads_off(self, names: Iterable[str]) -> Iterator[None]:
        """Translate and look without these heads, for a while: `with translator.heads_off(["encoder.1.2"]): ...`."""
        from heedful.heads.gates import heads_off
        from heedful.heads.names import heads_named

        with heads_off(self.model, heads_named(self.model, names)):
            yield

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts in, ids out."""
        return self.tokenizers.source.encode_all([source_symbols(self.task, text) for text in texts])

    def decode(self, sources: Sequence[Sequence[int]], search: SearchConfig, n_best: int) -> list[list[Hypothesis]]:
        """Ids in, hypotheses out."""
        return self.engine.decode(sources, search, n_best)

    def _align(
        self, texts: Sequence[str], hypotheses: Sequence[Sequence[Hypothesis]], aligner: "Aligner"
    ) -> list[list[tuple[Link, ...]]]:
        """The links of every hypothesis of each text."""
        from heedful.heads.align import align, word_pair

        source, target = self.tokenizers.source, self.tokenizers.target
        pairs = [
            word_pair(source, target, source_symbols(self.task, text), hypothesis.tokens)
            for text, several in zip(texts, hypotheses, strict=True)
            for hypothesis in several
        ]
        links = iter(align(self.model, aligner, pairs))
        return [list(islice(links, len(several))) for several in hypotheses]

    def _finish(
        self,
        text: str,
        source: Sequence[int],
        hypotheses: Sequence[Hypothesis],
        aligned: Sequence[tuple[Link, ...]] | None = None,
    ) -> Translation:
        target = self.tokenizers.target
        alternatives = tuple(
            Alternative(
                finish(self.task, text, target.decode(h.tokens)),
                h.score,
                h.log_prob,
                tuple(target.pieces(h.tokens)),
                h.finished,
                links,
            )
            for h, links in zip(hypotheses, aligned or repeat(None, len(hypotheses)), strict=True)
        )
        pieces = tuple(self.tokenizers.source.pieces(source))
        if not alternatives:  # an empty line stays one
            return Translation(text, "", 0.0, pieces, ())
        return Translation(text, alternatives[0].text, alternatives[0].score, pieces, alternatives)


def _require_several(texts: Iterable[str]) -> None:
    if isinstance(texts, str):  # which is an iterable of characters, too
        raise DataError("translate() takes a list of texts, but got one string; write translate([text])")


def choose_engine(run: RunFolder, wanted: EngineChoice) -> EngineName:
    """The engine of this name; "auto" takes the fastest that the folder has a model for."""
    exported = run.ctranslate2.is_dir()
    if wanted == "ctranslate2" and not exported:
        raise ConfigError(
            f"{run.path} has no model for the ctranslate2 engine; "
            f"make a folder that has: heedful export {run.path} --to ctranslate2 OUT"
        )
    if wanted != "auto":
        return wanted
    return "ctranslate2" if exported else "torch"


def batches_by_length(
    indices: Sequence[int], sources: Sequence[Sequence[int]], beam: int, tokens: int
) -> Iterator[list[int]]:
    """Sentences of about the same length together, the longest first: if memory is short, it shows at once.

    A batch has at most so many source tokens times beam.
    """
    batch: list[int] = []
    for index in sorted(indices, key=lambda i: -len(sources[i])):
        if batch and (len(batch) + 1) * len(sources[batch[0]]) * beam > tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
