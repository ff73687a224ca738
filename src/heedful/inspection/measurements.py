"""Measurements that answer what people ask: how far influence reaches, which words lie close, what a sum passes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heedful.attention.steps import LayeredModel, Stack, stacks
from heedful.data.batch import pack
from heedful.models.predictor import AnyPredictor
from heedful.text.tokenizer import Tokenizer

_RANDOM_PAIRS = 20_000


@dataclass(frozen=True, slots=True)
class Reach:
    """How much each piece changes after each layer if the first piece is another one: layers x pieces, 1 is its length.

    `restricted` is the same with a window of one piece to either side.
    """

    other: str  # the piece that took the first one's place
    whole: np.ndarray
    restricted: np.ndarray


@dataclass(frozen=True, slots=True)
class Similarity:
    """The mean cosine between embeddings of pieces that differ only in a capital letter, and between random ones."""

    pairs: int
    alike: float
    random: float
    examples: tuple[tuple[str, str, float], ...]


@dataclass(frozen=True, slots=True)
class Gains:
    """By how much a residual connection lengthens or shortens a small change of its input, in each direction."""

    smallest: float
    largest: float
    below_one: float  # the share of directions that become shorter


def measure_reach(model: LayeredModel, source: list[int], tokenizer: Tokenizer) -> Reach:
    """Replace the first piece, and see which vectors change."""
    other = _find_other(source, tokenizer)
    changed = [other, *source[1:]]
    whole = _compare(model, source, changed)
    with _narrow_window(stacks(model)[0]):
        restricted = _compare(model, source, changed)
    return Reach(tokenizer.pieces([other])[0], whole, restricted)


def _find_other(source: list[int], tokenizer: Tokenizer) -> int:
    """The longest other piece of the sentence, which is surely a word; EOS if there is no other."""
    others = [number for number in source if number != source[0]]
    return max(others, key=lambda number: len(tokenizer.pieces([number])[0]), default=tokenizer.eos_id)


@torch.inference_mode()
def _compare(model: LayeredModel, source: list[int], changed: list[int]) -> np.ndarray:
    before, after = (_layer_outputs(model, ids) for ids in (source, changed))
    found: np.ndarray = ((after - before).norm(dim=-1) / before.norm(dim=-1)).cpu().numpy()
    return found


def _layer_outputs(model: LayeredModel, ids: list[int]) -> Tensor:
    """The vectors after each layer of the stack that reads first."""
    device = next(model.parameters()).device
    outputs: list[Tensor] = []
    reader: AnyPredictor = model
    stack = stacks(model)[0]
    hooks = [layer.register_forward_hook(lambda module, args, output: outputs.append(output)) for layer in stack.layers]
    try:
        if stack.causal:  # a text alone; what follows its last piece is not asked for
            memory = reader.encode(*(tensor.to(device) for tensor in pack([ids[:1]])))
            rest, length = (tensor.to(device) for tensor in pack([[model.pad_id, *ids[1:]]]))
            reader.features(rest, length, memory)
        else:
            reader.encode(*(tensor.to(device) for tensor in pack([ids])))
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(outputs)


@contextmanager
def _narrow_window(stack: Stack) -> Iterator[None]:
    """Within this context, each piece of the text that is read sees only its neighbours."""
    windows = [layer.attention.window for layer in stack.layers]
    try:
        for layer in stack.layers:
            layer.attention.window = 1
        yield
    finally:
        for layer, window in zip(stack.layers, windows, strict=True):
            layer.attention.window = window


def measure_similarity(model: LayeredModel, tokenizer: Tokenizer) -> Similarity:
    """Compare the embeddings of pieces such as `the` and `The`."""
    embedding = stacks(model)[0].embedding
    if embedding is None:
        raise ValueError("a model of pictures has no vectors of pieces")
    weight = embedding.weight.detach().float().cpu().numpy()
    normal = weight / np.maximum(np.linalg.norm(weight, axis=1, keepdims=True), 1e-9)
    size = min(tokenizer.vocabulary_size, len(weight))
    names = {name: number for number, name in enumerate(tokenizer.pieces(list(range(size))))}
    longest = max(len(name) for name in names if not name.startswith("<"))  # 1 if the pieces are characters
    twins = [
        (name, name.lower(), number, names[name.lower()])
        for name, number in names.items()
        if name != name.lower() and name.lower() in names and (len(name) > 3 or longest == 1)
    ]
    generator = np.random.default_rng(1)
    left, right = generator.integers(0, size, (2, _RANDOM_PAIRS))
    left, right = left[left != right], right[left != right]
    cosines = [float(normal[a] @ normal[b]) for _, _, a, b in twins]
    examples = tuple((a, b, cosine) for (a, b, _, _), cosine in zip(twins[:6], cosines, strict=False))
    mean = float(np.mean(cosines)) if cosines else float("nan")
    return Similarity(len(twins), mean, float((normal[left] * normal[right]).sum(1).mean()), examples)


def measure_gains(model: LayeredModel, x: np.ndarray) -> Gains:
    """The singular values of the derivative of x + FFN(x) in the first layer, with its norm, at this x."""
    layer = stacks(model)[0].layers[0]
    at = torch.from_numpy(np.array(x, np.float32)).to(next(model.parameters()).device)

    def pass_on(row: Tensor) -> Tensor:
        passed: Tensor = layer.feed_forward_residual(row[None], None, layer.feed_forward)[0]
        return passed

    with torch.enable_grad():
        jacobian = torch.autograd.functional.jacobian(pass_on, at)
    values = torch.linalg.svdvals(jacobian.detach().double())
    return Gains(float(values[-1]), float(values[0]), float((values < 1).double().mean()))


@torch.inference_mode()
def compare_alone_and_together(model: LayeredModel, rows: np.ndarray) -> float:
    """The largest difference between the feed-forward network on all rows at once and on each row alone."""
    network = stacks(model)[0].layers[0].feed_forward
    x = torch.from_numpy(np.array(rows, np.float32)).to(next(model.parameters()).device)
    together = network(x)
    alone = torch.cat([network(row[None]) for row in x])
    return float((together - alone).abs().max())
