"""Training speed of the Transformer's descendants: heedful's loop, and loops that people use, in alternating rounds.

    .venv/bin/python bench/family.py --shape nano --seconds 10

GPT runs against a loop of nanoGPT's shape and against the same loop around Hugging Face's GPT-2, both in float32, as
they run on a CPU. All have the same sizes, windows, optimizer and clipping. heedful chooses the type of its products
itself, as `heedful train` does, and runs in float32 besides. Only the ratios are meaningful; see
docs/how-to/benchmarks.md.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from family_gpt import GPT_SHAPES
from race import Contender, Result, python, race

NAMES = {
    "heedful": "heedful",
    "float32": "heedful in float32",
    "nanoGPT": "nanoGPT's loop",
    "transformers": "Hugging Face GPT-2",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare training speeds of GPT.")
    parser.add_argument("--shape", choices=tuple(GPT_SHAPES), default="nano")
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds per contender in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="1: processor time is measured; more: time")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        contenders = make_contenders(Path(folder), options.shape, options.threads)
        results, failed = race(contenders, Path(folder), options.seconds, options.rounds)
    if NAMES["heedful"] in failed:
        raise SystemExit(failed[NAMES["heedful"]])
    facts = {"shape": options.shape, "threads": options.threads, **summarise(results), "skipped": failed}
    print(json.dumps(facts) if options.json else table(facts))


def make_contenders(folder: Path, shape: str, threads: int) -> list[Contender]:
    """All contenders, each in its own process."""
    return [
        Contender(
            name, "heedful" if "heedful" in name else "shipped", python("family_gpt.py", folder, shape, threads, key)
        )
        for key, name in NAMES.items()
    ]


def summarise(results: Sequence[Result]) -> dict[str, Any]:
    """Speeds, and heedful's as a multiple of each of the others', round by round and on average."""
    racers = {result.contender.name: result for result in results}
    ours = racers.pop(NAMES["heedful"])
    return {
        "tokens_per_second": {name: round(racer.speed) for name, racer in {NAMES["heedful"]: ours, **racers}.items()},
        "ratio": {name: round(ours.speed / racer.speed, 2) for name, racer in racers.items()},
        "rounds": {
            name: [round(own.speed / lap.speed, 2) for own, lap in zip(ours.laps, racer.laps, strict=True)]
            for name, racer in racers.items()
        },
    }


def table(facts: dict[str, Any]) -> str:
    """The summary as text."""
    rows = [f"{'':24} tokens/s   ours is   in each round"]
    for name, speed in facts["tokens_per_second"].items():
        ratio = f"{facts['ratio'][name]:.2f} x" if name in facts["ratio"] else ""
        rows.append(f"{name:24} {speed:8,} {ratio:>9}   {', '.join(map(str, facts['rounds'].get(name, [])))}".rstrip())
    return "\n".join([*rows, *(f"skipped: {reason}" for reason in facts["skipped"].values())])


if __name__ == "__main__":
    main()
