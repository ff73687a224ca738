"""Word alignments from cross attention, read from the heads that align best.

Which heads align words differs from model to model. To find them, we measure what each target word depends on: leave
out a source word, and see how far the probability of each target word falls (prediction difference, Li et al. 2019).
That takes one pass per source word, so it is done only once, on some validation sentences. The head or the mean of
heads that agrees with it most often gives the alignments from then on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float

from heedful.attention.record import HeadWeights, force_decode, record_attention
from heedful.data.batch import pack
from heedful.errors import ConfigError
from heedful.metrics.alignment import Link
from heedful.models.seq2seq import AnySeq2Seq
from heedful.text import Tokenizer
from heedful.text.words import Words, words_of_ids, words_of_text

PieceWeights = Float[np.ndarray, "*_several _target _source"]
WordWeights = Float[np.ndarray, "*_several _target_words _source_words"]


@dataclass(frozen=True, slots=True)
class WordPair:
    """A source and its translation: their ids, which end in EOS, and their words."""

    source: Sequence[int]
    target: Sequence[int]
    source_words: Words
    target_words: Words


def make_word_pair(source: Tokenizer, target: Tokenizer, text: str, ids: Sequence[int]) -> WordPair:
    """Pair a text with the ids of its translation; EOS is added to an output that was cut off."""
    ended = [*ids] if ids and ids[-1] == target.eos_id else [*ids, target.eos_id]
    return WordPair(source.encode(text), ended, words_of_text(source, text), words_of_ids(target, ended))


@dataclass(frozen=True, slots=True)
class Aligner:
    """The source of alignments: one head of cross attention, or the mean of a layer's heads, or of all heads.

    A target piece has two rows of weights: the row that produced it, and the next row ("shifted"), which had it as its
    input and often aligns better (Chen et al. 2020).
    """

    layer: int | None  # None: all layers
    head: int | None  # None: all heads of the layer
    shifted: bool
    squared: bool = False  # the mean of squares, which gives more weight to heads with a clear focus

    def __str__(self) -> str:
        numbers = [str(number + 1) for number in (self.layer, self.head) if number is not None]
        name = ".".join(["cross", *numbers])
        return f"{name}{' squared' if self.squared else ''}{' shifted' if self.shifted else ''}"

    def read(self, cross: Sequence[HeadWeights]) -> PieceWeights:
        """The weights of each target piece; the row of EOS has no meaning."""
        layers = cross if self.layer is None else [cross[self.layer]]
        heads = np.concatenate(layers) if self.head is None else layers[0][self.head][None]
        mean = (heads**2 if self.squared else heads).mean(0)
        # The row that wraps round becomes that of EOS, which belongs to no word.
        return np.roll(mean, -1 if self.shifted else 0, axis=0)


@dataclass(frozen=True, slots=True)
class AlignerChoice:
    """The best of all aligners, and how well it agrees."""

    aligner: Aligner
    agreement: float  # the share of target words that it links to the source word they depend on most
    words: int  # the number of target words that were compared


def list_aligners(model: AnySeq2Seq) -> list[Aligner]:
    """All possible aligners: every head, and the means of each layer and of all, each at both rows."""
    counts = [attention.num_heads for attention in model.attentions.get("cross", ())]
    if not any(counts):
        raise ConfigError(
            "word alignments need attention to the source, which this model does not have; translate without them"
        )
    layers = [layer for layer, count in enumerate(counts) if count]
    heads = [Aligner(layer, head, False) for layer in layers for head in range(counts[layer])]
    means = [Aligner(layer, None, False, squared) for layer in (*layers, None) for squared in (False, True)]
    return [replace(aligner, shifted=shifted) for aligner in (*heads, *means) for shifted in (False, True)]


# For models without validation pairs: on every model that we measured, it came close to the best aligner
# (docs/how-to/alignments.md).
DEFAULT_ALIGNER = Aligner(None, None, shifted=False, squared=True)


def align_words(model: AnySeq2Seq, aligner: Aligner, pairs: Sequence[WordPair]) -> list[tuple[Link, ...]]:
    """The links of each pair, sorted: each target word with the source word that it attends to most."""
    found = zip(pairs, _cross_attention(model, pairs), strict=True)
    return [strongest_links(word_weights(aligner.read(cross), pair)) for pair, cross in found]


def choose_aligner(model: AnySeq2Seq, pairs: Sequence[WordPair]) -> AlignerChoice:
    """The aligner that agrees most often with the prediction difference; no manual alignments are needed."""
    known = list_aligners(model)
    agreed = np.zeros(len(known))
    words = 0
    for pair, cross in zip(pairs, _cross_attention(model, pairs), strict=True):
        difference = prediction_difference(model, pair)
        weights = word_weights(np.stack([aligner.read(cross) for aligner in known]), pair)
        judged = difference.max(1) > 0.0  # all other words depend on no source word
        agreed += (weights.argmax(2) == difference.argmax(1))[:, judged].sum(1)
        words += int(judged.sum())
    best = int(agreed.argmax())
    return AlignerChoice(known[best], float(agreed[best]) / max(words, 1), words)


def prediction_difference(model: AnySeq2Seq, pair: WordPair) -> WordWeights:
    """How far the log-probability of each target word falls when each source word is left out."""
    of_pieces = list(zip(pair.source, pair.source_words.of_pieces, strict=True))
    shorter = [
        [number for number, of_word in of_pieces if of_word != word] for word in range(len(pair.source_words.texts))
    ]
    found = force_decode(model, [pair.source, *shorter], [pair.target] * (1 + len(shorter)), ranks=1)
    log_probs = np.stack([each.log_probs for each in found]) @ _membership(pair.target_words)
    return (log_probs[0] - log_probs[1:]).T


def word_weights(weights: PieceWeights, pair: WordPair) -> WordWeights:
    """The weights between words: the sum over a source word's pieces, the mean over a target word's.

    Weight on EOS and white space is left out, and the rest of each row is scaled to sum to one.
    """
    to_words = weights @ _membership(pair.source_words)
    to_words = to_words / np.maximum(to_words.sum(-1, keepdims=True), np.finfo(np.float32).tiny)
    of_words = _membership(pair.target_words)
    return (of_words.T @ to_words) / np.maximum(of_words.sum(0)[:, None], 1.0)


def strongest_links(weights: WordWeights) -> tuple[Link, ...]:
    """Link each target word to its strongest source word; a word without a piece of its own gets no link."""
    return tuple(sorted((int(row.argmax()), target) for target, row in enumerate(weights) if row.max() > 0.0))


def _membership(words: Words) -> Float[np.ndarray, "_pieces _words"]:
    """1 where a piece belongs to a word."""
    matrix = np.zeros((len(words.of_pieces), len(words.texts)), dtype=np.float32)
    for piece, word in enumerate(words.of_pieces):
        if word is not None:
            matrix[piece, word] = 1.0
    return matrix


@torch.inference_mode()
def _cross_attention(model: AnySeq2Seq, pairs: Sequence[WordPair]) -> list[tuple[HeadWeights, ...]]:
    """The weights of every layer of cross attention when the model is given these targets."""
    device = next(model.parameters()).device
    source, source_lengths = (tensor.to(device) for tensor in pack([pair.source for pair in pairs]))
    shifted_right = [[model.pad_id, *pair.target[:-1]] for pair in pairs]
    target_in, lengths = (tensor.to(device) for tensor in pack(shifted_right))
    with record_attention(model, only="cross") as record:
        model.features(target_in, lengths, model.encode(source, source_lengths))
    layers = [record.weights("cross", layer).float().cpu().numpy() for layer in range(len(model.attentions["cross"]))]
    return [
        tuple(layer[number, :, : len(pair.target), : len(pair.source)] for layer in layers)
        for number, pair in enumerate(pairs)
    ]
