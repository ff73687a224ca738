"""Training speed of heedful and other programs, side by side, with the same shapes, data, batches and options.

    .venv/bin/python bench/training_speed.py --shape tiny --seconds 20

Only the ratios are meaningful; see docs/how-to/benchmarks.md. Tokens are source and target tokens without padding.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from peers import command_peers
from race import TUNED, Contender, Result, python, race
from workload import SHAPES, Shape, make_sentences, training_flops

ROUNDS = 3
_TOO_BUSY = 0.05
_LOOPS = {"nn.Transformer": "nn.Transformer", "Hugging Face Marian": "Marian"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare training speeds.")
    parser.add_argument("--shape", choices=tuple(SHAPES), default="tiny")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds per contender in each of three rounds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        commands, absent = command_peers(Path(folder), SHAPES[options.shape], options.threads)
        contenders = [*own_contenders(Path(folder), options.threads), *commands]
        facts = measure(contenders, SHAPES[options.shape], Path(folder), options.seconds)
    facts = {"shape": options.shape, "threads": options.threads, **facts, "skipped": {**absent, **facts["skipped"]}}
    print(json.dumps(facts) if options.json else table(facts))


def measure(
    contenders: Sequence[Contender], shape: Shape, folder: Path, seconds: float, rounds: int = ROUNDS
) -> dict[str, Any]:
    """Measure all contenders; return the summary."""
    shape.write(folder / "shape.json")
    results, failed = race(contenders, folder, seconds, rounds)
    for needed in ("heedful", "matrix product"):
        if needed in failed:
            raise SystemExit(failed[needed])
    return {"seconds": seconds, **summary(results, shape), "skipped": failed}


def own_contenders(folder: Path, threads: int) -> list[Contender]:
    """heedful, the plain loops with and without a tuned allocator, and the machine itself."""
    plain = {name: python("training_pytorch.py", folder, threads, model) for name, model in _LOOPS.items()}
    return [
        Contender("heedful", "heedful", python("training_heedful.py", folder, threads)),
        *(Contender(name, "shipped", command) for name, command in plain.items()),
        *(Contender(f"{name}, tuned allocator", "tuned", command, TUNED) for name, command in plain.items()),
        Contender("matrix product", "machine", python("training_pytorch.py", folder, threads, "gemm")),
    ]


def summary(results: Sequence[Result], shape: Shape) -> dict[str, Any]:
    """Speeds, ratios, shares of the machine's peak, and memory."""
    machine = next(result for result in results if result.contender.kind == "machine")
    racers = {result.contender.name: result for result in results if result is not machine}
    ours = racers["heedful"]
    # The median round: the machine as it was most of the time.
    peak = statistics.median(lap.speed for lap in machine.laps)
    flops = flops_per_token(shape)
    ratios = {name: ours.speed / peer.speed for name, peer in racers.items() if peer is not ours}
    shipped, tuned = (
        {name: ratios[name] for name, peer in racers.items() if peer.contender.kind == kind}
        for kind in ("shipped", "tuned")
    )
    fastest, fastest_tuned = (min(some, key=lambda name: some[name], default=None) for some in (shipped, tuned))
    return {
        "tokens_per_second": {name: round(racer.speed, 1) for name, racer in racers.items()},
        "rounds": {name: [round(lap.speed, 1) for lap in racer.laps] for name, racer in racers.items()},
        "ratio": {name: round(ratio, 3) for name, ratio in ratios.items()},
        "fastest_peer": fastest,
        "ratio_to_fastest_peer": round(shipped[fastest], 3) if fastest else None,
        "fastest_tuned_peer": fastest_tuned,
        "ratio_to_fastest_tuned_peer": round(tuned[fastest_tuned], 3) if fastest_tuned else None,
        "gflop_per_token": flops / 1e9,
        "gemm_peak_gflops": round(peak / 1e9, 1),
        "gemm_rounds_gflops": [round(lap.speed / 1e9, 1) for lap in machine.laps],
        "share_of_gemm_peak": {name: round(racer.speed * flops / peak, 3) for name, racer in racers.items()},
        # Other programs slow down a contender whose threads spin more than one whose threads sleep.
        "busy_elsewhere": {name: round(statistics.fmean(racer.elsewhere), 3) for name, racer in racers.items()},
        "peak_megabytes": {name: round(racer.peak_bytes / 1e6) for name, racer in racers.items()},
    }


def flops_per_token(shape: Shape) -> float:
    """The mean number of operations of training per token of the text."""
    lengths = make_sentences(shape).lengths()
    return training_flops(shape, lengths) / sum(map(sum, lengths))


def table(facts: dict[str, Any]) -> str:
    """The summary as text."""
    rows = [f"{'':36} tokens/s   ours is   of peak   memory"]
    for name, speed in facts["tokens_per_second"].items():
        ratio = f"{facts['ratio'][name]:.2f} x" if name in facts["ratio"] else ""
        share, memory = facts["share_of_gemm_peak"][name], facts["peak_megabytes"][name]
        rows.append(f"{name:36} {speed:8,.0f} {ratio:>9} {share:9.0%} {memory:5,} MB")
    rows.append(f"large matrix products: {facts['gemm_peak_gflops']} GFLOP/s")
    elsewhere = max(facts["busy_elsewhere"].values())
    if elsewhere > _TOO_BUSY:
        rows.append(f"other programs took up to {elsewhere:.0%} of the machine; repeat this when it is idle")
    return "\n".join([*rows, *(f"skipped: {reason}" for reason in facts["skipped"].values())])


if __name__ == "__main__":
    main()
