"""CLIP (Radford et al., 2021): two Transformers, of pictures and of texts, that put both into one space.

What differs from figure 1, as OpenAI's code has it:

- Two stacks that never see each other. One reads a picture as ViT does, the other a text as GPT does: it is causal, and
  the features of the end-of-text token, which sees all others, stand for the text.
- The map of patches has no bias. The class token starts from N(0, 1 / sqrt(d_model)), as do the positions of patches,
  and the class token's features stand for the picture. One more norm is in front of the stack of pictures.
- Each norm is in front of its sub-layer and one more is behind either stack; epsilon is 1e-5.
- GELU as x sigmoid(1.702 x) instead of ReLU.
- Each stack ends in a matrix without a bias to the common space, where all vectors have length 1.
- Pictures and texts of a batch are compared by their cosines, times a learnt scale that starts at 1 / 0.07 and never
  exceeds 100. The loss is the mean of two cross entropies: of the text among all texts of the batch, for each picture,
  and of the picture among all pictures. There is no dropout in the original.

`source` holds the pixels of all pictures end to end, as for ViT; they are scaled by the mean and the standard deviation
of each colour that OpenAI uses. `target_in` holds the texts, each of which ends with the end-of-text token.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.models.predictor import Predictor, SentenceKeys
from heedful.models.transformer import EncoderLayer
from heedful.models.vit import count_patches, cut_patches
from heedful.nn.dropout import Dropout, number_sites
from heedful.nn.embedding import Embedding
from heedful.nn.layout import Layout
from heedful.nn.linear import Linear
from heedful.nn.multi_head import Kind, MultiHeadAttention
from heedful.nn.positions import LearnedPositions
from heedful.nn.residual import layer_norm

FIRST_SCALE = 1.0 / 0.07
MOST_SCALE = 100.0
PIXEL_MEANS = (0.48145466, 0.4578275, 0.40821073)
PIXEL_STDS = (0.26862954, 0.26130258, 0.27577711)
TOKEN_STD = 0.02
POSITION_STD = 0.01

Pictures = Float[Tensor, "pictures space"]  # unit vectors
Texts = Float[Tensor, "texts space"]


class CLIP(Predictor[Pictures]):
    """Pictures and texts as vectors of length 1, so that those that belong together are near each other."""

    def __init__(self, config: ModelConfig, vocabulary: int, pad_id: int) -> None:
        super().__init__()
        self.config = config
        self.pad_id = pad_id
        text, width, epsilon = config.text_tower, config.d_model, config.norm_epsilon
        space = config.projection or width
        self.patches = Linear(config.patch_size**2 * config.channels, width, bias=False)
        self.class_token = nn.Parameter(torch.empty(width))
        self.patch_positions = nn.Parameter(torch.empty(count_patches(config) + 1, width))
        self.first_norm = layer_norm(width, epsilon)
        self.dropout, self.text_dropout = Dropout(config.dropout), Dropout(config.dropout)
        heads = config.encoder_heads or (config.num_heads,) * config.encoder_layers
        encoder = nn.ModuleList(EncoderLayer(config, number, False, epsilon) for number in heads)
        self.encoder_norm = layer_norm(width, epsilon)
        self.projection = Linear(width, space, bias=False)
        self.embedding = Embedding(vocabulary, text.d_model, pad_id, scale=1.0)
        self.positions = LearnedPositions(text.d_model, config.max_positions)
        text_heads = text.encoder_heads or (text.num_heads,) * text.encoder_layers
        decoder = nn.ModuleList(EncoderLayer(text, number, True, epsilon) for number in text_heads)
        self.decoder_norm = layer_norm(text.d_model, epsilon)
        self.text_projection = Linear(text.d_model, space, bias=False)
        self.log_scale = nn.Parameter(torch.tensor(math.log(FIRST_SCALE)))
        self.encoder, self.decoder = cast(Sequence[EncoderLayer], encoder), cast(Sequence[EncoderLayer], decoder)
        self._draw_weights()
        number_sites(self)

    def _draw_weights(self) -> None:
        """OpenAI's code draws the text tower itself and leaves the layers of pictures to PyTorch's defaults."""
        for weight in (self.class_token, self.patch_positions, self.projection.weight):
            nn.init.normal_(weight, std=self.config.d_model**-0.5)
        for layer in self.encoder:
            nn.init.xavier_uniform_(layer.attention.query_key_value.weight)
            for linear in (layer.attention.output, layer.feed_forward.inner, layer.feed_forward.outer):
                nn.init.kaiming_uniform_(linear.weight, a=math.sqrt(5.0))
        width = self.text_projection.in_features
        nn.init.normal_(self.text_projection.weight, std=width**-0.5)
        nn.init.normal_(self.embedding.weight, std=TOKEN_STD)
        nn.init.normal_(self.positions.weight, std=POSITION_STD)
        for layer in self.decoder:
            nn.init.normal_(layer.attention.query_key_value.weight, std=width**-0.5)
            nn.init.normal_(layer.feed_forward.inner.weight, std=(2 * width) ** -0.5)
            for linear in (layer.attention.output, layer.feed_forward.outer):
                nn.init.normal_(linear.weight, std=(2 * width * len(self.decoder)) ** -0.5)
        for layer in (*self.encoder, *self.decoder):
            for linear in (layer.feed_forward.inner, layer.feed_forward.outer):
                nn.init.uniform_(linear.bias, -(linear.in_features**-0.5), linear.in_features**-0.5)
        with torch.no_grad():
            self.embedding.weight[self.pad_id].zero_()

    @property
    def layers(self) -> Iterable[nn.Module]:
        """Those of pictures, then those of texts."""
        return (*cast(nn.ModuleList, self.encoder), *cast(nn.ModuleList, self.decoder))

    @property
    def attentions(self) -> Mapping[Kind, Sequence[MultiHeadAttention]]:
        """Self-attention of pictures, the class token first, and masked self-attention of texts."""
        return {
            "encoder": [layer.attention for layer in self.encoder],
            "decoder": [layer.attention for layer in self.decoder],
        }

    @property
    def output_weight(self) -> Float[Tensor, "space text_d_model"]:
        """The map of texts to the common space."""
        return self.text_projection.weight

    def encode(
        self, source: Int[Tensor, " source_rows"], lengths: Int[Tensor, " batch"], sentence_keys: SentenceKeys = None
    ) -> Pictures:
        """The pictures in the common space."""
        embedded = self.patches(_scale_pixels(cut_patches(source, len(lengths), self.config), self.config))
        width, count = embedded.shape[1], count_patches(self.config)
        first = self.class_token.expand(len(lengths), 1, width)
        grid = torch.cat([first, embedded.view(len(lengths), count, width)], dim=1) + self.patch_positions
        layout = Layout.of(torch.full_like(lengths, count + 1), sentence_keys)
        x = self.dropout(self.first_norm(grid.flatten(0, 1)), layout.dropout_keys)
        for layer in self.encoder:
            x = self.run_layer(layer, layout.dropout_keys, x, layout)
        return F.normalize(self.projection(self.encoder_norm(layout.pad(x)[:, 0])), dim=-1)

    def features(
        self,
        target_in: Int[Tensor, " target_rows"],
        lengths: Int[Tensor, " batch"],
        memory: Pictures | None = None,
        sentence_keys: SentenceKeys = None,
    ) -> Float[Tensor, "batch text_d_model"]:
        """The features at the end of each text, which do not depend on any picture."""
        layout = Layout.of(lengths, sentence_keys)
        embedded = self.embedding(target_in) + self.positions(layout.positions, layout.longest)
        x = self.text_dropout(embedded, layout.dropout_keys)
        for layer in self.decoder:
            x = self.run_layer(layer, layout.dropout_keys, x, layout)
        return self.decoder_norm(x[lengths.cumsum(0) - 1])

    def encode_texts(
        self, texts: Int[Tensor, " rows"], lengths: Int[Tensor, " batch"], sentence_keys: SentenceKeys = None
    ) -> Texts:
        """The texts in the common space."""
        return F.normalize(self.text_projection(self.features(texts, lengths, None, sentence_keys)), dim=-1)

    def compare(self, pictures: Pictures, texts: Texts) -> Float[Tensor, "pictures texts"]:
        """The logits of each text for each picture; their transpose has those of each picture for each text."""
        return self.log_scale.clamp(max=math.log(MOST_SCALE)).exp() * (pictures.float() @ texts.float().T)

    @torch.no_grad()
    def limit_scale(self) -> None:
        """Bring the scale back to its limit after an update."""
        self.log_scale.clamp_(max=math.log(MOST_SCALE))


def contrastive_loss(
    logits: Float[Tensor, "pictures texts"], matches: Bool[Tensor, "pictures texts"]
) -> Float[Tensor, ""]:
    """The sum over the pairs of half of both cross entropies, where each row and each column has a match.

    In the original only pair i matches in row i. Where a batch has a text twice, both pictures are right for it, and
    share its probability.
    """
    gold = matches.float()
    by_picture = -(gold / gold.sum(1, keepdim=True) * logits.log_softmax(1)).sum()
    by_text = -(gold / gold.sum(0) * logits.log_softmax(0)).sum()
    return (by_picture + by_text) / 2.0


def _scale_pixels(patches: Float[Tensor, "patches pixels"], config: ModelConfig) -> Float[Tensor, "patches pixels"]:
    """Numbers from -1 to 1 as shares of a colour, with the mean taken off, in standard deviations."""
    means, stds = (
        patches.new_tensor(values).repeat_interleave(config.patch_size**2) for values in (PIXEL_MEANS, PIXEL_STDS)
    )
    return ((patches + 1.0) / 2.0 - means) / stds
