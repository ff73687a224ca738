"""Recurrent layers over whole sentences, without a loop over time where none is needed."""

from typing import TYPE_CHECKING, TypeVar, assert_never

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.config import Cell
from heedful.nn.layout import Layout
from heedful.nn.source_attention import AdditiveAttention, Source

Carried = Float[Tensor, "batch states d_model"]  # what a layer hands on in time: h of a GRU, h and c of an LSTM
Grid = Float[Tensor, "batch length width"]


def states(cell: Cell) -> int:
    """How many vectors a cell hands on."""
    match cell:
        case "lstm":
            return 2
        case "gru":
            return 1
        case _:
            assert_never(cell)


class ReadingLayer(nn.Module):
    """One layer of an encoder, forwards or both ways; it begins with zeros."""

    def __init__(self, cell: Cell, inputs: int, d_model: int, bidirectional: bool) -> None:
        super().__init__()
        self.rnn = _rnn(cell, inputs, d_model, bidirectional)

    def forward(self, x: Float[Tensor, "rows inputs"], layout: Layout) -> tuple[Float[Tensor, "rows outputs"], Carried]:
        """What it says at each position, and what it holds at its end: of two ways, the backward one's."""
        grid = layout.pad(x)
        if layout.full:
            outputs, last = self.rnn(grid)
        else:
            packed = pack_padded_sequence(grid, layout.lengths.cpu(), batch_first=True, enforce_sorted=False)
            outputs, last = self.rnn(packed)
            outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=layout.longest)
        return layout.pack(outputs), _joined(last)

    if TYPE_CHECKING:
        __call__ = forward


class WritingLayer(nn.Module):
    """One layer of a decoder, which goes on from what it is given; padding comes after all that is real."""

    def __init__(self, cell: Cell, inputs: int, d_model: int) -> None:
        super().__init__()
        self.rnn = _rnn(cell, inputs, d_model, bidirectional=False)

    def forward(self, grid: Grid, carried: Carried) -> tuple[Float[Tensor, "batch length d_model"], Carried]:
        # cuDNN and oneDNN want each state contiguous.
        parts = [part.contiguous()[None] for part in carried.unbind(1)]
        outputs, last = self.rnn(grid, parts[0] if len(parts) == 1 else tuple(parts))
        return outputs, _joined(last)

    if TYPE_CHECKING:
        __call__ = forward


class AttentiveLayer(nn.Module):
    """A cell that is told at each position what it looked at (Bahdanau et al. 2015, A.1.2).

    Where it looks depends on its state, and its state on where it looked: here, and only here, time is a loop.
    """

    def __init__(self, cell: Cell, inputs: int, d_source: int, d_model: int) -> None:
        super().__init__()
        self.attention = AdditiveAttention(d_model, d_source, d_model)
        self.cell: nn.LSTMCell | nn.GRUCell
        match cell:
            case "lstm":
                self.cell = remembering(nn.LSTMCell(inputs + d_source, d_model))
            case "gru":
                self.cell = nn.GRUCell(inputs + d_source, d_model)
            case _:
                assert_never(cell)

    def forward(
        self, grid: Grid, carried: Carried, source: Source
    ) -> tuple[Float[Tensor, "batch length d_model"], Float[Tensor, "batch length d_source"], Carried]:
        """States, contexts, and what it holds at the end."""
        parts = carried.unbind(1)
        said, contexts, seen = [], [], []
        for x in grid.unbind(1):
            context, weights = self.attention.look(parts[0][:, None], source)
            given = torch.cat([x, context[:, 0]], dim=1)
            moved = self.cell(given, parts[0] if len(parts) == 1 else parts)
            parts = moved if isinstance(moved, tuple) else (moved,)
            said.append(parts[0])
            contexts.append(context)
            seen.append(weights)
        self.attention.show(torch.cat(seen, dim=2))
        return torch.stack(said, dim=1), torch.cat(contexts, dim=1), torch.stack(parts, dim=1)

    if TYPE_CHECKING:
        __call__ = forward


Part = TypeVar("Part", nn.LSTM, nn.LSTMCell)


def remembering(part: Part) -> Part:
    """The same with forget gates that begin open (Gers et al. 2000): without, an LSTM learns much more slowly."""
    for name, bias in part.named_parameters():
        if name.startswith("bias_ih"):
            with torch.no_grad():
                bias[part.hidden_size : 2 * part.hidden_size] += 1.0
    return part


def _rnn(cell: Cell, inputs: int, d_model: int, bidirectional: bool) -> nn.LSTM | nn.GRU:
    match cell:
        case "lstm":
            return remembering(nn.LSTM(inputs, d_model, batch_first=True, bidirectional=bidirectional))
        case "gru":
            return nn.GRU(inputs, d_model, batch_first=True, bidirectional=bidirectional)
        case _:
            assert_never(cell)


def _joined(last: Tensor | tuple[Tensor, Tensor]) -> Carried:
    parts = last if isinstance(last, tuple) else (last,)
    return torch.stack([part[-1] for part in parts], dim=1)
