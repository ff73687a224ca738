"""The engine that runs any model, on any device, and whose model can be looked into."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch

from heedful.config import SearchConfig
from heedful.data.batch import pack
from heedful.decoding.constraints import ANYWHERE, Borders, Demand
from heedful.decoding.engine import EngineName, Ids
from heedful.decoding.ensemble import Together, together
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.search import find
from heedful.decoding.stepping import Symbols
from heedful.decoding.tree_constraints import only_trees
from heedful.kernels.threads import count_workers, divide_threads
from heedful.models.likelihood import token_log_probs
from heedful.models.seq2seq import AnySeq2Seq
from heedful.process_memory import keep_freed_memory


class TorchEngine:
    """A model; with `others`, models of the same vocabulary, all of them as one."""

    name: EngineName = "torch"
    batch_tokens = 8000

    def __init__(self, model: AnySeq2Seq, eos_id: int, others: Sequence[AnySeq2Seq] = ()) -> None:
        keep_freed_memory()
        self.model = model
        self.models = (model, *others)
        self.symbols = Symbols(model.pad_id, eos_id, (model.pad_id,))

    @property
    def workers(self) -> int:
        """Small matrices do not keep several threads busy; so each thread has a batch of its own."""
        return count_workers(next(self.model.parameters()).device)

    def shared(self, workers: int) -> AbstractContextManager[None]:
        """Within this, so many threads ask it, and each has its share of PyTorch's."""
        return divide_threads(workers)

    def cannot(self, search: SearchConfig, demand: Demand, length: int = 0) -> str:
        """There is nothing that it cannot do."""
        return ""

    @torch.inference_mode()
    def decode(
        self,
        sources: Sequence[Ids],
        search: SearchConfig,
        n_best: int,
        demands: Sequence[Demand] = (),
        borders: Borders = ANYWHERE,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first; `demands` are none, or one a sentence."""
        device = next(self.model.parameters()).device
        ids, lengths = (tensor.to(device) for tensor in pack(sources))
        states = tuple(model.start(model.encode(ids, lengths)) for model in self.models)
        limits = lengths + search.max_extra
        alone = len(states) == 1
        step = self.model.step if alone else together([model.step for model in self.models])
        state = states[0] if alone else Together(states)
        given = (self.symbols, limits, search, sources)
        trees = [demand.leaves for demand in demands]
        if any(trees):
            grow, growing = only_trees(step, state, self.symbols, trees)
            return find(grow, growing, *given, n_best=n_best, demands=demands, borders=borders)
        return find(step, state, *given, n_best=n_best, demands=demands, borders=borders)

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """The log-probability of every token of each target, which ends in EOS, after those before it."""
        return token_log_probs(self.models, sources, targets)
