"""GPT-2 (Radford et al., 2019): the Transformer without its encoder, as a model of plain text.

What differs from figure 1, as OpenAI's code has it:

- One stack. Its layers are encoder layers that see no later positions, so there is no attention to a source.
- Each norm is in front of its sub-layer and one more is behind the stack; epsilon is 1e-5.
- GELU, in its form with tanh, instead of ReLU.
- Positions are learned, and embeddings are added to them as they are, without a factor sqrt(d_model).
- All matrices start from N(0, 0.02) and positions from N(0, 0.01). The paper scales those that write into the residual
  stream, two a layer, by one over the root of their number; OpenAI's released code does not.

A prompt takes the place of the source and its continuation that of the target. Both are one text, so the decoder has no
start symbol: the prompt's last token is in its place.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.models.kv_cache import KeyRows, ValueRows
from heedful.models.predictor import SentenceKeys
from heedful.models.seq2seq import Seq2Seq
from heedful.models.transformer import EncoderLayer, add_positions, make_positions
from heedful.nn.attention import KeepKeyValues
from heedful.nn.dropout import Dropout, number_sites
from heedful.nn.embedding import Embedding
from heedful.nn.key_values import CachedKeyValues, HeadRows
from heedful.nn.layout import Layout, Rows
from heedful.nn.linear import draw_normal_weights
from heedful.nn.masks import key_mask
from heedful.nn.multi_head import Kind, MultiHeadAttention, split_heads, split_position
from heedful.nn.positions import LearnedPositions
from heedful.nn.residual import layer_norm

NORM_EPSILON = 1e-5
WEIGHT_STD = 0.02
POSITION_STD = 0.01


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts end to end, and their lengths; each has at least one token."""

    tokens: Int[Tensor, " prompt_rows"]
    lengths: Int[Tensor, " batch"]


@dataclass(frozen=True, slots=True)
class GPTState:
    """The texts so far with their keys and values, flush right in grids.

    `unread` are the features of the prompts' last tokens, for the first step: its token is only a start symbol.
    """

    tokens: Int[Tensor, "batch longest"]
    lengths: Int[Tensor, " batch"]
    keys: Sequence[Float[Tensor, "batch _heads longest d_k"]]  # layers may differ in their heads
    values: Sequence[Float[Tensor, "batch _heads longest d_v"]]
    unread: Float[Tensor, "batch d_model"] | None

    def select(self, rows: Int[Tensor, " chosen"]) -> "GPTState":
        """Keep these rows."""
        keys, values = ([x.index_select(0, rows) for x in several] for several in (self.keys, self.values))
        unread = None if self.unread is None else self.unread[rows]
        return GPTState(self.tokens[rows], self.lengths[rows], keys, values, unread)


class GPT(Seq2Seq[Prompts, GPTState]):
    """A distribution over the continuations of a prompt."""

    def __init__(self, config: ModelConfig, vocabulary: int, pad_id: int) -> None:
        super().__init__()
        self.config = config
        self.pad_id = pad_id
        self.embedding = Embedding(vocabulary, config.d_model, pad_id, scale=1.0)
        self.positions = make_positions(config)
        self.dropout = Dropout(config.dropout)
        heads = config.decoder_heads or (config.num_heads,) * config.decoder_layers
        decoder = nn.ModuleList(EncoderLayer(config, number, True, NORM_EPSILON) for number in heads)
        self.decoder = cast(Sequence[EncoderLayer], decoder)
        self.decoder_norm = layer_norm(config.d_model, NORM_EPSILON)
        self.own_bias = nn.Parameter(torch.zeros(vocabulary)) if config.output_bias else None
        self._draw_weights()
        number_sites(self)

    def _draw_weights(self) -> None:
        draw_normal_weights(self, WEIGHT_STD)
        for layer in self.decoder:
            for residual in (layer.attention.output, layer.feed_forward.outer):
                nn.init.normal_(residual.weight, std=WEIGHT_STD * (2 * len(self.decoder)) ** -0.5)
        nn.init.normal_(self.embedding.weight, std=WEIGHT_STD)
        if isinstance(self.positions, LearnedPositions):
            nn.init.normal_(self.positions.weight, std=POSITION_STD)
        with torch.no_grad():
            self.embedding.weight[self.pad_id].zero_()

    @property
    def layers(self) -> Iterable[nn.Module]:
        """The blocks."""
        return tuple(cast(nn.ModuleList, self.decoder))

    @property
    def attentions(self) -> Mapping[Kind, Sequence[MultiHeadAttention]]:
        """Masked self-attention only."""
        return {"decoder": [layer.attention for layer in self.decoder]}

    @property
    def output_weight(self) -> Float[Tensor, "vocabulary d_model"]:
        """The embedding itself."""
        return self.embedding.as_output

    @property
    def output_bias(self) -> Float[Tensor, " vocabulary"] | None:
        """None in GPT-2. An imported model has one that makes the pieces impossible that the original lacks."""
        return self.own_bias

    def encode(
        self, source: Int[Tensor, " source_rows"], lengths: Int[Tensor, " batch"], sentence_keys: SentenceKeys = None
    ) -> Prompts:
        return Prompts(source, lengths)

    def features(
        self,
        target_in: Int[Tensor, " target_rows"],
        lengths: Int[Tensor, " batch"],
        memory: Prompts,
        sentence_keys: SentenceKeys = None,
    ) -> Float[Tensor, "target_rows d_model"]:
        first = lengths.cumsum(0) - lengths  # the rows of the start symbols
        last = memory.lengths.cumsum(0) - 1
        continued = target_in.index_copy(0, first, memory.tokens[last])
        if len(memory.tokens) == len(lengths):  # prompts of one token, as in training: nothing is in front of it
            return self._read(continued, Layout.of(lengths, sentence_keys))
        before = memory.lengths - 1
        prompts, rest = memory.tokens.split(memory.lengths.tolist()), continued.split(lengths.tolist())
        texts = [part for prompt, then in zip(prompts, rest, strict=True) for part in (prompt[:-1], then)]
        layout = Layout.of(before + lengths, sentence_keys)
        x = self._read(torch.cat(texts), layout)
        return x[layout.positions >= before.repeat_interleave(layout.lengths, output_size=len(x))]

    def _read(self, tokens: Int[Tensor, " rows"], layout: Layout, keep: KeepKeyValues | None = None) -> Rows:
        """The features of all positions of these texts; `keep` gets the keys and values, layer by layer."""
        embedded = add_positions(self.embedding(tokens), self.positions, layout.positions, layout.longest)
        x = self.dropout(embedded, layout.dropout_keys)
        for layer in self.decoder:
            x = self.run_layer(layer, layout.dropout_keys, x, layout, keep)
        return self.decoder_norm(x)

    def start(self, memory: Prompts) -> GPTState:
        """The state after the prompts; of one longer than `max_positions`, only the end is read."""
        most = self.config.max_positions
        lengths = memory.lengths.clamp(max=most)
        ends = [text[-most:] for text in memory.tokens.split(memory.lengths.tolist())]
        tokens, kept = torch.cat(ends), list[tuple[HeadRows, HeadRows]]()
        x = self._read(tokens, Layout.of(lengths), lambda keys, values: kept.append((keys, values)))
        real = flush_right(lengths, int(lengths.max()))

        def spread(rows: Tensor) -> Tensor:
            grid = rows.new_zeros(*real.shape, *rows.shape[1:])
            grid[real] = rows
            return grid

        heads = [layer.attention.num_heads for layer in self.decoder]
        keys, values = (
            [split_heads(spread(rows), count) for rows, count in zip(several, heads, strict=True)]
            for several in zip(*kept, strict=True)
        )
        return GPTState(spread(tokens), lengths, keys, values, x[lengths.cumsum(0) - 1])

    def step(self, tokens: Int[Tensor, " rows"], state: GPTState) -> tuple[Float[Tensor, "rows vocabulary"], GPTState]:
        if state.unread is not None:
            return self.output(state.unread), replace(state, unread=None)
        if bool((full := state.lengths >= self.config.max_positions).any()):
            state = self._read_end_again(state, full)
        texts, lengths = torch.cat([state.tokens, tokens[:, None]], dim=1), state.lengths + 1
        real = flush_right(lengths, texts.shape[1])
        mask, keys, values = None if bool(real.all()) else key_mask(real), list(state.keys), list(state.values)

        def append(layer: int, new_keys: KeyRows, new_values: ValueRows) -> CachedKeyValues:
            heads = keys[layer].shape[1]
            keys[layer] = torch.cat([keys[layer], split_position(new_keys, heads)], dim=2)
            values[layer] = torch.cat([values[layer], split_position(new_values, heads)], dim=2)
            return CachedKeyValues(keys[layer], values[layer], mask)

        embedded = add_positions(self.embedding(tokens), self.positions, state.lengths, texts.shape[1])
        x = self.dropout(embedded, None)
        for index, layer in enumerate(self.decoder):
            x = layer.step(x, partial(append, index))
        return self.output(self.decoder_norm(x)), GPTState(texts, lengths, keys, values, None)

    def _read_end_again(self, state: GPTState, full: Bool[Tensor, " batch"]) -> GPTState:
        """Make room in rows that have no more positions: read the second half of their texts as if it began there."""
        kept = (self.config.max_positions + 1) // 2 - 1  # with the next token, this is half of the positions
        lengths = state.lengths.where(~full, kept)
        unused = state.tokens.shape[1] - int(lengths.max())
        tokens = state.tokens[:, unused:]
        keys, values = ([x[:, :, unused:].clone() for x in several] for several in (state.keys, state.values))
        if kept:
            place = tokens.shape[1] - kept
            again = self.start(Prompts(tokens[full, place:].flatten(), lengths[full]))
            for olds, news in ((keys, again.keys), (values, again.values)):
                for old, new in zip(olds, news, strict=True):
                    old[full, :, place:] = new
        return GPTState(tokens, lengths, keys, values, None)


def flush_right(lengths: Int[Tensor, " batch"], longest: int) -> Bool[Tensor, "batch longest"]:
    """True where a grid of these lengths holds something if all rows end in its last column."""
    return torch.arange(longest, device=lengths.device) >= longest - lengths[:, None]
