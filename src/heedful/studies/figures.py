"""The paper's figures, and figures of masks, positions, the schedule, label smoothing and heads."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heedful.attention.head_names import Head, all_heads
from heedful.attention.record import force_decode, record_attention
from heedful.config import ModelConfig, TrainConfig
from heedful.data.batch import pack
from heedful.data.pairs import Pair
from heedful.device import use_threads
from heedful.errors import ConfigError
from heedful.inspection.attention_view import AttentionViewer
from heedful.inspection.drawing import draw_attention
from heedful.inspection.paper_figures import FigureLinks, find_figures
from heedful.models.transformer import Transformer
from heedful.nn.layout import Layout
from heedful.nn.loss import smoothed_loss
from heedful.nn.masks import causal_mask, key_mask, window_mask
from heedful.nn.multi_head import Kind
from heedful.nn.positions import SinusoidalPositions
from heedful.storage.run_folder import RunFolder
from heedful.studies.charts import HeatMap, Series, can_draw, heat_maps, lines
from heedful.studies.row_training import train_row
from heedful.studies.rows import TableRow, load_experiment
from heedful.studies.study import StudyPlan, StudyResult, Table
from heedful.studies.synthetic import comes_from, pairs, write_corpus
from heedful.training.schedule import learning_rate
from heedful.translation.result import Look
from heedful.translation.translator import Translator

_SIZES, _CLAUSES = (8000, 100, 100), (1,)  # short sentences, which a tiny model learns in seconds
_TEST_SEED = 2  # of the test set of `write_corpus`
_STRONGEST = 3  # heads listed for each link of the paper

Shown = tuple[Table, dict[str, bytes]]


def show_heads(plan: StudyPlan) -> Shown:
    """Show the heads of the recipe's model on the paper's sentences; at smoke scale, those of a tiny model."""
    if plan.scale == "smoke":
        return show_small_language(plan)
    experiment = load_experiment("figures", plan, {}, "recipes/multi30k-en-de.toml")
    if (language := experiment.data.source_language) not in ("", "en"):
        raise ConfigError(
            f"the sentences of figures 3 to 5 are English, but the recipe translates from '{language}'; "
            "swap its sources and targets"
        )
    return show_paper_sentences(_lens(train_row(TableRow("heads", experiment), plan)))


def show_paper_sentences(lens: AttentionViewer) -> Shown:
    """Show which heads make the links of the paper's figures 3 to 5."""
    found = list(find_figures(lens))
    table = Table(
        "Heads of figures 3 to 5",
        ("figure", "from", "to", "head", "share %", "by chance %"),
        tuple(row for one in found for row in _links(one)),
        (f"To see them on pages, type: heedful heads {lens.run} --paper FOLDER",),
    )
    return table, {f"{one.figure.name}.svg": _drawn(one.look) for one in found} if can_draw() else {}


def _links(found: FigureLinks) -> Iterator[tuple[str, str, str, str, float, float]]:
    link = found.figure.name, found.figure.query, " ".join(found.figure.keys)
    for one in found.links[:_STRONGEST]:
        yield *link, str(one.head), 100 * one.share, 100 * found.chance


def show_small_language(plan: StudyPlan) -> Shown:
    """Show all heads on one sentence, and how much each cross head attends to the word being translated."""
    write_corpus(plan.folder / "data", _SIZES, _CLAUSES)
    experiment = load_experiment("figures", plan, _small_recipe(plan), "")
    lens = _lens(train_row(TableRow("heads", experiment), plan))
    held_out = pairs(_SIZES[2], _TEST_SEED, _CLAUSES)
    found = lens.translator.translate([pair.source for pair in held_out], split_sentences=False)
    right = [made.text == pair.target for made, pair in zip(found, held_out, strict=True)]
    shares, chance = measure_right_words(lens.translator, held_out)
    table = Table(
        "Cross heads of a tiny Transformer",
        ("head", "on the right word %", "by chance %"),
        tuple((str(head), 100 * share, 100 * chance) for head, share in shares.items()),
        (
            f"The share of each head's weight on the source word that is translated next, over {len(held_out)} "
            "sentences of the small language that were not in training. "
            f"{sum(right)} of them are translated perfectly.",
            "Figures 3 to 5 show English sentences. To draw them, train a model from English and type: "
            "heedful heads RUN --paper FOLDER",
        ),
    )
    longest = max(held_out, key=lambda pair: len(pair.source.split()))
    return table, {"heads.svg": _drawn(lens.look(longest.source))} if can_draw() else {}


def measure_right_words(translator: Translator, held_out: list[Pair]) -> tuple[dict[Head, float], float]:
    """Measure the mean weight of each cross head on the correct source word, and that of uniform attention."""
    source, target = (
        [tokenizer.encode(text) for text in texts]
        for tokenizer, texts in (
            (translator.tokenizers.source, [pair.source for pair in held_out]),
            (translator.tokenizers.target, [pair.target for pair in held_out]),
        )
    )
    heads = [head for head in all_heads(translator.model) if head.kind == "cross"]
    weights: dict[Head, list[float]] = {head: [] for head in heads}
    even: list[float] = []
    for pair, inside, ids in zip(held_out, force_decode(translator.model, source, target), source, strict=True):
        english = pair.source.split()
        for row, word in enumerate(pair.target.split()):
            keys = [place for place, one in enumerate(english) if comes_from(word, one)]
            if not keys:
                continue
            even.append(len(keys) / len(ids))
            for head in heads:
                weights[head].append(float(inside.attention[head][row, keys].sum()))
    return {head: fmean(values) for head, values in weights.items()}, fmean(even)


def _small_recipe(plan: StudyPlan) -> dict[str, Any]:
    return {
        "model": {
            "preset": "modern",
            "d_model": 64,
            "d_ff": 128,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "dropout": 0.0,
        },
        "text": {"kind": "words", "vocabulary_size": 600},
        "data": {
            "folder": str(plan.folder / "data"),
            "source": ["train.en"],
            "target": ["train.xx"],
            "valid_source": ["valid.en"],
            "valid_target": ["valid.xx"],
        },
        "train": {
            "max_steps": 300,
            "threads": 1,
            "batch_tokens": 1000,
            "warmup_steps": 50,
            "validate_every": 300,
            "save_every": 300,
            "validate_bleu": False,
            "ema_decay": 0.0,
        },
    }


def _lens(run: RunFolder) -> AttentionViewer:
    use_threads(run.experiment().train.threads)
    translator = Translator.load(run.path)
    return AttentionViewer(run.path, translator, translator.search)


def _drawn(look: Look) -> bytes:
    translation = look.translation
    return draw_attention(look.inside[0].attention, translation.source_pieces, translation.pieces, "svg")


_LENGTHS, _WINDOW = (7, 5, 3), 2  # lengths of the sentences whose masks are shown
_POSITIONS, _DISTANCES = 200, (0, 1, 2, 5, 10, 20, 50, 100)
_SCHEDULES = ((512, 4000), (512, 8000), (256, 4000), (1024, 4000))  # d_model and warm-up
_STEPS = (1, *range(100, 40_001, 100))
_SMOOTHINGS = (0.0, 0.1, 0.2)
_VOCABULARY = 37_000  # the paper's


@dataclass(frozen=True, slots=True)
class FigureTable:
    """A table of figures to check, and pictures that are drawn only if matplotlib is installed."""

    table: Table
    pictures: Mapping[str, Callable[[], bytes]]


def draw_figures(plan: StudyPlan) -> StudyResult:
    """Draw all figures with heedful's own code. Only the heads need a training."""
    use_threads(1)  # more threads would only slow down such small products
    parts = [show_masks(), show_positions(), show_schedules(), show_smoothings()]
    table, attention = show_heads(plan)
    pictures = {name: draw() for part in parts for name, draw in part.pictures.items()} if can_draw() else {}
    return StudyResult("The paper's figures", (*(part.table for part in parts), table), {**pictures, **attention})


def show_masks() -> FigureTable:
    """Show the masks of section 3.2.3 and the window of section 4, and check them on an untrained model."""
    layout, here = Layout.of(torch.tensor(_LENGTHS)), torch.device("cpu")
    longest = layout.longest
    padding = key_mask(layout.mask)[:, 0].expand(-1, longest, -1)
    shared: dict[str, tuple[Kind, int, Bool[Tensor, "query key"]]] = {
        "look-ahead, decoder": ("decoder", 0, causal_mask(longest, here)),
        f"window of {_WINDOW}, encoder": ("encoder", _WINDOW, window_mask(longest, _WINDOW, False, here)),
        f"window of {_WINDOW}, decoder": ("decoder", _WINDOW, window_mask(longest, _WINDOW, True, here)),
    }
    rows = [("padding, encoder", *_seen("encoder", 0, padding))]
    rows += [(name, *_seen(kind, window, mask & padding)) for name, (kind, window, mask) in shared.items()]
    maps = [
        HeatMap(f"padding, a sentence of {length}", "key", "query", mask.numpy())
        for length, mask in zip(_LENGTHS, padding, strict=True)
    ]
    maps += [HeatMap(name, "key", "query", mask.numpy()) for name, (_, _, mask) in shared.items()]
    table = Table(
        "Masks",
        ("mask", "allowed pairs", "of", "largest weight elsewhere"),
        tuple(rows),
        (
            f"Counted over sentences of {', '.join(map(str, _LENGTHS))} words in one batch. "
            "The last column is for an untrained Transformer: softmax gives exactly 0 to masked positions.",
        ),
    )
    return FigureTable(table, {"masks.svg": lambda: heat_maps("Keys that a query may attend to (dark)", maps, 3)})


def _seen(kind: Kind, window: int, mask: Bool[Tensor, "batch query key"]) -> tuple[int, int, float]:
    """Count the allowed pairs and all pairs, and find the largest weight outside the mask."""
    config = ModelConfig(d_model=16, d_ff=32, num_heads=2, encoder_layers=1, decoder_layers=1, window=window)
    model = Transformer(config, 10, 10, 0).eval()
    ids, lengths = pack([[1] * length for length in _LENGTHS])
    with torch.inference_mode(), record_attention(model) as record:
        model.decode(ids, lengths, model.encode(ids, lengths))
    queries = Layout.of(lengths).mask[:, :, None]  # rows after the end of a sentence do not count
    weights = record.weights(kind, 0).amax(1).where(queries & ~mask, 0.0)
    return int((mask & queries).sum()), int(queries.sum()) * mask.shape[-1], float(weights.max())


def show_positions() -> FigureTable:
    """Show that the dot product of two positions (section 3.5) depends on their distance alone."""
    d_model = ModelConfig().d_model
    table = SinusoidalPositions(d_model)(torch.arange(_POSITIONS), _POSITIONS).numpy()
    products = table.astype(np.float64) @ table.T.astype(np.float64)
    frequencies = 10_000.0 ** (-np.arange(0, d_model, 2) / d_model)
    rows = []
    for distance in _DISTANCES:
        same = np.diagonal(products, distance)
        formula = float(np.cos(distance * frequencies).sum())
        rows.append((distance, float(same.mean()), formula, float(np.abs(same - formula).max())))
    maps = [
        HeatMap("sine: even dimensions", "dimension / 2", "position", table[:, 0::2]),
        HeatMap("cosine: odd dimensions", "dimension / 2", "position", table[:, 1::2]),
        HeatMap("dot products", "position", "position", products),
    ]
    return FigureTable(
        Table(
            "Positional encoding",
            ("distance", "dot product", "sum of cosines", "largest deviation"),
            tuple(rows),
            (
                f"d_model = {d_model}, all pairs of the first {_POSITIONS} positions. "
                f"Over all distances the deviation is at most {_deviation(products):.1e}: rounding of 32-bit numbers.",
            ),
        ),
        {"positions.svg": lambda: heat_maps("Sinusoidal positions", maps, 3)},
    )


def _deviation(products: Float[np.ndarray, "position position"]) -> float:
    """The largest difference between dot products at the same distance."""
    return max(float(np.ptp(np.diagonal(products, distance))) for distance in range(len(products)))


def show_schedules() -> FigureTable:
    """Show the learning rate of equation 3."""
    rows, curves = [], []
    for d_model, warmup in _SCHEDULES:
        config = TrainConfig(warmup_steps=warmup)
        rates = [learning_rate(step, d_model, config) for step in _STEPS]
        peak = max(rates)
        rows.append((d_model, warmup, _STEPS[rates.index(peak)], peak, d_model**-0.5 * warmup**-0.5))
        curves.append(Series(f"{d_model}, {warmup}", _STEPS, rates))
    return FigureTable(
        Table(
            "Learning rate",
            ("d_model", "warm-up", "step of the peak", "peak", "(d_model x warm-up)^-0.5"),
            tuple(rows),
            ("Computed at every hundredth step.",),
        ),
        {"schedule.svg": lambda: lines("Learning rate by d_model, warm-up", "step", "learning rate", curves)},
    )


def show_smoothings() -> FigureTable:
    """Show label smoothing (section 5.4): the targets, and the loss by the probability of the right piece."""
    shares = [step / 200 for step in range(1, 200)]
    rows, curves = [], []
    for smoothing in _SMOOTHINGS:
        losses = [_loss(share, smoothing) for share in shares]
        least = min(losses)
        rows.append((f"{smoothing:g}", *_targets(smoothing), f"{shares[losses.index(least)]:g}", least, losses[-1]))
        curves.append(Series(f"smoothing {smoothing:g}", shares, losses))
    return FigureTable(
        Table(
            "Label smoothing",
            ("smoothing", "right piece", "each other piece", "loss lowest at", "lowest loss", "loss at 0.995"),
            tuple(rows),
            (
                f"For {_VOCABULARY} pieces, if all wrong ones are equally likely. With smoothing, the loss is lowest "
                "if the right piece has probability 1 - smoothing, not 1. More confidence costs more, and the loss is "
                f"never 0. Computed up to a probability of {shares[-1]}; without smoothing, the loss falls all the way "
                "to 1.",
            ),
        ),
        {"smoothing.svg": lambda: lines("Label smoothing", "probability of the right piece", "loss", curves)},
    )


def _logits(share: float) -> tuple[Float[Tensor, "1 2"], Float[Tensor, "vocabulary 2"]]:
    """Features and an output layer that give the first piece this probability and share the rest equally.

    Two features are enough: the logit of the first piece and that of all others.
    """
    features = torch.tensor([[share, (1 - share) / (_VOCABULARY - 1)]], dtype=torch.float64).log()
    weight = torch.zeros(_VOCABULARY, 2, dtype=torch.float64)
    weight[0, 0] = 1.0
    weight[1:, 1] = 1.0
    return features, weight


def _loss(share: float, smoothing: float) -> float:
    with torch.no_grad():
        return float(smoothed_loss(*_logits(share), torch.tensor([0]), smoothing).smoothed)


def _targets(smoothing: float) -> tuple[float, float]:
    """The target probabilities of the right and of every other piece, from the gradient: softmax minus target."""
    share = 0.5
    features, weight = _logits(share)
    features.requires_grad_()
    with torch.enable_grad():
        smoothed_loss(features, weight, torch.tensor([0]), smoothing).smoothed.backward()
    right, others = (features.grad if features.grad is not None else features)[0].tolist()
    return share - right, round(1 - share - others, 12) / (_VOCABULARY - 1)  # rounding errors become 0
