"""Train for a few steps on a million sentence pairs and watch the memory.

    python scripts/million_pairs.py                   # a million pairs
    python scripts/million_pairs.py --pairs 50000

It makes its own text in a temporary folder, and prints the peak memory, including child processes, and the time of the
preparation. The exit code is 1 if it used more than 2 GiB.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import psutil

LIMIT = 2 << 30
WORDS = 60_000
SETTINGS = ("text.vocabulary_size=8000", "train.max_steps=20", "train.validate_bleu=false", "train.save_every=10")


@dataclass
class Watched:
    """Memory and times of a process."""

    preparing: int = 0  # peak bytes until training began
    training: int = 0  # peak bytes after that
    prepared: float = 0.0  # seconds until training began
    seconds: float = 0.0


def main() -> int:
    """Train; return 0 if memory stays under the limit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=0, help="threads of the training; 0: all cores")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="million-pairs-") as name:
        folder = Path(name)
        size = write_text(folder, given.pairs)
        print(f"{given.pairs:,} pairs, {size / 2**20:,.0f} MiB of text", file=sys.stderr)
        watched = watch(folder, given.threads)
    print(
        f"{given.pairs:,} pairs: peak {watched.preparing / 2**20:,.0f} MiB during preparation and "
        f"{watched.training / 2**20:,.0f} MiB during training, prepared in {watched.prepared:.1f} s, "
        f"{given.pairs / watched.prepared:,.0f} pairs a second, all in {watched.seconds:.1f} s"
    )
    return 1 if max(watched.preparing, watched.training) > LIMIT else 0


def write_text(folder: Path, pairs: int) -> int:
    """Write sentences of 3 to 25 words whose frequencies follow Zipf's law; return the bytes."""
    chance = random.Random(5)
    sides = [
        ["".join(chance.choices(letters, k=chance.randint(2, 11))) for _ in range(WORDS)]
        for letters in ("etaoinshrdlcumwfgypbvk", "enisratdhulcgmobwfkzvüäöß")
    ]
    frequencies = list(accumulate(1.0 / (rank + 3) for rank in range(WORDS)))
    numbers = range(WORDS)
    files = [folder / "text.en", folder / "text.de"]
    with files[0].open("w", encoding="utf-8") as source, files[1].open("w", encoding="utf-8") as target:
        for _ in range(pairs):
            line = chance.choices(numbers, cum_weights=frequencies, k=chance.randint(3, 25))
            source.write(" ".join(sides[0][number] for number in line) + "\n")
            target.write(" ".join(sides[1][number] for number in reversed(line)) + "\n")
    return sum(file.stat().st_size for file in files)


def watch(folder: Path, threads: int) -> Watched:
    """Train, and measure the memory twenty times a second."""
    files = ["--source", str(folder / "text.en"), "--target", str(folder / "text.de"), "--out", str(folder / "run")]
    settings = [part for setting in (*SETTINGS, f"train.threads={threads}") for part in ("--set", setting)]
    process = subprocess.Popen(
        [sys.executable, "-m", "heedful", "train", *files, *settings], stdout=subprocess.DEVNULL, stderr=sys.stderr
    )
    began, watched, log = time.monotonic(), Watched(), folder / "run" / "events.jsonl"
    while process.poll() is None:
        if not watched.prepared and log.exists():
            watched.prepared = time.monotonic() - began
        resident = resident_bytes(process.pid)
        if watched.prepared:
            watched.training = max(watched.training, resident)
        else:
            watched.preparing = max(watched.preparing, resident)
        time.sleep(0.05)
    watched.seconds = time.monotonic() - began
    if process.returncode:
        raise SystemExit(f"heedful exited with code {process.returncode}")
    return watched


def resident_bytes(number: int) -> int:
    """The resident memory of a process and its living children."""
    total = 0
    try:
        parent = psutil.Process(number)
        for process in (parent, *parent.children(recursive=True)):
            total += process.memory_info().rss
    except psutil.NoSuchProcess:
        pass
    return total


if __name__ == "__main__":
    sys.exit(main())
