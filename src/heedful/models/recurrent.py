"""Recurrent encoders and decoders, with and without attention.

`none`: Sutskever et al. (2014). The encoder's stack reads the source backwards, as theirs does, and each layer of the
decoder continues from the final state of the encoder's layer.

`additive`: Bahdanau et al. (2015). A bidirectional encoder, a first decoder layer that attends to the source before
each step, and their deep output with maxout. Theirs has one layer on each side; here you can stack more on top.

`multiplicative`: Luong et al. (2015), global attention with their score "general". There is no input feeding, so the
decoder's stack does not depend on the attention, and training computes all its steps in one call and all attention in
one product. Their encoder reads forwards; this one is bidirectional, like Bahdanau's.

They differ from their papers as follows. Cells are PyTorch's, whose GRU resets after the product instead of before it,
and so are their initial weights. Embeddings can be tied. Bahdanau's output uses the state after its own step, as in the
authors' code. The end of the source is reversed with the rest, while Sutskever et al. leave it in its place.

Each kind of attention works with both kinds of cell; the forget gates of an LSTM start open. Dropout applies to
embeddings, between layers and before the output layer, never from one position to the next (Zaremba et al. 2014).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, assert_never, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.config import Cell, ModelConfig
from heedful.models.predictor import SentenceKeys
from heedful.models.seq2seq import EncoderDecoder
from heedful.nn.dropout import Dropout, DropoutKeys, number_sites
from heedful.nn.layout import Layout, Rows
from heedful.nn.linear import glorot_linear
from heedful.nn.multi_head import Kind, MultiHeadAttention
from heedful.nn.source_attention import AdditiveAttention, MultiplicativeAttention, SourceKeyValues

HiddenState = Float[Tensor, "batch states d_model"]  # of one layer: h of a GRU, h and c of an LSTM
Grid = Float[Tensor, "batch length width"]
HiddenStates = Float[Tensor, "batch layers states d_model"]
Annotations = Float[Tensor, "source_rows annotation"]  # the encoder's outputs, both directions side by side


@dataclass(frozen=True, slots=True)
class RecurrentMemory:
    """The initial state of the decoder, and the source for its attention if it has one."""

    hidden: HiddenStates
    source: SourceKeyValues | None


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """The state of the decoder's layers, and the source for their attention."""

    hidden: HiddenStates
    source: SourceKeyValues | None
    sentences: Int[Tensor, " batch"]  # the sentence that each row translates

    def select(self, rows: Int[Tensor, " chosen"]) -> "RecurrentState":
        """Keep these rows."""
        sentences, source = self.sentences[rows], self.source
        # As in the Transformer: in most steps of a beam, rows stay with their sentences.
        if source is not None and not torch.equal(sentences, self.sentences):
            source = source.select(rows)
        return RecurrentState(self.hidden.index_select(0, rows), source, sentences)


def count_states(cell: Cell) -> int:
    """How many vectors a cell passes on to the next position."""
    match cell:
        case "lstm":
            return 2
        case "gru":
            return 1
        case _:
            assert_never(cell)


def full_precision(device: torch.device) -> AbstractContextManager[None]:
    """Compute in the type of the weights inside the block, even under autocast.

    Under autocast of any type, cuDNN's recurrent layers run in float16. That cannot be combined with bfloat16, and
    small gradients would vanish in it, because only `train.precision = "float16"` scales the loss.
    """
    on = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if on else nullcontext()


class RecurrentEncoderLayer(nn.Module):
    """One layer of an encoder, forwards or in both directions, from a zero state."""

    def __init__(self, cell: Cell, inputs: int, d_model: int, bidirectional: bool) -> None:
        super().__init__()
        self.rnn = _make_rnn(cell, inputs, d_model, bidirectional)

    def forward(
        self, x: Float[Tensor, "rows inputs"], layout: Layout
    ) -> tuple[Float[Tensor, "rows outputs"], HiddenState]:
        """The output at each position and the final state; of two directions, the final state of the backward one."""
        with full_precision(x.device):
            grid = layout.pad(x.to(weight_type(self.rnn)))
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
        with full_precision(grid.device):
            dtype = weight_type(self.rnn)
            # cuDNN and oneDNN want each state contiguous.
            parts = [part.to(dtype).contiguous()[None] for part in state.unbind(1)]
            outputs, last = self.rnn(grid.to(dtype), parts[0] if len(parts) == 1 else tuple(parts))
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


def weight_type(rnn: nn.LSTM | nn.GRU) -> torch.dtype:
    """The type of a layer's weights."""
    return next(rnn.parameters()).dtype


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


class RecurrentEncoder(nn.Module):
    """A stack of encoder layers with dropout between them."""

    def __init__(self, config: ModelConfig, bidirectional: bool) -> None:
        super().__init__()
        d, count = config.d_model, config.encoder_layers
        widths = [d, *[2 * d if bidirectional else d] * (count - 1)]
        layers = nn.ModuleList(RecurrentEncoderLayer(config.cell, width, d, bidirectional) for width in widths)
        self.layers = cast(Sequence[RecurrentEncoderLayer], layers)
        self.dropouts = nn.ModuleList(Dropout(config.dropout) for _ in widths)

    def forward(self, x: Rows, layout: Layout) -> tuple[Float[Tensor, "rows outputs"], HiddenStates]:
        """The outputs of the last layer, and the final state of every layer."""
        final = []
        for layer, dropout in zip(self.layers, self.dropouts, strict=True):
            x, state = layer(dropout(x, layout.dropout_keys), layout)
            final.append(state)
        return x, torch.stack(final, dim=1)

    if TYPE_CHECKING:
        __call__ = forward


class RecurrentDecoder(nn.Module, ABC):
    """From target embeddings to features of the output layer, on a grid of sentences."""

    def __init__(self, config: ModelConfig, layers: int) -> None:
        """`layers` is the number of layers without attention."""
        super().__init__()
        d, cell = config.d_model, config.cell
        self.shape = (config.decoder_layers, count_states(cell), d)
        stack = nn.ModuleList(RecurrentDecoderLayer(cell, d, d) for _ in range(layers))
        self.layers = cast(Sequence[RecurrentDecoderLayer], stack)
        self.dropouts = nn.ModuleList(Dropout(config.dropout) for _ in range(layers))

    @property
    def attention(self) -> AdditiveAttention | MultiplicativeAttention | None:
        """The attention to the source, if there is one."""
        return None

    @abstractmethod
    def make_memory(self, annotations: Annotations, layout: Layout, final: HiddenStates) -> RecurrentMemory:
        """The decoder's memory, from the outputs and the final states of the encoder."""

    @abstractmethod
    def forward(
        self, grid: Grid, hidden: HiddenStates, source: SourceKeyValues | None, dropout_keys: DropoutKeys
    ) -> tuple[Float[Tensor, "batch length read"], HiddenStates]:
        """The inputs of `read_out` at each position, and the final states."""

    @abstractmethod
    def read_out(self, x: Float[Tensor, "rows read"]) -> Rows:
        """The features that the output layer takes."""

    def run_stack(
        self, grid: Grid, hidden: Sequence[HiddenState], dropout_keys: DropoutKeys
    ) -> tuple[Grid, list[HiddenState]]:
        """The outputs and final states of the layers without attention."""
        final = []
        for layer, dropout, before in zip(self.layers, self.dropouts, hidden, strict=True):
            grid, state = layer(drop_grid(dropout, grid, dropout_keys), before)
            final.append(state)
        return grid, final

    if TYPE_CHECKING:
        __call__ = forward


def drop_grid(dropout: nn.Module, grid: Grid, dropout_keys: DropoutKeys) -> Grid:
    """Apply dropout to a grid that has a key for each slot."""
    flat: Tensor = dropout(grid.flatten(0, 1), dropout_keys)
    return flat.view(grid.shape)


class PlainDecoder(RecurrentDecoder):
    """Sutskever et al. (2014)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, config.decoder_layers)

    def make_memory(self, annotations: Annotations, layout: Layout, final: HiddenStates) -> RecurrentMemory:
        return RecurrentMemory(final, None)

    def forward(
        self, grid: Grid, hidden: HiddenStates, source: SourceKeyValues | None, dropout_keys: DropoutKeys
    ) -> tuple[Float[Tensor, "batch length read"], HiddenStates]:
        grid, final = self.run_stack(grid, hidden.unbind(1), dropout_keys)
        return grid, torch.stack(final, dim=1)

    def read_out(self, x: Float[Tensor, "rows read"]) -> Rows:
        return x


class AttentiveDecoder(RecurrentDecoder):
    """A decoder with attention, each of whose states starts as tanh(W backward state)."""

    def __init__(self, config: ModelConfig, layers: int) -> None:
        super().__init__(config, layers)
        count, each, d = self.shape
        self.bridge = glorot_linear(d, count * each * d)

    @property
    @abstractmethod
    def attention(self) -> AdditiveAttention | MultiplicativeAttention:
        """The attention to the source."""

    def make_memory(self, annotations: Annotations, layout: Layout, final: HiddenStates) -> RecurrentMemory:
        keys, values = layout.pad(self.attention.key(annotations)), layout.pad(annotations)
        hidden = torch.tanh(self.bridge(final[:, -1, 0])).unflatten(1, self.shape)
        return RecurrentMemory(hidden, SourceKeyValues(keys, values, layout.mask[:, None]))


class AdditiveDecoder(AttentiveDecoder):
    """Bahdanau et al. (2015)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, config.decoder_layers - 1)
        d = config.d_model
        self.first = AttentiveDecoderLayer(config.cell, d, 2 * d, d)
        self.first_dropout = Dropout(config.dropout)
        self.output = glorot_linear(d + d + 2 * d, 2 * d)

    @property
    def attention(self) -> AdditiveAttention:
        return self.first.attention

    def forward(
        self, grid: Grid, hidden: HiddenStates, source: SourceKeyValues | None, dropout_keys: DropoutKeys
    ) -> tuple[Float[Tensor, "batch length read"], HiddenStates]:
        embedded = drop_grid(self.first_dropout, grid, dropout_keys)
        first, *others = hidden.unbind(1)
        outputs, contexts, first_final = self.first(embedded, first, require_source(source))
        top, final = self.run_stack(outputs, others, dropout_keys)
        return torch.cat([top, embedded, contexts], dim=2), torch.stack([first_final, *final], dim=1)

    def read_out(self, x: Float[Tensor, "rows read"]) -> Rows:
        return self.output(x).unflatten(1, (-1, 2)).amax(2)


class MultiplicativeDecoder(AttentiveDecoder):
    """Luong et al. (2015), equation 5."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, config.decoder_layers)
        self.general = MultiplicativeAttention(config.d_model, 2 * config.d_model)
        self.output = glorot_linear(3 * config.d_model, config.d_model)

    @property
    def attention(self) -> MultiplicativeAttention:
        return self.general

    def forward(
        self, grid: Grid, hidden: HiddenStates, source: SourceKeyValues | None, dropout_keys: DropoutKeys
    ) -> tuple[Float[Tensor, "batch length read"], HiddenStates]:
        top, final = self.run_stack(grid, hidden.unbind(1), dropout_keys)
        return torch.cat([self.general(top, require_source(source)), top], dim=2), torch.stack(final, dim=1)

    def read_out(self, x: Float[Tensor, "rows read"]) -> Rows:
        return torch.tanh(self.output(x))


def require_source(source: SourceKeyValues | None) -> SourceKeyValues:
    """The source, which a decoder with attention always needs."""
    if source is None:
        raise ValueError("a decoder with attention got no source; start from the memory that it made itself")
    return source


def make_decoder(config: ModelConfig) -> PlainDecoder | AdditiveDecoder | MultiplicativeDecoder:
    """The configured decoder."""
    match config.attention:
        case "none":
            return PlainDecoder(config)
        case "additive":
            return AdditiveDecoder(config)
        case "multiplicative":
            return MultiplicativeDecoder(config)
        case _:
            assert_never(config.attention)


class Recurrent(EncoderDecoder[RecurrentMemory, RecurrentState]):
    """An encoder and a decoder that process one position after another."""

    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int, pad_id: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary, pad_id, scale=config.d_model**0.5)
        self.backwards = config.attention == "none"
        self.encoder = RecurrentEncoder(config, bidirectional=config.attention != "none")
        self.decoder = make_decoder(config)
        self.dropout = Dropout(config.dropout)
        number_sites(self)

    @property
    def layers(self) -> Iterable[nn.Module]:
        """The two stacks."""
        return self.encoder, self.decoder

    @property
    def attentions(self) -> Mapping[Kind, Sequence[MultiHeadAttention]]:
        """One for the whole decoder, or none."""
        attention = self.decoder.attention
        return {} if attention is None else {"cross": [attention]}

    def encode(
        self, source: Int[Tensor, " source_rows"], lengths: Int[Tensor, " batch"], sentence_keys: SentenceKeys = None
    ) -> RecurrentMemory:
        layout = Layout.of(lengths, sentence_keys)
        embedded = self.source_embedding(source[reverse_rows(layout)] if self.backwards else source)
        annotations, final = self.run_layer(self.encoder, layout.dropout_keys, embedded, layout)
        return self.decoder.make_memory(annotations, layout, final)

    def features(
        self,
        target_in: Int[Tensor, " target_rows"],
        lengths: Int[Tensor, " batch"],
        memory: RecurrentMemory,
        sentence_keys: SentenceKeys = None,
    ) -> Float[Tensor, "target_rows d_model"]:
        layout = Layout.of(lengths, sentence_keys)
        grid = layout.pad(self.target_embedding(target_in))
        keys = pad_dropout_keys(layout)
        grid, _ = self.run_layer(self.decoder, keys, grid, memory.hidden, memory.source, keys)
        return self.dropout(self.decoder.read_out(layout.pack(grid)), layout.dropout_keys)

    def start(self, memory: RecurrentMemory) -> RecurrentState:
        sentences = torch.arange(len(memory.hidden), device=memory.hidden.device)
        return RecurrentState(memory.hidden, memory.source, sentences)

    def step(
        self, tokens: Int[Tensor, " rows"], state: RecurrentState
    ) -> tuple[Float[Tensor, "rows vocabulary"], RecurrentState]:
        grid = self.target_embedding(tokens)[:, None]
        grid, hidden = self.decoder(grid, state.hidden, state.source, None)
        features = self.dropout(self.decoder.read_out(grid[:, 0]), None)
        return self.output(features), RecurrentState(hidden, state.source, state.sentences)


def reverse_rows(layout: Layout) -> Int[Tensor, " rows"]:
    """The indices that reverse each sentence."""
    lengths = layout.lengths.repeat_interleave(layout.lengths)
    rows = torch.arange(len(lengths), device=lengths.device)
    return rows + lengths - 1 - 2 * layout.positions


def pad_dropout_keys(layout: Layout) -> DropoutKeys:
    """A dropout key for each slot of the grid; the keys of padding do not matter."""
    if layout.dropout_keys is None:
        return None
    slots = layout.dropout_keys.new_zeros(len(layout.lengths) * layout.longest)
    return slots.index_copy_(0, layout.slots, layout.dropout_keys)
