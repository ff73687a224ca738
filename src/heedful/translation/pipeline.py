"""From ids to what was found: by which engine, once more where it went wrong, and with all that is told of it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, cast

from heedful.config import SearchConfig
from heedful.data.stream import at_once, batches_by_length
from heedful.decoding.engine import Engine, Ids
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.token_constraints import TokenConstraints
from heedful.errors import ConfigError
from heedful.metrics.alignment import Link
from heedful.storage.run_folder import Tokenizers
from heedful.tasks import Task
from heedful.translation.confidence import WordConfidence, measure_word_confidence
from heedful.translation.constraint_encoding import ConstraintEncoder
from heedful.translation.repetition import has_loop

if TYPE_CHECKING:  # with another engine nothing waits for PyTorch
    from heedful.attention.aligner import Aligner
    from heedful.decoding.torch_engine import TorchEngine

_GUARD_NGRAM = 3  # what may not come twice when an output that loops is searched for again


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be done with each text of a stream."""

    search: SearchConfig
    n_best: int
    encoder: ConstraintEncoder
    aligner: "Aligner | None" = None
    confidence: bool = False
    workers: int = 0  # that may work on it at the same time; 0: as many as the engine can have

    @property
    def rows(self) -> int:
        """How many hypotheses of a text are worked on together."""
        return {"beam": self.search.beam, "sample": self.n_best, "mbr": self.search.samples}[self.search.method]


@dataclass(frozen=True, slots=True)
class Asked:
    """A text, its ids, and what its translation must have."""

    text: str
    source: Ids
    constraints: TokenConstraints


@dataclass(frozen=True, slots=True)
class Found:
    """What a search gave for one text; the two last have an entry for each hypothesis, where they were asked for."""

    hypotheses: Sequence[Hypothesis]
    redone: bool = False
    links: Sequence[tuple[Link, ...]] | None = None
    confidence: Sequence[tuple[WordConfidence, ...]] | None = None


class Searcher:
    """An engine, and the torch engine of the same model, which `spare` makes, for what the first cannot do."""

    def __init__(
        self,
        engine: Engine,
        tokenizers: Tokenizers,
        task: Task,
        spare: "Callable[[], TorchEngine] | None",
        insist: bool = False,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.engine = engine
        self._tokenizers = tokenizers
        self._task = task
        self._spare = spare
        self._insist = insist
        self._notice = notice
        self._told: set[str] = set()
        self._torch: TorchEngine | None = None
        self._loading = Lock()

    @property
    def torch(self) -> "TorchEngine":
        """The engine whose model can be looked into."""
        from heedful.decoding.torch_engine import TorchEngine

        if isinstance(self.engine, TorchEngine) or self._spare is None:
            return cast("TorchEngine", self.engine)
        with self._loading:
            self._torch = self._torch or self._spare()
        return self._torch

    def batches(
        self, asked: Sequence[Asked], wanted: Sequence[int], job: Job
    ) -> Iterator[tuple[list[int], list[Found]]]:
        """Those of about the same length together, in the order in which they are done.

        What went wrong comes last and all together: a batch of its own for each would take longer.
        """
        wrong: dict[int, Found] = {}
        for batch, found in self._all(asked, wanted, job):
            bad = {n: one for n, one in zip(batch, found, strict=True) if self._wrong(job.search, asked[n], one)}
            good = {n: one for n, one in zip(batch, found, strict=True) if n not in bad}
            wrong |= bad
            yield list(good), list(good.values())
        for batch, found in self._all(asked, list(wrong), _again(job)):
            yield batch, [self._better(job, asked[n], wrong[n], one) for n, one in zip(batch, found, strict=True)]

    def _all(self, asked: Sequence[Asked], wanted: Sequence[int], job: Job) -> Iterator[tuple[list[int], list[Found]]]:
        """Search for these, in several batches at once if the engine can."""
        sources = [one.source for one in asked]
        for engine, numbers in self._shares(asked, wanted, job.search):

            def search(batch: list[int], engine: Engine = engine) -> tuple[list[int], list[Found]]:
                return batch, self._searched(engine, [asked[number] for number in batch], job)

            most = job.workers or engine.workers
            batches = list(batches_by_length(numbers, sources, job.rows, engine.batch_tokens, most))
            workers = min(most, len(batches))
            with engine.share_threads(workers):
                yield from at_once(search, batches, workers)

    def _shares(
        self, asked: Sequence[Asked], wanted: Sequence[int], search: SearchConfig
    ) -> Iterator[tuple[Engine, list[int]]]:
        """What each engine is to do: the torch engine has what the other cannot."""
        reasons = {
            number: self.engine.find_limitation(search, asked[number].constraints, len(asked[number].source))
            for number in wanted
        }
        if able := [number for number, reason in reasons.items() if not reason]:
            yield self.engine, able
        if others := [number for number, reason in reasons.items() if reason]:
            yield self._engine_despite(reasons[others[0]]), others

    def engine_for(self, search: SearchConfig) -> Engine:
        """The engine to use for a search that nothing is demanded of."""
        return self._engine_despite(self.engine.find_limitation(search, TokenConstraints()))

    @contextmanager
    def only_torch(self) -> Iterator[None]:
        """For a while the model that can be looked into, and changed, does all the work."""
        engine, self.engine = self.engine, self.torch
        try:
            yield
        finally:
            self.engine = engine

    def _engine_despite(self, reason: str) -> Engine:
        """The engine to use if the first one cannot do something."""
        if reason and self._insist:
            raise ConfigError(f"{reason}, which the {self.engine.name} engine cannot do; use --engine torch")
        if reason and reason not in self._told:
            self._told.add(reason)
            self._notice(f"{reason}, which the {self.engine.name} engine cannot do: torch does it")
        return self.torch if reason else self.engine

    def look_for(self, asked: Asked, job: Job) -> Found:
        """The same for one text, by the engine whose model can be looked into."""
        (found,) = self._searched(self.torch, [asked], job)
        if not self._wrong(job.search, asked, found):
            return found
        (second,) = self._searched(self.torch, [asked], _again(job))
        return self._better(job, asked, found, second)

    def _searched(self, engine: Engine, asked: Sequence[Asked], job: Job) -> list[Found]:
        """Search, and tell of the hypotheses what is asked for."""
        texts, sources = [one.text for one in asked], [one.source for one in asked]
        found = engine.decode(
            sources, job.search, job.n_best, [one.constraints for one in asked], job.encoder.boundaries
        )
        if job.search.method == "mbr":
            found = [self._agreed(text, several, job.n_best) for text, several in zip(texts, found, strict=True)]
        links = self._align(texts, found, job.aligner) if job.aligner else None
        sure = self._confidence(engine, sources, found) if job.confidence else None
        return [
            Found(several, False, links[number] if links else None, sure[number] if sure else None)
            for number, several in enumerate(found)
        ]

    def _better(self, job: Job, asked: Asked, first: Found, second: Found) -> Found:
        """The second, if that has helped."""
        return first if self._wrong(job.search, asked, second) else replace(second, redone=True)

    def _wrong(self, search: SearchConfig, asked: Asked, found: Found) -> bool:
        """Whether the guard has an output searched for again."""
        guarded = search.guard and search.method == "beam" and self._task.repeats_by_mistake
        if not guarded or 0 < search.no_repeat_ngram <= _GUARD_NGRAM:
            return False
        best = found.hypotheses[0]
        return not best.finished or (has_loop(best.tokens) and not has_loop(asked.source))

    def _agreed(self, text: str, several: Sequence[Hypothesis], n_best: int) -> list[Hypothesis]:
        """Of samples, those that the others agree with most; each text once."""
        from heedful.metrics.chrf import score_agreement

        decoded = self._tokenizers.target.decode_all([hypothesis.tokens for hypothesis in several])
        outputs = [self._task.finish(text, output) for output in decoded]
        scored = {o: replace(h, score=s) for o, h, s in zip(outputs, several, score_agreement(outputs), strict=True)}
        return sorted(scored.values(), key=lambda hypothesis: -hypothesis.score)[:n_best]

    def _confidence(
        self, engine: Engine, sources: Sequence[Ids], found: Sequence[Sequence[Hypothesis]]
    ) -> list[list[tuple[WordConfidence, ...]]]:
        """How sure the model is of the words of every hypothesis."""
        pairs = [(source, h.tokens) for source, several in zip(sources, found, strict=True) for h in several]
        log_probs = engine.score([source for source, _ in pairs], [tokens for _, tokens in pairs])
        words = (
            measure_word_confidence(self._tokenizers.target, tokens, own)
            for (_, tokens), own in zip(pairs, log_probs, strict=True)
        )
        return [list(islice(words, len(several))) for several in found]

    def _align(
        self, texts: Sequence[str], hypotheses: Sequence[Sequence[Hypothesis]], aligner: "Aligner"
    ) -> list[list[tuple[Link, ...]]]:
        """The links of every hypothesis of each text."""
        from heedful.attention.aligner import align_words, make_word_pair

        source, target = self._tokenizers.source, self._tokenizers.target
        pairs = [
            make_word_pair(source, target, self._task.source_symbols(text), hypothesis.tokens)
            for text, several in zip(texts, hypotheses, strict=True)
            for hypothesis in several
        ]
        links = iter(align_words(self.torch.model, aligner, pairs))
        return [list(islice(links, len(several))) for several in hypotheses]


def _again(job: Job) -> Job:
    """How the guard has a text searched for again."""
    return replace(job, search=replace(job.search, no_repeat_ngram=_GUARD_NGRAM))
