"""Sentences written end to end, without padding, and the padded grid that attention needs."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heedful.nn.noise import row_keys


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each sentence of a batch lies.

    Everything but attention works on one position at a time, so a batch is packed: `rows` holds the positions of all
    sentences one after another. Only attention spreads them over a grid of batch x longest sentence.
    """

    lengths: Int[Tensor, " batch"]
    positions: Int[Tensor, " rows"]  # place of each row in its own sentence, from 0
    slots: Int[Tensor, " rows"]  # place of each row in the flattened grid
    longest: int
    full: bool  # all sentences are equally long: the grid is the packed rows themselves
    keys: Int[Tensor, " rows"] | None  # what dropout is drawn from, a number for each row

    @classmethod
    def of(cls, lengths: Int[Tensor, " batch"], noise: Int[Tensor, " batch"] | None = None) -> "Layout":
        """Lay out sentences of these lengths; `noise` has a key for each (see `sentence_keys`)."""
        ends = lengths.cumsum(0)
        rows = int(ends[-1])
        longest = int(lengths.max())
        sentence = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths, output_size=rows)
        positions = torch.arange(rows, device=lengths.device) - (ends - lengths)[sentence]
        slots, full = sentence * longest + positions, rows == longest * len(lengths)
        keys = None if noise is None else row_keys(noise[sentence], positions)
        return cls(lengths, positions, slots, longest, full, keys)

    @property
    def mask(self) -> Bool[Tensor, "batch longest"]:
        """True where the grid holds a row."""
        return torch.arange(self.longest, device=self.lengths.device) < self.lengths[:, None]

    def pad(self, rows: Float[Tensor, "rows width"]) -> Float[Tensor, "batch longest width"]:
        """Spread packed rows over the grid, zero elsewhere."""
        shape = (len(self.lengths), self.longest, rows.shape[-1])
        if self.full:
            return rows.view(shape)
        return _Scatter.apply(rows, self.slots, shape[0] * shape[1]).view(shape)

    def pack(self, grid: Float[Tensor, "batch longest width"]) -> Float[Tensor, "rows width"]:
        """Take the rows out of the grid again: `pack(pad(x))` is x."""
        flat = grid.reshape(-1, grid.shape[-1])
        return flat if self.full else _Gather.apply(flat, self.slots)


class _Scatter(torch.autograd.Function):
    """Rows to slots. Its transpose is `_Gather`: PyTorch's own backward of either adds with atomics or one by one."""

    @staticmethod
    def forward(ctx, rows: Tensor, slots: Tensor, size: int) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(slots)
        return rows.new_zeros(size, rows.shape[1]).index_copy_(0, slots, rows)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def]
        return gradient.index_select(0, ctx.saved_tensors[0]), None, None


class _Gather(torch.autograd.Function):
    """Slots to rows. Its transpose is `_Scatter`."""

    @staticmethod
    def forward(ctx, flat: Tensor, slots: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(slots)
        ctx.size = flat.shape[0]
        return flat.index_select(0, slots)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        size, (slots,) = ctx.size, ctx.saved_tensors
        return gradient.new_zeros(size, gradient.shape[1]).index_copy_(0, slots, gradient), None
