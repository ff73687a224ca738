"""Folders that are given up."""

from contextlib import suppress
from pathlib import Path
from shutil import rmtree


def clear(folder: Path) -> None:
    """Empty a folder, and remove it, unless it is a link or a disk of its own. What cannot be removed stays."""
    for path in list(folder.iterdir()):
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                rmtree(path, ignore_errors=True)
            else:
                path.unlink()
    with suppress(OSError):
        folder.rmdir()
