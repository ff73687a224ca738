"""The engine that runs any model, on any device, and whose model can be looked into."""

from collections.abc import Sequence

import torch

from heedful.config import SearchConfig
from heedful.data.batch import pack
from heedful.engines.engine import EngineName, Ids
from heedful.models.seq2seq import AnySeq2Seq
from heedful.search.beam import beam_search
from heedful.search.greedy import greedy_search
from heedful.search.hypothesis import Hypothesis
from heedful.search.stepping import Symbols


class TorchEngine:
    """A model and the two symbols that its search treats apart."""

    name: EngineName = "torch"
    batch_tokens = 3000

    def __init__(self, model: AnySeq2Seq, eos_id: int) -> None:
        self.model = model
        self.symbols = Symbols(model.pad_id, eos_id, (model.pad_id,))

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @torch.inference_mode()
    def decode(self, sources: Sequence[Ids], search: SearchConfig, n_best: int) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first."""
        ids, lengths = (tensor.to(self.device) for tensor in pack(sources))
        state = self.model.start(self.model.encode(ids, lengths))
        limits = lengths + search.max_extra
        if search.beam == n_best == 1:  # the same result without a beam's bookkeeping
            return [[best] for best in greedy_search(self.model.step, state, self.symbols, limits, search)]
        return beam_search(self.model.step, state, self.symbols, limits, search, n_best=n_best)

    @torch.inference_mode()
    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """The log-probability of every token of each target, which ends in EOS, after those before it."""
        ids, lengths = (tensor.to(self.device) for tensor in pack(sources))
        shifted, _ = pack([[self.symbols.start, *target[:-1]] for target in targets])
        wanted, target_lengths = (tensor.to(self.device) for tensor in pack(targets))
        memory = self.model.encode(ids, lengths)
        logits = self.model.decode(shifted.to(self.device), target_lengths, memory)
        found = logits.float().log_softmax(dim=1).gather(1, wanted.unsqueeze(1))[:, 0]
        return [part.tolist() for part in found.split(target_lengths.tolist())]
