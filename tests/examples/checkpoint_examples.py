"""Checkpoints to save and to compare."""

import math
from pathlib import Path

import torch
from torch import Tensor

from heedful.storage.checkpoint import Checkpoint, Checkpoints


def checkpoint(step: int, salt: int = 0) -> Checkpoint:
    """One that differs in every part from that of another step or salt."""
    generator = torch.Generator().manual_seed(1000 * step + salt)
    tensors = {
        "model.weight": torch.randn(5, 3, generator=generator),
        "model.half": torch.randn(7, generator=generator).half(),
        "model.brain": torch.randn(2, 4, generator=generator).bfloat16(),
        "optimizer.step": torch.tensor(step),
        "optimizer.none": torch.empty(0, 6),
        "ema.weight": torch.randn(5, 3, generator=generator),
        "ema.flag": torch.tensor([True, False, step % 2 == 0]),
        "random.torch": generator.get_state()[:64],
    }
    return Checkpoint(step, tensors, {"position": 3 * step, "loss": math.pi * step + salt, "best": -math.inf})


def same(left: Checkpoint, right: Checkpoint) -> bool:
    def equal(one: Tensor, other: Tensor) -> bool:
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)

    return (
        (left.step, left.state) == (right.step, right.state)
        and left.tensors.keys() == right.tensors.keys()
        and all(equal(left.tensors[name], right.tensors[name]) for name in left.tensors)
    )


def latest(folder: Path) -> tuple[Checkpoint, tuple[str, ...]]:
    found = Checkpoints(folder, keep=2).load_latest()
    assert found is not None
    return found
