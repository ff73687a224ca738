"""Sentences end to end without padding, and the padded grid that attention needs."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heedful.nn.noise import row_keys

Rows = Float[Tensor, "rows d_model"]  # a vector for each position of all sentences, end to end


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each sentence of a batch is.

    Everything but attention works on one position at a time, so a batch is packed: `rows` holds the positions of all
    sentences one after another. Only attention needs them on a grid of batch x longest sentence.
    """

    lengths: Int[Tensor, " batch"]
    positions: Int[Tensor, " rows"]  # position of each row in its own sentence, from 0
    slots: Int[Tensor, " rows"]  # index of each row in the flattened grid
    longest: int
    full: bool  # all sentences have the same length, so the grid is the packed rows themselves
    dropout_keys: Int[Tensor, " rows"] | None  # one for each row; see `heedful.nn.noise`

    @classmethod
    def of(cls, lengths: Int[Tensor, " batch"], sentence_keys: Int[Tensor, " batch"] | None = None) -> "Layout":
        """Lay out sentences of these lengths; each may have a dropout key (see `heedful.nn.noise.sentence_keys`)."""
        ends = lengths.cumsum(0)
        rows = int(ends[-1])
        longest = int(lengths.max())
        sentence = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths, output_size=rows)
        positions = torch.arange(rows, device=lengths.device) - (ends - lengths)[sentence]
        slots, full = sentence * longest + positions, rows == longest * len(lengths)
        dropout_keys = None if sentence_keys is None else row_keys(sentence_keys[sentence], positions)
        return cls(lengths, positions, slots, longest, full, dropout_keys)

    @property
    def mask(self) -> Bool[Tensor, "batch longest"]:
        """True where the grid holds a row, False on padding."""
        return torch.arange(self.longest, device=self.lengths.device) < self.lengths[:, None]

    def pad(self, rows: Float[Tensor, "rows width"]) -> Float[Tensor, "batch longest width"]:
        """Put packed rows on the grid, zeros elsewhere."""
        shape = (len(self.lengths), self.longest, rows.shape[-1])
        if self.full:
            return rows.view(shape)
        return _Scatter.apply(rows, self.slots, shape[0] * shape[1]).view(shape)

    def pack(self, grid: Float[Tensor, "batch longest width"]) -> Float[Tensor, "rows width"]:
        """Take the rows off the grid again: `pack(pad(x))` is x."""
        flat = grid.reshape(-1, grid.shape[-1])
        return flat if self.full else _Gather.apply(flat, self.slots)


def _spread(rows: Tensor, slots: Tensor, size: int) -> Tensor:
    """A grid of this size with the rows in their slots, zeros elsewhere."""
    grid = rows.new_zeros(size, rows.shape[1])
    if rows.device.type == "mps":  # where `index_copy_` is slow
        return grid.index_put_((slots,), rows)
    return grid.index_copy_(0, slots, rows)


class _Scatter(torch.autograd.Function):
    """Rows to slots. Its transpose is `_Gather`; PyTorch's own backward passes add with atomics or one by one."""

    @staticmethod
    def forward(ctx, rows: Tensor, slots: Tensor, size: int) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(slots)
        return _spread(rows, slots, size)

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
        return _spread(gradient, ctx.saved_tensors[0], ctx.size), None
