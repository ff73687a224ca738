"""Folders that are given up."""

from contextlib import suppress
from pathlib import Path

from heedful.storage.files import discard


def clear_folder(folder: Path) -> None:
    """Empty a folder, and remove it, unless it is a link or a disk of its own. What cannot be removed stays."""
    for path in list(folder.iterdir()):
        discard(path)
    with suppress(OSError):
        folder.rmdir()
