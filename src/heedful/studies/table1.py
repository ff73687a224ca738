"""Measure Table 1: the cost of one layer of each kind as sentences grow longer and models wider."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from statistics import median
from typing import Literal, assert_never, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.device import choose_device
from heedful.models.convolutional import GatedConvolution
from heedful.models.flops import count_attention_pairs
from heedful.models.recurrent import RecurrentEncoderLayer
from heedful.nn.attention import SelfAttention, attend, attend_in_blocks
from heedful.nn.key_values import PackedKeyValues
from heedful.nn.layout import Layout
from heedful.nn.multi_head import join_heads
from heedful.process_memory import keep_freed_memory
from heedful.progress import Reporter
from heedful.studies.charts import Series, can_draw, lines
from heedful.studies.speed import one_thread, seconds
from heedful.studies.study import Cell, Scale, StudyPlan, StudyResult, Table
from heedful.tasks import make_experiment

Kind = Literal[
    "self-attention",
    "self-attention, whole layer",
    "recurrent",
    "convolutional",
    "restricted self-attention",
    "restricted self-attention, whole layer",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
_KERNEL = 3
_HEAD = 64  # d_k = d_v of the paper's base and big models: wider models have more heads

# Operations, exponents of n and d, and the longest path. The paper has no figures for whole layers.
_PAPER: dict[Kind, tuple[str, int, int, str]] = {
    "self-attention": ("n² · d", 2, 1, "1"),
    "recurrent": ("n · d²", 1, 2, "n"),
    "convolutional": ("k · n · d²", 1, 2, "log_k n"),
    "restricted self-attention": ("r · n · d", 1, 1, "n / r"),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes to measure: lengths at one width, and widths at one length."""

    lengths: tuple[int, ...]
    width: int
    widths: tuple[int, ...]
    length: int
    window: int  # positions to either side
    repeats: int


_SIZES: dict[Scale, Sizes] = {
    "smoke": Sizes((64, 128, 256, 512, 1024, 2048, 4096), 64, (64, 128, 256, 512, 1024), 256, window=16, repeats=5),
    "laptop": Sizes((64, 128, 256, 512, 1024, 2048, 4096), 256, (64, 128, 256, 512, 1024), 1024, window=32, repeats=9),
    "paper": Sizes((128, 256, 512, 1024, 2048, 4096, 8192), 512, (128, 256, 512, 1024, 2048), 1024, 64, repeats=9),
}


@dataclass(frozen=True, slots=True)
class Point:
    """The cost of one layer at one size."""

    kind: Kind
    n: int
    d: int
    seconds: float
    flops: int
    kept: int  # bytes of activations


@dataclass(frozen=True, slots=True)
class _Work:
    """One layer and one sentence to run it on."""

    layer: nn.Module
    run: Callable[[], Tensor]


def table1(plan: StudyPlan) -> StudyResult:
    """Measure time, operations, memory and sequential steps of each kind of layer, and fit their growth."""
    device = choose_device(make_experiment(plan.recipe or {}).train.device)
    return measured(_SIZES[plan.scale], device, plan.report)


def measured(sizes: Sizes, device: torch.device, report: Reporter) -> StudyResult:
    """Run the study at these sizes."""
    by_n = measure([(n, sizes.width) for n in sizes.lengths], sizes, device, "lengths", report)
    by_d = measure([(sizes.length, d) for d in sizes.widths], sizes, device, "widths", report)
    tables = (
        _exponents(by_n, by_d, sizes, device),
        _steps(sizes),
        _crossings(by_n, sizes),
        _costs(f"Against n, at d = {sizes.width}", by_n),
        _costs(f"Against d, at n = {sizes.length}", by_d),
    )
    return StudyResult("Table 1: the cost of one layer", tables, _pictures(by_n, by_d, sizes) if can_draw() else {})


def measure(
    shapes: Sequence[tuple[int, int]], sizes: Sizes, device: torch.device, what: str, report: Reporter
) -> list[Point]:
    """Measure every kind at these n and d. They take turns, so that other programs slow all of them down equally."""
    torch.manual_seed(1)
    works = {(kind, n, d): _work(kind, n, d, sizes.window, device) for n, d in shapes for kind in KINDS}
    took: dict[tuple[Kind, int, int], list[float]] = {key: [] for key in works}
    keep_freed_memory()
    with one_thread(device):
        for done in range(sizes.repeats + 1):
            for key, work in works.items():
                with torch.inference_mode():
                    took[key].append(seconds(work.run, device))
            report.progress(f"measuring {what}", done + 1, sizes.repeats + 1)
        return [
            Point(kind, n, d, median(rounds[1:]), layer_flops(kind, n, d, sizes.window), kept_bytes(works[kind, n, d]))
            for (kind, n, d), rounds in took.items()
        ]


def layer_flops(kind: Kind, n: int, d: int, window: int) -> int:
    """Count the operations of all matrix products; a multiply-add counts as two."""
    nearby = count_attention_pairs(np.array([n]), window)
    match kind:
        case "self-attention":
            return 2 * n * n * 2 * d
        case "self-attention, whole layer":
            return 2 * (n * n * 2 * d + n * 4 * d * d)
        case "recurrent":
            return 2 * n * 4 * 2 * d * d  # four gates, each from input and state
        case "convolutional":
            return 2 * n * _KERNEL * d * 2 * d  # half of the output is the gate
        case "restricted self-attention":
            return 2 * nearby * 2 * d
        case "restricted self-attention, whole layer":
            return 2 * (nearby * 2 * d + n * 4 * d * d)
        case _:
            assert_never(kind)


def kept_bytes(work: _Work) -> int:
    """Count the bytes kept for the backward pass, including the input and excluding the weights."""
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        work.run()
    weights = {p.untyped_storage().data_ptr() for p in work.layer.parameters()}
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in kept}
    return sum(size for place, size in storages.items() if place not in weights)


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Fit a power law to the larger half of the sizes, by least squares of the logarithms; return its exponent."""
    half = len(sizes) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(costs[half:]), 1)[0])


def crossing(sizes: Sequence[int], costs: Sequence[float], others: Sequence[float]) -> float | None:
    """Interpolate the size at which these costs overtake the others; None if they do not."""
    ratios = [math.log(cost / other) for cost, other in zip(costs, others, strict=True)]
    for (left, before), (right, after) in pairwise(zip(sizes, ratios, strict=True)):
        if before < 0.0 <= after:
            return left * (right / left) ** (before / (before - after))
    return None


def flops_crossing(kind: Kind, d: int, window: int) -> int:
    """The smallest n at which this kind needs as many operations as the recurrent layer."""
    return next(n for n in count(1) if layer_flops(kind, n, d, window) >= layer_flops("recurrent", n, d, window))


def _work(kind: Kind, n: int, d: int, window: int, device: torch.device) -> _Work:
    """Set up one layer and one sentence of n positions, as the models use it."""
    layout = Layout.of(torch.tensor([n], device=device))
    x = torch.randn(n, d, device=device, requires_grad=True)
    match kind:
        case "self-attention" | "self-attention, whole layer":
            attention = _attention(d, 0).to(device)
            if kind == "self-attention, whole layer":
                return _Work(attention, lambda: attention(x, layout, causal=False))
            q, k, v = _grids(attention, x, layout)
            return _Work(attention, lambda: join_heads(_attend(q, k, v))[0])
        case "restricted self-attention" | "restricted self-attention, whole layer":
            nearby = _attention(d, window).to(device)
            if kind == "restricted self-attention, whole layer":
                return _Work(nearby, lambda: nearby(x, layout, causal=False))
            q, k, v = _grids(nearby, x, layout)
            return _Work(nearby, lambda: join_heads(attend_in_blocks(q, k, v, layout.mask, window, causal=False))[0])
        case "recurrent":
            reading = RecurrentEncoderLayer("lstm", d, d, bidirectional=False).to(device)
            return _Work(reading, lambda: reading(x, layout)[0])
        case "convolutional":
            convolution = GatedConvolution(d, _KERNEL, dropout=0.0).to(device)
            return _Work(convolution, lambda: convolution(x, layout, ahead=_KERNEL // 2))
        case _:
            assert_never(kind)


def _attention(d: int, window: int) -> SelfAttention:
    heads = max(1, d // _HEAD)
    return SelfAttention(d, heads, d // heads, d // heads, dropout=0.0, window=window)


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Equation 1 in the form that the models use on this device."""
    return F.scaled_dot_product_attention(q, k, v) if q.device.type == "cuda" else attend(q, k, v, None)[0]


def _grids(attention: SelfAttention, x: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the queries, keys and values of a sentence in advance."""
    key_values = PackedKeyValues(None, layout, layout, causal=False)
    grids = key_values.grids(attention.query_key_value(x), attention.head_sizes)
    q, k, v = (grid.detach().contiguous().requires_grad_() for grid in grids)
    return q, k, v


def _of(points: Sequence[Point], kind: Kind) -> list[Point]:
    return [point for point in points if point.kind == kind]


def _exponents(by_n: Sequence[Point], by_d: Sequence[Point], sizes: Sizes, device: torch.device) -> Table:
    def fitted(points: Sequence[Point], values: Sequence[int]) -> tuple[float, float, float]:
        costs = ([p.flops for p in points], [p.seconds for p in points], [p.kept for p in points])
        flops, time, kept = (exponent(values, cost) for cost in costs)
        return flops, time, kept

    rows: list[tuple[Cell, ...]] = []
    for kind in KINDS:
        paper, n, d, _ = _PAPER.get(kind, (None, None, None, None))
        of_n, of_d = fitted(_of(by_n, kind), sizes.lengths), fitted(_of(by_d, kind), sizes.widths)
        rows.append((kind, paper, n, *of_n, d, *of_d))
    columns = ("paper", "FLOPs", "time", "memory")
    clock = "processor time on one thread" if device.type == "cpu" else "time"
    notes = (
        f"Exponents of n at d = {sizes.width} and of d at n = {sizes.length}, fitted to the larger half of the sizes. "
        f"Time: {clock} of a forward pass over one sentence on {device.type}, the median of {sizes.repeats} rounds in "
        "which all layers take turns. Memory: activations kept for the backward pass.",
        "The paper's n² · d and r · n · d count the products of queries with keys and of weights with values, without "
        "the projections. So do the rows of that name here; whole layers add 4 projections, 8 · n · d² FLOPs.",
        f"Attention has heads of {_HEAD}, as many as fit into d. The recurrent layer is an LSTM. The convolution has "
        f"k = {_KERNEL} and a gated linear unit, which doubles the outputs. The window r reaches {sizes.window} "
        "positions to either side.",
    )
    return Table("Growth", ("layer", "paper", *(f"{x}: {c}" for x in "nd" for c in columns)), tuple(rows), notes)


def _steps(sizes: Sizes) -> Table:
    n = sizes.lengths[-1]
    paths = {
        "self-attention": 1,
        "recurrent": n,
        "convolutional": -(-(n - 1) // (_KERNEL // 2)),
        "restricted self-attention": -(-(n - 1) // sizes.window),
    }
    rows = tuple(
        (kind, "n" if kind == "recurrent" else "1", n if kind == "recurrent" else 1, path, paths[kind])
        for kind, (_, _, _, path) in _PAPER.items()
    )
    columns = ("layer", "sequential steps: paper", f"at n = {n}", "longest path: paper", f"path at n = {n}")
    notes = (
        "Path: the number of layers, or of recurrent steps, between the first and the last position. The paper's "
        f"log_k n, here {math.log(n, _KERNEL):.1f}, is for dilated convolutions. Ours are not dilated, like ConvS2S's: "
        "each layer reaches one position further on either side.",
    )
    return Table("Sequential steps, and the path between two positions", columns, rows, notes)


def _crossings(by_n: Sequence[Point], sizes: Sizes) -> Table:
    d = sizes.width
    recurrent = [point.seconds for point in _of(by_n, "recurrent")]
    kinds: tuple[Kind, ...] = ("self-attention", "self-attention, whole layer")
    rows = tuple(
        (
            kind,
            d,
            flops_crossing(kind, d, sizes.window),
            crossing(sizes.lengths, [point.seconds for point in _of(by_n, kind)], recurrent),
        )
        for kind in kinds
    )
    notes = (
        "The paper compares n² · d with n · d² without constants: they are equal at n = d. Counted exactly, the "
        "products of attention take 4 · n² · d FLOPs, and an LSTM, with four gates from input and state, takes "
        "16 · n · d²: equal at n = 4 d, or at n = 2 d with the projections. – means: not between the measured lengths.",
    )
    columns = ("layer", "paper, n = d", "by FLOPs, n", "by time, n")
    return Table(f"The length at which self-attention costs more than recurrence, d = {d}", columns, rows, notes)


def _costs(title: str, points: Sequence[Point]) -> Table:
    rows = tuple(
        (p.kind, p.n, p.d, p.seconds * 1e3, p.flops / 1e6, p.kept / 2**20, p.n if p.kind == "recurrent" else 1)
        for kind in KINDS
        for p in _of(points, kind)
    )
    return Table(title, ("layer", "n", "d", "ms", "MFLOPs", "MiB kept", "sequential steps"), rows)


def _pictures(by_n: Sequence[Point], by_d: Sequence[Point], sizes: Sizes) -> dict[str, bytes]:
    d, times = sizes.width, [point.seconds * 1e3 for point in by_n]
    against_n = [Series(kind, sizes.lengths, [p.seconds * 1e3 for p in _of(by_n, kind)]) for kind in KINDS]
    against_d = [Series(kind, sizes.widths, [p.seconds * 1e3 for p in _of(by_d, kind)]) for kind in KINDS]
    equal = flops_crossing("self-attention", d, sizes.window)
    borders = [
        Series(name, (n, n), (min(times), max(times)))
        for name, n in ((f"n = d = {d}", d), (f"n = {equal}: FLOPs as recurrent", equal))
    ]
    n_title, d_title = f"One layer, one sentence, d = {d}", f"One layer, one sentence, n = {sizes.length}"
    return {
        "time-n.svg": lines(n_title, "n", "milliseconds", [*against_n, *borders], log_x=True, log_y=True),
        "time-d.svg": lines(d_title, "d", "milliseconds", against_d, log_x=True, log_y=True),
    }
