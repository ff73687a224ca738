"""Checks within this process: data that changes before a run is resumed, and NaN or infinity in training."""

import math
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest import mock

import faults_common as common
import torch
from faults_common import Outcome
from safetensors.torch import load_file
from torch import Tensor

from heedful.errors import Diverged, HeedfulError
from heedful.models.transformer import Transformer
from heedful.training.events import Finished, StepDone
from heedful.training.run import resume_run

# Changed data


class _Listener:
    """Collects the reports of a run."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def progress(self, what: str, done: int, total: int) -> None:
        """Ignore it."""


def data(folder: Path, count: int, chance: random.Random) -> Outcome:
    """Change a text or a prepared file and resume: it is refused by name; a missing text is reported."""
    common.write_text(folder, lines=300)
    run = common.train_here(folder, folder / "run", "train.max_steps=10", "data.hold_out=20", stop=True)
    texts = [folder / "text.en", folder / "text.de"]
    prepared = sorted(path for path in (run / "data").rglob("*") if path.is_file())
    failures, kinds = [], Counter[str]()
    for _ in range(count):
        path = chance.choice(texts if chance.random() < 0.4 else prepared)
        kind = chance.choice(("flipped", "longer", "cut off", "gone", "touched"))
        with _changed(path, kind, chance):
            wrong = _judge(run, path, kind, text=path in texts)
        kinds[f"{'texts' if path in texts else 'prepared files'} {kind}"] += 1
        failures += [f"{path.name} {kind}: {wrong}"] if wrong else []
    refused, said = _resumed(run)
    failures += [f"restored, but refused: {refused}"] if refused or "missing: " in said else []
    return Outcome(count, tuple(failures), ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())))


def _judge(run: Path, path: Path, kind: str, text: bool) -> str:
    """The failure of a resumed run, or an empty string."""
    refused, said = _resumed(run)
    match kind:
        case "touched":
            return refused
        case "gone" if text:
            return refused or ("" if path.name in said else "no message")
        case "gone" if path.name == "manifest.json":
            return refused or ("" if "cannot be verified" in said else "no message")
    # The message names the changed file; a damaged manifest names itself.
    return "" if path.name in refused else f"not refused by name: {refused or said}"


@contextmanager
def _changed(path: Path, kind: str, chance: random.Random) -> Iterator[None]:
    """Change a file while the block runs, then restore it with its times."""
    content, state = path.read_bytes(), path.stat()
    at = chance.randrange(len(content))
    match kind:
        case "flipped":
            path.write_bytes(content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :])
        case "longer":
            path.write_bytes(content + b"x")
        case "cut off":
            path.write_bytes(content[:at])
        case "gone":
            path.unlink()
        case _:
            os.utime(path, (0, 0))
    try:
        yield
    finally:
        path.write_bytes(content)
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def _resumed(run: Path) -> tuple[str, str]:
    """The reason why a resumed run was refused, or an empty string, and its reports."""
    listener = _Listener()
    try:
        with common.plain_log():
            for _ in resume_run(run, {}, listener, lambda: "SIGTERM"):
                pass
    except HeedfulError as error:
        return str(error), " ".join(listener.said)
    return "", " ".join(listener.said)


# NaN and infinity

STEPS = 8
POISONS = ("NaN in the loss", "infinity in the loss", "NaN in the gradient")


def numbers(folder: Path, count: int, chance: random.Random) -> Outcome:
    """Put NaN or infinity into one batch of a training that stops at it or skips it."""
    common.write_text(folder, lines=300)
    settings = (f"train.max_steps={STEPS}", "train.batch_tokens=256", "train.save_every=2", "train.validate_every=3")
    begun = common.train_here(folder, folder / "begun", *settings, stop=True)
    whole = folder / "whole"
    shutil.copytree(begun, whole)
    _follow(whole, "stop", None)
    failures, kinds = [], Counter[str]()
    for number in range(count):
        poison, mode = POISONS[number % 3], ("stop", "skip")[number // 3 % 2]
        step = chance.randint(1, STEPS)
        run = folder / "run"
        shutil.copytree(begun, run)
        wrong = _stopped(run, whole, poison, step) if mode == "stop" else _skipped(run, poison, step)
        failures += [f"{poison} at step {step}, {mode}: {what}" for what in [*wrong, *_not_finite(run)]]
        kinds[mode] += 1
        shutil.rmtree(run)
    note = f"{kinds['stop']} stopped, and ended bit-identical when resumed without the poison"
    return Outcome(count, tuple(failures), f"{note}; {kinds['skip']} skipped one update")


def _stopped(run: Path, whole: Path, poison: str, step: int) -> list[str]:
    try:
        _follow(run, "stop", Poison(poison, step))
    except Diverged as error:
        wrong = [] if f"step {step} " in str(error) else [f"another step: {error}"]
    else:
        wrong = ["it did not stop"]
    wrong += _not_finite(run)
    _follow(run, "stop", None)
    return wrong + common.differences(whole, run, STEPS)


def _skipped(run: Path, poison: str, step: int) -> list[str]:
    finished, skipped = _follow(run, "skip", Poison(poison, step))
    return [] if (finished, skipped) == (STEPS, 1) else [f"ended at step {finished} with {skipped} updates skipped"]


def _follow(run: Path, mode: str, poison: "Poison | None") -> tuple[int, int]:
    """Resume to the end; the last step and the number of skipped updates."""
    step = skipped = 0
    with common.plain_log(), poison.poured() if poison else nullcontext():
        for event in resume_run(run, {"train": {"on_non_finite": mode}}, _Listener(), lambda: ""):
            if isinstance(event, StepDone):
                skipped = event.skipped
            if isinstance(event, Finished):
                step = event.step
            if poison:
                poison.heard(event)
    return step, skipped


class Poison:
    """Makes the first features of the decoder, or their gradient, NaN or infinite in one update."""

    def __init__(self, kind: str, step: int) -> None:
        self._step = step
        self._in_the_gradient = "gradient" in kind
        self._number = math.inf if "infinity" in kind else math.nan
        self._armed = step == 1

    def heard(self, event: object) -> None:
        """Arm it after the step before."""
        if isinstance(event, StepDone) and event.step == self._step - 1:
            self._armed = True

    @contextmanager
    def poured(self) -> Iterator[None]:
        """Replace the features while the block runs."""
        features = Transformer.features

        def spoilt(model: Transformer, *arguments: object, **named: object) -> Tensor:
            found: Tensor = features(model, *arguments, **named)  # type: ignore[arg-type]
            if not self._armed or not torch.is_grad_enabled():
                return found
            self._armed = False
            if not self._in_the_gradient:
                return found * self._number
            found.register_hook(lambda gradient: gradient * self._number)
            return found

        with mock.patch.object(Transformer, "features", spoilt):
            yield


def _not_finite(run: Path) -> list[str]:
    """The tensors on disk that are not finite."""
    files = [*run.glob("checkpoints/step-*/tensors.safetensors"), *run.glob("model.safetensors")]
    return [
        f"{path.name}: {name} is not finite"
        for path in files
        for name, tensor in load_file(path).items()
        if tensor.is_floating_point() and not tensor.isfinite().all()
    ]
