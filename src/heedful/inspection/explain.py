"""Explain a translation: every number on the way, and what happens without each part."""

import base64
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from torch import Tensor

from heedful.attention.record import START_PIECE
from heedful.attention.steps import LayeredModel, stacks, sublayers
from heedful.config import ModelConfig, SearchConfig, TrainConfig
from heedful.decoding.beam_tree import BeamTree
from heedful.errors import ConfigError, DataError
from heedful.inspection.attention_view import read_roles
from heedful.inspection.cost import LengthCost, PartCost, count_costs, count_lengths
from heedful.inspection.counterfactuals import (
    Counterfactual,
    CounterfactualRunner,
    compare_without_positions,
    list_changes,
    search_by,
)
from heedful.inspection.markup import visible
from heedful.inspection.measurements import (
    Gains,
    Reach,
    Similarity,
    compare_alone_and_together,
    measure_gains,
    measure_reach,
    measure_similarity,
)
from heedful.inspection.training_step import TrainingStep, take_training_step
from heedful.models.transformer import Transformer
from heedful.storage.run_folder import RunFolder
from heedful.text.tokenizer import Tokenizer
from heedful.translation.translator import Translator

MAX_EXPLAINED_PIECES = 100  # on either side: a matrix of more cannot be read
MAX_DATA = 4_300_000  # bytes of numbers in a page, which is at most 5 MB
_LEVELS = 32767  # 16 bits with a sign for each number
_NEIGHBOURS = 5
_RANKS = 8  # of the likeliest pieces
_PUNCTUATION = ".,;:!?\"'()[]«»„“”…"

# What a page draws of each sub-layer. The rest follows from it by arithmetic that the page shows.
_OF_ATTENTION = ("query", "key", "value", "scores", "bias", "weights", "heads", "shares")
_OF_SUBLAYER = ("before", "input", "output", "sum", "result")
_OF_FEED_FORWARD = ("inner", "active")


@dataclass(frozen=True, slots=True)
class Neighbours:
    """A piece, and the pieces whose embeddings point in the most similar direction, with the cosine of the angle."""

    piece: str
    nearest: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Reordered:
    """The words of the sentence in another order, and what the model makes of them."""

    text: str
    made: Counterfactual


@dataclass(frozen=True, kw_only=True)
class Explained:
    """What every page shows: the text, and the output of a model of any kind."""

    noun: ClassVar[str] = "translation"  # what the model writes
    whole: ClassVar[str] = "translation"  # what its decoder reads at once in training

    model_name: str
    config: ModelConfig
    search: SearchConfig
    text: str
    given: str  # what the model wrote, or somebody else
    steps: Mapping[str, np.ndarray]
    source: Tokenizer
    target: Tokenizer
    neighbours: tuple[Neighbours, ...]
    baseline: Counterfactual  # what the model writes with all its parts, by the search of the experiments
    requested: bool  # whether somebody else wrote the text
    without: Mapping[str, Counterfactual]
    log_prob: float  # of what was written
    parameters: int
    roles: Mapping[str, str]  # what each head mostly does, by names such as encoder.1.2; empty if never measured

    @property
    def source_pieces(self) -> tuple[str, ...]:
        """The pieces that the encoder reads."""
        return tuple(self.source.pieces(self.steps["source"].tolist()))

    @property
    def target_pieces(self) -> tuple[str, ...]:
        """The piece that has to come at each position of the decoder."""
        return tuple(self.target.pieces(self.steps["target"].tolist()))

    @property
    def input_pieces(self) -> tuple[str, ...]:
        """The pieces that the decoder reads: those that it writes, one place later."""
        return (START_PIECE, *self.target_pieces[:-1])

    @property
    def first_written(self) -> int:
        """The position of the first piece that was written; those before it belong to a prompt."""
        return 0

    @property
    def scale(self) -> float:
        """What an embedding is multiplied by."""
        row, scaled = self.steps[f"{self.first_stack}.embedding"], self.steps[f"{self.first_stack}.scaled"]
        return float(np.abs(scaled).sum() / max(1e-9, float(np.abs(row).sum())))

    @property
    def are_characters(self) -> bool:
        """Whether the pieces are characters rather than parts of words."""
        return self.source.kind == "characters"

    @property
    def first_stack(self) -> str:
        """The stack that reads the text."""
        return "encoder" if "encoder.embedding" in self.steps else "decoder"

    @property
    def read_pieces(self) -> tuple[str, ...]:
        """The pieces that this stack reads."""
        return self.source_pieces if self.first_stack == "encoder" else self.input_pieces

    @property
    def baseline_text(self) -> str:
        """What the model writes with all its parts, with which each experiment is compared."""
        return self.spell(self.baseline)

    @property
    def writes_the_same(self) -> bool:
        """Whether that is the given text; another engine or somebody else may have written another."""
        return self.target.decode(self.baseline.tokens) == self.given

    def text_without(self, name: str) -> str:
        """What the model writes in an experiment."""
        return self.spell(self.without[name])

    def spell(self, made: Counterfactual) -> str:
        """The result of an experiment as text; an ellipsis stands for an end that never came."""
        return self.target.decode(made.tokens) + ("" if made.finished else " …")

    def role_of(self, name: str) -> str:
        """What a head mostly does, such as "previous token"; empty if that was never measured."""
        stack, layer, part, _, head = name.split(".")
        return self.roles.get(f"{'cross' if part == 'cross_attention' else stack}.{layer}.{head}", "")

    def cost_without(self, name: str) -> float:
        """How much less likely the given text is without a part, as a difference of log-probabilities."""
        return self.log_prob - self.without[name].log_prob

    def ranked_heads(self, prefix: str = "") -> list[str]:
        """The names of the heads whose names begin so, those first whose loss costs this text most."""
        heads = [name for name in self.without if ".head." in name and name.startswith(prefix)]
        return sorted(heads, key=lambda name: self.without[name].log_prob)


@dataclass(frozen=True, kw_only=True)
class ExplainedLayers(Explained):
    """What the page also tells of a model that is made of the layers of figure 1."""

    training: TrainingStep
    layers: Mapping[str, int]  # of each stack, those first that the others look at
    unmasked: tuple[float, ...]  # log-probability of each written piece without the decoder's mask
    norms: Mapping[str, np.ndarray]  # gain and shift of each norm
    costs: tuple[PartCost, ...]
    lengths: tuple[LengthCost, ...]
    reach: Reach
    similarity: Similarity
    gains: Gains
    alone: float  # the difference between the feed-forward network on all pieces and on each piece alone


@dataclass(frozen=True, kw_only=True)
class ExplainedSentence(ExplainedLayers):
    """Everything that the page tells about one sentence and its translation by the paper's Transformer."""

    tree: BeamTree
    order_blindness: float  # how far the encoder without positions tells the reversed sentence apart
    orders: Mapping[str, Reordered]  # "reversed", "shuffled", and "swapped" if two words can be


def explain_sentence(
    run: Path,
    translator: Translator,
    text: str,
    search: SearchConfig,
    translation: str | None = None,
    done: Callable[[int, int], None] = lambda number, count: None,
) -> ExplainedSentence:
    """Translate a sentence or take a given translation, record all steps, and run every experiment on it."""
    check_search(search)
    check_length("sentence", len(translator.encode([text])[0]))
    model = translator.model
    if not isinstance(model, Transformer):
        raise ConfigError(
            f"{run} holds a {type(model).__name__}, which is no Transformer; choose another, such as en-de"
        )
    look = translator.look(text, search=search, translation=translation)
    steps = look.steps
    source, target = steps["source"].tolist(), steps["target"].tolist()
    check_length("translation", len(target))
    tokenizers = translator.tokenizers
    eos = tokenizers.target.eos_id
    runner = CounterfactualRunner(model, source, target, search_by(model, search, eos))
    baseline = runner.run()
    without = runner.run_all(list_changes(model), done)
    without["greedy"] = runner.run(write=search_by(model, replace(search, beam=1), eos))
    without["no-penalty"] = runner.run(write=search_by(model, replace(search, alpha=0.0), eos))
    orders = reorder(text, translator, steps)
    log_probs = steps["log_probs"][np.arange(len(target)), target]
    return ExplainedSentence(
        model_name=run.resolve().name,
        config=model.config,
        search=search,
        text=look.translation.source,
        given=look.translation.text,
        steps=steps,
        tree=look.tree,
        source=tokenizers.source,
        target=tokenizers.target,
        neighbours=find_neighbours(model.source_embedding.weight, list(dict.fromkeys(source[:-1])), tokenizers.source),
        baseline=baseline,
        requested=translation is not None,
        without=without,
        log_prob=float(log_probs.sum()),
        layers={stack.name: len(stack.layers) for stack in stacks(model)},
        unmasked=tuple(runner.run_without_mask()),
        order_blindness=compare_without_positions(model, source),
        norms=collect_norms(model),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        orders={name: Reordered(words, runner.run(translator.encode([words])[0])) for name, words in orders.items()},
        training=take_training_step(model, source, target, read_train_config(run)),
        costs=tuple(count_costs(model, len(source), len(target))),
        lengths=tuple(count_lengths(model.config, len(model.output_weight))),
        reach=measure_reach(model, source, tokenizers.source),
        similarity=measure_similarity(model, tokenizers.source),
        gains=measure_gains(model, steps["encoder.1.feed_forward.before"][0]),
        alone=compare_alone_and_together(model, steps["encoder.1.feed_forward.input"]),
        roles=name_roles(run),
    )


def check_search(search: SearchConfig) -> None:
    """Refuse a search that has no tree."""
    if search.method != "beam" or search.groups > 1:
        raise ConfigError(
            f"explain draws a plain beam search, but search.method is '{search.method}' and search.groups is "
            f"{search.groups}; set search.method=beam and search.groups=1"
        )


def read_train_config(run: Path) -> TrainConfig:
    """How the model was trained; the paper's way if its folder does not tell."""
    return RunFolder(run).experiment().train if (run / "experiment.toml").exists() else TrainConfig()


def name_roles(run: Path) -> dict[str, str]:
    """What each head mostly does, if that was measured."""
    return {head: role["name"] for head, role in read_roles(run).items()}


def reorder(text: str, translator: Translator, steps: Mapping[str, np.ndarray]) -> dict[str, str]:
    """The same words in other orders."""
    words = text.split()
    shuffled = list(words)
    random.Random(1).shuffle(shuffled)
    orders = {"reversed": " ".join(reversed(words)), "shuffled": " ".join(shuffled)}
    if pair := _find_alike(words, translator, steps):
        first, second = pair
        changed = list(words)
        changed[first], changed[second] = _exchange(words[first], words[second])
        orders["swapped"] = " ".join(changed)
    return orders


def _find_alike(words: list[str], translator: Translator, steps: Mapping[str, np.ndarray]) -> tuple[int, int] | None:
    """The two words of one piece that are most alike, so that the sentence stays one after they change places."""
    pieces = translator.tokenizers.source.pieces(steps["source"].tolist())
    rows = steps["encoder.embedding"]
    places = {
        place: pieces.index(f"▁{bare}")
        for place, word in enumerate(words)
        if len(bare := word.strip(_PUNCTUATION)) > 3 and f"▁{bare}" in pieces
    }
    pairs = [(a, b) for a in places for b in places if a < b and places[a] != places[b]]

    def cosine(pair: tuple[int, int]) -> float:
        x, y = (rows[places[place]] for place in pair)
        return float(x @ y / max(1e-9, np.linalg.norm(x) * np.linalg.norm(y)))

    return max(pairs, key=cosine, default=None)


def _exchange(first: str, second: str) -> tuple[str, str]:
    """Two words in each other's place; punctuation around them stays where it was."""
    one, two = first.strip(_PUNCTUATION), second.strip(_PUNCTUATION)
    return first.replace(one, two), second.replace(two, one)


def check_length(what: str, pieces: int) -> None:
    """Refuse more pieces than a matrix can have that is read."""
    if pieces > MAX_EXPLAINED_PIECES:
        most = MAX_EXPLAINED_PIECES
        raise DataError(f"the {what} has {pieces} pieces, over the {most} that can be explained; give a shorter one")


def find_neighbours(embedding: Tensor, ids: Sequence[int], tokenizer: Tokenizer) -> tuple[Neighbours, ...]:
    """The neighbours of each of these pieces."""
    weight = embedding.detach().float().cpu().numpy()
    normal = weight / np.maximum(np.linalg.norm(weight, axis=1, keepdims=True), 1e-9)
    found = []
    for number in ids:
        cosines = normal @ normal[number]
        cosines[number] = -np.inf
        nearest = np.argsort(-cosines)[:_NEIGHBOURS].tolist()
        pieces = tokenizer.pieces([each for each in nearest if each < tokenizer.vocabulary_size])
        shown = tuple(zip(pieces, (float(cosines[each]) for each in nearest), strict=False))
        found.append(Neighbours(tokenizer.pieces([number])[0], shown))
    return tuple(found)


def collect_norms(model: LayeredModel) -> dict[str, np.ndarray]:
    """Gain and shift of each norm by the name of its sub-layer."""
    norms = {}
    for stack in stacks(model):
        for number, layer in enumerate(stack.layers, 1):
            for part, _, residual in sublayers(layer):
                name = f"{stack.name}.{number}.{part}"
                norms[f"{name}.gain"] = residual.norm.weight.detach().float().cpu().numpy()[None]
                norms[f"{name}.shift"] = residual.norm.bias.detach().float().cpu().numpy()[None]
    return norms


def make_document(found: Explained, extra: Mapping[str, np.ndarray]) -> dict[str, object]:
    """The numbers of the page; `extra` are matrices beside the steps."""
    config, steps = found.config, found.steps
    return {
        "format": 1,
        "model": found.model_name,
        "source": {"text": found.text, "pieces": list(found.source_pieces)},
        "target": {"text": found.given, "pieces": list(found.target_pieces)},
        "inputs": list(found.input_pieces),
        "first_written": found.first_written,
        "norm": config.norm,
        "activation": config.activation,
        "scale": found.scale,
        "columns": {"d_model": config.d_model, "d_ff": config.d_ff},
        "likeliest": _likeliest(steps["log_probs"], steps["logits"], found.target, _RANKS),
        "matrices": _pack_matrices(found, extra),
    }


def measure_layers(found: ExplainedLayers) -> dict[str, np.ndarray]:
    """The matrices that the page draws beside the steps."""
    return {**found.norms, **_measure_rows(found)}


def make_plain_document(found: Explained) -> dict[str, object]:
    """The results of the experiments for other programs; the arrays are in Python's `Look.steps`."""
    return {
        "text": found.given,
        "source_pieces": list(found.source_pieces),
        "pieces": list(found.target_pieces),
        "log_prob": found.log_prob,
        "steps": {name: list(array.shape) for name, array in found.steps.items()},
        "baseline": found.baseline_text,
        "without": {
            name: {"text": found.text_without(name), "log_prob": one.log_prob} for name, one in found.without.items()
        },
    } | _describe_layers(found)


def _describe_layers(found: Explained) -> dict[str, object]:
    described: dict[str, object] = {}
    if isinstance(found, ExplainedLayers):
        described |= {
            "training": {
                "loss": list(found.training.plain),
                "smoothed_loss": list(found.training.smoothed),
                "gradients": dict(found.training.gradients),
                "learning_rate": found.training.rate,
                "loss_after": {f"{factor:g}": loss for factor, loss in found.training.after.items()},
            },
        }
        described["costs"] = {
            one.name: {"weights": one.weights, "operations": one.operations, "bytes": one.weight_bytes}
            for one in found.costs
        }
    if isinstance(found, ExplainedSentence):
        orders = found.orders.items()
        described["orders"] = {name: {"source": one.text, "text": found.spell(one.made)} for name, one in orders}
        described["greedy"] = found.target.decode(found.tree.greedy.tokens)
    return described


def _likeliest(
    log_probs: np.ndarray, logits: np.ndarray | None, target: Tokenizer, ranks: int
) -> list[list[dict[str, object]]]:
    """The likeliest pieces at each position."""
    rows = []
    for place, row in enumerate(log_probs):
        best = np.argsort(-row)[:ranks].tolist()
        each: list[dict[str, object]] = []
        for number, piece in zip(best, visible(target.pieces(best)), strict=True):
            entry: dict[str, object] = {"piece": piece, "probability": round(float(np.exp(row[number])), 6)}
            if logits is not None:
                entry["logit"] = round(float(logits[place, number]), 4)
            each.append(entry)
        rows.append(each)
    return rows


def _pack_matrices(found: Explained, extra: Mapping[str, np.ndarray]) -> dict[str, object]:
    """The recorded matrices in 16 bits per number; wide ones are cut as far as the file has to be smaller."""
    steps = {name: array for name, array in found.steps.items() if _is_drawn(name)}
    steps |= extra
    for columns in (10**6, 256, 128, 64, 32, 16):
        size = sum(_cut(name, array, columns).size for name, array in steps.items()) * 2 * 4 / 3
        if size <= MAX_DATA:
            return {name: _pack(_cut(name, array, columns)) for name, array in steps.items()}
    raise DataError(
        f"the numbers of this sentence take {size / 1e6:.0f} MB, over the {MAX_DATA / 1e6:.1f} MB that a page holds; "
        "give a shorter sentence or a smaller model"
    )


def _measure_rows(found: ExplainedLayers) -> dict[str, np.ndarray]:
    """For each position: mean and spread before and after the norm, and the cosine between x and the result."""
    rows = {}
    for name in (step.removesuffix(".sum") for step in found.steps if step.endswith(".sum")):
        of = {part: found.steps[f"{name}.{part}"] for part in _OF_SUBLAYER}
        before, after = (of["before"], of["input"]) if found.config.norm == "pre" else (of["sum"], of["result"])
        lengths = np.linalg.norm(of["before"], axis=1) * np.linalg.norm(of["result"], axis=1)
        cosine = (of["before"] * of["result"]).sum(1) / np.maximum(lengths, 1e-9)
        measured = [before.mean(1), before.std(1), after.mean(1), after.std(1), cosine]
        rows[f"{name}.rows"] = np.stack(measured, axis=1)
    return rows


def _is_drawn(name: str) -> bool:
    match name.split("."):
        case [_, "embedding" | "positions" | "input" | "output"]:
            return True
        case [_, _, "feed_forward", part]:
            return part in (*_OF_SUBLAYER, *_OF_FEED_FORWARD)
        case [_, _, _, part]:
            return part in (*_OF_SUBLAYER, *_OF_ATTENTION, "mask")
    return False


def _cut(name: str, array: np.ndarray, columns: int) -> np.ndarray:
    """Fewer columns of vectors; pairs of pieces, and what their scores are made of, stay whole."""
    if array.ndim == 3 or name.endswith((".mask", ".shares", ".gain", ".shift", ".rows")):
        return array
    return array[..., :columns]


def _pack(array: np.ndarray) -> dict[str, object]:
    values = np.asarray(array, np.float64)
    scale = float(np.abs(values).max()) / _LEVELS or 1.0
    packed = np.rint(values / scale).astype("<i2")
    return {"shape": list(array.shape), "scale": scale, "data": base64.b64encode(packed.tobytes()).decode()}
