"""The gradient of an update, computed by several processes with PyTorch's DDP or FSDP2."""

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
from heedful.models.predictor import AnyPredictor
from heedful.training.gradients import Gradients, Objective, Update
from heedful.training.process_group import ProcessGroup


def make_distributed_gradients(
    model: AnyPredictor, objective: Objective, group: ProcessGroup, device: torch.device, parts: int, kind: Parallel
) -> Gradients:
    """Compute this model's gradients in several processes, each with at most `parts` parts of an update."""
    loss = SummedLoss(model, objective)
    match kind:
        case "copies":
            return ReplicatedGradients(loss, group, device, parts)
        case "shards":
            return ShardedGradients(loss, group, device, parts)
        case _:
            assert_never(kind)


class SummedLoss(nn.Module):
    """The objective as a module, because DDP and FSDP2 wrap modules."""

    def __init__(self, model: AnyPredictor, objective: Objective) -> None:
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
        self._seed_dropout(step)
        # DDP and FSDP2 compute the mean over the processes, but the sum is needed.
        count = self._group.world_size
        parts = [(part, count / update.target_tokens) for part in update.parts]
        # A process without a pair works on an empty batch with weight 0, because the others wait for it.
        parts += [(_empty_batch(self._device), 0.0)] * (self._parts - len(parts))
        losses = []
        for number, (part, share) in enumerate(parts, start=1):
            with divide_threads(1), nullcontext() if number == len(parts) else self.without_sync():
                losses.append(self._add_gradient(part, step, share))
        if self._device.type != "cpu":
            # Reading the losses would wait for a lost process for ever; this does not.
            self._group.sum_over_processes(0.0)
        return self._group.sum_over_processes(sum(loss.item() for loss in losses)) / count

    def without_sync(self) -> AbstractContextManager[None]:
        """Accumulate gradients inside the block without adding them up over the processes."""
        raise NotImplementedError

    def _add_gradient(self, part: Batch, step: int, share: float) -> Tensor:
        with divide_threads(1):
            loss: Tensor = self._module(part, step, share)
            self._objective.precision.backward(loss)
        return loss.detach()

    def _seed_dropout(self, step: int) -> None:
        """If PyTorch draws the dropout, give each process and update its own stream, also in a resumed run."""
        if self._device.type != "cpu":
            words = f"{self._objective.seed} {step} {self._group.rank}".encode()
            torch.manual_seed(int.from_bytes(blake2b(words, digest_size=7).digest(), "little"))


class ReplicatedGradients(DistributedGradients):
    """Each process has the whole model (DDP); gradients are sent while the others are still being computed."""

    def __init__(self, loss: SummedLoss, group: ProcessGroup, device: torch.device, parts: int) -> None:
        from torch.nn.parallel import DistributedDataParallel

        with warnings.catch_warnings():  # newer versions of PyTorch renamed an option; older ones lack the new name
            warnings.simplefilter("ignore", FutureWarning)
            # Buffers are tables of positions, which grow in each process as far as its sentences need.
            self._ddp = DistributedDataParallel(loss, broadcast_buffers=False, gradient_as_bucket_view=True)
        super().__init__(loss, self._ddp, group, device, parts)
        # After its first backward pass, DDP sorts the weights by the order of their gradients and sums in that order.
        # Let it do so here, before any update, so that a resumed training sums in the same order as an unbroken one.
        self._add_gradient(_empty_batch(device), 0, 0.0)
        loss.zero_grad(set_to_none=True)

    def without_sync(self) -> AbstractContextManager[None]:
        """See `DistributedGradients`."""
        return self._ddp.no_sync()


class ShardedGradients(DistributedGradients):
    """Each process has a shard of every weight, of its gradient and of Adam's state (FSDP2)."""

    def __init__(self, loss: SummedLoss, group: ProcessGroup, device: torch.device, parts: int) -> None:
        if loss.objective.precision.dtype == torch.float16:
            # Each process would look for overflows in its own shards and choose a scale of its own.
            raise ConfigError(
                "train.parallel is 'shards' but train.precision gives float16; choose bfloat16 or float32, or 'copies'"
            )
        # On a CPU, each product rounds its own factors; all else is computed in float32.
        dtype = torch.float32 if device.type == "cpu" else loss.objective.precision.dtype
        shard_module(loss, device, group.world_size, dtype)
        super().__init__(loss, loss, group, device, parts)

    @contextmanager
    def without_sync(self) -> Iterator[None]:
        """See `DistributedGradients`."""
        self._module.set_requires_gradient_sync(False)  # type: ignore[operator]
        try:
            yield
        finally:
            self._module.set_requires_gradient_sync(True)  # type: ignore[operator]


def shard_module(module: nn.Module, device: torch.device, count: int, dtype: torch.dtype = torch.float32) -> None:
    """Shard the weights over all processes, layer by layer; only the layer in use is gathered for a while.

    A layer is gathered in `dtype`, because autocast would keep a narrow copy of every whole weight for the backward
    pass. Shards, gradients and inputs stay in float32.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    narrow = None if dtype == torch.float32 else dtype
    policy = MixedPrecisionPolicy(param_dtype=narrow, reduce_dtype=torch.float32, cast_forward_inputs=False)
    mesh = init_device_mesh(device.type, (count,))
    for stack in [part for part in module.modules() if isinstance(part, nn.ModuleList)]:
        for layer in stack:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(module, mesh=mesh, mp_policy=policy)


def _empty_batch(device: torch.device) -> Batch:
    """A batch with one pair of one token each."""
    zero, one = torch.zeros(1, dtype=torch.int64, device=device), torch.ones(1, dtype=torch.int64, device=device)
    return Batch(zero, one, zero, zero, one, zero)
