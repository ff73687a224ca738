"""Systems that lack what Linux has: each lack is simulated, because the tests run on Linux."""

import ctypes
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from heedful import process_memory
from heedful.errors import ConfigError, UserError
from heedful.serve import listener
from heedful.storage import files

# What Windows lacks. `fcntl` stays, because CPython's own `subprocess` and our lock choose by the platform.
ABSENT = """
import os, signal, sys
sys.modules["resource"] = None
for name in ("sched_getaffinity", "O_NONBLOCK"):
    delattr(os, name)
for name in ("SIGHUP", "SIGUSR1", "pthread_sigmask"):
    delattr(signal, name)
import ctypes
class NoCDLL(ctypes.CDLL):
    def __init__(self, name, *rest, **more):
        if name is None:
            raise TypeError("argument of type 'NoneType' is not iterable")
        super().__init__(name, *rest, **more)
ctypes.CDLL = NoCDLL
"""


@pytest.fixture
def poor(tmp_path: Path) -> dict[str, str]:
    """The environment of a process whose system lacks all of this, and whose locale is not UTF-8."""
    (tmp_path / "sitecustomize.py").write_text(ABSENT)
    paths = (str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252"}


def test_translating_needs_none_of_it_and_writes_utf_8(poor: dict[str, str]) -> None:
    command = [sys.executable, "-m", "heedful", "translate", "en-de", "He is tired."]
    process = subprocess.run(command, env=poor, capture_output=True, check=False)
    assert (process.returncode, process.stderr) == (0, b"")
    assert "müde" in process.stdout.decode("utf-8")


def test_measuring_memory_and_signals_need_none_of_it(poor: dict[str, str]) -> None:
    program = """
from heedful import device, process_memory
from heedful.cli.signals import signals
from heedful.serve import listener, server
from heedful.serve.listener import count_allowed_connections, raise_descriptor_limit
process_memory.keep_freed_memory(); process_memory.share_freed_memory(); process_memory.release_freed_memory()
raise_descriptor_limit()
with signals() as heard:
    print(device._peak_resident(), device.measure_memory("cpu").peak, count_allowed_connections(), repr(heard()))
"""
    process = subprocess.run([sys.executable, "-c", program], env=poor, capture_output=True, text=True, check=False)
    assert (process.stdout, process.stderr) == ("0 0 10000 ''\n", "")


def test_without_a_c_library_of_this_process_memory_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str | None) -> None:
        raise TypeError("argument of type 'NoneType' is not iterable")  # as on Windows

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    process_memory.keep_freed_memory()
    process_memory.release_freed_memory()


def test_a_port_is_taken_exclusively_where_reuse_would_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_KEEPALIVE, raising=False)  # any option will do
    with listener.listen("127.0.0.1", 0) as first:
        assert first.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 0
        assert first.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        with pytest.raises(ConfigError, match="cannot listen"):
            listener.listen("127.0.0.1", first.getsockname()[1])


class Windows:
    """Renames of a system that refuses to replace a file which another program reads."""

    def __init__(self, refusals: int, winerror: int) -> None:
        self.left, self._winerror, self._replace = refusals, winerror, Path.replace

    def replace(self, source: Path, target: Path) -> Path:
        if self.left:
            self.left -= 1
            error = PermissionError(13, "Permission denied", str(source))
            error.winerror = self._winerror  # type: ignore[attr-defined]
            raise error
        return self._replace(source, target)


@pytest.mark.parametrize(
    ("refusals", "winerror", "written"), [(3, 32, True), (3, 5, True), (99, 32, False), (1, 17, False)]
)
def test_a_file_that_is_being_read_is_replaced_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int, winerror: int, written: bool
) -> None:
    windows = Windows(refusals, winerror)
    monkeypatch.setattr(Path, "replace", lambda source, target: windows.replace(source, target))  # noqa: PLW0108 (a method of each path)
    monkeypatch.setattr(files, "_REPLACE_SECONDS", 0.0)
    (tmp_path / "a").write_text("old")
    if written:
        files.write_atomically(tmp_path / "a", "new")
    else:
        with pytest.raises(UserError, match="Permission denied"):
            files.write_atomically(tmp_path / "a", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "new" if written else "old"}


def test_folders_that_cannot_be_opened_are_not_forced_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    really = os.open

    def record(path: str, *rest: int) -> int:
        opened.append(str(path))
        return really(path, *rest)

    monkeypatch.setattr(os, "open", record)
    monkeypatch.setattr(sys, "platform", "win32")
    files.write_atomically(tmp_path / "a", "new")
    assert str(tmp_path) not in opened
    assert (tmp_path / "a").read_text() == "new"
