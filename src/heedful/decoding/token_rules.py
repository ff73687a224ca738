"""Which token may come next, and with what log-probability."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.config.experiment import SearchConfig
from heedful.decoding.stepping import NEVER, Symbols
from heedful.decoding.topk import best_log_probs, top_log_probs, worth_compiling


@dataclass(frozen=True, slots=True)
class Rules:
    """What may follow; built once for a search."""

    eos: int
    banned: Int[Tensor, " banned"]
    min_length: int  # tokens before EOS, at least
    ngram: int  # 0: repeating is no matter
    prefixes: Int[Tensor, "sentences longest"]  # what each output begins with; -1 where it may go on as it likes

    def best(
        self,
        logits: Float[Tensor, "rows vocabulary"],
        length: int,
        history: Int[Tensor, "rows produced"],
        sentences: Int[Tensor, " rows"],
        count: int,
    ) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
        """The likeliest tokens and their log-probabilities, as `top_log_probs` of all `log_probs` gives them."""
        plain = length > max(self.prefixes.shape[1], self.min_length) and not 0 < self.ngram < length
        if plain and worth_compiling(logits):
            return best_log_probs(logits, self.banned, count)
        return top_log_probs(self.log_probs(logits, length, history, sentences), count)

    def log_probs(
        self,
        logits: Float[Tensor, "rows vocabulary"],
        length: int,
        history: Int[Tensor, "rows produced"],
        sentences: Int[Tensor, " rows"],
    ) -> Float[Tensor, "rows vocabulary"]:
        """Log-probabilities of the token at position `length` (from 1), -inf where it may not be.

        They are normalised over the whole vocabulary first: to forbid a token makes no other one more probable. Only
        what would be a repetition leaves its probability to the others, as it does in CTranslate2.
        `sentences` tells whose hypothesis each row is. What an output must begin with is stronger than other rules.
        """
        # A fresh tensor even for a view of the model's own weights, so it may be written into. On a CPU this is
        # also faster than logsumexp, which makes a copy too.
        log_probs = logits.float().log_softmax(dim=1)
        if length <= self.prefixes.shape[1]:
            return self._begun(log_probs, length, history, sentences)
        return self._restrained(log_probs, length, history)

    def _begun(
        self,
        log_probs: Float[Tensor, "rows vocabulary"],
        length: int,
        history: Int[Tensor, "rows produced"],
        sentences: Int[Tensor, " rows"],
    ) -> Float[Tensor, "rows vocabulary"]:
        """Nothing but the prefix where it isn't over yet."""
        token = self.prefixes[sentences, length - 1]
        rows = (token >= 0).nonzero()[:, 0]
        value = log_probs[rows, token[rows]]
        log_probs = self._restrained(log_probs, length, history)
        log_probs[rows] = NEVER
        log_probs[rows, token[rows]] = value
        return log_probs

    def _restrained(
        self, log_probs: Float[Tensor, "rows vocabulary"], length: int, history: Int[Tensor, "rows produced"]
    ) -> Float[Tensor, "rows vocabulary"]:
        """Without what these options forbid, in place."""
        if 0 < self.ngram < length:
            _bar_repeats(log_probs, history, self.ngram)
        end = log_probs[:, self.eos].clone()
        log_probs.index_fill_(1, self.banned, NEVER)
        if length <= self.min_length:
            log_probs[:, self.eos] = NEVER
            # Where nothing else may follow, an output that is too short is better than none.
            log_probs[:, self.eos] = end.where(log_probs.amax(dim=1) == NEVER, NEVER)
        return log_probs

    def remember(
        self, history: Int[Tensor, "before produced"], rows: Int[Tensor, " rows"], tokens: Int[Tensor, " rows"]
    ) -> Int[Tensor, "rows longer"]:
        """The history of the chosen rows with one more token each; without a column when nobody will look at it."""
        if self.ngram == 0:
            return tokens.new_empty(len(rows), 0)
        return torch.cat([history.index_select(0, rows), tokens.unsqueeze(1)], dim=1)


def rules_of(
    symbols: Symbols, config: SearchConfig, device: torch.device, prefixes: Sequence[Sequence[int]] = ()
) -> Rules:
    """What these symbols and options allow; `prefixes` are none, or one a sentence."""
    banned = torch.tensor(symbols.banned, dtype=torch.long, device=device)
    longest = max(map(len, prefixes), default=0)
    grid = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]
    begun = torch.tensor(grid, dtype=torch.long, device=device).view(len(prefixes), longest)
    return Rules(symbols.eos, banned, config.min_length, config.no_repeat_ngram, begun)


def _bar_repeats(
    log_probs: Float[Tensor, "rows vocabulary"], history: Int[Tensor, "rows produced"], ngram: int
) -> None:
    """Forbid, in place, each token that would complete an n-gram its row already has; the others share what it had."""
    context = ngram - 1
    suffix = history[:, history.shape[1] - context :]
    windows = history.unfold(1, context, 1)[:, :-1]  # all but the suffix itself
    rows, positions = (windows == suffix.unsqueeze(1)).all(dim=2).nonzero(as_tuple=True)
    log_probs[rows, history[rows, positions + context]] = NEVER
    rows = rows.unique()
    left = log_probs[rows].logsumexp(dim=1, keepdim=True)
    log_probs[rows] -= left.where(left > NEVER, 0.0)
