"""ViT (Dosovitskiy et al., 2021): the Transformer's encoder, which reads a picture as a sentence of its patches.

What differs from figure 1, as Google's code has it:

- One stack, the encoder. A "word" is a square patch of the picture; one linear map takes its pixels to d_model, without
  a norm and without a factor sqrt(d_model).
- In front of the patches stands a learned vector, the class token, which starts at zero. Its last features, or the mean
  of all, go to the head, one linear layer that starts at zero too.
- Positions are learned, one for each place in the picture.
- Each norm is in front of its sub-layer and one more is behind the stack; epsilon is 1e-6.
- GELU instead of ReLU.
- Matrices start from Glorot's uniform distribution, each of the projections to queries, keys and values on its own; the
  map of patches from LeCun's normal one; biases of the feed-forward networks from N(0, 1e-6).

`source` holds the pixels of all pictures end to end, row by row, with the channels of a pixel together, as bytes; they
become numbers from -1 to 1. A picture is asked for its label once, so `target_in` holds a zero for each.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.models.predictor import Predictor, SentenceKeys
from heedful.models.transformer import EncoderLayer, Memory
from heedful.nn.dropout import Dropout, number_sites
from heedful.nn.layout import Layout, Rows
from heedful.nn.linear import draw_truncated, glorot_linear
from heedful.nn.multi_head import Kind, MultiHeadAttention
from heedful.nn.residual import layer_norm

POSITION_STD = 0.02
MLP_BIAS_STD = 1e-6
_TRUNCATED_STD = 0.87962566  # of a standard normal distribution that is cut off at two standard deviations


class ViT(Predictor[Memory]):
    """A distribution over the labels of a picture."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.pad_id = 0  # nothing is padded
        width, size = config.d_model, config.patch_size**2 * config.channels
        self.patches = glorot_linear(size, width)
        self.class_token = nn.Parameter(torch.zeros(width))
        self.positions = nn.Parameter(torch.empty(count_patches(config) + 1, width))
        self.dropout = Dropout(config.dropout)
        heads = config.encoder_heads or (config.num_heads,) * config.encoder_layers
        encoder = nn.ModuleList(EncoderLayer(config, number, False, config.norm_epsilon) for number in heads)
        self.encoder = cast(Sequence[EncoderLayer], encoder)
        self.encoder_norm = layer_norm(width, config.norm_epsilon)
        self.head_weight = nn.Parameter(torch.zeros(len(config.labels), width))
        self.head_bias = nn.Parameter(torch.zeros(len(config.labels)))
        self._draw_weights()
        number_sites(self)

    def _draw_weights(self) -> None:
        nn.init.normal_(self.positions, std=POSITION_STD)
        draw_truncated(self.patches.weight, self.patches.in_features**-0.5 / _TRUNCATED_STD)
        for layer in self.encoder:
            attention, feed_forward = layer.attention, layer.feed_forward
            for projection in attention.query_key_value.weight.split(list(attention.sizes)):
                nn.init.xavier_uniform_(projection)
            for linear in (feed_forward.inner, feed_forward.outer):
                nn.init.normal_(linear.bias, std=MLP_BIAS_STD)

    @property
    def layers(self) -> Iterable[nn.Module]:
        """The encoder's."""
        return tuple(cast(nn.ModuleList, self.encoder))

    @property
    def attentions(self) -> Mapping[Kind, Sequence[MultiHeadAttention]]:
        """Self-attention of the encoder: the class token first, then the patches row by row."""
        return {"encoder": [layer.attention for layer in self.encoder]}

    @property
    def output_weight(self) -> Float[Tensor, "labels d_model"]:
        """A row for each label."""
        return self.head_weight

    @property
    def output_bias(self) -> Float[Tensor, " labels"]:
        """The head's own."""
        return self.head_bias

    def encode(
        self, source: Int[Tensor, " source_rows"], lengths: Int[Tensor, " batch"], sentence_keys: SentenceKeys = None
    ) -> Memory:
        embedded = self.patches(cut_patches(source, len(lengths), self.config))
        width, count = embedded.shape[1], count_patches(self.config)
        first = self.class_token.expand(len(lengths), 1, width)
        grid = torch.cat([first, embedded.view(len(lengths), count, width)], dim=1) + self.positions
        layout = Layout.of(torch.full_like(lengths, count + 1), sentence_keys)
        x: Rows = self.dropout(grid.flatten(0, 1), layout.dropout_keys)
        for layer in self.encoder:
            x = self.run_layer(layer, layout.dropout_keys, x, layout)
        return Memory(self.encoder_norm(x), layout)

    def features(
        self,
        target_in: Int[Tensor, " target_rows"],
        lengths: Int[Tensor, " batch"],
        memory: Memory,
        sentence_keys: SentenceKeys = None,
    ) -> Float[Tensor, "target_rows d_model"]:
        grid = memory.layout.pad(memory.rows)
        return grid.mean(1) if self.config.pooling == "mean" else grid[:, 0]


def count_patches(config: ModelConfig) -> int:
    """The number of patches of a picture."""
    return (config.image_size // config.patch_size) ** 2


def cut_patches(
    source: Int[Tensor, " source_rows"], pictures: int, config: ModelConfig
) -> Float[Tensor, "patches pixels"]:
    """The pixels of each patch, channel by channel, as numbers from -1 to 1; the patches of a picture row by row."""
    across, side = config.image_size // config.patch_size, config.patch_size
    grid = source.view(pictures, across, side, across, side, config.channels)
    return grid.permute(0, 1, 3, 5, 2, 4).reshape(-1, config.channels * side * side) / 127.5 - 1.0
