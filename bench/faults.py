"""What heedful promises when things go wrong, tried out and counted.

    python bench/faults.py                          all checks, half an hour on two cores
    python bench/faults.py --only kills --kills 20
    python bench/faults.py --only hostile --count 50000

Everything happens in a temporary folder. Exit code 1 if a promise was broken. The figures are in docs/reliability.md.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import faults_files
import faults_processes
import faults_runs
from faults_common import Check, Outcome, tell


@dataclass(frozen=True, slots=True)
class Promise:
    """A check, how often it is tried, and what it holds."""

    check: Check
    count: int
    text: str


PROMISES = {
    "kills": Promise(faults_processes.kills, 100, "SIGKILL at any moment: the end is bit-identical"),
    "signals": Promise(faults_processes.signals, 20, "SIGTERM, SIGUSR1, SIGINT: saved and ended within 10 s"),
    "disk": Promise(faults_processes.disk, 20, "a full disk: exit code 5, checkpoints intact, goes on"),
    "memory": Promise(faults_processes.memory, 10, "a memory limit: exit code 5, the budget named, goes on"),
    "trainings": Promise(faults_processes.trainings, 40, "two trainings in a folder: the second is refused"),
    "checkpoints": Promise(faults_files.checkpoints, 600, "damaged checkpoints: passed over with a sentence"),
    "flips": Promise(faults_files.flips, 10_000, "flipped bits in a model folder: none is believed"),
    "hostile": Promise(faults_files.hostile, 5000, "hostile model folders: our errors only, in time"),
    "data": Promise(faults_runs.data, 200, "data changed under a resumed run: refused by name"),
    "numbers": Promise(faults_runs.numbers, 60, "NaN and infinity in a batch: never in weights or on disk"),
}


def main() -> int:
    """Run them; 0 if every promise held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tuple(PROMISES), action="append", help="this check; can be repeated")
    parser.add_argument("--kills", type=int, default=PROMISES["kills"].count, help="how often to kill")
    parser.add_argument("--count", type=int, help="how often to try each of the others")
    parser.add_argument("--seed", type=int, default=1, help="of everything that is random here")
    parser.add_argument("--json", action="store_true", help="print an object instead of a table")
    given = parser.parse_args()
    rows, broken = [], False
    for name in given.only or PROMISES:
        promise = PROMISES[name]
        count = given.kills if name == "kills" else given.count or promise.count
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"faults-{name}-") as folder:
            outcome = promise.check(Path(folder), count, random.Random(f"{name} {given.seed}"))
        broken = broken or bool(outcome.failures)
        rows.append(_row(name, promise, outcome, time.monotonic() - began))
        for failure in outcome.failures[:20]:
            tell(f"{name}: {failure}")
        if not given.json:
            print(_line(rows[-1]), flush=True)  # a row of the table in docs/reliability.md
    if given.json:
        print(json.dumps(rows, indent=1))
    return 1 if broken else 0


def _row(name: str, promise: Promise, outcome: Outcome, seconds: float) -> dict[str, object]:
    return {
        "name": name,
        "promise": promise.text,
        "tried": outcome.tried,
        "failed": len(outcome.failures),
        "seconds": round(seconds, 1),
        "note": f"skipped: {outcome.skipped}" if outcome.skipped else outcome.note,
    }


def _line(row: dict[str, object]) -> str:
    return f"| `{row['name']}` | {row['promise']}; {row['note']} | {row['tried']} | {row['failed']} |"


if __name__ == "__main__":
    sys.exit(main())
