"""Recurrent encoders and decoders, with and without attention.

`none`: Sutskever et al. (2014). A stack reads the source backwards, as theirs does, and the layers of the decoder go on
from where its layers end.

`additive`: Bahdanau et al. (2015). Both ways over the source, a first decoder layer that looks at it before each step,
and their deep output with maxout. Theirs has one layer on each side; more of them are stacked on top.

`multiplicative`: Luong et al. (2015), global attention with their score "general". Without input feeding: so the
decoder's stack does not depend on where it looked, and training computes all of its steps in one call and all attention
in one product. Theirs reads the source forwards; here both ways, as Bahdanau's does.

Where they differ from their papers: the cells are PyTorch's, whose GRU resets after the product and not before it, and
so are their beginnings; embeddings can be tied; Bahdanau's output sees the state after its own step, as their code has
it; and the end of the source, which Sutskever et al. leave in its place, is turned round with the rest.

Either kind of cell goes with each; the forget gates of an LSTM begin open. Dropout is on embeddings, between layers and
before the output layer, never between two positions (Zaremba et al. 2014).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.models.embedded import Embedded
from heedful.models.seq2seq import Noise
from heedful.nn.dropout import Dropout, Keys, number_sites
from heedful.nn.fused import Rows
from heedful.nn.heads import Kind, MultiHead
from heedful.nn.layout import Layout
from heedful.nn.linear import glorot_linear
from heedful.nn.recurrent import AttentiveLayer, Carried, Grid, ReadingLayer, WritingLayer, states
from heedful.nn.source_attention import AdditiveAttention, MultiplicativeAttention, Source

AllCarried = Float[Tensor, "batch layers states d_model"]
Annotations = Float[Tensor, "source_rows annotation"]  # what the encoder says at each position, both ways side by side


@dataclass(frozen=True, slots=True)
class Memory:
    """What the decoder begins with, and what it looks at if it does."""

    carried: AllCarried
    source: Source | None


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """What the layers of the decoder hold, and what they look at."""

    carried: AllCarried
    source: Source | None
    sentences: Int[Tensor, " batch"]  # which sentence a row translates

    def select(self, rows: Int[Tensor, " chosen"]) -> "RecurrentState":
        """Keep these rows."""
        sentences, source = self.sentences[rows], self.source
        # As in the Transformer: most steps of a beam stay with their sentences.
        if source is not None and not torch.equal(sentences, self.sentences):
            source = source.select(rows)
        return RecurrentState(self.carried.index_select(0, rows), source, sentences)


class Encoder(nn.Module):
    """Layers that read, with dropout between them."""

    def __init__(self, config: ModelConfig, bidirectional: bool) -> None:
        super().__init__()
        d, count = config.d_model, config.encoder_layers
        widths = [d, *[2 * d if bidirectional else d] * (count - 1)]
        layers = nn.ModuleList(ReadingLayer(config.cell, width, d, bidirectional) for width in widths)
        self.layers = cast(Sequence[ReadingLayer], layers)
        self.dropouts = nn.ModuleList(Dropout(config.dropout) for _ in widths)

    def forward(self, x: Rows, layout: Layout) -> tuple[Float[Tensor, "rows outputs"], AllCarried]:
        """The last layer's outputs, and what every layer holds at its end."""
        ends = []
        for layer, dropout in zip(self.layers, self.dropouts, strict=True):
            x, carried = layer(dropout(x, layout.keys), layout)
            ends.append(carried)
        return x, torch.stack(ends, dim=1)

    if TYPE_CHECKING:
        __call__ = forward


class Decoder(nn.Module, ABC):
    """From embedded target pieces to what the output layer sees, on a grid of sentences."""

    def __init__(self, config: ModelConfig, layers: int) -> None:
        """`layers` of them are plain ones."""
        super().__init__()
        d, cell = config.d_model, config.cell
        self.shape = (config.decoder_layers, states(cell), d)
        self.layers = cast(Sequence[WritingLayer], nn.ModuleList(WritingLayer(cell, d, d) for _ in range(layers)))
        self.dropouts = nn.ModuleList(Dropout(config.dropout) for _ in range(layers))

    @property
    def attention(self) -> AdditiveAttention | MultiplicativeAttention | None:
        """Where it looks at the source."""
        return None

    @abstractmethod
    def begin(self, annotations: Annotations, layout: Layout, ends: AllCarried) -> Memory:
        """From what the encoder gave."""

    @abstractmethod
    def forward(
        self, grid: Grid, carried: AllCarried, source: Source | None, keys: Keys
    ) -> tuple[Float[Tensor, "batch length read"], AllCarried]:
        """What `read_out` wants to know at each position, and what is held at the end."""

    @abstractmethod
    def read_out(self, x: Float[Tensor, "rows read"]) -> Rows:
        """What the output layer sees."""

    def stack(self, grid: Grid, carried: Sequence[Carried], keys: Keys) -> tuple[Grid, list[Carried]]:
        """The plain layers."""
        ends = []
        for layer, dropout, before in zip(self.layers, self.dropouts, carried, strict=True):
            grid, end = layer(dropped(dropout, grid, keys), before)
            ends.append(end)
        return grid, ends

    if TYPE_CHECKING:
        __call__ = forward


def dropped(dropout: nn.Module, grid: Grid, keys: Keys) -> Grid:
    """Dropout on a grid, with a key for each of its slots."""
    dropped: Tensor = dropout(grid.flatten(0, 1), keys)
    return dropped.view(grid.shape)


class PlainDecoder(Decoder):
    """Sutskever et al. (2014)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, config.decoder_layers)

    def begin(self, annotations: Annotations, layout: Layout, ends: AllCarried) -> Memory:
        return Memory(ends, None)

    def forward(
        self, grid: Grid, carried: AllCarried, source: Source | None, keys: Keys
    ) -> tuple[Float[Tensor, "batch length read"], AllCarried]:
        grid, ends = self.stack(grid, carried.unbind(1), keys)
        return grid, torch.stack(ends, dim=1)

    def read_out(self, x: Float[Tensor, "rows read"]) -> Rows:
        return x


class LookingDecoder(Decoder):
    """What both kinds of attention have in common: how they begin, tanh(W backward state) for each layer's states."""

    def __init__(self, config: ModelConfig, layers: int) -> None:
        super().__init__(config, layers)
        count, each, d = self.shape
        self.bridge = glorot_linear(d, count * each * d)

    @property
    @abstractmethod
    def attention(self) -> AdditiveAttention | MultiplicativeAttention:
        """Where it looks at the source."""

    def begin(self, annotations: Annotations, layout: Layout, ends: AllCarried) -> Memory:
        keys, values = layout.pad(self.attention.key(annotations)), layout.pad(annotations)
        carried = torch.tanh(self.bridge(ends[:, -1, 0])).unflatten(1, self.shape)
        return Memory(carried, Source(keys, values, layout.mask[:, None]))


class AdditiveDecoder(LookingDecoder):
    """Bahdanau et al. (2015)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, config.decoder_layers - 1)
        d = config.d_model
        self.first = AttentiveLayer(config.cell, d, 2 * d, d)
        self.first_dropout = Dropout(config.dropout)
        self.output = glorot_linear(d + d + 2 * d, 2 * d)

    @property
    def attention(self) -> AdditiveAttention:
        return self.first.attention

    def forward(
        self, grid: Grid, carried: AllCarried, source: Source | None, keys: Keys
    ) -> tuple[Float[Tensor, "batch length read"], AllCarried]:
        embedded = dropped(self.first_dropout, grid, keys)
        first, *others = carried.unbind(1)
        said, contexts, end = self.first(embedded, first, source_of(source))
        top, ends = self.stack(said, others, keys)
        return torch.cat([top, embedded, contexts], dim=2), torch.stack([end, *ends], dim=1)

    def read_out(self, x: Float[Tensor, "rows read"]) -> Rows:
        return self.output(x).unflatten(1, (-1, 2)).amax(2)


class MultiplicativeDecoder(LookingDecoder):
    """Luong et al. (2015), equation 5."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, config.decoder_layers)
        self.general = MultiplicativeAttention(config.d_model, 2 * config.d_model)
        self.output = glorot_linear(3 * config.d_model, config.d_model)

    @property
    def attention(self) -> MultiplicativeAttention:
        return self.general

    def forward(
        self, grid: Grid, carried: AllCarried, source: Source | None, keys: Keys
    ) -> tuple[Float[Tensor, "batch length read"], AllCarried]:
        top, ends = self.stack(grid, carried.unbind(1), keys)
        return torch.cat([self.general(top, source_of(source)), top], dim=2), torch.stack(ends, dim=1)

    def read_out(self, x: Float[Tensor, "rows read"]) -> Rows:
        return torch.tanh(self.output(x))


def source_of(source: Source | None) -> Source:
    """The source, which a decoder with attention always has."""
    if source is None:
        raise ValueError("a decoder with attention was given no source; begin with its own memory")
    return source


def decoder(config: ModelConfig) -> PlainDecoder | AdditiveDecoder | MultiplicativeDecoder:
    """The decoder that the configuration names."""
    match config.attention:
        case "none":
            return PlainDecoder(config)
        case "additive":
            return AdditiveDecoder(config)
        case "multiplicative":
            return MultiplicativeDecoder(config)
        case _:
            assert_never(config.attention)


class Recurrent(Embedded[Memory, RecurrentState]):
    """An encoder and a decoder that read and write one position after another."""

    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int, pad_id: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary, pad_id, scale=config.d_model**0.5)
        self.backwards = config.attention == "none"
        self.encoder = Encoder(config, bidirectional=config.attention != "none")
        self.decoder = decoder(config)
        self.dropout = Dropout(config.dropout)
        number_sites(self)

    @property
    def layers(self) -> Iterable[nn.Module]:
        """The two stacks."""
        return self.encoder, self.decoder

    @property
    def attentions(self) -> Mapping[Kind, Sequence[MultiHead]]:
        """One for the whole decoder, or none."""
        attention = self.decoder.attention
        return {} if attention is None else {"cross": [attention]}

    def encode(
        self, source: Int[Tensor, " source_rows"], lengths: Int[Tensor, " batch"], noise: Noise = None
    ) -> Memory:
        layout = Layout.of(lengths, noise)
        embedded = self.source_embedding(source[turned(layout)] if self.backwards else source)
        annotations, ends = self.run_layer(self.encoder, layout.keys, embedded, layout)
        return self.decoder.begin(annotations, layout, ends)

    def features(
        self,
        target_in: Int[Tensor, " target_rows"],
        lengths: Int[Tensor, " batch"],
        memory: Memory,
        noise: Noise = None,
    ) -> Float[Tensor, "target_rows d_model"]:
        layout = Layout.of(lengths, noise)
        grid = layout.pad(self.target_embedding(target_in))
        keys = grid_keys(layout)
        grid, _ = self.run_layer(self.decoder, keys, grid, memory.carried, memory.source, keys)
        return self.dropout(self.decoder.read_out(layout.pack(grid)), layout.keys)

    def start(self, memory: Memory) -> RecurrentState:
        sentences = torch.arange(len(memory.carried), device=memory.carried.device)
        return RecurrentState(memory.carried, memory.source, sentences)

    def step(
        self, tokens: Int[Tensor, " rows"], state: RecurrentState
    ) -> tuple[Float[Tensor, "rows vocabulary"], RecurrentState]:
        grid = self.target_embedding(tokens)[:, None]
        grid, carried = self.decoder(grid, state.carried, state.source, None)
        features = self.dropout(self.decoder.read_out(grid[:, 0]), None)
        return self.output(features), RecurrentState(carried, state.source, state.sentences)


def turned(layout: Layout) -> Int[Tensor, " rows"]:
    """The rows of each sentence from its last to its first."""
    lengths = layout.lengths.repeat_interleave(layout.lengths)
    rows = torch.arange(len(lengths), device=lengths.device)
    return rows + lengths - 1 - 2 * layout.positions


def grid_keys(layout: Layout) -> Keys:
    """A key for each slot of the grid; what is dropped of padding does not matter."""
    if layout.keys is None:
        return None
    slots = layout.keys.new_zeros(len(layout.lengths) * layout.longest)
    return slots.index_copy_(0, layout.slots, layout.keys)
