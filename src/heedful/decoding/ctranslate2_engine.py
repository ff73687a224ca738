"""CTranslate2: Transformers on a CPU, several times as fast as PyTorch, which is not even imported.

Its beam search grows the same hypotheses as ours, step by step. It differs in these ways, and they are dealt with here:

- It ranks by length^alpha, so it is asked for all that it found, and they are ranked anew by our penalty.
- One maximum length holds for a whole batch. A sentence that went past its own is searched again alone.
- A token that is forbidden gives its probability to the others. So PAD, which no trained model produces, is allowed;
  if it comes up nevertheless, the sentence is searched again without it and scored with it.

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
from heedful.decoding.checks import NOT_NUMBERS, check_search
from heedful.decoding.constraints import ANYWHERE, Borders, Demand
from heedful.decoding.engine import EngineName, Ids
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.length_penalty import length_penalty
from heedful.errors import ConfigError, DataError, Diverged, FolderError
from heedful.process_memory import keep_freed_memory

# It stops when this times the beam have finished, ours when none that goes on can win any more. To wait for more gives
# more translations that are ours; of 8-bit numbers it does not, for their rounding changes many times as many.
PATIENCE, PATIENCE_INT8 = 1.25, 1.0
_LEAST_PENALTY = 1e-6  # without one it would stop by another rule, in which sentences of a batch get mixed up
# Source tokens times beam of what one worker decodes at a time.
_TOGETHER, _TOGETHER_INT8 = 6000, 3000
_SCORED = 1000  # target tokens that are scored at a time; each needs room for the whole vocabulary
_Found = list[tuple[Ids, float]]  # tokens and log-probability of each hypothesis of one sentence


class CTranslate2Engine:
    """A model in CTranslate2's format, as `heedful.formats.export_ctranslate2` writes it."""

    name: EngineName = "ctranslate2"

    def __init__(self, folder: Path, workers: int = 0) -> None:
        """Load it for so many workers of one thread each; 0: one a core, for that is faster than one that has all."""
        self.workers = workers or _cores()
        self._source, self._target = _vocabularies(folder)
        self._ids = {piece: number for number, piece in enumerate(self._target)}
        match _read(folder / "config.json"):
            case {
                "eos_token": str(eos),
                "decoder_start_token": str(pad),
                "heedful": {"numbers": str(numbers), "positions": int(positions)},
            }:
                self._eos, self._pad, self.numbers, self._longest = self._ids[eos], self._ids[pad], numbers, positions
            case _:
                raise FolderError(f"{folder}/config.json is not heedful's; export the model again")
        rounded = self.numbers == "int8"
        self.batch_tokens = _TOGETHER_INT8 if rounded else _TOGETHER
        self._patience = PATIENCE_INT8 if rounded else PATIENCE
        keep_freed_memory()
        self._translator = _load(folder, "int8" if rounded else "float32", self.workers)

    def shared(self, workers: int) -> AbstractContextManager[None]:
        """It has threads of its own."""
        return nullcontext()

    def cannot(self, search: SearchConfig, demand: Demand, length: int = 0) -> str:
        """It could do some of these in its own way, which gives other results than ours."""
        plain = {"method": "beam", "groups": 1, "min_length": 0}
        for key, usual in plain.items():
            if (value := getattr(search, key)) != usual:
                return f"search.{key} is {value}"
        if (most := length + search.max_extra) > self._longest:
            return f"a text may become {most} pieces, over the {self._longest} of the export"
        if demand.leaves:
            return "a tree must be over the words of its sentence"
        return "a translation must have a certain beginning or terms" if demand != Demand() else ""

    def decode(
        self,
        sources: Sequence[Ids],
        search: SearchConfig,
        n_best: int,
        demands: Sequence[Demand] = (),
        borders: Borders = ANYWHERE,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first; nothing may be demanded of them."""
        check_search(search, n_best)
        for demand in demands or [Demand()]:
            if reason := self.cannot(search, demand):
                raise ConfigError(f"{reason}, which the ctranslate2 engine cannot do; use --engine torch")
        limits = [len(source) + search.max_extra for source in sources]
        self._check_length(limits)
        found = self._search(sources, max(limits, default=1), search)
        for index, (source, limit) in enumerate(zip(sources, limits, strict=True)):
            if not any(tokens for tokens, _ in found[index]):  # it does not search for what has no piece but EOS
                found[index] = self._nothing(source)
            if any(len(tokens) > limit for tokens, _ in found[index]):
                (found[index],) = self._search([source], limit, search)
            if any(self._pad in tokens for tokens, _ in found[index]):
                found[index] = self._search_without_pad(source, limit, search)
        return [self._ranked(several, search)[:n_best] for several in found]

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """The log-probability of every token of each target, which ends in EOS, after those before it."""
        self._check_length([max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)])
        results = self._translator.score_batch(
            [self._pieces(source) for source in sources],
            [[self._target[number] for number in target[:-1]] for target in targets],  # it adds EOS itself
            max_batch_size=_SCORED,
            batch_type="tokens",
            max_input_length=0,
        )
        return [list(result.log_probs) for result in results]

    def _pieces(self, source: Ids) -> list[str]:
        return [self._source[number] for number in source]

    def _search(
        self, sources: Sequence[Ids], limit: int, search: SearchConfig, without: Iterable[str] = ()
    ) -> list[_Found]:
        """All hypotheses that have ended, or that were cut off, up to this length."""
        penalty = max(search.alpha, _LEAST_PENALTY)
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
            max_input_length=0,  # else it would cut a long source without a word
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

    def _search_without_pad(self, source: Ids, limit: int, search: SearchConfig) -> _Found:
        """Where PAD is forbidden, the others take over its probability; so they are scored where it is not."""
        (found,) = self._search([source], limit, search, without=[self._target[self._pad]])
        ended = [tokens if tokens[-1] == self._eos else [*tokens, self._eos] for tokens, _ in found]
        scores = self.score([source] * len(ended), ended)
        return [(tokens, sum(scored[: len(tokens)])) for (tokens, _), scored in zip(found, scores, strict=True)]

    def _nothing(self, source: Ids) -> _Found:
        """Of nothing comes nothing: EOS at once, with its probability."""
        nothing = [self._eos]
        ((score,),) = self.score([source], [nothing])
        return [(nothing, score)]

    def _ranked(self, found: _Found, search: SearchConfig) -> list[Hypothesis]:
        """By our own penalty, the best first; what was cut off comes after all that ended."""
        hypotheses = []
        for tokens, log_prob in found:
            if not math.isfinite(log_prob):
                raise Diverged(NOT_NUMBERS)
            score = log_prob / length_penalty(float(len(tokens)), search.alpha, search.penalty)
            hypotheses.append(Hypothesis(tuple(tokens), log_prob, score, finished=tokens[-1] == self._eos))
        return sorted(hypotheses, key=lambda hypothesis: (not hypothesis.finished, -hypothesis.score))

    def _check_length(self, lengths: Sequence[int]) -> None:
        if (longest := max(lengths, default=0)) > self._longest:
            raise DataError(
                f"a text may become {longest} pieces, but this model was exported for {self._longest}; "
                "split it into sentences, or use --engine torch"
            )


def _cores() -> int:
    """Those that this process may use, where the system tells."""
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
        raise FolderError(f"{folder} is not a model that CTranslate2 can load ({error}); export it again") from error


def _vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    """The pieces of both sides."""
    if (shared := folder / "shared_vocabulary.json").exists():
        pieces = _pieces_in(shared)
        return pieces, pieces
    return _pieces_in(folder / "source_vocabulary.json"), _pieces_in(folder / "target_vocabulary.json")


def _pieces_in(path: Path) -> list[str]:
    pieces = _read(path)
    if not isinstance(pieces, list):
        raise FolderError(f"{path} is not a list of pieces; export the model again")
    return pieces


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FolderError(f"{path} cannot be read ({error}); export the model again") from error
