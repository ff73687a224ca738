"""The work of the training benchmark: sizes of a model and its batches, and random sentences for all contenders."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PAD, EOS = 0, 1
_FIRST_WORD = 2

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A model, its regularisation and its batches; the same for every contender."""

    d_model: int
    d_ff: int
    num_heads: int
    layers: int  # of the encoder, and the same number in the decoder
    batch_tokens: int  # source tokens and target tokens of an update, each
    vocabulary: int = 10_000
    dropout: float = 0.1
    label_smoothing: float = 0.1
    pairs: int = 6000
    length: int = 0  # of every sentence, with EOS; 0: the lengths of image captions

    def write(self, path: Path) -> None:
        """Write it as JSON for the other processes."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Shape":
        """Read the result of `write`."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


TINY = Shape(d_model=128, d_ff=256, num_heads=4, layers=4, batch_tokens=4096)
BASE = replace(TINY, d_model=512, d_ff=2048, num_heads=8, layers=6, batch_tokens=2048)
SHAPES = {"tiny": TINY, "base": BASE}


def forward_flops(shape: Shape, lengths: Iterable[tuple[int, int]]) -> int:
    """The operations of all matrix products in one forward pass over pairs of these lengths; a multiply-add is two.

    Only necessary work counts: no padding, and a position of the decoder attends to itself and to earlier ones.
    Look-ups, norms, softmax and biases are left out.
    """
    source = target = encoder_pairs = decoder_pairs = cross_pairs = 0
    for n, m in lengths:
        source, target = source + n, target + m
        encoder_pairs += n * n
        decoder_pairs += m * (m + 1) // 2
        cross_pairs += n * m
    d, feed_forward = shape.d_model, 2 * shape.d_model * shape.d_ff
    # In multiply-adds. A projection of a row takes d * d; a pair takes a product with a key and one with a value.
    encoder = source * (4 * d * d + feed_forward) + encoder_pairs * 2 * d
    self_attention = target * 4 * d * d + decoder_pairs * 2 * d
    cross_attention = (2 * target + 2 * source) * d * d + cross_pairs * 2 * d
    decoder = self_attention + cross_attention + target * feed_forward
    output = target * d * shape.vocabulary
    return 2 * (shape.layers * (encoder + decoder) + output)


def training_flops(shape: Shape, lengths: Iterable[tuple[int, int]]) -> int:
    """Three forward passes: the backward pass has two products for each product of the forward pass."""
    return 3 * forward_flops(shape, lengths)


@dataclass(frozen=True, slots=True)
class Sentences:
    """Pairs of sentences as ids, each ending with EOS."""

    sources: Sequence[Ids]
    targets: Sequence[Ids]

    def lengths(self) -> list[tuple[int, int]]:
        """The numbers of tokens of each pair, with EOS."""
        return [(len(source), len(target)) for source, target in zip(self.sources, self.targets, strict=True)]

    def tokens(self, indices: Sequence[int]) -> int:
        """The number of source and target tokens of these pairs."""
        return sum(len(self.sources[index]) + len(self.targets[index]) for index in indices)

    @property
    def tokens_per_target_token(self) -> float:
        """The ratio of all tokens to target tokens, because other programs count only the latter."""
        source, target = (sum(map(len, side)) for side in (self.sources, self.targets))
        return (source + target) / target


def make_sentences(shape: Shape) -> Sentences:
    """Random sentences, the same for the same shape; piece k is about 1 / k as frequent as the first, like words."""
    random = np.random.default_rng(1)
    # The lengths of Multi30k in pieces: 15 on average, one in a hundred over 30.
    lengths = np.clip(np.round(random.lognormal(2.62, 0.33, size=shape.pairs)), 3, 50)
    ratios = random.normal(1.0, 0.15, size=shape.pairs)

    def sentence(length: float) -> Ids:
        words = shape.length - 1 if shape.length else max(2, round(length))
        ranks = np.exp(random.uniform(0.0, math.log(shape.vocabulary - _FIRST_WORD), size=words)).astype(np.int64)
        return np.append(ranks - 1 + _FIRST_WORD, EOS)

    sources = [sentence(length) for length in lengths]
    return Sentences(sources, [sentence(length * ratio) for length, ratio in zip(lengths, ratios, strict=True)])


def make_batches(sentences: Sentences, batch_tokens: int) -> list[list[int]]:
    """Batches of pairs of similar length, with at most this many tokens on each side, in random order."""
    lengths = sentences.lengths()
    order = sorted(range(len(lengths)), key=lambda index: (lengths[index][1], lengths[index][0]))
    batches: list[list[int]] = []
    source = target = batch_tokens + 1
    for index in order:
        source, target = source + lengths[index][0], target + lengths[index][1]
        if max(source, target) > batch_tokens:
            source, target = lengths[index]
            batches.append([])
        batches[-1].append(index)
    return [batches[index] for index in np.random.default_rng(2).permutation(len(batches))]


def write_text(sentences: Sentences, folder: Path, name: str, suffixes: tuple[str, str]) -> None:
    """Write the sentences as text for other programs, `w17 w301 ...`, without EOS, which they add."""
    for side, suffix in zip((sentences.sources, sentences.targets), suffixes, strict=True):
        lines = (" ".join(f"w{token}" for token in sentence[:-1]) + "\n" for sentence in side)
        (folder / f"{name}.{suffix}").write_text("".join(lines), encoding="utf-8")


def words(shape: Shape) -> list[str]:
    """All words that can occur in that text."""
    return [f"w{token}" for token in range(_FIRST_WORD, shape.vocabulary)]
