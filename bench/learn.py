r"""How fast variants of a recipe learn: validation loss and score against processor time, over several seeds.

.venv/bin/python bench/learn.py recipes/multi30k-en-de.toml --out runs/learn --updates 2500 --seeds 3 \
    --set data.folder=PATH/TO/multi30k \
    --variant adam --variant muon train.optimizer=muon train.learning_rate=0.003

The first variant is the one that the others are compared with. Each training is a process with one thread; the variants
take turns, seed by seed. `--updates` gives all of them as many updates. `--seconds` gives them as much processor time:
each variant is timed first, and its schedule ends when the time does. The last column is how much less time a variant
needs to reach the loss with which the first one ends.

Interrupt it and run it again: finished trainings are not repeated.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
_TIMED_UPDATES = 30
_VALIDATIONS = 10  # of each training


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings on top of the recipe's."""

    name: str
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A validation: after so many updates and seconds of processor time, without the time that validations took."""

    step: int
    seconds: float
    loss: float
    score: float | None


Curve = Sequence[Point]


def parse_variants(words: Sequence[Sequence[str]]) -> list[Variant]:
    """The variants as given: a name and its settings each."""
    variants = [Variant(name, tuple(settings)) for name, *settings in words]
    if len({variant.name for variant in variants}) < len(variants):
        raise SystemExit("two variants have the same name")
    return variants


def train_one(recipe: str, folder: Path, settings: Sequence[str]) -> None:
    """Train in this process and write the curve beside the run folder, whole or not at all."""
    from heedful import train
    from heedful.config.recipe import merge, parse_setting
    from heedful.progress import SilentReporter
    from heedful.training.events import Event, StepDone, Validated

    curve: list[dict[str, Any]] = []
    trained, began = 0.0, 0.0

    def note(event: Event) -> None:
        nonlocal trained, began
        now = time.process_time()
        if isinstance(event, StepDone):
            trained += now - began if event.step > 1 else 0.0  # the first update compiles
        elif isinstance(event, Validated):
            point = {"step": event.step, "seconds": trained, "loss": event.loss, "score": event.score}
            curve.append(point)
        began = time.process_time()

    tables = merge(*map(parse_setting, settings))
    train(recipe, out=folder, settings=tables, reporter=SilentReporter(), on_event=note)
    finished = _result_of(folder)
    finished.with_suffix(".part").write_text(json.dumps(curve), encoding="utf-8")
    finished.with_suffix(".part").rename(finished)


def _result_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")


def train_in_process(recipe: str, folder: Path, settings: Sequence[str]) -> Curve:
    """The curve of a training in a process of its own; one that is finished is only read."""
    finished = _result_of(folder)
    if not finished.exists():
        shutil.rmtree(folder, ignore_errors=True)  # of a training that was interrupted
        command = [sys.executable, __file__, recipe, "--one", str(folder), "--set", *settings]
        subprocess.run(command, check=True, env=os.environ | ONE_THREAD)
    return [Point(**point) for point in json.loads(finished.read_text(encoding="utf-8"))]


def seconds_to(curve: Curve, loss: float) -> float:
    """The processor time until a curve reaches a loss, between two validations by the line through both."""
    before: Point | None = None
    for point in curve:
        if point.loss <= loss:
            if before is None:
                return point.seconds
            share = (before.loss - loss) / (before.loss - point.loss)
            return before.seconds + share * (point.seconds - before.seconds)
        before = point
    return math.inf


def describe(values: Sequence[float], digits: int) -> str:
    """Mean and, of several, the standard deviation."""
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}"


def summarise(name: str, curves: Sequence[Curve], first: Sequence[Curve]) -> str:
    """A row of the table; a variant is compared with the first one seed by seed."""
    ends = [curve[-1] for curve in curves]
    best = [min(point.loss for point in curve) for curve in curves]
    scores = [end.score for end in ends if end.score is not None]
    gains = [end[-1].seconds / seconds_to(curve, end[-1].loss) for curve, end in zip(curves, first, strict=True)]
    gain = describe(gains, 2) if all(gains) else "not reached"
    cells = [name, str(ends[0].step), describe([end.seconds for end in ends], 0), describe(best, 3)]
    return "| " + " | ".join([*cells, describe(scores, 2) if scores else "", gain]) + " |"


HEAD = """| variant | updates | seconds | lowest loss | score at the end | times faster |
|---|---|---|---|---|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings of all variants")
    parser.add_argument("--variant", nargs="+", action="append", default=[], metavar=("NAME", "KEY=VALUE"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--out", type=Path, default=Path("runs/learn"))
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)  # what each process is asked
    options = parser.parse_args()
    if options.one:
        train_one(options.recipe, options.one, options.set)
        return
    variants = parse_variants(options.variant)
    if not variants or bool(options.updates) == bool(options.seconds):
        parser.error("give at least one --variant, and either --updates or --seconds")
    options.out.mkdir(parents=True, exist_ok=True)

    def settings(variant: Variant, seed: int, updates: int) -> list[str]:
        every = max(1, updates // _VALIDATIONS)
        length = [f"train.max_steps={updates}", f"train.validate_every={every}", f"train.save_every={updates}"]
        return [*options.set, *length, "train.threads=1", f"seed={seed}", *variant.settings]

    updates = dict.fromkeys(variants, options.updates)
    if options.seconds:
        for variant in variants:
            folder = options.out / f"{variant.name}-timed"
            curve = train_in_process(options.recipe, folder, settings(variant, 1, _TIMED_UPDATES))
            updates[variant] = max(1, round(options.seconds / (curve[-1].seconds / (_TIMED_UPDATES - 1))))
    curves: dict[Variant, list[Curve]] = {variant: [] for variant in variants}
    for seed in range(1, options.seeds + 1):
        for variant in variants:
            folder = options.out / f"{variant.name}-{seed}-{updates[variant]}"
            curve = train_in_process(options.recipe, folder, settings(variant, seed, updates[variant]))
            curves[variant].append(curve)
            end = curve[-1]
            print(f"{variant.name}, seed {seed}: loss {end.loss:.4f}, {end.seconds:.0f} s", file=sys.stderr, flush=True)
    print(HEAD)
    for variant in variants:
        print(summarise(variant.name, curves[variant], curves[variants[0]]))


if __name__ == "__main__":
    main()
