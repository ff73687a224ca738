"""A save that is killed or fails at any call leaves the previous checkpoint or the new one, bit by bit."""

import errno
import json
import os
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from checkpoint_examples import checkpoint, latest, same

from heedful.errors import HeedfulError, OutOfSpace
from heedful.storage.checkpoint import Checkpoint, Checkpoints
from heedful.storage.files import check_manifest

# Every call by which a save changes the disk; pathlib and shutil come down to these.
CALLS = ["mkdir", "open", "write", "fsync", "close", "replace", "rename", "unlink", "rmdir"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three saved checkpoints, of which two are kept, so that the next save has everything to do."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    for step in (100, 200, 300):
        checkpoints.save(checkpoint(step))
    return tmp_path / "checkpoints"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip fsync: it is slow, and neither a kill nor a failure shows whether it happened (the last test does)."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


class Calls:
    """Counts the calls that change the disk, and replaces one of them."""

    def __init__(self, at: int, instead: Callable[[str, Callable[..., Any], tuple[Any, ...]], Any]) -> None:
        self.count = 0
        self._at = at
        self._instead = instead

    @contextmanager
    def installed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self._wrapped(name, getattr(os, name)))
            yield

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self._at:
                return self._instead(name, lambda *given: call(*given, **options), arguments)
            return call(*arguments, **options)

        return counted


def half_written(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return call(arguments[0], arguments[1][: (len(arguments[1]) + 1) // 2]) if name == "write" else call(*arguments)


def die(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if name == "write":
        half_written(name, call, arguments)
    os.kill(os.getpid(), signal.SIGKILL)


def failing(number: int) -> Callable[[str, Callable[..., Any], tuple[Any, ...]], Any]:
    def fail(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        if name == "close":  # it closes the file even when it fails
            call(*arguments)
        if name == "write":
            half_written(name, call, arguments)
        raise OSError(number, os.strerror(number))

    return fail


def number_of_calls(folder: Path, new: Checkpoint) -> int:
    copy = shutil.copytree(folder, folder.parent / "counted")
    calls = Calls(0, half_written)
    with calls.installed():
        Checkpoints(copy, 2).save(new)
    return calls.count


def saved_in_a_child(folder: Path, new: Checkpoint, calls: Calls) -> int:
    """Save in a child process and return its status."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads; the child uses none
        child = os.fork()
    if child == 0:
        try:
            with calls.installed():
                Checkpoints(folder, 2).save(new)
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("new", [checkpoint(400), checkpoint(300, salt=1)], ids=["next step", "same step"])
def test_a_kill_at_any_call_leaves_the_previous_checkpoint_or_the_new_one(folder: Path, new: Checkpoint) -> None:
    total = number_of_calls(folder, new)
    assert total > 30
    seen = set()
    for at in range(1, total + 1):
        copy = shutil.copytree(folder, folder.parent / f"killed-{at}")
        assert saved_in_a_child(copy, new, Calls(at, die)) == signal.SIGKILL
        found, complaints = latest(copy)
        assert complaints == ()
        assert same(found, new) or same(found, checkpoint(300))
        seen.add(same(found, new))
        Checkpoints(copy, 2).save(checkpoint(500))  # the next save works as usual
        assert same(latest(copy)[0], checkpoint(500))
        assert not [path for path in copy.iterdir() if path.name.startswith(".tmp-")]
        assert len(Checkpoints(copy, 2).steps()) == 2
        shutil.rmtree(copy)
    assert seen == {False, True}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("new", [checkpoint(400), checkpoint(300, salt=1)], ids=["next step", "same step"])
def test_the_first_checkpoint_alone_survives_a_kill_too(tmp_path: Path, new: Checkpoint) -> None:
    folder = tmp_path / "checkpoints"
    Checkpoints(folder, 2).save(checkpoint(300))
    for at in range(1, number_of_calls(folder, new) + 1):
        copy = shutil.copytree(folder, tmp_path / f"killed-{at}")
        assert saved_in_a_child(copy, new, Calls(at, die)) == signal.SIGKILL
        found = latest(copy)[0]
        assert same(found, new) or same(found, checkpoint(300))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EINTR, errno.EACCES])
@pytest.mark.parametrize("new", [checkpoint(400), checkpoint(300, salt=1)], ids=["next step", "same step"])
def test_a_failure_at_any_call_is_our_error_and_costs_no_checkpoint(folder: Path, new: Checkpoint, number: int) -> None:
    raised = 0
    for at in range(1, number_of_calls(folder, new) + 1):
        copy = shutil.copytree(folder, folder.parent / f"failed-{at}")
        try:
            with Calls(at, failing(number)).installed():
                Checkpoints(copy, 2).save(new)
        except HeedfulError as error:
            raised += 1
            assert isinstance(error, OutOfSpace) == (number == errno.ENOSPC)
            assert ".tmp-" not in str(error)
            found = latest(copy)[0]
            assert same(found, new) or same(found, checkpoint(300))
        else:  # it happened while something was removed
            assert same(latest(copy)[0], new)
        for step in Checkpoints(copy, 2).steps():
            check_manifest(copy / f"step-{step:08d}")
    assert raised > 20


@pytest.mark.usefixtures("quick")
def test_short_writes_at_any_call_change_nothing(folder: Path) -> None:
    for at in range(1, number_of_calls(folder, checkpoint(400)) + 1):
        copy = shutil.copytree(folder, folder.parent / f"short-{at}")
        with Calls(at, half_written).installed():
            Checkpoints(copy, 2).save(checkpoint(400))
        assert same(latest(copy)[0], checkpoint(400))


def test_files_are_forced_to_disk_before_they_are_renamed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut would show this, but a kill cannot: data is flushed before each rename, and the folder after it."""
    opened: dict[int, Path] = {}
    unsafe: set[Path] = set()
    real_open, real_write, real_fsync = os.open, os.write, os.fsync

    def watched_open(path: Any, *arguments: Any, **options: Any) -> int:
        descriptor = real_open(path, *arguments, **options)
        opened[descriptor] = Path(path)
        return descriptor

    def watched_write(descriptor: int, data: bytes) -> int:
        unsafe.add(opened[descriptor])
        return real_write(descriptor, data)

    def watched_fsync(descriptor: int) -> None:
        unsafe.discard(opened[descriptor])
        real_fsync(descriptor)

    def watched(call: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
        def move(source: Path, target: Path) -> None:
            assert not [path for path in unsafe if path.is_relative_to(source)], f"{source} is not on the disk yet"
            assert target.parent not in unsafe, f"the name before {target} is not on the disk yet"
            call(source, target)
            unsafe.add(target.parent)

        return move

    monkeypatch.setattr(os, "open", watched_open)
    monkeypatch.setattr(os, "write", watched_write)
    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched(os.replace))
    monkeypatch.setattr(os, "rename", watched(os.rename))
    monkeypatch.setattr(Checkpoints, "_prune", lambda self, newest: None)
    Checkpoints(folder, 2).save(checkpoint(400))
    assert unsafe == set()
    assert json.loads((folder / "step-00000400" / "state.json").read_text())["step"] == 400
