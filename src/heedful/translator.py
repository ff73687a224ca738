"""Text in, translation out."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch

from heedful.config import Device, SearchConfig, Task
from heedful.data.batch import pack
from heedful.device import choose_device
from heedful.errors import ConfigError, DataError
from heedful.heads.align import Aligner, align, word_pair
from heedful.heads.forced import Forced, forced
from heedful.heads.gates import heads_off
from heedful.heads.names import heads_named
from heedful.metrics.alignment import Link
from heedful.metrics.consensus import agreement
from heedful.models.likelihood import token_log_probs
from heedful.models.seq2seq import AnySeq2Seq
from heedful.search.choose import ANYWHERE, find
from heedful.search.demand import Borders, Demand
from heedful.search.ensemble import Together, together
from heedful.search.hypothesis import Hypothesis
from heedful.search.loops import loops
from heedful.search.stepping import Symbols
from heedful.store.alike import require_alike
from heedful.store.run_folder import RunFolder, Tokenizers
from heedful.tasks.choose import finish, source_symbols
from heedful.tasks.confidence import WordConfidence, word_confidence
from heedful.tasks.terms import Demands
from heedful.text.terms import Wishes

_BATCH_TOKENS = 3000  # source tokens times beam that are decoded together
_WINDOW = 4096  # lines that are sorted by length together
_LONGEST = 8192  # pieces of one input; attention needs memory for their square
_GUARD_NGRAM = 3  # what may not come twice when an output that loops is searched for again
LONGEST_LOOK = 400  # pieces of a text that is looked into: every head has as many weights as their square


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to say it."""

    text: str
    score: float  # what it is ranked by: log-probability over length penalty; of mbr the mean chrF with all others
    log_prob: float
    pieces: tuple[str, ...]
    finished: bool = True  # False: cut off at the maximum length
    alignment: tuple[Link, ...] | None = None  # which source word each word comes from; None: not asked for
    repeats: bool = False  # True: it says the same many times in a row, and the source does not
    confidence: tuple[WordConfidence, ...] | None = None  # how sure the model is of each word; None: not asked for


@dataclass(frozen=True, slots=True)
class Translation:
    """What became of one source text; `alternatives` has all that were asked for, the best first, or as drawn."""

    source: str
    text: str
    score: float
    source_pieces: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    redone: bool = False  # True: the first search found one that loops or does not end, and this is the second's

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
    inside: tuple[Forced, ...]


@dataclass(frozen=True, slots=True)
class _Job:
    """What is to be done with each text of a stream."""

    search: SearchConfig
    n_best: int
    demands: Demands
    aligner: Aligner | None = None
    confidence: bool = False

    @property
    def rows(self) -> int:
        """How many hypotheses of a text are worked on together."""
        return {"beam": self.search.beam, "sample": self.n_best, "mbr": self.search.samples}[self.search.method]


@dataclass(frozen=True, slots=True)
class _Found:
    """What a search gave for one text; the two last have an entry for each hypothesis, where they were asked for."""

    hypotheses: Sequence[Hypothesis]
    redone: bool = False
    links: Sequence[tuple[Link, ...]] | None = None
    confidence: Sequence[tuple[WordConfidence, ...]] | None = None


class Translator:
    """A trained model and its tokenizers; with `others`, models of the same vocabulary, all of them as one.

    >>> translator = Translator.load("runs/en-de")      # doctest: +SKIP
    >>> translator.translate(["A man rides a horse."])  # doctest: +SKIP
    """

    def __init__(
        self,
        model: AnySeq2Seq,
        tokenizers: Tokenizers,
        search: SearchConfig,
        task: Task = "translation",
        others: Sequence[AnySeq2Seq] = (),
    ) -> None:
        self.model = model
        self.models = (model, *others)
        self.tokenizers = tokenizers
        self.search = search
        self.task: Task = task
        self.symbols = Symbols(model.pad_id, tokenizers.target.eos_id, (model.pad_id,))

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        device: Device = "auto",
        others: Sequence[str | os.PathLike[str]] = (),
    ) -> "Translator":
        """Read a run folder, and others to translate together with. Nothing in it is executed; damage is an error."""
        runs = [RunFolder.open(Path(other)) for other in others]
        return cls.of(RunFolder.open(Path(folder)), choose_device(device), runs)

    @classmethod
    def of(cls, run: RunFolder, device: torch.device, others: Sequence[RunFolder] = ()) -> "Translator":
        """The same for folders that are open already."""
        experiment = run.experiment()
        for other in others:
            require_alike(run, other)
        models = [other.model().to(device) for other in others]
        return cls(run.model().to(device), run.tokenizers(), experiment.search, experiment.task, models)

    def translate(
        self,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        search: SearchConfig | None = None,
        n_best: int = 1,
        aligner: Aligner | None = None,
        wishes: Wishes | None = None,
        confidence: bool = False,
    ) -> list[Translation]:
        """Translate each text; the result does not depend on which texts are translated together.

        The search is the model's own unless another is given; `beam` changes only its width. With an aligner, words
        are linked to those that they come from; `heedful.runs.align.find_aligner` knows the best one of a run.
        `wishes` are terms and a beginning that translations must have; `confidence` tells how sure each word is.
        """
        _require_several(texts)
        search = search or self.search
        search = search if beam is None else replace(search, beam=beam)
        found = self.translate_lines(
            texts, search=search, n_best=n_best, aligner=aligner, wishes=wishes, confidence=confidence
        )
        return list(found)

    def translate_lines(
        self,
        texts: Iterable[str],
        *,
        search: SearchConfig | None = None,
        n_best: int = 1,
        aligner: Aligner | None = None,
        wishes: Wishes | None = None,
        confidence: bool = False,
        done: Callable[[int], None] = lambda _: None,
    ) -> Iterator[Translation]:
        """The same for a stream, in its order and in bounded memory; `done` hears how many are translated so far."""
        _require_several(texts)
        demands = Demands(self.tokenizers.target, wishes or Wishes())
        job = _Job(search or self.search, n_best, demands, aligner, confidence)
        iterator = iter(texts)
        before = 0
        while window := list(islice(iterator, _WINDOW)):

            def tell(count: int, start: int = before) -> None:
                done(start + count)

            yield from self._window(window, before, job, tell)
            before += len(window)

    def _window(self, texts: Sequence[str], before: int, job: _Job, done: Callable[[int], None]) -> list[Translation]:
        sources = self.encode(texts)
        for number, source in enumerate(sources, before + 1):
            if len(source) > _LONGEST:
                raise DataError(f"text {number} has {len(source)} pieces, over {_LONGEST}; split it into sentences")
        wanted = [index for index, text in enumerate(texts) if text.strip()]
        found: dict[int, _Found] = {}
        for batch in batches_by_length(wanted, sources, job.rows):
            several = self._batch([texts[index] for index in batch], [sources[index] for index in batch], job)
            found |= dict(zip(batch, several, strict=True))
            done(len(found) + len(texts) - len(wanted))
        return [self._finish(text, sources[i], found.get(i, _Found(()))) for i, text in enumerate(texts)]

    def _batch(self, texts: Sequence[str], sources: Sequence[Sequence[int]], job: _Job) -> list[_Found]:
        """Search, search again where it went wrong, and tell of the hypotheses what is asked for."""
        demands, borders = [job.demands.of(text) for text in texts], job.demands.borders
        found = self.decode(sources, job.search, job.n_best, demands, borders)
        if job.search.method == "mbr":
            found = [self._agreed(text, several, job.n_best) for text, several in zip(texts, found, strict=True)]
        bad = [i for i, several in enumerate(found) if self._wrong(job.search, sources[i], several[0])]
        redone: set[int] = set()
        if bad:
            again = replace(job.search, no_repeat_ngram=_GUARD_NGRAM)
            second = self.decode([sources[i] for i in bad], again, job.n_best, [demands[i] for i in bad], borders)
            for i, several in zip(bad, second, strict=True):
                if not self._wrong(job.search, sources[i], several[0]):
                    found[i] = several
                    redone.add(i)
        links = self._align(texts, found, job.aligner) if job.aligner else None
        sure = self._confidence(sources, found) if job.confidence else None
        return [
            _Found(several, i in redone, links[i] if links else None, sure[i] if sure else None)
            for i, several in enumerate(found)
        ]

    def _wrong(self, search: SearchConfig, source: Sequence[int], best: Hypothesis) -> bool:
        """Whether the guard has an output searched for again. Only a translation does not repeat by right."""
        guarded = search.guard and search.method == "beam" and self.task == "translation"
        if not guarded or 0 < search.no_repeat_ngram <= _GUARD_NGRAM:
            return False
        return not best.finished or (loops(best.tokens) and not loops(source))

    def _agreed(self, text: str, several: Sequence[Hypothesis], n_best: int) -> list[Hypothesis]:
        """Of samples, those that the others agree with most; each text once."""
        decoded = self.tokenizers.target.decode_all([hypothesis.tokens for hypothesis in several])
        outputs = [finish(self.task, text, output) for output in decoded]
        scored = {o: replace(h, score=s) for o, h, s in zip(outputs, several, agreement(outputs), strict=True)}
        return sorted(scored.values(), key=lambda hypothesis: -hypothesis.score)[:n_best]

    def _confidence(
        self, sources: Sequence[Sequence[int]], found: Sequence[Sequence[Hypothesis]]
    ) -> list[list[tuple[WordConfidence, ...]]]:
        """How sure the model is of the words of every hypothesis."""
        pairs = [(source, h.tokens) for source, several in zip(sources, found, strict=True) for h in several]
        log_probs = token_log_probs(self.models, [source for source, _ in pairs], [tokens for _, tokens in pairs])
        words = (
            word_confidence(self.tokenizers.target, tokens, own)
            for (_, tokens), own in zip(pairs, log_probs, strict=True)
        )
        return [list(islice(words, len(several))) for several in found]

    def look(self, text: str, *, search: SearchConfig | None = None, n_best: int = 1) -> Look:
        """Translate one text and look inside: what every head attended to, and how sure the model was of each piece."""
        if not self.model.attentions:
            raise ConfigError("this model has no attention, so there are no heads to look at; it can only translate")
        if not text.strip():
            raise DataError("there is nothing to look at in an empty text; give a sentence")
        (source,) = self.encode([text])
        if len(source) > LONGEST_LOOK:
            raise DataError(
                f"the text has {len(source)} pieces, over the {LONGEST_LOOK} that can be shown; give it in sentences"
            )
        (found,) = self._batch(
            [text], [source], _Job(search or self.search, n_best, Demands(self.tokenizers.target, Wishes()))
        )
        hypotheses = found.hypotheses
        inside = forced(self.model, [source] * len(hypotheses), [hypothesis.tokens for hypothesis in hypotheses])
        return Look(self._finish(text, source, found), tuple(inside))

    @contextmanager
    def heads_off(self, names: Iterable[str]) -> Iterator[None]:
        """Translate and look without these heads, for a while: `with translator.heads_off(["encoder.1.2"]): ...`."""
        with heads_off(self.model, heads_named(self.model, names)):
            yield

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts in, ids out."""
        return self.tokenizers.source.encode_all([source_symbols(self.task, text) for text in texts])

    @torch.inference_mode()
    def decode(
        self,
        sources: Sequence[Sequence[int]],
        search: SearchConfig,
        n_best: int,
        demands: Sequence[Demand] = (),
        borders: Borders = ANYWHERE,
    ) -> list[list[Hypothesis]]:
        """Ids in, hypotheses out."""
        device = next(self.model.parameters()).device
        ids, lengths = (tensor.to(device) for tensor in pack(sources))
        states = tuple(model.start(model.encode(ids, lengths)) for model in self.models)
        limits = lengths + search.max_extra
        alone = len(states) == 1
        step = self.model.step if alone else together([model.step for model in self.models])
        state = states[0] if alone else Together(states)
        given = (self.symbols, limits, search, sources)
        return find(step, state, *given, n_best=n_best, demands=demands, borders=borders)

    def _align(
        self, texts: Sequence[str], hypotheses: Sequence[Sequence[Hypothesis]], aligner: Aligner
    ) -> list[list[tuple[Link, ...]]]:
        """The links of every hypothesis of each text."""
        source, target = self.tokenizers.source, self.tokenizers.target
        pairs = [
            word_pair(source, target, source_symbols(self.task, text), hypothesis.tokens)
            for text, several in zip(texts, hypotheses, strict=True)
            for hypothesis in several
        ]
        links = iter(align(self.model, aligner, pairs))
        return [list(islice(links, len(several))) for several in hypotheses]

    def _finish(self, text: str, source: Sequence[int], found: _Found) -> Translation:
        target, hypotheses, calm = self.tokenizers.target, found.hypotheses, self.task != "translation" or loops(source)
        nothing = [None] * len(hypotheses)
        alternatives = tuple(
            Alternative(
                finish(self.task, text, target.decode(h.tokens)),
                h.score,
                h.log_prob,
                tuple(target.pieces(h.tokens)),
                h.finished,
                links,
                not calm and loops(h.tokens),
                sure,
            )
            for h, links, sure in zip(hypotheses, found.links or nothing, found.confidence or nothing, strict=True)
        )
        pieces = tuple(self.tokenizers.source.pieces(source))
        if not alternatives:  # an empty line stays one
            return Translation(text, "", 0.0, pieces, ())
        return Translation(text, alternatives[0].text, alternatives[0].score, pieces, alternatives, found.redone)


def _require_several(texts: Iterable[str]) -> None:
    if isinstance(texts, str):  # which is an iterable of characters, too
        raise DataError("translate() takes a list of texts, but got one string; write translate([text])")


def batches_by_length(indices: Sequence[int], sources: Sequence[Sequence[int]], beam: int) -> Iterator[list[int]]:
    """Sentences of about the same length together, the longest first: if memory is short, it shows at once."""
    batch: list[int] = []
    for index in sorted(indices, key=lambda i: -len(sources[i])):
        if batch and (len(batch) + 1) * len(sources[batch[0]]) * beam > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
