"""Read files that others may have written: regular files inside their folder, no larger and no deeper than needed.

A model folder may come from anywhere. A named pipe in it would block for ever, a sparse file of a gigabyte fills the
memory, and a link may lead to any file of the machine. Every file of such a folder is opened here.
"""

import json
import os
import stat
from io import BufferedReader
from pathlib import Path

from heedful.errors import FolderError

MEBIBYTE = 1 << 20
MOST_JSON_BYTES = 16 * MEBIBYTE
_DEEPEST = 50  # tables and lists within each other


def check_file(path: Path) -> None:
    """Raise FolderError if this is not a regular file, or a link that leaves its folder; OSError if it is missing."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        home = _home(path.parent)
        if not path.resolve(strict=True).is_relative_to(home):
            raise FolderError(f"{path} is a link that leaves its folder; copy the file itself there")
        status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise FolderError(f"{path} is {_describe(status.st_mode)} instead of a file; remove it, or copy the file again")


def open_file(path: Path, most: int | None = None) -> BufferedReader:
    """Open a file that passes `check_file` and has at most so many bytes; None: any number."""
    check_file(path)
    # The path may have changed since, so the pipe that it may be now must not block either.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    file = os.fdopen(descriptor, "rb")
    size = os.fstat(descriptor).st_size
    if most is not None and size > most:
        file.close()
        raise FolderError(f"{path} has {size:,} bytes, over the {most:,} of such a file; heedful did not write it")
    return file


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a file that passes `open_file`."""
    with open_file(path, most) as file:
        return file.read(most)


def parse_json(content: bytes) -> object:
    """The JSON value in these bytes; ValueError if they are not JSON, or nested too deeply."""
    try:
        value: object = json.loads(content.decode())
    except RecursionError as error:
        raise ValueError("too deeply nested") from error
    if _is_deep(value):
        raise ValueError("too deeply nested")
    return value


def _home(folder: Path) -> Path:
    """The folder that links may lead to: the folder itself; in a cache of Hugging Face, all versions of the model."""
    real = folder.resolve()
    return real.parent.parent if real.parent.name == "snapshots" else real


def _describe(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
    )
    return next((name for test, name in kinds if test(mode)), "something else")


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
