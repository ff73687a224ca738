"""Break things on purpose and count how often a guarantee of docs/reliability.md holds.

    python bench/faults.py                          all checks, half an hour on two cores
    python bench/faults.py --only kills --kills 20
    python bench/faults.py --only hostile --count 50000

Everything happens in a temporary folder. The exit code is 1 if a guarantee was broken. docs/reliability.md has the
figures.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import faults_exports
import faults_files
import faults_limits
import faults_processes
import faults_runs
from faults_common import Check, Outcome, tell


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A guarantee, the check that attacks it, and the number of attempts."""

    check: Check
    count: int
    text: str


GUARANTEES = {
    "kills": Guarantee(faults_processes.kills, 100, "SIGKILL at any moment: the result is bit-identical"),
    "signals": Guarantee(faults_processes.signals, 20, "SIGTERM, SIGUSR1, SIGINT: saved and ended within 10 s"),
    "disk": Guarantee(faults_processes.disk, 20, "a full disk: exit code 5, checkpoints intact, resumes"),
    "memory": Guarantee(faults_processes.memory, 10, "a memory limit: exit code 5, the setting named, resumes"),
    "trainings": Guarantee(faults_processes.trainings, 40, "two trainings in a folder: the second is refused"),
    "checkpoints": Guarantee(faults_files.checkpoints, 600, "damaged checkpoints: skipped with a message"),
    "flips": Guarantee(faults_files.flips, 10_000, "flipped bits in a model folder: all noticed"),
    "hostile": Guarantee(faults_files.hostile, 5000, "hostile model folders: only our own errors, quickly"),
    "exports": Guarantee(faults_exports.exports, 5000, "crafted CTranslate2 exports: no crash, only our own errors"),
    "limits": Guarantee(faults_limits.limits, 12, "huge, deep, blocking and leaving files: refused with little memory"),
    "data": Guarantee(faults_runs.data, 200, "data changed under a resumed run: refused by name"),
    "numbers": Guarantee(faults_runs.numbers, 60, "NaN and infinity in a batch: never in weights or on disk"),
}


def main() -> int:
    """Run the checks; 0 if every guarantee held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tuple(GUARANTEES), action="append", help="run only this check; repeatable")
    parser.add_argument("--kills", type=int, default=GUARANTEES["kills"].count, help="number of kills")
    parser.add_argument("--count", type=int, help="number of attempts of each other check")
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices")
    parser.add_argument("--json", action="store_true", help="print an object instead of a table")
    given = parser.parse_args()
    rows, broken = [], False
    for name in given.only or GUARANTEES:
        guarantee = GUARANTEES[name]
        count = given.kills if name == "kills" else given.count or guarantee.count
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"faults-{name}-") as folder:
            outcome = guarantee.check(Path(folder), count, random.Random(f"{name} {given.seed}"))
        broken = broken or bool(outcome.failures)
        rows.append(_row(name, guarantee, outcome, time.monotonic() - began))
        for failure in outcome.failures[:20]:
            tell(f"{name}: {failure}")
        if not given.json:
            print(_line(rows[-1]), flush=True)  # a row of the table in docs/reliability.md
    if given.json:
        print(json.dumps(rows, indent=1))
    return 1 if broken else 0


def _row(name: str, guarantee: Guarantee, outcome: Outcome, seconds: float) -> dict[str, object]:
    return {
        "name": name,
        "guarantee": guarantee.text,
        "tried": outcome.tried,
        "failed": len(outcome.failures),
        "seconds": round(seconds, 1),
        "note": f"skipped: {outcome.skipped}" if outcome.skipped else outcome.note,
    }


def _line(row: dict[str, object]) -> str:
    return f"| `{row['name']}` | {row['guarantee']}; {row['note']} | {row['tried']} | {row['failed']} |"


if __name__ == "__main__":
    sys.exit(main())
