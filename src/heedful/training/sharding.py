"""Weights of which each process holds a part (FSDP2), and the way between parts and whole tensors.

A part is PyTorch's `DTensor`: it has the shape of the whole weight, and the optimizer, the moving average and the norm
work on it as on any other tensor.
"""

import torch
from torch import Tensor, nn


def shard_module(module: nn.Module, device: torch.device, count: int) -> None:
    """Spread the weights over all processes, layer by layer: only the layer at work is put together for a while."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (count,))
    for stack in [part for part in module.modules() if isinstance(part, nn.ModuleList)]:
        for layer in stack:
            fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)


def gather_tensor(tensor: Tensor) -> Tensor:
    """All of a tensor of which this process may hold a part; every process has to ask for it at the same time."""
    together = getattr(tensor, "full_tensor", None)
    return together() if together else tensor


def local_part(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor."""
    own = getattr(tensor, "to_local", None)
    return own() if own else tensor


def shard_like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """The part of a whole tensor that goes with this process's part of the parameter."""
    mesh, placements = getattr(parameter, "device_mesh", None), getattr(parameter, "placements", None)
    if mesh is None or parameter.shape != tensor.shape:  # the count of updates is whole
        return tensor
    from torch.distributed.tensor import distribute_tensor

    # Every process has read the whole tensor, so none has to send anything.
    return distribute_tensor(tensor.to(parameter.device), mesh, placements, src_data_rank=None)
