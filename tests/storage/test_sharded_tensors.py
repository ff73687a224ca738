"""Tensors that several processes write in shards are joined completely, or not at all."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from checkpoint_examples import latest
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from toy import same_bits

from heedful.errors import HeedfulError, OutOfSpace
from heedful.storage.checkpoint import Checkpoint, Checkpoints
from heedful.storage.sharded_tensors import gather_tensor as together
from heedful.storage.sharded_tensors import join_shards, write_shards


@pytest.fixture
def parts() -> Iterator[dict[str, Tensor]]:
    """Sharded tensors of a group with a single process."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    mesh = init_device_mesh("cpu", (1,))
    values = {"model.weight": torch.randn(5, 3), "ema.weight": torch.randn(7)}
    yield {name: distribute_tensor(value, mesh, [Shard(0)]) for name, value in values.items()}
    dist.destroy_process_group()


def test_sharded_and_whole_tensors_come_back_together(parts: dict[str, Tensor], tmp_path: Path) -> None:
    # The join of torch.distributed.checkpoint would refuse the first of these and zero the second.
    gather_tensor = {"random.cpu": torch.get_rng_state(), "optimizer.step.weight": torch.tensor(13.0)}
    given = Checkpoint(13, parts | gather_tensor, {})

    def spread(folder: Path) -> int:
        write_shards(folder, given.tensors)
        return 1

    Checkpoints(tmp_path, 2).save(given, spread)
    expected = {name: together(tensor) for name, tensor in parts.items()} | gather_tensor
    assert same_bits(dict(latest(tmp_path)[0].tensors), expected)
    assert same_bits(Checkpoints(tmp_path, 2).load_model(13, "optimizer.step."), {"weight": torch.tensor(13.0)})


def test_missing_shards_are_an_error_and_not_zeros(parts: dict[str, Tensor], tmp_path: Path) -> None:
    write_shards(tmp_path, parts)
    with pytest.raises(HeedfulError, match="has the files of only 1 of 2 processes; all machines need the same folder"):
        join_shards(tmp_path, parts, 2, tmp_path / "joined")


@pytest.mark.parametrize(
    ("error", "told", "sentence"),
    [
        (OSError(errno.ENOSPC, "full"), OutOfSpace, "the disk is full while writing .*checkpoints; "),
        (ValueError("odd"), HeedfulError, r"process 1 could not write its part of .*checkpoints \(odd\)"),
    ],
)
def test_every_process_reports_the_failure_of_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, told: type[Exception], sentence: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise CheckpointException("write", {1: (error, None)})  # type: ignore[dict-item]

    monkeypatch.setattr("torch.distributed.checkpoint.state_dict_saver.save", fails)
    with pytest.raises(told, match=sentence):
        write_shards(tmp_path / "checkpoints" / ".tmp-1", {})
