"""The interface of all engines."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from heedful.config import SearchConfig
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.token_constraints import NO_BOUNDARIES, TokenConstraints, WordBoundaries

EngineName = Literal["torch", "ctranslate2"]

Ids = Sequence[int]


class Engine(Protocol):
    """Runs one model. A sentence gives the same result in every engine and every batch, up to rounding.

    An engine refuses what it cannot do with a ConfigError.
    """

    @property
    def name(self) -> EngineName:
        """The name that users choose it by."""
        ...

    @property
    def batch_tokens(self) -> int:
        """The best size of a batch, in source tokens times beam: large enough to be fast, small enough for memory."""
        ...

    @property
    def workers(self) -> int:
        """The number of threads that may call it at the same time, each with a batch of its own."""
        ...

    def share_threads(self, workers: int) -> AbstractContextManager[None]:
        """A context in which this many threads call it at the same time."""
        ...

    def find_limitation(self, search: SearchConfig, constraints: TokenConstraints, length: int = 0) -> str:
        """The reason why it cannot do this search as the other engines do; empty if it can.

        `length` is the number of source tokens.
        """
        ...

    def decode(
        self,
        sources: Sequence[Ids],
        search: SearchConfig,
        n_best: int,
        constraints: Sequence[TokenConstraints] = (),
        boundaries: WordBoundaries = NO_BOUNDARIES,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first; `constraints` are empty, or one for each sentence."""
        ...

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """The log-probability of every token of each target, given those before it; targets end in EOS."""
        ...
