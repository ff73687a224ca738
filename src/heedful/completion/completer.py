"""The `Completer`: a model that continues texts."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.config import Device, SearchConfig, change_search
from heedful.data.batch import pack
from heedful.data.stream import batches_by_length
from heedful.decoding.greedy import TokenPicker, pick_likeliest, pick_stepwise
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.sampling import make_sampler, sentence_key
from heedful.decoding.search import run_search
from heedful.decoding.step_function import SpecialTokens
from heedful.device import choose_device
from heedful.errors import ConfigError, DataError
from heedful.models.gpt import GPT, Prompts
from heedful.process_memory import keep_freed_memory
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder
from heedful.tasks import find_task
from heedful.text import Tokenizer

if TYPE_CHECKING:
    import numpy as np

    from heedful.attention.record import ForcedDecoding

_BATCH_TOKENS = 8000
_LENGTH_SEEN = 40  # tokens of a continuation whose insides are shown
_START = "\n"  # what an empty prompt stands for: the beginning of a line
_INCOMPLETE = "\ufffd"  # the bytes of a character that are not all there


@dataclass(frozen=True, slots=True)
class Continuation:
    """One way in which a model continues a prompt."""

    text: str  # without the prompt
    log_prob: float  # the sum over its tokens
    tokens: int
    finished: bool  # True: the model ended the text; False: cut off at the length


@dataclass(frozen=True, slots=True)
class Completion:
    """A prompt and its continuations, in the order in which they were drawn."""

    prompt: str
    continuations: tuple[Continuation, ...]

    @property
    def text(self) -> str:
        """The prompt and its first continuation."""
        return self.prompt + self.continuations[0].text


@dataclass(frozen=True, eq=False)
class TextLook:
    """A prompt and its continuations, and what happened inside the model.

    `inside` has the heads and the probabilities of each continuation. A row of a head is a token that was read, of the
    prompt and then of the continuation. `steps` are computed when you first ask for them, by the model as it was.
    """

    completion: Completion
    prompt_pieces: tuple[str, ...]
    pieces: tuple[tuple[str, ...], ...]  # of each continuation
    inside: "tuple[ForcedDecoding, ...]"
    targets: tuple[tuple[int, ...], ...]  # the ids of each continuation
    _record: "Callable[[], Mapping[str, np.ndarray]]" = field(repr=False)

    @cached_property
    def steps(self) -> "Mapping[str, np.ndarray]":
        """Every step of the first continuation as arrays by name; `heedful.attention.steps` lists the names."""
        return self._record()


class Completer:
    """A trained language model, ready to continue texts.

    >>> completer = Completer.load("runs/gpt")   # doctest: +SKIP
    >>> completer.complete(["ROMEO:"])[0].text   # doctest: +SKIP
    """

    def __init__(self, model: GPT, tokenizer: Tokenizer, search: SearchConfig) -> None:
        keep_freed_memory()
        self.model = model
        self.tokenizer = tokenizer
        self.search = search

    @classmethod
    def load(cls, model: str | os.PathLike[str], device: Device = "auto") -> "Completer":
        """Load a run folder. Nothing in it is executed, and a damaged folder is an error."""
        return cls.from_run(RunFolder.open(find_model(model)), device)

    @classmethod
    def from_run(cls, run: RunFolder, device: Device = "auto") -> "Completer":
        """Like `load`, for a folder that is already open."""
        experiment = run.experiment()
        if not find_task(experiment.task).continues_text:
            raise ConfigError(
                f"{run.path} is a model for {experiment.task}, which cannot continue a text; "
                "train one with: heedful train --text book.txt"
            )
        model = run.model()
        if not isinstance(model, GPT):  # never: the task has no other family; this is for the type checker
            raise ConfigError(f"{run.path} holds a {type(model).__name__}, which cannot continue a text")
        return cls(model.to(choose_device(device)), run.tokenizers().target, experiment.search)

    def complete(
        self,
        prompts: Sequence[str],
        *,
        n: int = 1,
        length: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        search: SearchConfig | None = None,
    ) -> list[Completion]:
        """Continue each prompt in `n` ways; the result does not depend on which prompts are continued together.

        `length` is the largest number of new tokens. A temperature of 0 always takes the most probable token.
        `temperature` applies first, then `top_k`, then `top_p` of the rest; what you leave out is as the model was
        trained to be used. The same seed gives the same texts. `search` replaces the model's own search.
        """
        if isinstance(prompts, str):  # a string is a sequence too, of its characters
            raise DataError("complete() takes a list of prompts, but got one string; write complete([prompt])")
        search = self.change_search(length, temperature, top_k, top_p, seed, search)
        _check_count(n, search)
        sources = [self.encode(prompt) for prompt in prompts]
        found: dict[int, list[Hypothesis]] = {}
        for batch in batches_by_length(range(len(sources)), sources, n, _BATCH_TOKENS):
            found |= zip(batch, self.decode([sources[number] for number in batch], search, n), strict=True)
        return [
            Completion(prompt, tuple(self._finish(source, hypothesis) for hypothesis in found[number]))
            for number, (prompt, source) in enumerate(zip(prompts, sources, strict=True))
        ]

    @torch.inference_mode()
    def stream(
        self,
        prompt: str,
        *,
        number: int = 0,
        length: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        search: SearchConfig | None = None,
    ) -> Iterator[str]:
        """The pieces of a continuation as they are found: together, the text number `number` of `complete`."""
        search = self.change_search(length, temperature, top_k, top_p, seed, search)
        _check_count(number + 1, search)
        source = self.encode(prompt)
        pick: TokenPicker = pick_likeliest
        if search.method == "sample":
            keys = self._tensor([sentence_key(search.seed, source)])
            pick = make_sampler(keys, self._tensor([number]), search)
        state = self.model.start(self._read([source]))
        limits, shown = self._tensor([search.max_extra]), source
        held: list[int] = []
        for _, _, tokens in pick_stepwise(self.model.step, state, self.special, limits, search, pick):
            held += tokens.tolist()
            text = self._continue(shown, held)
            if text and not text.endswith(_INCOMPLETE):
                yield text
                shown, held = held, []

    def change_search(
        self,
        length: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        search: SearchConfig | None = None,
    ) -> SearchConfig:
        """The search, or else the model's own, with these changes, checked."""
        changes: dict[str, object] = {"max_extra": length, "top_k": top_k, "top_p": top_p, "seed": seed}
        if length is not None and length < 1:
            raise ConfigError(f"the length is {length}; ask for at least 1 token")
        if temperature is not None and temperature == 0.0:
            changes |= {"method": "beam", "beam": 1, "groups": 1}
        elif temperature is not None:
            changes |= {"method": "sample", "temperature": float(temperature)}
        return change_search(search or self.search, {key: value for key, value in changes.items() if value is not None})

    def log_probs(self, windows: Sequence[Sequence[int]]) -> list[list[float]]:
        """The log-probability of each token of these texts but the first, given those before it."""
        from heedful.decoding.torch_engine import token_log_probs

        return token_log_probs([self.model], [window[:1] for window in windows], [window[1:] for window in windows])

    def look(
        self,
        prompt: str,
        *,
        continuation: str | None = None,
        n: int = 1,
        length: int | None = None,
        search: SearchConfig | None = None,
    ) -> "TextLook":
        """Continue a prompt, and look inside: every head, the probability of each token, and every step by name.

        You see the first `length` tokens of what `complete` draws, 40 if you do not say, or fewer if the model sees
        fewer at once. A given `continuation`, whoever wrote it, is the first of several instead.
        """
        from heedful.attention.pruning import apply_gates, read_gates
        from heedful.attention.record import force_decode
        from heedful.attention.steps import Steps, record_steps

        prompt_ids = self.encode(prompt)
        if length is None:
            room = self.model.config.max_positions + 1 - len(prompt_ids)
            length = max(1, min(_LENGTH_SEEN, room, (search or self.search).max_extra))
        search = self.change_search(length=length, search=search)
        _check_count(n, search)
        drawn = n if continuation is None else n - 1
        targets = [list(found.tokens) for found in self.decode([prompt_ids], search, drawn)[0]] if drawn else []
        if continuation is not None:
            targets.insert(0, self.encode_continuation(prompt, continuation))
        self._check_length(len(prompt_ids), max(map(len, targets)))
        inside = force_decode(self.model, [prompt_ids] * len(targets), targets)
        gates = read_gates(self.model)

        def record() -> Steps:
            with apply_gates(self.model, gates):
                return record_steps(self.model, prompt_ids, targets[0])

        continuations = tuple(
            Continuation(
                self._continue(prompt_ids, ids).rstrip(_INCOMPLETE),
                float(forced.log_probs.sum()),
                len(ids),
                ids[-1] == self.tokenizer.eos_id,
            )
            for ids, forced in zip(targets, inside, strict=True)
        )
        pieces = tuple(tuple(self.tokenizer.pieces(ids)) for ids in targets)
        prompt_pieces = tuple(self.tokenizer.pieces(prompt_ids))
        return TextLook(
            Completion(prompt, continuations), prompt_pieces, pieces, tuple(inside), tuple(map(tuple, targets)), record
        )

    def encode_continuation(self, prompt: str, continuation: str) -> list[int]:
        """The ids of what follows a prompt."""
        before, both = self.encode(prompt), self.tokenizer.encode((prompt or _START) + continuation)[:-1]
        ids = both[len(before) :] if both[: len(before)] == before else self.tokenizer.encode(continuation)[:-1]
        if not ids:
            raise DataError("the continuation is empty; give at least one character")
        return ids

    def _check_length(self, prompt: int, continuation: int) -> None:
        """Refuse what the model cannot see at once."""
        context = self.model.config.max_positions
        if prompt + continuation - 1 > context:
            raise DataError(
                f"prompt and continuation have {prompt} and {continuation} tokens, but this model sees at most "
                f"{context} at once; give a shorter prompt, or ask for fewer tokens"
            )

    @property
    def special(self) -> SpecialTokens:
        """The tokens that are no text."""
        return SpecialTokens(self.model.pad_id, self.tokenizer.eos_id, (self.model.pad_id,))

    def encode(self, prompt: str) -> list[int]:
        """The ids of a prompt, without an end; an empty one begins a line."""
        return self.tokenizer.encode(prompt or _START)[:-1]

    def _tensor(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, device=next(self.model.parameters()).device)

    def _read(self, sources: Sequence[Sequence[int]]) -> Prompts:
        device = next(self.model.parameters()).device
        ids, lengths = (tensor.to(device) for tensor in pack(sources))
        return self.model.encode(ids, lengths)

    @torch.inference_mode()
    def decode(self, sources: Sequence[Sequence[int]], search: SearchConfig, n: int) -> list[list[Hypothesis]]:
        """The continuations of each prompt as ids, in the order in which they were drawn."""
        state = self.model.start(self._read(sources))
        limits = self._tensor([search.max_extra] * len(sources))
        return run_search(self.model.step, state, self.special, limits, search, sources, n_best=n)

    def _finish(self, source: list[int], found: Hypothesis) -> Continuation:
        text = self._continue(source, found.tokens).rstrip(_INCOMPLETE)  # it may end in the middle of a character
        return Continuation(text, found.log_prob, len(found.tokens), found.finished)

    def _continue(self, source: Sequence[int], tokens: Sequence[int]) -> str:
        """What these tokens add to the text of those before: a first space that belongs to a word, for example."""
        before, both = self.tokenizer.decode_all([source, [*source, *tokens]])
        return both[len(before) :]


def _check_count(n: int, search: SearchConfig) -> None:
    if n < 1:
        raise ConfigError(f"you asked for {n} continuations; ask for at least 1")
    if n > 1 and search.method != "sample":
        raise ConfigError(
            f"you asked for {n} continuations, but with temperature 0 there is only the most probable one; "
            "set the temperature above 0"
        )
