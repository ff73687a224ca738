"""Only one process trains in a folder, and a dead process holds no lock."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from heedful.errors import FolderError, UserError
from heedful.storage.lock import lock_folder

HOLDER = """
import sys, time
from pathlib import Path
from heedful.storage.lock import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_training_is_refused_with_the_process_that_holds_the_folder(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    sentence = rf"run is being trained by process {holder.pid}; wait for it, stop it or choose another folder$"
    for _ in range(20):
        with pytest.raises(FolderError, match=sentence), lock_folder(tmp_path / "run"):
            pytest.fail("two trainings in one folder")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    for _ in range(20):
        with lock_folder(tmp_path / "run"):
            assert (tmp_path / "run" / ".lock").read_text() == f"{os.getpid()}\n"


def test_even_the_same_process_cannot_hold_a_folder_twice(tmp_path: Path) -> None:
    with (
        lock_folder(tmp_path),
        pytest.raises(FolderError, match=f"by process {os.getpid()};"),
        lock_folder(tmp_path),
    ):
        pytest.fail("two trainings in one folder")


def test_a_lock_ends_with_its_block_even_if_that_fails(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("12345678901234\n")  # left by a dead process
    with suppress(ZeroDivisionError), lock_folder(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
        raise ZeroDivisionError
    with lock_folder(tmp_path):
        pass


def test_a_holder_that_has_not_written_its_number_yet_is_another_process(tmp_path: Path) -> None:
    with lock_folder(tmp_path):
        (tmp_path / ".lock").write_text("")
        with pytest.raises(FolderError, match="by another process;"), lock_folder(tmp_path):
            pytest.fail("two trainings in one folder")


def test_a_disk_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", fail)
    sentence = r"cannot be locked \(No locks available\); train in a folder on a disk that has file locks$"
    with pytest.raises(FolderError, match=sentence), lock_folder(tmp_path):
        pytest.fail("not locked")


def test_a_file_in_place_of_the_folder_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    sentence = r"a cannot be read or written \(File exists\); check the path$"
    with pytest.raises(UserError, match=sentence), lock_folder(tmp_path / "a"):
        pytest.fail("not locked")


def test_a_child_process_does_not_inherit_the_lock(tmp_path: Path) -> None:
    with lock_folder(tmp_path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        with lock_folder(tmp_path):  # the child still runs
            assert child.poll() is None
    finally:
        child.communicate(b"\n")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list a process's open files")
def test_the_copy_of_a_process_that_is_just_starting_does_not_keep_the_lock(tmp_path: Path) -> None:
    with lock_folder(tmp_path):
        opened = [entry for entry in Path("/proc/self/fd").iterdir() if entry.exists()]
        (copy,) = [os.dup(int(entry.name)) for entry in opened if entry.samefile(tmp_path / ".lock")]
    try:
        with lock_folder(tmp_path):
            assert os.fstat(copy).st_size > 0
    finally:
        os.close(copy)
