"""Sampling: draw outputs by their probability.

The random numbers are a hash of the seed, the sentence, the number of the draw, the position and the token. So a draw
depends neither on the other sentences of its batch nor on the number of draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from heedful.config.experiment import SearchConfig
from heedful.decoding.greedy import PickedTokens, TokenPicker, search_stepwise
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.step_function import NEVER, S, SpecialTokens, StepFunction, select_rows
from heedful.decoding.token_rules import make_token_rules
from heedful.decoding.topk import top_log_probs
from heedful.device import exact_device
from heedful.errors import ConfigError
from heedful.nn.noise import GOLDEN, LEVELS, MASK, mix, row_keys

_FIRST_LOOK = 64  # tokens among which nearly every nucleus lies


def sentence_key(seed: int, source: Sequence[int]) -> int:
    """A 32-bit hash of the seed and a source sentence."""
    words = " ".join(map(str, (seed, *source)))
    return int.from_bytes(blake2b(words.encode(), digest_size=4).digest(), "little")


def sample_search(
    step: StepFunction[S],
    state: S,
    special: SpecialTokens,
    max_lengths: Int[Tensor, " sentences"],
    config: SearchConfig,
    keys: Int[Tensor, " sentences"],
    *,
    draws: int = 1,
    prefixes: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    """`draws` outputs of each sentence, in the order of the draws, not by score; some may be equal.

    `temperature` applies first, then `top_k`, then `top_p` of the rest. Log-probabilities are the model's own.
    """
    if draws < 1:
        raise ConfigError(f"you asked for {draws} translations; ask for at least 1")
    sentences = len(max_lengths)
    rows = torch.arange(sentences, device=max_lengths.device).repeat_interleave(draws)
    numbers = torch.arange(draws, device=max_lengths.device).repeat(sentences)
    pick = make_sampler(keys[rows], numbers, config)
    repeated = [prefix for prefix in prefixes for _ in range(draws)]
    state = select_rows(state, rows, sentences)
    found = search_stepwise(step, state, special, max_lengths[rows], config, pick, repeated)
    return [found[first : first + draws] for first in range(0, len(found), draws)]


def make_sampler(keys: Int[Tensor, " rows"], numbers: Int[Tensor, " rows"], config: SearchConfig) -> TokenPicker:
    """Draws tokens for rows with these keys of sentences and these numbers of draws."""
    exact = exact_device(keys.device)
    draw_keys = row_keys(keys.to(exact), numbers.to(exact))
    return _Sampler(draw_keys, config.temperature, config.top_k, config.top_p).pick


@dataclass(frozen=True, slots=True)
class Draw:
    """How one token was drawn: the kept one with the largest sum of `scaled` and `noise`. One number for each token."""

    log_probs: Float[Tensor, " vocabulary"]
    scaled: Float[Tensor, " vocabulary"]  # by the temperature
    kept: Bool[Tensor, " vocabulary"]  # by top_k and top_p
    noise: Float64[Tensor, " vocabulary"]

    @property
    def token(self) -> int:
        """What was drawn."""
        return int((self.scaled.double() + self.noise).masked_fill(~self.kept, -torch.inf).argmax())


def trace_draws(
    logits: Float[Tensor, "length vocabulary"],
    source: Sequence[int],
    tokens: Sequence[int],
    special: SpecialTokens,
    config: SearchConfig,
) -> list[Draw]:
    """How each of these tokens of the first draw for a source was drawn, from the logits before it."""
    key = torch.tensor([sentence_key(config.seed, source)])
    keys = row_keys(key, torch.zeros_like(key))
    sampler = _Sampler(keys, config.temperature, config.top_k, config.top_p)
    rules = make_token_rules(special, config, logits.device)
    only, everything = torch.tensor([0]), torch.arange(logits.shape[1])[None]
    draws = []
    for place in range(len(tokens)):
        history = torch.tensor([list(tokens[:place])], dtype=torch.int64)
        log_probs = rules.log_probs(logits[place][None], place + 1, history, only).nan_to_num(nan=NEVER, neginf=NEVER)
        kept, ids = sampler.keep(log_probs)
        is_kept = torch.zeros_like(log_probs, dtype=torch.bool).scatter(1, ids, kept > NEVER)
        noise = _gumbel(row_keys(keys, torch.full_like(only, place + 1)), everything)
        draws.append(Draw(log_probs[0], log_probs[0] / config.temperature, is_kept[0], noise[0]))
    return draws


@dataclass(frozen=True, slots=True)
class _Sampler:
    keys: Int[Tensor, " draws"]  # on the exact device
    temperature: float
    top_k: int
    top_p: float

    def pick(
        self, log_probs: Float[Tensor, "rows vocabulary"], active: Int[Tensor, " rows"], length: int
    ) -> PickedTokens:
        """Draw one token per row: the argmax of log-probabilities plus Gumbel noise has their distribution."""
        values, ids = self.keep(log_probs.nan_to_num(nan=NEVER, neginf=NEVER))
        exact, rows = self.keys.device, active.to(self.keys.device)
        noise = _gumbel(row_keys(self.keys[rows], torch.full_like(rows, length)), ids.to(exact))
        best = (values.to(exact) / self.temperature + noise).argmax(dim=1, keepdim=True).to(values.device)
        return values.gather(1, best)[:, 0], ids.gather(1, best)[:, 0]

    def keep(
        self, log_probs: Float[Tensor, "rows vocabulary"]
    ) -> tuple[Float[Tensor, "rows some"], Int[Tensor, "rows some"]]:
        """The tokens that may be drawn, and their log-probabilities; others may be among them, with NEVER."""
        if self.top_k:
            values, ids = top_log_probs(log_probs, self.top_k)
        else:
            values, ids = log_probs, torch.arange(log_probs.shape[1], device=log_probs.device).expand_as(log_probs)
        if self.top_p < 1.0:
            values, columns = self._nucleus(values)
            ids = ids.gather(1, columns)
        return values, ids

    def _nucleus(
        self, values: Float[Tensor, "rows columns"]
    ) -> tuple[Float[Tensor, "rows fewer"], Int[Tensor, "rows fewer"]]:
        """The likeliest tokens that together reach `top_p`, and their columns.

        Sorting the whole vocabulary would take longer than the model itself.
        """
        columns = values.shape[1]
        whole = (values / self.temperature).logsumexp(dim=1, keepdim=True)
        count = min(_FIRST_LOOK, columns)
        while True:
            top, places = top_log_probs(values, count)
            share = (top / self.temperature - whole).exp()
            mass = share.cumsum(dim=1)
            if count == columns or bool((mass[:, -1] >= self.top_p).all()):
                # `mass - share` is the mass of all likelier tokens: 0 for the first, so the first always stays.
                return top.where(mass - share < self.top_p, NEVER), places
            count = min(8 * count, columns)


def _gumbel(keys: Int[Tensor, " rows"], ids: Int[Tensor, "rows some"]) -> Float64[Tensor, "rows some"]:
    hashed = mix((keys.unsqueeze(1) + ids * GOLDEN) & MASK)
    uniform = (hashed.double() + 0.5) / LEVELS  # neither 0 nor 1
    return -(-uniform.log()).log()
