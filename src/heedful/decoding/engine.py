"""The one face of all engines."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from heedful.config import SearchConfig
from heedful.decoding.constraints import ANYWHERE, Borders, Demand
from heedful.decoding.hypothesis import Hypothesis

EngineName = Literal["torch", "ctranslate2"]

Ids = Sequence[int]


class Engine(Protocol):
    """Runs one model. The same sentence gives the same result in every engine and every company, up to rounding.

    What an engine cannot do it refuses with a ConfigError.
    """

    @property
    def name(self) -> EngineName:
        """What people choose it by."""
        ...

    @property
    def batch_tokens(self) -> int:
        """Source tokens times beam that it wants to be given together, so that it is neither idle nor out of memory."""
        ...

    @property
    def workers(self) -> int:
        """How many batches it searches at the same time, each asked for by a thread of its own."""
        ...

    def shared(self, workers: int) -> AbstractContextManager[None]:
        """Within this, so many threads ask it at the same time."""
        ...

    def cannot(self, search: SearchConfig, demand: Demand, length: int = 0) -> str:
        """What is asked for that it would do in another way than the rest, or not at all; empty: nothing.

        `length` are the pieces of the source.
        """
        ...

    def decode(
        self,
        sources: Sequence[Ids],
        search: SearchConfig,
        n_best: int,
        demands: Sequence[Demand] = (),
        borders: Borders = ANYWHERE,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first; `demands` are none, or one a sentence."""
        ...

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """The log-probability of every token of each target, which ends in EOS, after those before it."""
        ...
