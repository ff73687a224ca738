"""Tensors of which each process holds a part, written by all processes at once and joined into one safetensors file.

PyTorch's `torch.distributed.checkpoint` does both, by its writer for safetensors; its own format, which has to be
unpickled, is neither written nor read. Its join (PyTorch 2.13) refuses whole numbers and makes a tensor without
dimensions zero, so only what is in parts goes this way.
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from heedful.errors import HeedfulError
from heedful.storage.files import disk_errors

_PARTS = "sharded"  # where PyTorch's writer looks for what it is to join
_JOINED = "model-00001-of-00001.safetensors"  # and what it calls the result
_INDEX = "model.safetensors.index.json"


def is_sharded(tensor: Tensor) -> bool:
    """Whether this process may hold only a part of the tensor."""
    return hasattr(tensor, "full_tensor")


def write_shards(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write this process's parts into a folder that all see; every process has to call this at the same time."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    parts = {name: tensor for name, tensor in tensors.items() if is_sharded(tensor)}
    try:
        with disk_errors(folder):
            writer = HuggingFaceStorageWriter(str(folder / _PARTS), save_distributed=True)
            writer.sync_files = False  # what is removed after the join need not outlive a crash
            save(parts, storage_writer=writer)
    except CheckpointException as failed:  # raised in all processes if one fails
        _raise_first_failure(folder, failed.failures)
        raise


def _raise_first_failure(folder: Path, failures: Mapping[int, tuple[BaseException, object]]) -> None:
    """Raise what went wrong in the first of the processes that failed, in our own words where it was the disk."""
    for rank, (error, _) in sorted(failures.items()):
        with disk_errors(folder):
            if isinstance(error, OSError):
                raise error
        raise HeedfulError(f"process {rank} could not write its part of {folder.parent} ({error})") from error


def join_shards(folder: Path, names: Iterable[str], count: int, path: Path) -> None:
    """Make one file of what `count` processes have written, tensor by tensor; the parts are removed."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.metadata import Metadata

    # The join would take zeros for a file that it does not see.
    seen = len(list((folder / _PARTS).iterdir()))
    if seen != count:
        raise HeedfulError(
            f"{folder.parent} shows the parts of {seen} of {count} processes; "
            "all machines need the same folder, on a disk that they share"
        )
    # A writer of its own for the join: as a part of saving it would keep the others in an operation with a time limit.
    one_file = dict.fromkeys(names, 1)
    writer = HuggingFaceStorageWriter(str(folder), one_file, save_distributed=True, enable_consolidation=True)
    writer.finish(Metadata({}), [])
    (folder / _JOINED).rename(path)
    (folder / _INDEX).unlink()
    shutil.rmtree(folder / _PARTS)
