"""The cost of the paper's two trainings: operations, hours and network traffic.

    .venv/bin/python scripts/plan.py

Everything is counted from the recipes. Only the constants below come from elsewhere; they describe machines, not the
model. `docs/paper-scale.md` contains the output.
"""

import math
from dataclasses import dataclass
from pathlib import Path

from heedful.config import Experiment, ModelConfig, load_recipe
from heedful.models.size import model_size
from heedful.tasks import make_experiment

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
NAMES = {"base": "paper-base-en-de", "big": "paper-big-en-de"}

GPUS = 8
PEAK = {"A100": 312e12, "H100": 989e12}  # FLOP/s in bfloat16, dense, as the manufacturer states them
SHARES = (0.15, 0.3, 0.4)  # shares of the peak that a training reaches
LINKS = {"NVLink, 300 GB/s": 300e9, "100 Gbit/s": 12.5e9, "25 Gbit/s": 3.125e9}  # bytes per second out of one GPU
SENTENCE = 28  # pieces of a sentence of WMT 2014, about
GRADIENT_BYTES = 4  # float32

# Table 2 and section 5.2; the paper took 9.5 TFLOP/s for a P100.
PAPER_FLOPS = {"base": 3.3e18, "big": 2.3e19}
PAPER_HOURS = {"base": 12.0, "big": 84.0}


@dataclass(frozen=True, slots=True)
class Cost:
    """FLOPs of the forward pass for one token of each side; a multiply-add is two."""

    source: float
    target: float


def forward_cost(config: ModelConfig, vocabulary: int, length: int) -> Cost:
    """Count every matrix product, with equal lengths on both sides. Norms, softmax and look-ups are left out."""
    d = config.d_model
    keys = config.num_heads * (config.d_k or d // config.num_heads)
    values = config.num_heads * (config.d_v or d // config.num_heads)
    attention = d * keys + values * d  # queries and output, on the side that attends
    memory = d * keys + d * values  # keys and values, on the side that is attended to
    pairs = length * (keys + values)  # scores and weighted sum of one query; the masked half is computed as well
    feed_forward = 2 * d * config.d_ff
    encoder, decoder = config.encoder_layers, config.decoder_layers
    source = encoder * (attention + memory + pairs + feed_forward) + decoder * memory
    target = decoder * (2 * attention + memory + 2 * pairs + feed_forward) + d * vocabulary
    return Cost(2.0 * source, 2.0 * target)


def step_flops(experiment: Experiment, length: int = SENTENCE) -> float:
    """The FLOPs of one update; the backward pass costs twice the forward pass."""
    cost = forward_cost(experiment.model, experiment.text.vocabulary_size, length)
    return 3.0 * experiment.train.batch_tokens * (cost.source + cost.target)


def parameters(experiment: Experiment) -> int:
    """The number of parameters."""
    vocabulary = experiment.text.vocabulary_size
    return model_size(experiment.model, vocabulary, vocabulary).total


def ring_bytes(values: int, gpus: int) -> float:
    """The bytes that each GPU sends when gradients are added up in a ring."""
    return 2.0 * (gpus - 1) / gpus * values * GRADIENT_BYTES


def break_even(flops: float, values: int, speed: float, bandwidth: float) -> float:
    """The number of GPUs at which adding up the gradients takes as long as computing them.

    flops / (n speed) = 2 (n - 1) / n x bytes / bandwidth, for the same batch on n GPUs.
    """
    return 1.0 + flops * bandwidth / (2.0 * values * GRADIENT_BYTES * speed)


def report() -> str:
    """All tables, in Markdown."""
    runs = {kind: make_experiment(load_recipe(RECIPES / f"{name}.toml")) for kind, name in NAMES.items()}
    return "\n\n".join((_work(runs), _hours(runs), _network(runs), _scaling(runs)))


def _work(runs: dict[str, Experiment]) -> str:
    rows = []
    for kind, run in runs.items():
        steps, tokens = run.train.max_steps, 2 * run.train.batch_tokens
        total = steps * step_flops(run)
        rows.append(
            f"| {kind} | {parameters(run):,} | {steps:,} | {tokens * steps:.2g} | {step_flops(run):.3g} | {total:.3g} "
            f"| {PAPER_FLOPS[kind]:.2g} | {total / (PAPER_HOURS[kind] * 3600 * GPUS * 9.5e12):.0%} |"
        )
    head = (
        "| model | parameters | updates | tokens | FLOPs an update | FLOPs in all | the paper's | of its GPUs' peak |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    return "\n".join([head, *rows])


def _hours(runs: dict[str, Experiment]) -> str:
    shares = " | ".join(f"{share:.0%} of peak" for share in SHARES)
    lines = [f"| model | {GPUS} GPUs | {shares} |", "|---|---|" + "---|" * len(SHARES)]
    for kind, run in runs.items():
        for gpu, peak in PEAK.items():
            total = run.train.max_steps * step_flops(run)
            hours = " | ".join(f"{total / (GPUS * peak * share) / 3600:.1f} h" for share in SHARES)
            lines.append(f"| {kind} | {gpu} | {hours} |")
    return "\n".join(lines)


def _network(runs: dict[str, Experiment]) -> str:
    lines = [f"| model | each of {GPUS} sends | {' | '.join(LINKS)} |", "|---|---|" + "---|" * len(LINKS)]
    for kind, run in runs.items():
        sent = ring_bytes(parameters(run), GPUS)
        times = " | ".join(f"{1000 * sent / bandwidth:.1f} ms" for bandwidth in LINKS.values())
        lines.append(f"| {kind} | {sent / 1e6:.0f} MB | {times} |")
    return "\n".join(lines)


def _scaling(runs: dict[str, Experiment]) -> str:
    lines = [
        f"| model | GPU | computing, on {GPUS} | {' | '.join(f'GPUs at most: {link}' for link in LINKS)} |",
        "|---|---|---|" + "---|" * len(LINKS),
    ]
    for kind, run in runs.items():
        for gpu, peak in PEAK.items():
            flops, speed = step_flops(run), peak * SHARES[1]
            counts = " | ".join(
                f"{math.floor(break_even(flops, parameters(run), speed, bandwidth)):,}" for bandwidth in LINKS.values()
            )
            lines.append(f"| {kind} | {gpu} | {1000 * flops / (GPUS * speed):.0f} ms | {counts} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
