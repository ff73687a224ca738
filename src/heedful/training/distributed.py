"""The gradient of an update, worked out by several processes with PyTorch's own means (DDP, FSDP2)."""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import blake2b
from typing import assert_never

import torch
from torch import Tensor, nn

from heedful.config import Parallel
from heedful.data.batch import Batch
from heedful.errors import ConfigError
from heedful.kernels.threads import divide_threads
from heedful.models.seq2seq import AnySeq2Seq
from heedful.training.gradients import Gradients, Objective, Update
from heedful.training.process_group import ProcessGroup


def make_distributed_gradients(
    model: AnySeq2Seq, objective: Objective, group: ProcessGroup, device: torch.device, parts: int, kind: Parallel
) -> Gradients:
    """What works out this model's gradients in several processes, each with at most so many parts of an update."""
    loss = SummedLoss(model, objective)
    match kind:
        case "copies":
            return ReplicatedGradients(loss, group, device, parts)
        case "shards":
            return ShardedGradients(loss, group, device, parts)
        case _:
            assert_never(kind)


class SummedLoss(nn.Module):
    """The objective as a module, which is what DDP and FSDP2 wrap."""

    def __init__(self, model: AnySeq2Seq, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: Batch, step: int, share: float) -> Tensor:
        return self.objective.loss(self.model, batch, step, share)


class DistributedGradients:
    """All processes run the same number of forward and backward passes, each on its own parts of the update."""

    def __init__(
        self, loss: SummedLoss, module: nn.Module, group: ProcessGroup, device: torch.device, parts: int
    ) -> None:
        self._objective = loss.objective
        self._module = module
        self._group = group
        self._device = device
        self._parts = parts

    def __call__(self, update: Update, step: int) -> float:
        """See `Gradients`."""
        self._group.step = step
        self._draw_anew(step)
        # DDP and FSDP2 leave the mean over the processes, and the sum is wanted.
        count = self._group.world_size
        parts = [(part, count / update.target_tokens) for part in update.parts]
        # A process without a pair works on something that counts zero times: the others wait for it.
        parts += [(_empty_batch(self._device), 0.0)] * (self._parts - len(parts))
        losses = []
        for number, (part, share) in enumerate(parts, start=1):
            with divide_threads(1), nullcontext() if number == len(parts) else self.on_its_own():
                losses.append(self._add_gradient(part, step, share))
        if self._device.type != "cpu":
            self._group.sum_over_processes(
                0.0
            )  # reading the losses would wait for a lost process without an end; this does not
        return self._group.sum_over_processes(sum(loss.item() for loss in losses)) / count

    def on_its_own(self) -> AbstractContextManager[None]:
        """Inside, gradients are kept and not yet added up over the processes."""
        raise NotImplementedError

    def _add_gradient(self, part: Batch, step: int, share: float) -> Tensor:
        with divide_threads(1):
            loss: Tensor = self._module(part, step, share)
            self._objective.precision.backward(loss)
        return loss.detach()

    def _draw_anew(self, step: int) -> None:
        """Where PyTorch draws the dropout, each process and update has a stream of its own, also when resumed."""
        if self._device.type != "cpu":
            words = f"{self._objective.seed} {step} {self._group.rank}".encode()
            torch.manual_seed(int.from_bytes(blake2b(words, digest_size=7).digest(), "little"))


class ReplicatedGradients(DistributedGradients):
    """Each process has the whole model (DDP); gradients travel while the rest of them is worked out."""

    def __init__(self, loss: SummedLoss, group: ProcessGroup, device: torch.device, parts: int) -> None:
        from torch.nn.parallel import DistributedDataParallel

        with warnings.catch_warnings():  # newer versions of PyTorch have another name for this, which older do not know
            warnings.simplefilter("ignore", FutureWarning)
            # Buffers are tables of positions, which grow in each process as far as its own sentences need.
            self._ddp = DistributedDataParallel(loss, broadcast_buffers=False, gradient_as_bucket_view=True)
        super().__init__(loss, self._ddp, group, device, parts)
        # After its first way back DDP sorts the weights by when their gradients came, and from then on adds in another
        # order. It does so here, before any update, and a resumed training adds in the same order as one that went on.
        self._add_gradient(_empty_batch(device), 0, 0.0)
        loss.zero_grad(set_to_none=True)

    def on_its_own(self) -> AbstractContextManager[None]:
        """See `DistributedGradients`."""
        return self._ddp.no_sync()


class ShardedGradients(DistributedGradients):
    """Each process has a part of every weight, of its gradient and of Adam's memory of it (FSDP2)."""

    def __init__(self, loss: SummedLoss, group: ProcessGroup, device: torch.device, parts: int) -> None:
        if loss.objective.precision.dtype == torch.float16:
            # Each process would look for overflows in its own part of the gradients, and scale as it finds.
            raise ConfigError(
                "train.parallel is 'shards' but train.precision gives float16; choose bfloat16 or float32, or 'copies'"
            )
        shard_module(loss, device, group.world_size)
        super().__init__(loss, loss, group, device, parts)

    @contextmanager
    def on_its_own(self) -> Iterator[None]:
        """See `DistributedGradients`."""
        self._module.set_requires_gradient_sync(False)  # type: ignore[operator]
        try:
            yield
        finally:
            self._module.set_requires_gradient_sync(True)  # type: ignore[operator]


def shard_module(module: nn.Module, device: torch.device, count: int) -> None:
    """Spread the weights over all processes, layer by layer: only the layer at work is put together for a while."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (count,))
    for stack in [part for part in module.modules() if isinstance(part, nn.ModuleList)]:
        for layer in stack:
            fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)


def _empty_batch(device: torch.device) -> Batch:
    """A pair of one token each."""
    zero, one = torch.zeros(1, dtype=torch.int64, device=device), torch.ones(1, dtype=torch.int64, device=device)
    return Batch(zero, one, zero, zero, one, zero)
