"""A lock that lets only one process train in a folder."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heedful.errors import FolderError
from heedful.storage.files import disk_errors

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK = ".lock"
_HELD = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}
_FAR_BYTE = 1 << 30  # on Windows a locked byte cannot be read, so it is one far behind the process id


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder for this process; make it if it is missing. FolderError names the process that holds the lock.

    The operating system holds the lock, so it ends with the process, however that dies. The file stays: if it were
    removed, two processes could each lock a file of that name.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _acquire(descriptor, folder)
        with disk_errors(folder):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        try:
            yield
        finally:
            _unlock(descriptor)  # explicitly, because a forked child may hold a copy of the descriptor a moment longer
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, folder: Path) -> None:
    try:
        _lock_at_once(descriptor)
    except OSError as error:
        if error.errno not in _HELD:
            raise FolderError(
                f"{folder} cannot be locked ({error.strerror}); train in a folder on a disk that has file locks"
            ) from error
        raise FolderError(
            f"{folder} is being trained by {_holder(descriptor)}; wait for it, stop it or choose another folder"
        ) from error


if sys.platform == "win32":

    def _lock_at_once(descriptor: int) -> None:
        os.lseek(descriptor, _FAR_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, _FAR_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:

    def _lock_at_once(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _holder(descriptor: int) -> str:
    """The process whose id is in the lock file; it may not have written it yet."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    number = os.read(descriptor, 20).strip()
    return f"process {int(number)}" if number.isdigit() else "another process"
