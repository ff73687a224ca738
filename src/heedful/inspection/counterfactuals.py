"""What a model does without one of its parts, on one sentence.

Each experiment changes the trained model for a moment, translates the sentence again, and scores the translation that
the whole model gave. Nothing is trained without the part; `heedful study ablations` does that.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from heedful.attention.head_names import all_heads
from heedful.attention.pruning import switch_off_heads
from heedful.attention.steps import stacks, sublayers
from heedful.config import SearchConfig
from heedful.data.batch import pack
from heedful.decoding.torch_engine import TorchEngine
from heedful.models.transformer import Transformer
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


class CounterfactualRunner:
    """Runs experiments on one sentence and its translation, both as ids that end in EOS."""

    def __init__(
        self, model: Transformer, source: Sequence[int], target: Sequence[int], search: SearchConfig, eos: int
    ) -> None:
        self.model = model
        self.source, self.target = list(source), list(target)
        self.search = replace(search, method="beam", groups=1, max_extra=min(search.max_extra, _EXTRA))
        self._engine = TorchEngine(model, eos)

    def run(self, source: Sequence[int] | None = None) -> Counterfactual:
        """The model as it is now, on the sentence or on another source."""
        source = self.source if source is None else source
        best = self._engine.decode([source], self.search, 1)[0][0]
        log_prob = sum(self._engine.score([source], [self.target])[0])
        return Counterfactual(best.tokens, best.finished, log_prob)

    def run_all(self, done: Callable[[int, int], None] = lambda number, count: None) -> dict[str, Counterfactual]:
        """Every experiment by its name: `encoder.1.attention.head.2` is without that head, `positions` without any.

        `done` is called with the number of experiments that are finished and of all.
        """
        changes = dict(self._changes())
        found: dict[str, Counterfactual] = {}
        for number, (name, change) in enumerate(changes.items()):
            done(number, len(changes))
            with change():
                found[name] = self.run()
        found["greedy"] = self._search_with(beam=1)
        found["no-penalty"] = self._search_with(alpha=0.0)
        return found

    def compare_without_positions(self) -> float:
        """How far the encoder, without positions, tells the reversed sentence apart: the largest difference."""
        last = len(self.source) - 1
        order = [*reversed(range(last)), last]
        with _without_positions(self.model):
            straight = self._encode(self.source)
            turned = self._encode([self.source[place] for place in order])
        return float((straight[order] - turned).abs().max())

    @torch.inference_mode()
    def run_without_mask(self) -> list[float]:
        """The log-probability of each piece if the decoder reads the whole translation at once without a mask."""

        def see_everything(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            return args, {**kwargs, "causal": False}

        with ExitStack() as hooks:
            for layer in self.model.decoder:
                handle = layer.attention.register_forward_pre_hook(see_everything, with_kwargs=True)
                hooks.callback(handle.remove)
            return self._engine.score([self.source], [self.target])[0]

    @torch.inference_mode()
    def _encode(self, source: Sequence[int]) -> Tensor:
        device = next(self.model.parameters()).device
        ids, lengths = (tensor.to(device) for tensor in pack([source]))
        return self.model.encode(ids, lengths).rows

    def _search_with(self, **changes: Any) -> Counterfactual:
        own, self.search = self.search, replace(self.search, **changes)
        try:
            return self.run()
        finally:
            self.search = own

    def _changes(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        model = self.model
        yield "scale-of-embeddings", lambda: _unscaled_embeddings(model)
        yield "positions", lambda: _without_positions(model)
        yield "scale-of-scores", lambda: _scaled_queries(model, lambda d_k: d_k**0.5)
        yield "scores", lambda: _scaled_queries(model, lambda d_k: 0.0)
        crosses = [layer.cross_attention.output for layer in model.decoder]
        yield "cross_attention", lambda: _replaced_outputs(crosses, _zeros)
        for head in all_heads(model):
            stack, part = ("decoder", "cross_attention") if head.kind == "cross" else (head.kind, "attention")
            name = f"{stack}.{head.layer + 1}.{part}.head.{head.index + 1}"
            yield name, lambda head=head: switch_off_heads(model, [head])  # type: ignore[misc]
        networks = [layer.feed_forward for _, layers in stacks(model) for layer in layers]
        yield "feed_forward", lambda: _replaced_outputs(networks, _zeros)
        for stack, layers in stacks(model):
            for number, layer in enumerate(layers, 1):
                modules = [_callable_part(sublayer) for _, sublayer, _ in sublayers(layer)]
                yield f"{stack}.{number}", lambda modules=modules: _replaced_outputs(modules, _zeros)  # type: ignore[misc]
                for part, sublayer, residual in sublayers(layer):
                    module = _callable_part(sublayer)
                    name = f"{stack}.{number}.{part}"
                    yield name, lambda module=module: _replaced_outputs([module], _zeros)  # type: ignore[misc]
                    yield (
                        f"{name}.residual",
                        lambda residual=residual: _without_input(residual),  # type: ignore[misc]
                    )


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
def _unscaled_embeddings(model: Transformer) -> Iterator[None]:
    embeddings = (model.source_embedding, model.target_embedding)
    before = [embedding.scale for embedding in embeddings]
    try:
        for embedding in embeddings:
            embedding.scale = 1.0
        yield
    finally:
        for embedding, scale in zip(embeddings, before, strict=True):
            embedding.scale = scale


@contextmanager
def _without_positions(model: Transformer) -> Iterator[None]:
    """No sinusoids or learned positions are added, and no distance changes a score."""
    encodings = [each for each in (model.source_positions, model.target_positions) if each is not None]
    biases = [part.bias.weight for part in _self_attentions(model) if part.bias is not None]
    with _replaced_outputs(encodings, _zeros), _changed_weights(biases, [0.0] * len(biases)):
        yield


@contextmanager
def _scaled_queries(model: Transformer, factor: Callable[[int], float]) -> Iterator[None]:
    """Every score is multiplied by this function of d_k."""
    parts: list[Tensor] = []
    factors: list[float] = []
    for self_attention in _self_attentions(model):
        layer, width = self_attention.query_key_value, self_attention.sizes[0]
        parts += [layer.weight[:width], layer.bias[:width]]
        factors += [factor(self_attention.head_sizes.d_k)] * 2
    for decoder_layer in model.decoder:
        cross = decoder_layer.cross_attention
        parts += [cross.query.weight, cross.query.bias]
        factors += [factor(cross.head_sizes.d_k)] * 2
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


def _self_attentions(model: Transformer) -> list[SelfAttention]:
    return [*(layer.attention for layer in model.encoder), *(layer.attention for layer in model.decoder)]
