"""Sharded tensors: each process holds a part (FSDP2); all write at once, and the files are joined into one.

A shard is PyTorch's `DTensor`: it has the shape of the whole tensor, and the optimizer, the moving average and the norm
treat it like any other tensor. `torch.distributed.checkpoint` writes and joins shards as safetensors; its own format,
which must be unpickled, is neither written nor read. Its join (PyTorch 2.13) refuses integers and zeroes a tensor
without dimensions, so only sharded tensors are written this way.
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from heedful.errors import HeedfulError
from heedful.storage.files import disk_errors

_PARTS = "sharded"  # the folder whose files PyTorch's writer joins
_JOINED = "model-00001-of-00001.safetensors"  # the name that it gives to the result
_INDEX = "model.safetensors.index.json"


def is_sharded(tensor: Tensor) -> bool:
    """Whether this process may hold only a shard of the tensor."""
    return hasattr(tensor, "full_tensor")


def gather_tensor(tensor: Tensor) -> Tensor:
    """The whole tensor, gathered from all processes; every process must call this at the same time."""
    gather = getattr(tensor, "full_tensor", None)
    return gather() if gather else tensor


def local_part(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds."""
    to_local = getattr(tensor, "to_local", None)
    return to_local() if to_local else tensor


def shard_like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """Shard a whole tensor in the way that the parameter is sharded."""
    mesh, placements = getattr(parameter, "device_mesh", None), getattr(parameter, "placements", None)
    if mesh is None or parameter.shape != tensor.shape:  # the count of updates is not sharded
        return tensor
    from torch.distributed.tensor import distribute_tensor

    # Every process has read the whole tensor, so nothing needs to be sent.
    return distribute_tensor(tensor.to(parameter.device), mesh, placements, src_data_rank=None)


def write_shards(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write this process's shards into a shared folder; every process must call this at the same time."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    parts = {name: tensor for name, tensor in tensors.items() if is_sharded(tensor)}
    try:
        with disk_errors(folder):
            writer = HuggingFaceStorageWriter(str(folder / _PARTS), save_distributed=True)
            writer.sync_files = False  # these files are removed after the join, so they need not survive a crash
            save(parts, storage_writer=writer)
    except CheckpointException as failed:  # raised in all processes if one fails
        _raise_first_failure(folder, failed.failures)
        raise


def _raise_first_failure(folder: Path, failures: Mapping[int, tuple[BaseException, object]]) -> None:
    """Raise the error of the first process that failed; a disk error becomes one of ours."""
    for rank, (error, _) in sorted(failures.items()):
        with disk_errors(folder):
            if isinstance(error, OSError):
                raise error
        raise HeedfulError(f"process {rank} could not write its part of {folder.parent} ({error})") from error


def join_shards(folder: Path, names: Iterable[str], count: int, path: Path) -> None:
    """Join the files that `count` processes wrote into one, tensor by tensor, and remove them."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.metadata import Metadata

    # The join would silently fill in zeros for a file that is not there.
    seen = len(list((folder / _PARTS).iterdir()))
    if seen != count:
        raise HeedfulError(
            f"{folder.parent} has the files of only {seen} of {count} processes; "
            "all machines need the same folder, on a shared disk"
        )
    # A separate writer does the join: within `save`, the other processes would wait in an operation with a timeout.
    one_file = dict.fromkeys(names, 1)
    writer = HuggingFaceStorageWriter(str(folder), one_file, save_distributed=True, enable_consolidation=True)
    writer.finish(Metadata({}), [])
    (folder / _JOINED).rename(path)
    (folder / _INDEX).unlink()
    shutil.rmtree(folder / _PARTS)
