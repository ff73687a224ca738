"""Kill a training again and again, resume it, and compare it bit by bit with one that nobody disturbed.

    python scripts/kill_and_resume.py --kills 20

It makes its own text in a temporary folder. Half of the kills come at any moment after the start of the process, also
while it imports, prepares or loads; the others at any moment after a step. Exit code 1 if anything differs.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

SETTINGS = (
    *("seed=3", "train.threads=1", "model.preset=modern", "model.d_model=32", "model.d_ff=64", "model.num_heads=4"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "text.vocabulary_size=300", "text.bpe_dropout=0.1"),
    *("text.bpe_variants=2", "train.batch_tokens=512", "train.accumulate=2", "train.validate_every=40"),
    *("train.save_every=10", "train.average_checkpoints=4", "train.patience=0", "train.validate_bleu=false"),
)


@dataclass
class Counts:
    """What happened."""

    before_a_step: int = 0
    after_a_step: int = 0
    starts: int = 0
    steps_repeated: int = 0
    seconds: list[float] = field(default_factory=list)  # from the start of a process to its end


def main() -> int:
    """Run it; 0 if all is the same."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=0, help="of the training; default: 25 for each kill")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    given = parser.parse_args()
    steps = given.steps or 25 * max(1, given.kills)
    with tempfile.TemporaryDirectory(prefix="kill-and-resume-") as name:
        folder = Path(name)
        write_text(folder)
        command = train_command(folder, steps)
        began = time.monotonic()
        subprocess.run([*command, "--out", str(folder / "whole")], check=True, capture_output=True)
        print(f"undisturbed: {steps} steps in {time.monotonic() - began:.0f} s", file=sys.stderr)
        counts = disturb(command, folder / "run", given.kills, random.Random(given.seed))
        different = differences(folder / "whole", folder / "run", steps)
    print(
        f"{counts.before_a_step + counts.after_a_step} kills ({counts.before_a_step} before and {counts.after_a_step} "
        f"after the first new step), {counts.starts} starts, {steps} steps and {counts.steps_repeated} repeated: "
        + (f"DIFFERENT in {', '.join(different)}" if different else "bit-identical")
    )
    return 1 if different else 0


def write_text(folder: Path) -> None:
    """Sentences of a made-up language and their words in reversed order."""
    chance = random.Random(5)
    words = ["".join(chance.choices("abdeiklmnorstu", k=chance.randint(2, 6))) for _ in range(60)]
    lines = [chance.choices(words, k=chance.randint(1, 12)) for _ in range(1500)]
    for end, order in (("en", 1), ("de", -1)):
        text = "".join(" ".join(line[::order]) + "\n" for line in lines)
        (folder / f"text.{end}").write_text(text, encoding="utf-8")


def train_command(folder: Path, steps: int) -> list[str]:
    """`heedful train` without its folder."""
    files = ["--source", str(folder / "text.en"), "--target", str(folder / "text.de")]
    settings = [part for setting in (*SETTINGS, f"train.max_steps={steps}") for part in ("--set", setting)]
    return [sys.executable, "-m", "heedful", "train", *files, *settings]


def disturb(command: list[str], run: Path, kills: int, chance: random.Random) -> Counts:
    """Kill and resume until there were so many kills, then let it end."""
    counts = Counts()
    for number in range(kills):
        process = start(command, run, counts)
        before = last_step(run)
        began = time.monotonic()
        if number % 2:
            wait_for_a_step(run, before, process)
            time.sleep(chance.uniform(0.0, 0.5))
        else:
            time.sleep(chance.uniform(0.0, 6.0))
        if process.poll() is not None:
            _, err = process.communicate()
            print(f"ended by itself with exit code {process.returncode} before kill {number + 1}", file=sys.stderr)
            if process.returncode:
                raise SystemExit(err.decode())
            break
        process.kill()
        process.communicate()
        counts.seconds.append(time.monotonic() - began)
        now = last_step(run)
        counts.after_a_step += now > before
        counts.before_a_step += now <= before
        counts.steps_repeated += max(0, now - last_saved(run))
        print(f"kill {number + 1} after {counts.seconds[-1]:.2f} s, at step {now}", file=sys.stderr)
    process = start(command, run, counts)
    _, err = process.communicate()
    if process.returncode:
        raise SystemExit(err.decode())
    return counts


def start(command: list[str], run: Path, counts: Counts) -> "subprocess.Popen[bytes]":
    """Begin, or go on where there is something to go on with."""
    counts.starts += 1
    begun = (run / "experiment.toml").exists()
    line = [*command[:4], "--resume", str(run)] if begun else [*command, "--out", str(run)]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def wait_for_a_step(run: Path, before: int, process: "subprocess.Popen[bytes]") -> None:
    """Until the log has a later step, or the process has ended."""
    while process.poll() is None and last_step(run) <= before:
        time.sleep(0.02)


def last_step(run: Path) -> int:
    """The last step in the log; what a kill cut off does not count."""
    log = run / "events.jsonl"
    found = 0
    for line in log.read_text(encoding="utf-8").split("\n")[:-1] if log.exists() else []:
        event = json.loads(line)
        found = max(found, event["step"])
    return found


def last_saved(run: Path) -> int:
    """The step of the newest checkpoint."""
    latest = run / "checkpoints" / "latest"
    return int(latest.read_text().strip().removeprefix("step-")) if latest.exists() else 0


def differences(whole: Path, run: Path, steps: int) -> list[str]:
    """Names of what is not the same."""
    last = f"checkpoints/step-{steps:08d}/tensors.safetensors"
    found = [name for name in ("model.safetensors", last) if (whole / name).read_bytes() != (run / name).read_bytes()]
    for kind in ("StepDone", "Validated"):
        if losses(whole, kind) != losses(run, kind):
            found.append(f"the log of {kind}")
    return found + [f"{path.name}, left behind" for path in run.rglob(".tmp-*")]


def losses(run: Path, kind: str) -> list[tuple[int, float]]:
    """Every step of the log and its loss."""
    events = map(json.loads, (run / "events.jsonl").read_text(encoding="utf-8").splitlines())
    return [(event["step"], event["loss"]) for event in events if event["event"] == kind]


if __name__ == "__main__":
    sys.exit(main())
