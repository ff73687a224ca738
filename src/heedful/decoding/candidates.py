"""The best outputs of each sentence so far, and the way back to their tokens."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.stepping import NEVER


@dataclass(frozen=True, slots=True)
class Candidates:
    """Hypotheses by sentence, best first; those with log-probability -inf are empty places.

    A hypothesis is `token` after `row`, the row of its parent among those that the step at `length` was given.
    """

    score: Float[Tensor, "sentences places"]
    log_prob: Float[Tensor, "sentences places"]
    length: Int[Tensor, "sentences places"]
    row: Int[Tensor, "sentences places"]
    token: Int[Tensor, "sentences places"]

    def only(self, wanted: Bool[Tensor, "sentences places"]) -> "Candidates":
        """These with all others emptied, in their places."""
        score = self.score.where(wanted, NEVER)
        return Candidates(score, self.log_prob.where(wanted, NEVER), self.length, self.row, self.token)

    def joined_by_score(self, more: "Candidates") -> "Candidates":
        """As many as there are places, by score; of equal ones those that were here first."""
        order = torch.cat([self.score, more.score], dim=1).sort(dim=1, descending=True, stable=True).indices
        return self._join(more, order)

    def filled_up_with(self, more: "Candidates") -> "Candidates":
        """These, and the others only where a place is empty, whatever their scores."""
        empty = torch.cat([self.score, more.score], dim=1) == NEVER
        return self._join(more, empty.to(torch.uint8).sort(dim=1, stable=True).indices)

    def _join(self, more: "Candidates", order: Int[Tensor, "sentences both"]) -> "Candidates":
        order = order[:, : self.score.shape[1]]

        def pick(ours: Tensor, theirs: Tensor) -> Tensor:
            return torch.cat([ours, theirs], dim=1).gather(1, order)

        return Candidates(
            pick(self.score, more.score),
            pick(self.log_prob, more.log_prob),
            pick(self.length, more.length),
            pick(self.row, more.row),
            pick(self.token, more.token),
        )


def empty_pool(sentences: int, places: int, device: torch.device) -> Candidates:
    """A pool that nothing has come to yet."""
    nothing = torch.full((sentences, places), NEVER, device=device)
    zero = torch.zeros(sentences, places, dtype=torch.long, device=device)
    return Candidates(nothing, nothing, zero, zero, zero)


@dataclass(frozen=True, slots=True)
class Trace:
    """For every step its rows' tokens and their parents' rows, so that no step has to copy what was said before."""

    parents: list[Int[Tensor, " rows"]] = field(default_factory=list)
    tokens: list[Int[Tensor, " rows"]] = field(default_factory=list)

    def append(self, parents: Int[Tensor, " rows"], tokens: Int[Tensor, " rows"]) -> None:
        """Note the rows that the next step is given."""
        self.parents.append(parents)
        self.tokens.append(tokens)

    def read(self, pool: Candidates, eos: int) -> list[list[Hypothesis]]:
        """The hypotheses of a pool, word for word."""
        parents = [rows.tolist() for rows in self.parents]
        tokens = [row_tokens.tolist() for row_tokens in self.tokens]

        def follow(score: float, log_prob: float, length: int, row: int, token: int) -> Hypothesis:
            backwards = [token]
            for position in reversed(range(length - 1)):
                backwards.append(tokens[position][row])
                row = parents[position][row]
            return Hypothesis(tuple(reversed(backwards)), log_prob, score, finished=token == eos)

        columns = (pool.score, pool.log_prob, pool.length, pool.row, pool.token)
        return [
            [follow(*place) for place in zip(*sentence, strict=True) if place[0] > NEVER]
            for sentence in zip(*(column.tolist() for column in columns), strict=True)
        ]
