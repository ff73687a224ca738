"""What a model does without one of its parts, on one sentence or picture.

Each experiment changes the trained model for a moment, translates the sentence again, and scores the translation that
the whole model gave; a model that writes nothing answers again. Nothing is trained without the part; `heedful study
ablations` does that.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from heedful.attention.head_names import all_heads
from heedful.attention.pruning import switch_off_heads
from heedful.attention.steps import LayeredModel, ReadingModel, WritingModel, stacks, sublayers
from heedful.config import SearchConfig
from heedful.data.batch import pack
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.torch_engine import TorchEngine, token_log_probs
from heedful.errors import ConfigError
from heedful.models.gpt import GPT
from heedful.models.predictor import AnyPredictor
from heedful.models.seq2seq import AnySeq2Seq
from heedful.models.t5 import T5
from heedful.models.transformer import DecoderLayer, Transformer
from heedful.models.vit import ViT
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.feed_forward import FeedForward
from heedful.nn.residual import Residual

_EXTRA = 10  # pieces beyond the source: a damaged model may never end


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """What a changed model makes of the sentence, and what it thinks of the translation that was given."""

    tokens: tuple[int, ...]
    finished: bool
    log_prob: float  # of the given translation


Write = Callable[[Sequence[int]], Hypothesis]  # what the model makes of a source
Changes = Mapping[str, Callable[[], AbstractContextManager[None]]]  # by the name of what is missing meanwhile


def search_by(model: AnySeq2Seq, search: SearchConfig, eos: int) -> Write:
    """A beam search that ends, whatever becomes of the model."""
    limited = replace(search, method="beam", groups=1, max_extra=min(search.max_extra, _EXTRA))
    engine = TorchEngine(model, eos)
    return lambda source: engine.decode([source], limited, 1)[0][0]


class ExperimentRunner(ABC):
    """Runs experiments on one text or picture."""

    @abstractmethod
    def run(self) -> Counterfactual:
        """The model as it is now."""

    def run_all(
        self, changes: Changes, done: Callable[[int, int], None] = lambda number, count: None
    ) -> dict[str, Counterfactual]:
        """Every experiment by its name; `done` is called with the number of those finished and of all."""
        found: dict[str, Counterfactual] = {}
        for number, (name, change) in enumerate(changes.items()):
            done(number, len(changes))
            with change():
                found[name] = self.run()
        return found


class AnswerRunner(ExperimentRunner):
    """Runs experiments on what a model reads, the places that it is asked about, and its answers."""

    def __init__(self, model: ReadingModel, source: Sequence[int], places: Sequence[int], answers: Sequence[int]):
        self.model: AnyPredictor = model
        self.source, self.places, self.answers = list(source), list(places), list(answers)

    @torch.inference_mode()
    def run(self, source: Sequence[int] | None = None) -> Counterfactual:
        """The model as it is now, on the source or on another one with as many places."""
        device = next(self.model.parameters()).device
        ids, lengths = (tensor.to(device) for tensor in pack([self.source if source is None else source]))
        places, counts = (tensor.to(device) for tensor in pack([self.places]))
        logits = self.model.decode(places, counts, self.model.encode(ids, lengths))
        log_probs = logits.float().log_softmax(-1)
        own = log_probs.gather(1, torch.tensor(self.answers, device=device)[:, None])
        return Counterfactual(tuple(log_probs.argmax(-1).tolist()), True, float(own.sum()))


class CounterfactualRunner(ExperimentRunner):
    """Runs experiments on one text and what a model made of it, both as ids."""

    def __init__(self, model: AnySeq2Seq, source: Sequence[int], target: Sequence[int], write: Write) -> None:
        self.model = model
        self.source, self.target = list(source), list(target)
        self._write = write

    def run(self, source: Sequence[int] | None = None, write: Write | None = None) -> Counterfactual:
        """The model as it is now, on the text or on another, with its own search or another."""
        source = self.source if source is None else source
        best = (write or self._write)(source)
        return Counterfactual(best.tokens, best.finished, sum(self._score(source)))

    def run_without_mask(self) -> list[float]:
        """The log-probability of each piece if the decoder reads the whole output at once without a mask."""
        with unmasked(layered(self.model)):
            return self._score(self.source)

    def _score(self, source: Sequence[int]) -> list[float]:
        return token_log_probs([self.model], [source], [self.target])[0]


def layered(model: AnySeq2Seq) -> WritingModel:
    """The same model, whose layers are known."""
    if not isinstance(model, Transformer | GPT | T5):
        raise ConfigError(f"a {type(model).__name__} has no layers of figure 1")
    return model


@torch.inference_mode()
def compare_without_positions(model: Transformer | T5, source: Sequence[int]) -> float:
    """How far the encoder, without positions, tells the reversed sentence apart: the largest difference."""
    last = len(source) - 1
    order = [*reversed(range(last)), last]
    with _without_positions(model):
        straight, turned = (_encode(model, ids) for ids in (source, [source[place] for place in order]))
    return float((straight[order] - turned).abs().max())


def _encode(model: Transformer | T5, source: Sequence[int]) -> Tensor:
    device = next(model.parameters()).device
    ids, lengths = (tensor.to(device) for tensor in pack([source]))
    return model.encode(ids, lengths).rows


@contextmanager
def unmasked(model: LayeredModel) -> Iterator[None]:
    """Within this context, each position of the decoder sees all others when a whole text is read at once."""

    def see_everything(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        x, layout, *_others = args
        return (x, layout), {**kwargs, "causal": False}

    with ExitStack() as hooks:
        for stack in stacks(model):
            for layer in stack.layers if stack.causal else ():
                handle = layer.attention.register_forward_pre_hook(see_everything, with_kwargs=True)
                hooks.callback(handle.remove)
        yield


def list_changes(model: LayeredModel) -> Changes:
    """Every experiment by its name: `encoder.1.attention.head.2` is without that head, `positions` without any."""
    return dict(_changes(model))


def without_heads(model: AnyPredictor) -> Changes:
    """Each head switched off alone."""
    found: dict[str, Callable[[], AbstractContextManager[None]]] = {}
    for head in all_heads(model):
        stack, part = ("decoder", "cross_attention") if head.kind == "cross" else (head.kind, "attention")
        name = f"{stack}.{head.layer + 1}.{part}.head.{head.index + 1}"
        found[name] = partial(switch_off_heads, model, [head])
    return found


def _changes(model: LayeredModel) -> Iterator[tuple[str, Callable[[], AbstractContextManager[None]]]]:
    layers = [
        (f"{stack.name}.{number}", layer) for stack in stacks(model) for number, layer in enumerate(stack.layers, 1)
    ]
    if any(stack.embedding is not None and stack.embedding.scale != 1.0 for stack in stacks(model)):
        yield "scale-of-embeddings", lambda: _unscaled_embeddings(model)
    yield "positions", lambda: _without_positions(model)
    if not isinstance(model, T5):  # whose scores have no scale
        yield "scale-of-scores", lambda: _scaled_queries(model, lambda d_k: d_k**0.5)
    yield "scores", lambda: _scaled_queries(model, lambda d_k: 0.0)
    crosses = [layer.cross_attention.output for _, layer in layers if isinstance(layer, DecoderLayer)]
    if crosses:
        yield "cross_attention", lambda: _replaced_outputs(crosses, _zeros)
    yield from without_heads(model).items()
    networks = [layer.feed_forward for _, layer in layers]
    yield "feed_forward", lambda: _replaced_outputs(networks, _zeros)
    for name, layer in layers:
        modules = [_callable_part(sublayer) for _, sublayer, _ in sublayers(layer)]
        yield name, partial(_replaced_outputs, modules, _zeros)
        for part, sublayer, residual in sublayers(layer):
            yield f"{name}.{part}", partial(_replaced_outputs, [_callable_part(sublayer)], _zeros)
            yield f"{name}.{part}.residual", partial(_without_input, residual)


def _callable_part(sublayer: SelfAttention | CrossAttention | FeedForward) -> nn.Module:
    """The module whose result is that of the sub-layer, in training and in search.

    While decoding, attention is not called but stepped; its output layer is called in both cases.
    """
    return sublayer if isinstance(sublayer, FeedForward) else sublayer.output


Replace = Callable[[nn.Module, Any, Tensor], Tensor]


@contextmanager
def _replaced_outputs(modules: Iterable[nn.Module], change: Replace) -> Iterator[None]:
    """Within this context, these modules return something else."""
    with ExitStack() as hooks:
        for module in modules:
            hooks.callback(module.register_forward_hook(change).remove)
        yield


def _zeros(_: nn.Module, __: Any, output: Tensor) -> Tensor:
    return torch.zeros_like(output)


@contextmanager
def _without_input(residual: Residual) -> Iterator[None]:
    """Within this context, a residual connection does not add its input."""
    inputs: list[Tensor] = []

    def keep(_: nn.Module, args: Any) -> None:
        inputs[:] = [args[0]]

    def subtract_before_norm(_: nn.Module, args: Any) -> Tensor:
        summed: Tensor = args[0] - inputs[0]
        return summed

    def subtract(_: nn.Module, args: Any, output: Tensor) -> Tensor:
        return output - inputs[0]

    with ExitStack() as hooks:
        hooks.callback(residual.register_forward_pre_hook(keep).remove)
        if residual.place == "post":  # the norm reads the sum
            hooks.callback(residual.norm.register_forward_pre_hook(subtract_before_norm).remove)
        else:
            hooks.callback(residual.register_forward_hook(subtract).remove)
        yield


@contextmanager
def _unscaled_embeddings(model: LayeredModel) -> Iterator[None]:
    embeddings = [stack.embedding for stack in stacks(model) if stack.embedding is not None]
    before = [embedding.scale for embedding in embeddings]
    try:
        for embedding in embeddings:
            embedding.scale = 1.0
        yield
    finally:
        for embedding, scale in zip(embeddings, before, strict=True):
            embedding.scale = scale


@contextmanager
def _without_positions(model: LayeredModel) -> Iterator[None]:
    """No sinusoids or learned positions are added, and no distance changes a score."""
    encodings = [stack.positions for stack in stacks(model) if stack.positions is not None]
    attentions = [layer.attention for stack in stacks(model) for layer in stack.layers]
    biases = [part.bias.weight for part in attentions if part.bias is not None]
    if isinstance(model, ViT):
        biases.append(model.positions)
    with _replaced_outputs(encodings, _zeros), _changed_weights(biases, [0.0] * len(biases)):
        yield


@contextmanager
def _scaled_queries(model: LayeredModel, factor: Callable[[int], float]) -> Iterator[None]:
    """Every score is multiplied by this function of d_k."""
    parts: list[Tensor] = []
    factors: list[float] = []
    for layer in (layer for stack in stacks(model) for layer in stack.layers):
        projection, width = layer.attention.query_key_value, layer.attention.sizes[0]
        own = [projection.weight[:width], *([] if projection.bias is None else [projection.bias[:width]])]
        parts += own
        factors += [factor(layer.attention.head_sizes.d_k)] * len(own)
        if isinstance(layer, DecoderLayer):
            cross = layer.cross_attention
            own = [cross.query.weight, *([] if cross.query.bias is None else [cross.query.bias])]
            parts += own
            factors += [factor(cross.head_sizes.d_k)] * len(own)
    with _changed_weights(parts, factors):
        yield


@contextmanager
def _changed_weights(parts: Sequence[Tensor], factors: Sequence[float]) -> Iterator[None]:
    """Within this context, these weights are multiplied by their factors; afterwards they are the same to the bit."""
    before = [part.detach().clone() for part in parts]
    with torch.no_grad():
        try:
            for part, factor in zip(parts, factors, strict=True):
                part.detach().mul_(factor)
            yield
        finally:
            for part, old in zip(parts, before, strict=True):
                part.detach().copy_(old)
