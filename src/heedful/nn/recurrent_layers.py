"""Recurrent layers over whole sentences, without a Python loop over time where none is needed."""

from typing import TYPE_CHECKING, TypeVar, assert_never

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.config import Cell
from heedful.nn.layout import Layout
from heedful.nn.source_attention import AdditiveAttention, SourceKeyValues

HiddenState = Float[Tensor, "batch states d_model"]  # of one layer: h of a GRU, h and c of an LSTM
Grid = Float[Tensor, "batch length width"]


def count_states(cell: Cell) -> int:
    """How many vectors a cell passes on to the next position."""
    match cell:
        case "lstm":
            return 2
        case "gru":
            return 1
        case _:
            assert_never(cell)


class RecurrentEncoderLayer(nn.Module):
    """One layer of an encoder, forwards or in both directions, from a zero state."""

    def __init__(self, cell: Cell, inputs: int, d_model: int, bidirectional: bool) -> None:
        super().__init__()
        self.rnn = _make_rnn(cell, inputs, d_model, bidirectional)

    def forward(
        self, x: Float[Tensor, "rows inputs"], layout: Layout
    ) -> tuple[Float[Tensor, "rows outputs"], HiddenState]:
        """The output at each position and the final state; of two directions, the final state of the backward one."""
        grid = layout.pad(x)
        if layout.full:
            outputs, last = self.rnn(grid)
        else:
            packed = pack_padded_sequence(grid, layout.lengths.cpu(), batch_first=True, enforce_sorted=False)
            outputs, last = self.rnn(packed)
            outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=layout.longest)
        return layout.pack(outputs), _last_state(last)

    if TYPE_CHECKING:
        __call__ = forward


class RecurrentDecoderLayer(nn.Module):
    """One layer of a decoder, which continues from a given state. Padding only comes after the real positions."""

    def __init__(self, cell: Cell, inputs: int, d_model: int) -> None:
        super().__init__()
        self.rnn = _make_rnn(cell, inputs, d_model, bidirectional=False)

    def forward(self, grid: Grid, state: HiddenState) -> tuple[Float[Tensor, "batch length d_model"], HiddenState]:
        # cuDNN and oneDNN want each state contiguous.
        parts = [part.contiguous()[None] for part in state.unbind(1)]
        outputs, last = self.rnn(grid, parts[0] if len(parts) == 1 else tuple(parts))
        return outputs, _last_state(last)

    if TYPE_CHECKING:
        __call__ = forward


class AttentiveDecoderLayer(nn.Module):
    """A cell that takes the context of the source as an input at each position (Bahdanau et al. 2015, A.1.2).

    The context depends on the state and the state on the context, so this is the only layer with a loop over time.
    """

    def __init__(self, cell: Cell, inputs: int, d_source: int, d_model: int) -> None:
        super().__init__()
        self.attention = AdditiveAttention(d_model, d_source, d_model)
        self.cell: nn.LSTMCell | nn.GRUCell
        match cell:
            case "lstm":
                self.cell = open_forget_gates(nn.LSTMCell(inputs + d_source, d_model))
            case "gru":
                self.cell = nn.GRUCell(inputs + d_source, d_model)
            case _:
                assert_never(cell)

    def forward(
        self, grid: Grid, state: HiddenState, source: SourceKeyValues
    ) -> tuple[Float[Tensor, "batch length d_model"], Float[Tensor, "batch length d_source"], HiddenState]:
        """Outputs, contexts and the final state."""
        parts = state.unbind(1)
        outputs, contexts, all_weights = [], [], []
        for x in grid.unbind(1):
            context, weights = self.attention.attend(parts[0][:, None], source)
            inputs = torch.cat([x, context[:, 0]], dim=1)
            moved = self.cell(inputs, parts[0] if len(parts) == 1 else parts)
            parts = moved if isinstance(moved, tuple) else (moved,)
            outputs.append(parts[0])
            contexts.append(context)
            all_weights.append(weights)
        self.attention.report(torch.cat(all_weights, dim=2))
        return torch.stack(outputs, dim=1), torch.cat(contexts, dim=1), torch.stack(parts, dim=1)

    if TYPE_CHECKING:
        __call__ = forward


Part = TypeVar("Part", nn.LSTM, nn.LSTMCell)


def open_forget_gates(part: Part) -> Part:
    """Add 1 to the biases of the forget gates (Gers et al. 2000): otherwise an LSTM learns much more slowly."""
    for name, bias in part.named_parameters():
        if name.startswith("bias_ih"):
            with torch.no_grad():
                bias[part.hidden_size : 2 * part.hidden_size] += 1.0
    return part


def _make_rnn(cell: Cell, inputs: int, d_model: int, bidirectional: bool) -> nn.LSTM | nn.GRU:
    match cell:
        case "lstm":
            return open_forget_gates(nn.LSTM(inputs, d_model, batch_first=True, bidirectional=bidirectional))
        case "gru":
            return nn.GRU(inputs, d_model, batch_first=True, bidirectional=bidirectional)
        case _:
            assert_never(cell)


def _last_state(last: Tensor | tuple[Tensor, Tensor]) -> HiddenState:
    parts = last if isinstance(last, tuple) else (last,)
    return torch.stack([part[-1] for part in parts], dim=1)
