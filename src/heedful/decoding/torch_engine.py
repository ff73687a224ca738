"""The PyTorch engine runs any model on any device, does every search, and lets you look into its model."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from heedful.config import SearchConfig
from heedful.data.batch import pack
from heedful.decoding.engine import EngineName, Ids
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.search import run_search
from heedful.decoding.step_function import EnsembleState, SpecialTokens, StepFunction, make_ensemble_step
from heedful.decoding.token_constraints import NO_BOUNDARIES, TokenConstraints, WordBoundaries
from heedful.decoding.tree_constraints import constrain_to_trees
from heedful.kernels.threads import count_workers, divide_threads
from heedful.models.seq2seq import AnySeq2Seq
from heedful.process_memory import keep_freed_memory


class TorchEngine:
    """Runs a model, or an ensemble of it and `others`, which have the same vocabulary."""

    name: EngineName = "torch"
    batch_tokens = 8000

    def __init__(self, model: AnySeq2Seq, eos_id: int, others: Sequence[AnySeq2Seq] = ()) -> None:
        keep_freed_memory()
        self.model = model
        self.models = (model, *others)
        self.special = SpecialTokens(model.pad_id, eos_id, (model.pad_id,))

    @property
    def workers(self) -> int:
        """Small matrices do not keep several threads busy, so each thread has a batch of its own."""
        return count_workers(next(self.model.parameters()).device)

    @property
    def is_instrumented(self) -> bool:
        """Whether attention weights of the model are recorded, or its heads gated."""
        return any(attention.instrumented for layers in self.model.attentions.values() for attention in layers)

    def share_threads(self, workers: int) -> AbstractContextManager[None]:
        """A context in which each of this many threads has its share of PyTorch's threads."""
        return divide_threads(workers)

    def find_limitation(self, search: SearchConfig, constraints: TokenConstraints, length: int = 0) -> str:
        """Always empty: this engine can do every search."""
        return ""

    @torch.inference_mode()
    def decode(
        self,
        sources: Sequence[Ids],
        search: SearchConfig,
        n_best: int,
        constraints: Sequence[TokenConstraints] = (),
        boundaries: WordBoundaries = NO_BOUNDARIES,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first; `constraints` are empty, or one for each sentence."""
        device = next(self.model.parameters()).device
        ids, lengths = (tensor.to(device) for tensor in pack(sources))
        states = tuple(model.start(model.encode(ids, lengths)) for model in self.models)
        single = len(states) == 1
        step: StepFunction[Any] = (
            self.model.step if single else make_ensemble_step([model.step for model in self.models])
        )
        state: Any = states[0] if single else EnsembleState(states)
        leaves = [each.leaves for each in constraints]
        if any(leaves):
            step, state = constrain_to_trees(step, state, self.special, leaves)
        limits = lengths + search.max_extra
        return run_search(
            *(step, state, self.special, limits, search, sources),
            n_best=n_best,
            constraints=constraints,
            boundaries=boundaries,
        )

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """The log-probability of every token of each target, given those before it; targets end in EOS."""
        return token_log_probs(self.models, sources, targets)


@torch.inference_mode()
def token_log_probs(
    models: Sequence[AnySeq2Seq], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[list[float]]:
    """The log-probability of each target token given the earlier ones; several models are averaged."""
    device, start = next(models[0].parameters()).device, models[0].pad_id
    source, source_lengths = (tensor.to(device) for tensor in pack(sources))
    target_in, lengths = (tensor.to(device) for tensor in pack([[start, *target[:-1]] for target in targets]))
    target_out = pack(targets)[0].to(device)
    each = []
    for model in models:
        logits = model.decode(target_in, lengths, model.encode(source, source_lengths))
        each.append(logits.float().log_softmax(dim=1).gather(1, target_out[:, None])[:, 0])
    mean = torch.stack(each).logsumexp(dim=0) - torch.tensor(float(len(models))).log()
    return [part.tolist() for part in mean.cpu().split(lengths.tolist())]
