"""The text of the race: random sentences as long as image captions are, the same for every contender."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from shapes import Shape

PAD, EOS = 0, 1
_FIRST_WORD = 2

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sentences:
    """Pairs of sentences as ids, each with EOS at its end."""

    sources: Sequence[Ids]
    targets: Sequence[Ids]

    def lengths(self) -> list[tuple[int, int]]:
        """Tokens of each pair, EOS included."""
        return [(len(source), len(target)) for source, target in zip(self.sources, self.targets, strict=True)]

    def tokens(self, indices: Sequence[int]) -> int:
        """Source and target tokens of these pairs."""
        return sum(len(self.sources[index]) + len(self.targets[index]) for index in indices)

    @property
    def tokens_per_target_token(self) -> float:
        """Source and target tokens for each target token: other programs count only those."""
        source, target = (sum(map(len, side)) for side in (self.sources, self.targets))
        return (source + target) / target


def make_sentences(shape: Shape) -> Sentences:
    """The same for the same shape. Piece k comes about 1 / k as often as the first, as words do."""
    random = np.random.default_rng(1)
    # The lengths of Multi30k in pieces: 15 in the mean, one in a hundred over 30.
    lengths = np.clip(np.round(random.lognormal(2.62, 0.33, size=shape.pairs)), 3, 50)
    ratios = random.normal(1.0, 0.15, size=shape.pairs)

    def sentence(length: float) -> Ids:
        words = shape.length - 1 if shape.length else max(2, round(length))
        ranks = np.exp(random.uniform(0.0, math.log(shape.vocabulary - _FIRST_WORD), size=words)).astype(np.int64)
        return np.append(ranks - 1 + _FIRST_WORD, EOS)

    sources = [sentence(length) for length in lengths]
    return Sentences(sources, [sentence(length * ratio) for length, ratio in zip(lengths, ratios, strict=True)])


def make_batches(sentences: Sentences, batch_tokens: int) -> list[list[int]]:
    """Pairs of about the same length, at most so many tokens on either side; the batches in random order."""
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
    """As text for other programs, `w17 w301 ...`, without EOS, which they add."""
    for side, suffix in zip((sentences.sources, sentences.targets), suffixes, strict=True):
        lines = (" ".join(f"w{token}" for token in sentence[:-1]) + "\n" for sentence in side)
        (folder / f"{name}.{suffix}").write_text("".join(lines), encoding="utf-8")


def words(shape: Shape) -> list[str]:
    """Every word that can occur in that text."""
    return [f"w{token}" for token in range(_FIRST_WORD, shape.vocabulary)]
