"""Files and folders that are complete or absent, even if the power fails.

Everything is written beside its final place under a temporary name (``.tmp-…``), forced to disk, and only then renamed.
Files that must be verified later have a manifest of sha256 sums, because safetensors itself detects few flipped bits.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING

from heedful.errors import FolderError, HeedfulError, OutOfSpace, UserError
from heedful.untrusted_files import MOST_JSON_BYTES, check_file, open_file, parse_json, read_bytes

if TYPE_CHECKING:  # most of this works without PyTorch
    from torch import Tensor

MANIFEST = "manifest.json"
OLD = ".old"
_FORMAT = 1
_TEMPORARY = ".tmp-"
_PLAIN_NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}(/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}){0,3}")
_FULL = {errno.ENOSPC, errno.EDQUOT}
_IN_USE = {5, 32}  # Windows: access denied, and a sharing violation
_REPLACE_ATTEMPTS = 20
_REPLACE_SECONDS = 0.05  # between two attempts
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_WRONG_PATH = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY),
    *(errno.ENAMETOOLONG, errno.ELOOP),
}
_DTYPES = {
    **{f"torch.float{bits}": f"F{bits}" for bits in (64, 32, 16)},
    **{f"torch.int{bits}": f"I{bits}" for bits in (64, 32, 16, 8)},
    **{"torch.bfloat16": "BF16", "torch.uint8": "U8", "torch.bool": "BOOL"},
}
_LENGTH_BYTES = 8  # of a safetensors file, before its header
_MOST_HEADER_BYTES = 100_000_000  # as in the library


class DamagedError(FolderError):
    """A file or folder whose content is not as it was written; `reason` says what differs."""

    def __init__(self, what: Path, reason: str) -> None:
        super().__init__(f"{what} is damaged ({reason}); restore it from a copy")
        self.reason = reason


# Disk errors


def out_of_space(error: OSError) -> bool:
    """Whether the disk or the user's quota is full."""
    return error.errno in _FULL


@contextmanager
def disk_errors(what: Path) -> Iterator[None]:
    """Turn every OSError inside into a HeedfulError with a sentence about `what`."""
    try:
        yield
    except OSError as error:
        raise _describe_disk_error(error, what) from error


def _describe_disk_error(error: OSError, what: Path) -> HeedfulError:
    # A temporary name means nothing to the user, so name the folder that contains it.
    shown = next((path.parent for path in [*reversed(what.parents), what] if _is_temporary(path)), what)
    if out_of_space(error):
        return OutOfSpace(
            f"the disk is full while writing {shown}; free some space and try again "
            "(resume an interrupted training with: heedful train --resume FOLDER)"
        )
    sentence = f"{shown} cannot be read or written ({error.strerror or error})"
    if error.errno in _FORBIDDEN:
        return UserError(f"{sentence}; check its permissions or choose another folder")
    if error.errno in _WRONG_PATH:
        return UserError(f"{sentence}; check the path")
    return HeedfulError(f"{sentence}; check the disk and try again")


# Files


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file so that a crash at any moment leaves either the old or the new one, complete.

    On failure the temporary file is removed. Text is written as UTF-8.
    """
    _write(path, [content.encode() if isinstance(content, str) else content])


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines in the same way; they need not fit into memory."""
    _write(path, (f"{line}\n".encode() for line in lines))


def _write(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    temporary = _temporary_beside(path)
    with disk_errors(path):
        try:
            _write_durably(temporary, chunks)
            _replace(temporary, path)
        except BaseException:
            discard(temporary)
            raise
        _sync_folder(path.parent)


def _replace(temporary: Path, path: Path) -> None:
    """Give a file its final name. Windows refuses this for a moment while another program reads the old file."""
    for attempt in range(_REPLACE_ATTEMPTS):
        try:
            temporary.replace(path)
            return
        except PermissionError as error:
            if getattr(error, "winerror", None) not in _IN_USE or attempt == _REPLACE_ATTEMPTS - 1:
                raise
            sleep(_REPLACE_SECONDS)


def _write_durably(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        for chunk in chunks:
            _write_all(descriptor, memoryview(chunk))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, rest: memoryview) -> None:
    while rest:
        written = os.write(descriptor, rest)
        if written == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rest = rest[written:]


def _sync_folder(folder: Path) -> None:
    """Force the names in a folder to disk."""
    if sys.platform == "win32":  # a folder cannot be opened there
        return
    try:
        _sync(folder, os.O_RDONLY)
    except OSError as error:
        # Some network file systems have no fsync for folders; nothing more can be done there.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """The sha256 of a file in hexadecimal digits."""
    with disk_errors(path):
        return _digest(path)


def _digest(path: Path) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Folders


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; at the end it is forced to disk and renamed to `final`.

    An existing folder is renamed to `aside(final)` and removed once the new one is durable, so that a crash always
    leaves one of them. On failure the temporary folder is removed and the old one stays.
    """
    temporary = _temporary_beside(final)
    with disk_errors(final):
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            temporary.mkdir()
            yield temporary
            _sync_tree(temporary)
            _put_in_place(temporary, final)
        except BaseException:
            discard(temporary)
            raise


def aside(folder: Path) -> Path:
    """The name of the old folder while a new one takes its place."""
    return folder.with_name(folder.name + OLD)


def remove(path: Path) -> None:
    """Remove a file or folder if it exists; a crash never leaves half of it under its name."""
    gone = _temporary_beside(path)
    try:
        path.rename(gone)
    except FileNotFoundError:
        return
    discard(gone)


def remove_temporaries(folder: Path) -> None:
    """Remove the temporary files of killed processes; the caller must hold the folder's lock."""
    if folder.is_dir():
        for path in filter(_is_temporary, list(folder.iterdir())):
            discard(path)


def _put_in_place(temporary: Path, final: Path) -> None:
    old = aside(final)
    if final.exists():
        remove(old)
        final.rename(old)
    try:
        temporary.rename(final)
    except OSError:
        with suppress(OSError):
            old.rename(final)
        raise
    _sync_folder(final.parent)
    with suppress(OSError):  # if it stays, it costs only space
        remove(old)


def _sync_tree(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            _sync_tree(path)
        else:
            _sync(path, os.O_RDWR)
    _sync_folder(folder)


def _temporary_beside(path: Path) -> Path:
    return path.with_name(_TEMPORARY + secrets.token_hex(6))


def _is_temporary(path: Path) -> bool:
    return path.name.startswith(_TEMPORARY)


def discard(path: Path) -> None:
    """Remove a file or folder as far as possible."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def clear_folder(folder: Path) -> None:
    """Empty a folder and remove it, unless it is a link or a mount point. Whatever cannot be removed stays."""
    for path in list(folder.iterdir()):
        discard(path)
    with suppress(OSError):
        folder.rmdir()


# Manifests


def write_manifest(folder: Path, names: Iterable[str]) -> None:
    """Record the size and sha256 of the named files, so that `check_manifest` can verify them."""
    files: dict[str, object] = {}
    for name in names:
        if not _PLAIN_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a plain name of a file inside the folder")
        with disk_errors(folder / name):
            files[name] = {"sha256": _digest(folder / name), "bytes": (folder / name).stat().st_size}
    write_atomically(folder / MANIFEST, _manifest_text(files))


def check_manifest(folder: Path, required: Iterable[str] = ()) -> None:
    """Raise FolderError unless every file in the manifest is unchanged and all `required` files are in it.

    Other files are not checked.
    """
    files = _read_manifest(folder)
    for name in required:
        if name not in files:
            raise DamagedError(folder, f"{MANIFEST}: does not name {name}")
    for name, (size, digest) in files.items():
        if not _PLAIN_NAME.fullmatch(name):
            raise DamagedError(folder, f"{MANIFEST}: names {name[:80]!r}")
        _check_file(folder, name, size, digest)


def read_json(path: Path, most: int = MOST_JSON_BYTES) -> object:
    """The JSON value in a file; FolderError if it is missing, damaged or too large."""
    return _parse_json(path, _read_bytes(path, most))


def _read_bytes(path: Path, most: int) -> bytes:
    try:
        return read_bytes(path, most)
    except OSError as error:
        raise DamagedError(path.parent, f"{path.name}: {_reason(error)}") from error


def _parse_json(path: Path, content: bytes) -> object:
    try:
        return parse_json(content)
    except ValueError as error:
        raise DamagedError(path.parent, f"{path.name}: not JSON") from error


def _manifest_text(files: Mapping[str, object]) -> str:
    content: dict[str, object] = {"format": _FORMAT, "files": files}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return json.dumps({**content, "sha256": digest}, indent=1, sort_keys=True) + "\n"


def _read_manifest(folder: Path) -> dict[str, tuple[int, str]]:
    """The size and sha256 of each file."""
    path = folder / MANIFEST
    content = _read_bytes(path, MOST_JSON_BYTES)
    match _parse_json(path, content):
        case {"format": int(version)} if version != _FORMAT:
            raise FolderError(f"{path} has format {version}, but this heedful reads format {_FORMAT}; update heedful")
        case {"files": dict(files)} if all(map(_is_entry, files.values())):
            # Written again it must be the same byte for byte: this checks its sha256, and no bit goes unchecked.
            if _manifest_text(files).encode() == content:
                return {name: (entry["bytes"], entry["sha256"]) for name, entry in files.items()}
    raise DamagedError(folder, f"{MANIFEST}: sha256 differs")


def _is_entry(entry: object) -> bool:
    match entry:
        case {"bytes": int(), "sha256": str(), **others} if not others:
            return True
    return False


def _check_file(folder: Path, name: str, bytes_then: int, digest_then: str) -> None:
    path = folder / name
    try:
        check_file(path)
        # The size first: it costs nothing, and a file that has grown to gigabytes is not read.
        if (bytes_now := path.stat().st_size) != bytes_then:
            raise DamagedError(folder, f"{name}: {bytes_now} bytes instead of {bytes_then}")
        if _digest(path) != digest_then:
            raise DamagedError(folder, f"{name}: sha256 differs")
    except OSError as error:
        raise DamagedError(folder, f"{name}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "missing"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split())[:200] or type(error).__name__


# Tensors


def save_tensors(path: Path, tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str]) -> None:
    """Write a safetensors file atomically; views and shared memory are written out in full under each name.

    The format is written here, one tensor after the other, because the library's own writer does not fsync, and its
    `save` to bytes would hold all weights in memory twice.
    """
    # The widest types first, as in the library, so that every tensor starts at a multiple of its item size.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header = _header([(name, tensors[name]) for name in names], metadata)
    _write(path, _chunks(header, (tensors[name] for name in names)))


def load_tensors(path: Path, prefix: str = "") -> "dict[str, Tensor]":
    """Read the tensors of a safetensors file whose names start with `prefix`; FolderError if the file is not one.

    The tensors own their memory, so later changes to the file do not affect them. Nothing is ever unpickled.
    """
    from safetensors import safe_open

    try:
        check_file(path)
        with safe_open(path, framework="pt", device="cpu") as file:
            # The clone matters: the library returns a memory map of the file, not a copy.
            return {name: file.get_tensor(name).clone() for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118
    except FolderError:
        raise
    except Exception as error:  # a malicious header can raise almost anything; it always means the same
        raise DamagedError(path, _reason(error)) from error


def read_tensor_metadata(path: Path) -> dict[str, str]:
    """The metadata of a safetensors file, without its tensors; DamagedError if the file is not one.

    Exported runs are read without PyTorch, and this is all that they need of the format.
    """
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if not 1 < length <= min(_MOST_HEADER_BYTES, size - _LENGTH_BYTES):
                raise ValueError(f"its header cannot have {length:,} bytes")
            header = parse_json(file.read(length))
        if not isinstance(header, dict):
            raise ValueError("its header is not a JSON object")
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise ValueError("its metadata is not text")
        if max(map(_find_end, header.values()), default=0) != size - _LENGTH_BYTES - length:
            raise ValueError("its tensors do not end where the file ends")
    except (OSError, ValueError) as error:
        raise DamagedError(path, _reason(error)) from error
    return metadata


def _find_end(tensor: object) -> int:
    match tensor:
        case {"data_offsets": [int(), int(end)]}:
            return end
    raise ValueError("its header does not say where a tensor is")


def _header(tensors: "Iterable[tuple[str, Tensor]]", metadata: Mapping[str, str]) -> bytes:
    content: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name, tensor in tensors:
        if name == "__metadata__" or str(tensor.dtype) not in _DTYPES:
            raise ValueError(f"a tensor named {name!r} of {tensor.dtype} has no place in a safetensors file")
        start, end = end, end + tensor.numel() * tensor.element_size()
        content[name] = {"dtype": _DTYPES[str(tensor.dtype)], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(content, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _chunks(header: bytes, tensors: "Iterable[Tensor]") -> Iterator[bytes | memoryview]:
    import torch

    yield header
    for tensor in tensors:
        whole = tensor.detach().cpu().contiguous()
        # Not reshape: a single element may have any stride, and then its bytes could not be viewed.
        yield whole.as_strided((whole.numel(),), (1,)).view(torch.uint8).numpy().data
