"""Step functions that are no models: tables of random logits, looked up by all that was said before."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.decoding.step_function import SpecialTokens

PAD, EOS, START = 0, 1, 2
SYMBOLS = SpecialTokens(start=START, eos=EOS, banned=(PAD, START))
CONTEXTS = 997
NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Said:
    """A number for everything that a row has said, and the rows that `select` was asked for."""

    context: Int[Tensor, " rows"]
    selected: list[int] = field(default_factory=list)

    def select(self, rows: Int[Tensor, " chosen"]) -> "Said":
        self.selected.append(len(rows))
        return Said(self.context[rows], self.selected)


@dataclass(frozen=True, slots=True)
class Table:
    """Logits that depend on the sentence and on every token before."""

    logits: Float[Tensor, "contexts vocabulary"]
    rows: list[int] = field(default_factory=list)  # how many each step was given

    def start(self, sentences: list[int]) -> Said:
        return Said(torch.tensor(sentences, dtype=torch.long))

    def step(self, tokens: Int[Tensor, " rows"], state: Said) -> tuple[Float[Tensor, "rows vocabulary"], Said]:
        self.rows.append(len(tokens))
        context = (state.context * 31 + tokens * 7 + 3) % len(self.logits)
        return self.logits[context], Said(context, state.selected)


def random_table(seed: int, vocabulary: int, spread: float = 2.0) -> Table:
    return Table(torch.randn(CONTEXTS, vocabulary, generator=torch.Generator().manual_seed(seed)) * spread)


def table_of(*steps: dict[int, float], vocabulary: int = 6) -> Table:
    """The same probabilities at each position, whatever the output; tokens that are not named have none."""
    logits = torch.full((len(steps), vocabulary), NEVER)
    for position, probabilities in enumerate(steps):
        for token, probability in probabilities.items():
            logits[position, token] = math.log(probability)
    return Table(logits)


@dataclass(frozen=True, slots=True)
class Clock:
    """A state that only counts steps."""

    steps: int

    def select(self, rows: Int[Tensor, " chosen"]) -> "Clock":
        return self


def by_position(table: Table) -> Callable[[Tensor, Clock], tuple[Tensor, Clock]]:
    def step(tokens: Tensor, state: Clock) -> tuple[Tensor, Clock]:
        table.rows.append(len(tokens))
        return table.logits[state.steps].expand(len(tokens), -1), Clock(state.steps + 1)

    return step


def log_prob_of(table: Table, sentence: int, tokens: tuple[int, ...], ngram: int = 0) -> float:
    """Fold one sequence through the step function, with all probability counted, in float64.

    If n-grams of this size may not occur twice, tokens that would repeat one have no probability.
    """
    state, total = table.start([sentence]), 0.0
    for place, token in enumerate(tokens):
        logits, state = table.step(torch.tensor([(START, *tokens)[place]]), state)
        again = [other for other in range(logits.shape[1]) if ngram and repeats((*tokens[:place], other), ngram)]
        logits[:, again] = -math.inf
        total += float(logits[0].double().log_softmax(dim=0)[token])
    return total


def repeats(tokens: tuple[int, ...], n: int) -> bool:
    grams = [tokens[i : i + n] for i in range(len(tokens) - n + 1)]
    return len(grams) != len(set(grams))
