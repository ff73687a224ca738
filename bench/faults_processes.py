"""Checks on training processes: killed, signalled, started twice, and short of disk space or memory."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import faults_common as common
from faults_common import Outcome, tell

from heedful.errors import FolderError
from heedful.storage.checkpoint import Checkpoints
from heedful.storage.lock import LOCK, lock_folder

STEPS_A_KILL = 25
SECONDS_TO_STOP = 10.0
_MIB = 1 << 20

# Like `ulimit -v`, but set after the libraries are loaded, because they alone map gigabytes.
LIMITED = """
import resource, sys
import heedful.kernels.attention_kernels, heedful.kernels.dropout_norm, heedful.kernels.logits
import heedful.training.run, heedful.translation.translator
from pathlib import Path
from heedful.cli.commands import main
now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = now + int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
main()
"""


def kills(folder: Path, count: int, chance: random.Random) -> Outcome:
    """Kill one training again and again: half the time at a random moment, half the time after a step."""
    steps, run = STEPS_A_KILL * max(1, count), folder / "run"
    common.write_text(folder)
    common.train_whole(folder, folder / "whole", steps)
    command = common.train_command(folder, steps)
    killed = after_a_step = repeated = 0
    failures: list[str] = []
    while killed < count:
        before, process = common.last_step(run), common.start(command, run)
        if killed % 2:
            common.wait_for_a_step(run, before, process)
            time.sleep(chance.uniform(0.0, 0.5))
        else:
            time.sleep(chance.uniform(0.0, 6.0))
        if process.poll() is not None:
            _, err = process.communicate()
            if process.returncode:
                failures.append(f"start after kill {killed}: {common.last_line(err)}")
            break
        process.kill()
        process.communicate()
        killed += 1
        now = common.last_step(run)
        after_a_step += now > before
        repeated += max(0, now - common.last_saved(run))
        tell(f"kill {killed}, at step {now}")
    failures += [failure for failure in [common.finish(command, run)] if failure]
    if not failures:
        failures = [f"different: {name}" for name in common.differences(folder / "whole", run, steps)]
    kinds = f"{killed - after_a_step} before and {after_a_step} after the first new step"
    note = f"{kinds} of a process; {steps} steps, {repeated} of them repeated; the result is bit-identical"
    return Outcome(killed, tuple(failures), note)


def signals(folder: Path, count: int, chance: random.Random) -> Outcome:
    """Send SIGTERM, SIGUSR1 and SIGINT to one training: half the time once it has its lock, half after a step."""
    steps, run = STEPS_A_KILL * max(1, count), folder / "run"
    common.write_text(folder)
    common.train_whole(folder, folder / "whole", steps)
    command = common.train_command(folder, steps)
    failures, slowest, saved, sent = [], 0.0, 0, 0
    for number in range(count):
        which, code = [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)][number % 3]
        before, process = common.last_step(run), common.start(command, run)
        _wait_for_lock(run, process)
        if number % 2:
            common.wait_for_a_step(run, before, process)
        time.sleep(chance.uniform(0.0, 1.0))
        if process.poll() is not None:
            break
        began = time.monotonic()
        process.send_signal(which)
        _, err = process.communicate()
        seconds = time.monotonic() - began
        sent, slowest, saved = sent + 1, max(slowest, seconds), saved + ("stopped by" in err)
        if process.returncode != code or seconds > SECONDS_TO_STOP or "Traceback" in err:
            failures.append(f"{which.name}: exit code {process.returncode} in {seconds:.1f} s: {common.last_line(err)}")
        tell(f"{which.name} {number + 1}, at step {common.last_step(run)}: {process.returncode} in {seconds:.2f} s")
    failures += [failure for failure in [common.finish(command, run)] if failure]
    if not failures:
        failures = [f"different: {name}" for name in common.differences(folder / "whole", run, steps)]
    note = f"{saved} in training, with a checkpoint, and {sent - saved} before it; the slowest took {slowest:.1f} s"
    return Outcome(sent, tuple(failures), f"{note}; the result is bit-identical")


def _wait_for_lock(run: Path, process: "subprocess.Popen[str]") -> None:
    """Wait until the process holds the folder; before that it does not handle signals yet."""
    while process.poll() is None:
        if (run / LOCK).exists() and (run / LOCK).read_text().strip() == str(process.pid):
            return
        time.sleep(0.01)


# A second training


def trainings(folder: Path, count: int, chance: random.Random) -> Outcome:
    """Start a second training in a folder: it is refused until the first is killed, then it starts at once."""
    common.write_text(folder)
    run, command = folder / "run", common.train_command(folder, 1_000_000)
    failures, refused, freed = [], 0, 0
    while refused + freed < count:
        process = common.start(command, run)
        common.wait_for_a_step(run, common.last_step(run), process)
        time.sleep(chance.uniform(0.0, 0.5))
        for _ in range(5):
            try:
                with lock_folder(run):
                    failures.append("two trainings held one folder")
            except FolderError as error:
                refused += f"by process {process.pid};" in str(error)
        second = subprocess.run(_resume(run), capture_output=True, text=True, check=False)
        if second.returncode != 2 or f"is being trained by process {process.pid}" not in second.stderr:
            failures.append(f"the second command: {second.returncode}: {common.last_line(second.stderr)}")
        refused += 1
        process.kill()
        process.communicate()
        for _ in range(4):
            with lock_folder(run):
                freed += 1
    return Outcome(refused + freed, tuple(failures), f"{refused} refused with the holder's number, {freed} freed")


def _resume(run: Path, *settings: str) -> list[str]:
    given = [part for key in settings for part in ("--set", key)]
    return [sys.executable, "-m", "heedful", "train", "--resume", str(run), *given]


# A full disk


def disk(folder: Path, count: int, chance: random.Random) -> Outcome:
    """Train on a file system that is too small, of a random size; enlarge it and resume."""
    steps, place = 60, folder / "small"
    common.write_text(folder)
    place.mkdir()
    reason = _unmountable(place)
    if reason:
        return Outcome(0, (), "", reason)
    common.train_whole(folder, folder / "whole", steps)
    largest = sum(path.stat().st_size for path in (folder / "whole").rglob("*"))
    command = common.train_command(folder, steps)
    failures, full, saved = [], 0, 0
    for number in range(count):
        size = chance.randrange(largest // 20, largest)
        with _mounted(place, size):
            wrong, was_full, kept = _fill_up(command, place, folder / "whole", steps)
        full, saved = full + was_full, saved + (kept > 0)
        failures += [f"{size} bytes: {what}" for what in wrong]
        tell(f"disk {number + 1}: {size >> 10} KiB, {'full' if was_full else 'large enough'}, step {kept} was saved")
    note = f"{full} filled up, {saved} of them after checkpoints, all intact; with more space all runs ended the same"
    return Outcome(count, tuple(failures), note)


def _fill_up(command: Sequence[str], place: Path, whole: Path, steps: int) -> tuple[list[str], bool, int]:
    """The failures, whether the disk was full, and the step of the last checkpoint."""
    run = place / "run"
    process = common.start(command, run)
    _, err = process.communicate()
    if process.returncode == 0:
        return common.differences(whole, run, steps), False, 0
    wrong = []
    sentence = common.last_line(err)
    if process.returncode != 5 or not sentence.startswith("heedful: the disk is full") or "Traceback" in err:
        wrong.append(f"exit code {process.returncode}: {sentence}")
    kept, complaint = _newest(run)
    wrong += [complaint] if complaint else []
    _mount("-o", f"remount,size={64 * _MIB}", place)
    ended = common.finish(command, run)
    wrong += [ended] if ended else [f"different: {name}" for name in common.differences(whole, run, steps)]
    return wrong, True, kept


def _newest(run: Path) -> tuple[int, str]:
    """The step of the newest checkpoint, and the damage of any of them."""
    try:
        found = Checkpoints(run / "checkpoints", 2).load_latest()
    except FolderError as error:
        return 0, str(error)
    if found is None:
        return 0, ""
    return found[0].step, "; ".join(found[1])


def _unmountable(place: Path) -> str:
    """Why no file system of a given size can be made here, or an empty string."""
    try:
        with _mounted(place, _MIB):
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no tmpfs can be mounted here ({error}); run it as root on Linux"


@contextmanager
def _mounted(place: Path, size: int) -> Iterator[None]:
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", place)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True, capture_output=True)


def _mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True, capture_output=True)


# Too little memory


def memory(folder: Path, count: int, chance: random.Random) -> Outcome:
    """Resume with little more memory than the libraries need, then again without a limit."""
    if not sys.platform.startswith("linux"):
        return Outcome(0, (), "", "only Linux limits the memory of a process")
    large = ("train.batch_tokens=16384", "train.accumulate=1", "train.save_every=3", "train.schedule=constant")
    common.write_text(folder, lines=6000)
    common.train_whole(folder, folder / "begun", 3, *large, "model.d_model=64", "model.d_ff=512")
    _, err = _limited(folder / "begun", folder / "whole", 1 << 42)
    failures = [] if "done after 6 steps" in err else [f"without a limit: {common.last_line(err)}"]
    hit = named = 0
    for number in range(count):
        room = chance.randrange(8 * _MIB, 900 * _MIB)
        run = folder / f"run-{number}"
        code, err = _limited(folder / "begun", run, room)
        tell(f"memory {number + 1}: {room >> 20} MiB, exit code {code}")
        if code == 0:
            continue
        hit += 1
        sentence = common.last_line(err)
        # If there is not even enough memory to load the model, a smaller batch would not help.
        wanted = "with train.batch_tokens = 16384" if "resuming at step 3" in err else "heedful: out of memory"
        named += "16384" in sentence
        if code != 5 or wanted not in sentence or "Traceback" in err:
            failures.append(f"{room >> 20} MiB: exit code {code}: {sentence[:300]}")
        step, complaint = _newest(run)
        if step != 3 or complaint:
            failures.append(f"{room >> 20} MiB: the checkpoint is of step {step} {complaint}")
        ended = subprocess.run(_resume(run, "train.max_steps=6"), capture_output=True, text=True, check=False)
        different = common.differences(folder / "whole", run, 6)
        if ended.returncode or different:
            failures.append(f"resumed: exit code {ended.returncode}, different: {different}")
        shutil.rmtree(run)
    note = f"8 to 900 MiB more than the libraries need; {hit} ran out of it, {named} of them in training"
    return Outcome(
        count,
        tuple(failures),
        f"{note}, with the setting and its value named; resumed, the result is bit-identical",
    )


def _limited(begun: Path, run: Path, room: int) -> tuple[int, str]:
    """Resume a copy of a training to step 6, with `room` more bytes of memory than the libraries need."""
    shutil.copytree(begun, run)
    line = [sys.executable, "-c", LIMITED, str(room), "train", "--resume", str(run), "--set", "train.max_steps=6"]
    ran = subprocess.run(line, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return ran.returncode, ran.stderr
