"""The CTranslate2 engine runs Transformers on a CPU several times as fast as PyTorch, without importing PyTorch.

Its beam search extends the same hypotheses as ours, step by step. It differs in three ways, which this module corrects:

- It ranks by length^alpha. So it returns all hypotheses that it found, and they are ranked again by our penalty.
- One maximum length holds for a whole batch. A sentence whose output exceeds its own is searched again alone.
- It gives the probability of a forbidden token to the others. So PAD, which no trained model produces, is allowed. If
  it occurs nevertheless, the sentence is searched again with PAD forbidden, and scored with PAD allowed.

It also stops earlier: see `PATIENCE`.
"""

import json
import math
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from heedful.config import SearchConfig
from heedful.decoding.engine import EngineName, Ids
from heedful.decoding.hypothesis import NOT_FINITE, Hypothesis, check_search_options, length_penalty
from heedful.decoding.token_constraints import NO_BOUNDARIES, UNCONSTRAINED, TokenConstraints, WordBoundaries
from heedful.errors import ConfigError, DataError, Diverged, FolderError
from heedful.process_memory import keep_freed_memory

# CTranslate2 stops when this times the beam have finished; our search stops when no active hypothesis can still win.
# More patience makes more translations equal to ours, except with 8-bit numbers, where rounding changes far more.
PATIENCE, PATIENCE_INT8 = 1.25, 1.0
_MIN_PENALTY = 1e-6  # without a penalty it stops by another rule, which mixes up the sentences of a batch
_BATCH_TOKENS, _BATCH_TOKENS_INT8 = 6000, 3000  # source tokens times beam that one worker decodes at a time
_SCORE_TOKENS = 1000  # target tokens to score at a time; each needs room for the whole vocabulary
_Scored = list[tuple[Ids, float]]  # tokens and log-probability of each hypothesis of one sentence


class CTranslate2Engine:
    """Runs a model in CTranslate2's format, as `heedful.formats.ctranslate2` writes it."""

    name: EngineName = "ctranslate2"

    def __init__(self, folder: Path, workers: int = 0, callers: int = 1) -> None:
        """Load it for this many workers of one thread each; 0: one per core, faster than one worker with all cores.

        If several `callers` use it at the same time, each gets as many workers, so that none waits for another.
        """
        self.workers = workers or _count_cores()
        self._source, self._target = _read_vocabularies(folder)
        self._ids = {piece: number for number, piece in enumerate(self._target)}
        match _read_json(folder / "config.json"):
            case {
                "eos_token": str(eos),
                "decoder_start_token": str(pad),
                "heedful": {"numbers": str(numbers), "positions": int(positions)},
            }:
                self._eos, self._pad, self.numbers, self._max_length = (
                    self._ids[eos],
                    self._ids[pad],
                    numbers,
                    positions,
                )
            case _:
                raise FolderError(f"{folder}/config.json was not written by heedful; export the model again")
        quantised = self.numbers == "int8"
        self.batch_tokens = _BATCH_TOKENS_INT8 if quantised else _BATCH_TOKENS
        self._patience = PATIENCE_INT8 if quantised else PATIENCE
        keep_freed_memory()
        self._translator = _load(folder, "int8" if quantised else "float32", callers * self.workers)

    def share_threads(self, workers: int) -> AbstractContextManager[None]:
        """Do nothing: CTranslate2 has its own threads."""
        return nullcontext()

    def find_limitation(self, search: SearchConfig, constraints: TokenConstraints, length: int = 0) -> str:
        """The reason why this search is not for CTranslate2: it cannot do it, or gives other results than ours."""
        plain = {"method": "beam", "groups": 1, "min_length": 0}
        for key, default in plain.items():
            if (value := getattr(search, key)) != default:
                return f"search.{key} is {value}"
        if (most := length + search.max_extra) > self._max_length:
            return f"a translation may have up to {most} pieces, over the {self._max_length} of the exported model"
        if constraints.leaves:
            return "the output must be a tree over the words of its sentence"
        return "the translation must contain given terms or a prefix" if constraints != UNCONSTRAINED else ""

    def decode(
        self,
        sources: Sequence[Ids],
        search: SearchConfig,
        n_best: int,
        constraints: Sequence[TokenConstraints] = (),
        boundaries: WordBoundaries = NO_BOUNDARIES,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first; all constraints are refused."""
        check_search_options(search, n_best)
        for each in constraints or [UNCONSTRAINED]:
            if reason := self.find_limitation(search, each):
                raise ConfigError(f"{reason}, which the ctranslate2 engine cannot do; use --engine torch")
        limits = [len(source) + search.max_extra for source in sources]
        self._check_length(limits)
        found = self._search(sources, max(limits, default=1), search)
        for index, (source, limit) in enumerate(zip(sources, limits, strict=True)):
            if not any(tokens for tokens, _ in found[index]):  # CTranslate2 skips a source that is only EOS
                found[index] = self._score_empty_output(source)
            if any(len(tokens) > limit for tokens, _ in found[index]):
                (found[index],) = self._search([source], limit, search)
            if any(self._pad in tokens for tokens, _ in found[index]):
                found[index] = self._search_without_pad(source, limit, search)
        return [self._rank(several, search)[:n_best] for several in found]

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """The log-probability of every token of each target, given those before it; targets end in EOS."""
        self._check_length([max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)])
        results = self._translator.score_batch(
            [self._pieces(source) for source in sources],
            [[self._target[number] for number in target[:-1]] for target in targets],  # it adds EOS itself
            max_batch_size=_SCORE_TOKENS,
            batch_type="tokens",
            max_input_length=0,
        )
        return [list(result.log_probs) for result in results]

    def _pieces(self, source: Ids) -> list[str]:
        return [self._source[number] for number in source]

    def _search(
        self, sources: Sequence[Ids], limit: int, search: SearchConfig, without: Iterable[str] = ()
    ) -> list[_Scored]:
        """All hypotheses that ended or were cut off, up to this length."""
        penalty = max(search.alpha, _MIN_PENALTY)
        ends = math.floor(search.beam * self._patience + 0.5) if search.beam > 1 else 1
        results = self._translator.translate_batch(
            [self._pieces(source) for source in sources],
            max_batch_size=max(1, self.batch_tokens // search.beam),
            batch_type="tokens",
            beam_size=search.beam,
            num_hypotheses=ends,
            patience=ends / search.beam,
            length_penalty=penalty,
            return_scores=True,
            return_end_token=True,
            suppress_sequences=[[piece] for piece in without],
            max_input_length=0,  # otherwise it would silently cut a long source
            no_repeat_ngram_size=search.no_repeat_ngram,
            max_decoding_length=limit,
            min_decoding_length=0,
        )
        return [
            [
                ([self._ids[piece] for piece in pieces], score * len(pieces) ** penalty)
                for pieces, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]

    def _search_without_pad(self, source: Ids, limit: int, search: SearchConfig) -> _Scored:
        """Forbidding PAD gives its probability to the others, so the hypotheses are scored again with PAD allowed."""
        (found,) = self._search([source], limit, search, without=[self._target[self._pad]])
        ended = [tokens if tokens[-1] == self._eos else [*tokens, self._eos] for tokens, _ in found]
        scores = self.score([source] * len(ended), ended)
        return [(tokens, sum(scored[: len(tokens)])) for (tokens, _), scored in zip(found, scores, strict=True)]

    def _score_empty_output(self, source: Ids) -> _Scored:
        """EOS at once, with its probability."""
        empty = [self._eos]
        ((score,),) = self.score([source], [empty])
        return [(empty, score)]

    def _rank(self, found: _Scored, search: SearchConfig) -> list[Hypothesis]:
        """Rank by our own penalty, best first; outputs that were cut off come last."""
        hypotheses = []
        for tokens, log_prob in found:
            if not math.isfinite(log_prob):
                raise Diverged(NOT_FINITE)
            score = log_prob / length_penalty(float(len(tokens)), search.alpha, search.penalty)
            hypotheses.append(Hypothesis(tuple(tokens), log_prob, score, finished=tokens[-1] == self._eos))
        return sorted(hypotheses, key=lambda hypothesis: (not hypothesis.finished, -hypothesis.score))

    def _check_length(self, lengths: Sequence[int]) -> None:
        if (longest := max(lengths, default=0)) > self._max_length:
            raise DataError(
                f"a translation may have up to {longest} pieces, but this model was exported for {self._max_length}; "
                "split the text into sentences, or use --engine torch"
            )


def _count_cores() -> int:
    """The number of cores that this process may use, if the system says, or else of all cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _load(folder: Path, compute_type: str, workers: int) -> Any:
    try:
        from ctranslate2 import Translator
    except ImportError as error:
        raise ConfigError(
            "the ctranslate2 engine needs CTranslate2, which is not installed; "
            "install ctranslate2, or use --engine torch"
        ) from error
    try:
        return Translator(str(folder), compute_type=compute_type, inter_threads=workers, intra_threads=1)
    except RuntimeError as error:
        raise FolderError(f"CTranslate2 cannot load {folder} ({error}); export the model again") from error


def _read_vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    """The pieces of source and target."""
    if (shared := folder / "shared_vocabulary.json").exists():
        pieces = _read_pieces(shared)
        return pieces, pieces
    return _read_pieces(folder / "source_vocabulary.json"), _read_pieces(folder / "target_vocabulary.json")


def _read_pieces(path: Path) -> list[str]:
    pieces = _read_json(path)
    if not isinstance(pieces, list):
        raise FolderError(f"{path} is not a list of pieces; export the model again")
    return pieces


def _read_json(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FolderError(f"cannot read {path} ({error}); export the model again") from error
