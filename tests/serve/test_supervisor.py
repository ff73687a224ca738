"""The supervisor restarts a worker that dies, and gives up on one that never works."""

import socket
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("there is no supervisor on Windows", allow_module_level=True)

from heedful.serve import supervisor

DIE_WHILE_LOADING = "time.sleep(0.3); os.kill(os.getpid(), 9)"
DIE_AFTER_A_WHILE = "os.write(ready, b'0.0') and os.kill(os.getpid(), 9)"
DIE_AT_ONCE = "os.write(ready, repr(time.monotonic()).encode()); os.kill(os.getpid(), 9)"
STOP = "sys.exit(3)"


@pytest.mark.parametrize(
    ("work", "runs", "code"),
    [
        (DIE_WHILE_LOADING, 3, 128 + 9),
        (DIE_AT_ONCE, 3, 128 + 9),
        (f"{DIE_AFTER_A_WHILE} if runs < 6 else {STOP}", 6, 3),
        (STOP, 1, 3),
    ],
)
def test_three_early_deaths_in_a_row_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, runs: int, code: int
) -> None:
    """A worker that dies while it loads dies early, however long that takes."""
    record, program = tmp_path / "runs", tmp_path / "program"
    record.touch()
    program.write_text(
        f"#!{sys.executable}\n"
        "import os, sys, time\n"
        "_, _, ready = map(int, os.environ['HEEDFUL_WORKER'].split())\n"
        f"record = open({str(record)!r}, 'a+'); record.write('run\\n'); record.seek(0)\n"
        "runs = len(record.readlines()); record.close()\n"
        f"{work}\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(supervisor, "_EARLY", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert supervisor.supervise(listener) == code
    assert len(record.read_text().splitlines()) == runs
