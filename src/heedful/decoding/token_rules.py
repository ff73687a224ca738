"""Rules for the next token: which tokens are allowed, and with what log-probability."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.config.experiment import SearchConfig
from heedful.decoding.step_function import NEVER, SpecialTokens
from heedful.decoding.topk import best_log_probs, top_log_probs, worth_compiling


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The rules of one search."""

    eos: int
    banned: Int[Tensor, " banned"]
    min_length: int  # tokens before EOS, at least
    ngram: int  # n-grams of this size may not repeat; 0: they may
    prefixes: Int[Tensor, "sentences longest"]  # the beginning of each output; -1 where it is free to continue

    def best(
        self,
        logits: Float[Tensor, "rows vocabulary"],
        length: int,
        history: Int[Tensor, "rows produced"],
        sentences: Int[Tensor, " rows"],
        count: int,
    ) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
        """The `count` likeliest tokens and their log-probabilities: `top_log_probs` of `log_probs`."""
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
        """The log-probabilities of the token at position `length` (from 1), -inf where it is forbidden.

        They are normalised over the whole vocabulary first, so forbidding a token makes no other one more probable.
        The exception is a token that would repeat an n-gram: its probability goes to the others, as in CTranslate2.
        `sentences` has the number of each row's sentence. A required prefix overrides all other rules.
        """
        # This makes a fresh tensor even of a view of the model's own weights, so it may be written into. On a CPU it
        # is also faster than logsumexp, which makes a copy too.
        log_probs = logits.float().log_softmax(dim=1)
        if length <= self.prefixes.shape[1]:
            return self._apply_prefix(log_probs, length, history, sentences)
        return self._forbid(log_probs, length, history)

    def _apply_prefix(
        self,
        log_probs: Float[Tensor, "rows vocabulary"],
        length: int,
        history: Int[Tensor, "rows produced"],
        sentences: Int[Tensor, " rows"],
    ) -> Float[Tensor, "rows vocabulary"]:
        """Allow only the next token of the prefix, in rows whose prefix is not complete yet."""
        token = self.prefixes[sentences, length - 1]
        rows = (token >= 0).nonzero()[:, 0]
        value = log_probs[rows, token[rows]]
        log_probs = self._forbid(log_probs, length, history)
        log_probs[rows] = NEVER
        log_probs[rows, token[rows]] = value
        return log_probs

    def _forbid(
        self, log_probs: Float[Tensor, "rows vocabulary"], length: int, history: Int[Tensor, "rows produced"]
    ) -> Float[Tensor, "rows vocabulary"]:
        """Set the tokens that the options forbid to -inf, in place."""
        if 0 < self.ngram < length:
            _forbid_repeats(log_probs, history, self.ngram)
        end = log_probs[:, self.eos].clone()
        log_probs.index_fill_(1, self.banned, NEVER)
        if length <= self.min_length:
            log_probs[:, self.eos] = NEVER
            # If nothing else is allowed, an output that is too short is better than none.
            log_probs[:, self.eos] = end.where(log_probs.amax(dim=1) == NEVER, NEVER)
        return log_probs

    def extend_history(
        self, history: Int[Tensor, "before produced"], rows: Int[Tensor, " rows"], tokens: Int[Tensor, " rows"]
    ) -> Int[Tensor, "rows longer"]:
        """The history of the selected rows, one token longer; it has no columns if no rule needs it."""
        if self.ngram == 0:
            return tokens.new_empty(len(rows), 0)
        return torch.cat([history.index_select(0, rows), tokens.unsqueeze(1)], dim=1)


def make_token_rules(
    special: SpecialTokens, config: SearchConfig, device: torch.device, prefixes: Sequence[Sequence[int]] = ()
) -> TokenRules:
    """The rules that these options set; `prefixes` are empty, or one for each sentence."""
    banned = torch.tensor(special.banned, dtype=torch.long, device=device)
    longest = max(map(len, prefixes), default=0)
    grid = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]
    padded = torch.tensor(grid, dtype=torch.long, device=device).view(len(prefixes), longest)
    return TokenRules(special.eos, banned, config.min_length, config.no_repeat_ngram, padded)


def _forbid_repeats(
    log_probs: Float[Tensor, "rows vocabulary"], history: Int[Tensor, "rows produced"], ngram: int
) -> None:
    """Forbid each token that would repeat an n-gram of its row, in place; the others share its probability."""
    context = ngram - 1
    suffix = history[:, history.shape[1] - context :]
    windows = history.unfold(1, context, 1)[:, :-1]  # all but the suffix itself
    rows, positions = (windows == suffix.unsqueeze(1)).all(dim=2).nonzero(as_tuple=True)
    log_probs[rows, history[rows, positions + context]] = NEVER
    rows = rows.unique()
    left = log_probs[rows].logsumexp(dim=1, keepdim=True)
    log_probs[rows] -= left.where(left > NEVER, 0.0)
