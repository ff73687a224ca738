"""Checkpoints: the states that a training can resume from.

::

    checkpoints/
    ├── step-00000200/   tensors.safetensors  state.json  manifest.json
    ├── step-00000400/   …
    └── latest           the name of the newest, for people and scripts

A checkpoint is valid if its manifest verifies. Its folder appears by one rename, so it is complete or absent. A
training with sharded weights writes one more file, ``whole.safetensors``, with the tensors that are not sharded.
"""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from heedful.errors import FolderError
from heedful.storage.files import (
    OLD,
    DamagedError,
    aside,
    check_manifest,
    disk_errors,
    load_tensors,
    new_folder,
    read_json,
    remove,
    remove_temporaries,
    save_tensors,
    write_atomically,
    write_manifest,
)
from heedful.storage.sharded_tensors import is_sharded, join_shards
from heedful.untrusted_files import read_bytes

_TENSORS = "tensors.safetensors"
_WHOLE = "whole.safetensors"
_STATE = "state.json"
_LATEST = "latest"
_FEWEST_KEPT = 2  # one to fall back on if the newest is damaged
_NAME = re.compile(r"step-([0-9]{8}|[1-9][0-9]{8,14})")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything that a training needs to continue as if it had never stopped.

    `tensors` are named "model.…", "optimizer.…", "ema.…", "random.…"; `state` holds JSON values.
    """

    step: int
    tensors: Mapping[str, Tensor]
    state: Mapping[str, object]

    def under(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names start with `prefix`, by the rest of their names."""
        return {name.removeprefix(prefix): t for name, t in self.tensors.items() if name.startswith(prefix)}


class Checkpoints:
    """The checkpoints of one run; only one process at a time may save (see `lock_folder`)."""

    def __init__(self, folder: Path, keep: int, every: int = 1) -> None:
        self._folder = folder
        self._keep = max(keep, _FEWEST_KEPT)
        self._every = every  # the regular interval between checkpoints, in steps
        self._damaged: set[int] = set()  # steps found damaged; they do not count as kept

    def save(self, checkpoint: Checkpoint, spread: Callable[[Path], int] | None = None) -> Path:
        """Write a checkpoint atomically, then remove the oldest ones beyond those to keep.

        Later checkpoints that were skipped as damaged stay until the training reaches their steps again. If tensors
        are sharded, `spread` makes all processes write their shards into a folder and gives the number of processes.
        """
        text = _state_text(checkpoint)  # first, because it may raise
        folder = self._path(checkpoint.step)
        with disk_errors(self._folder):
            remove_temporaries(self._folder)
            with new_folder(folder) as temporary:
                names = _write_tensors(temporary, checkpoint.tensors, spread)
                write_atomically(temporary / _STATE, text)
                write_manifest(temporary, (*names, _STATE))
            write_atomically(self._folder / _LATEST, folder.name + "\n")
        self._damaged.discard(checkpoint.step)
        with suppress(OSError):  # a checkpoint that cannot be removed costs only space
            self._prune(checkpoint.step)
        return folder

    def load_latest(self) -> tuple[Checkpoint, tuple[str, ...]] | None:
        """The newest valid checkpoint, and a sentence about each newer one that is damaged.

        None if there are no checkpoints; FolderError if there are some and all are damaged.
        """
        skipped = self._describe_missing()
        for step in reversed(self.steps()):
            try:
                found = self._load(step)
            except FolderError as error:
                self._damaged.add(step)
                skipped.append(_describe_damage(self._path(step), error))
                continue
            return found, tuple(f"{sentence}; resuming from step {step}" for sentence in skipped)
        if skipped:
            raise FolderError(f"{'; '.join(skipped)}; no checkpoint is left to resume from: train in a new folder")
        return None

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, in order; loading tells whether it is valid."""
        if not self._folder.exists():
            return []
        with disk_errors(self._folder):
            names = {path.name.removesuffix(OLD) for path in self._folder.iterdir()}
        return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))

    def load_model(self, step: int, prefix: str) -> dict[str, Tensor]:
        """The tensors of a checkpoint whose names start with `prefix`, by the rest; FolderError if it is damaged."""
        tensors = _read_tensors(self._verify(step), prefix)
        return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}

    def _path(self, step: int) -> Path:
        if step < 0:
            raise ValueError(f"a step cannot be negative, but this is {step}")
        return self._folder / f"step-{step:08d}"

    def _verify(self, step: int) -> Path:
        """The folder of a step after its files were verified; a crash while replacing it may leave only the old one."""
        folder = self._path(step)
        if not folder.exists() and aside(folder).exists():
            folder = aside(folder)
        if not folder.exists():
            raise FolderError(f"{folder} does not exist; {self._folder} holds the steps {self.steps()}")
        check_manifest(folder, required=(_TENSORS, _STATE))
        return folder

    def _load(self, step: int) -> Checkpoint:
        folder = self._verify(step)
        match read_json(folder / _STATE):
            case {"step": int(saved), "state": dict(state)}:
                if saved != step:
                    raise DamagedError(folder, f"{_STATE}: belongs to step {saved}")
            case _:
                raise DamagedError(folder, f"{_STATE}: has no step or state")
        return Checkpoint(step, _read_tensors(folder), state)

    def _describe_missing(self) -> list[str]:
        """A sentence if `latest` names a checkpoint that is gone; a damaged `latest` is ignored."""
        try:
            match = _NAME.fullmatch(read_bytes(self._folder / _LATEST, 100).decode("ascii").strip())
        except (OSError, ValueError, FolderError):
            return []
        if match and int(match[1]) > max(self.steps(), default=-1):
            return [f"{self._folder.name}/{match[0]} is missing"]
        return []

    def _prune(self, newest: int) -> None:
        past = [step for step in self.steps() if step <= newest]
        good = [step for step in past if step not in self._damaged]
        # An extra checkpoint, saved because of a signal, must not displace a regular one.
        kept = {*good[-_FEWEST_KEPT:], *[step for step in good if step % self._every == 0][-self._keep :]}
        for step in past:
            if step not in kept:
                remove(aside(self._path(step)))
                remove(self._path(step))


def _write_tensors(
    folder: Path, tensors: Mapping[str, Tensor], spread: Callable[[Path], int] | None
) -> tuple[str, ...]:
    """Write all tensors; return the names of the files."""
    if spread is None:
        save_tensors(folder / _TENSORS, tensors, {"format": "pt"})
        return (_TENSORS,)
    count = spread(folder)
    join_shards(folder, [name for name, tensor in tensors.items() if is_sharded(tensor)], count, folder / _TENSORS)
    whole = {name: tensor for name, tensor in tensors.items() if not is_sharded(tensor)}
    save_tensors(folder / _WHOLE, whole, {"format": "pt"})
    return _TENSORS, _WHOLE


def _read_tensors(folder: Path, prefix: str = "") -> dict[str, Tensor]:
    tensors = load_tensors(folder / _TENSORS, prefix)
    if (folder / _WHOLE).exists():  # the manifest reveals it if the file is lost
        tensors |= load_tensors(folder / _WHOLE, prefix)
    return tensors


def _describe_damage(folder: Path, error: FolderError) -> str:
    reason = error.reason if isinstance(error, DamagedError) else str(error)
    return f"{folder.parent.name}/{folder.name} is damaged ({reason})"


def _state_text(checkpoint: Checkpoint) -> str:
    """JSON as Python writes it: floats keep every bit, and NaN and Infinity are written by name."""
    state = dict(checkpoint.state)
    _check_json(state, "state")
    return json.dumps({"step": checkpoint.step, "state": state}, indent=1) + "\n"


def _check_json(value: object, where: str) -> None:
    """Refuse values that JSON would change: a tuple comes back as a list, the key 1 as "1"."""
    match value:
        case None | bool() | int() | float() | str():
            return
        case list():
            for index, item in enumerate(value):
                _check_json(item, f"{where}[{index}]")
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise TypeError(f"{where} has the key {key!r}, but JSON keys are strings")
                _check_json(item, f"{where}.{key}")
        case _:
            raise TypeError(f"{where} is a {type(value).__name__}, which JSON cannot restore")
