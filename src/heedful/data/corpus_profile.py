"""What is usual in a parallel corpus, learnt from the corpus itself: the look of either side, and their lengths."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

MIN_PAIRS = 100  # with fewer, neither languages nor lengths are judged

_BINS = 1 << 18  # byte trigrams are hashed into so many
_NO_TRIGRAM = 0  # a bin that tells nothing
_PRIOR = 0.5
_SWAP_MARGIN = 8.0  # nats by which either side must look like the other
_SAME_LANGUAGE = 0.7  # below this share of pairs told apart, the sides are one language; chance gives 0.5
_SIGMAS = 6.0
_MIN_FACTOR = 2.5  # no pair is an outlier by less than this factor from the usual ratio, however even the corpus is
_OFFSET = 10.0  # added to lengths in characters, so that very short lines may differ freely


@dataclass(frozen=True, slots=True)
class Bounds:
    """The usual logarithm of target length over source length, and how far from it is too far."""

    centre: float
    reach: float

    def outside(self, log_ratio: Float[np.ndarray, " pairs"]) -> Bool[np.ndarray, " pairs"]:
        """Which of these are too far."""
        return np.abs(log_ratio - self.centre) > self.reach


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Judges blocks of pairs by what is usual in their corpus."""

    pairs: int  # that it was learnt from
    told_apart: float  # share of pairs whose trigrams lean to different sides
    characters: Bounds
    words: Bounds
    tables: Float32[np.ndarray, "2 bins"]  # how much a trigram speaks for the source side, in nats, for either half

    @property
    def enough(self) -> bool:
        """Whether there were pairs enough to learn from."""
        return self.pairs >= MIN_PAIRS

    @property
    def same_language(self) -> bool:
        """Whether the two sides cannot be told apart by their letters."""
        return self.enough and self.told_apart < _SAME_LANGUAGE

    def swapped(self, sources: Sequence[bytes], targets: Sequence[bytes]) -> Bool[np.ndarray, " pairs"]:
        """Pairs whose source looks like the target side while the target looks like the source side."""
        if not self.enough or self.same_language:
            return np.zeros(len(sources), np.bool_)
        halves = _halves(sources, targets)
        as_source = _evidence(sources, halves, self.tables)
        as_target = _evidence(targets, halves, self.tables)
        return (as_source < -_SWAP_MARGIN) & (as_target > _SWAP_MARGIN)

    def unequal(
        self, characters: Int[np.ndarray, "2 pairs"], words: Int[np.ndarray, "2 pairs"]
    ) -> Bool[np.ndarray, " pairs"]:
        """Pairs whose lengths hardly belong to a sentence and its translation."""
        if not self.enough:
            return np.zeros(characters.shape[1], np.bool_)
        by_characters = self.characters.outside(log_ratios(characters, _OFFSET))
        return by_characters | self.words.outside(log_ratios(words, _OFFSET / 4))


def learn(
    blocks: Sequence[tuple[Sequence[bytes], Sequence[bytes]]],
    characters: Int[np.ndarray, "2 pairs"],
    words: Int[np.ndarray, "2 pairs"],
) -> Profile:
    """Learn from a sample: blocks of tidy lines (source, target), and the lengths of all of them."""
    source_counts, target_counts = np.zeros((2, _BINS), np.int64), np.zeros((2, _BINS), np.int64)
    for sources, targets in blocks:
        halves = _halves(sources, targets)
        source_counts += _count(sources, halves)
        target_counts += _count(targets, halves)
    # A pair is judged by the other half: by itself, its names and numbers would look typical of where they stand.
    tables = _log_odds(source_counts, target_counts)[::-1].copy()
    pairs = characters.shape[1]
    return Profile(
        pairs=pairs,
        told_apart=sum(_told_apart(sources, targets, tables) for sources, targets in blocks) / max(1, pairs),
        characters=_bounds(log_ratios(characters, _OFFSET)),
        words=_bounds(log_ratios(words, _OFFSET / 4)),
        tables=tables,
    )


def log_ratios(lengths: Int[np.ndarray, "2 pairs"], offset: float) -> Float[np.ndarray, " pairs"]:
    """log(target / source) of lengths, damped for short lines."""
    logs = np.log(lengths + offset)
    return logs[1] - logs[0]


def guess_divergence(source: Int[np.ndarray, " sources"], target: Int[np.ndarray, " targets"]) -> int:
    """The line (from 1) at which files of unequal length run apart, by the lengths of their lines.

    Up to the answer, lines pair up as they stand; from it on, they fit better when shifted by the difference in length.
    One past the shorter file: they never run apart, and the longer file has a tail.
    """
    shift, count = len(target) - len(source), min(len(source), len(target))
    logs_s, logs_t = np.log(source + _OFFSET), np.log(target + _OFFSET)
    straight = logs_t[:count] - logs_s[:count]
    shifted = logs_t[shift:] - logs_s if shift > 0 else logs_t - logs_s[-shift:]
    centre = float(np.median(straight)) if count else 0.0
    gain = np.abs(shifted - centre) - np.abs(straight - centre)  # positive where the lines fit as they stand
    return int(np.argmax(np.concatenate([[0.0], np.cumsum(gain)]))) + 1


def _bounds(ratios: Float[np.ndarray, " pairs"]) -> Bounds:
    if not len(ratios):
        return Bounds(0.0, np.inf)
    centre = float(np.median(ratios))
    sigma = 1.4826 * float(np.median(np.abs(ratios - centre)))
    return Bounds(centre, max(_SIGMAS * sigma, float(np.log(_MIN_FACTOR))))


def _halves(sources: Sequence[bytes], targets: Sequence[bytes]) -> Int[np.ndarray, " pairs"]:
    """0 or 1 for each pair. It depends on the pair alone, so that repeated pairs fall into the same half."""
    return np.fromiter(((len(a) + len(b)) & 1 for a, b in zip(sources, targets, strict=True)), np.int64, len(sources))


def _told_apart(sources: Sequence[bytes], targets: Sequence[bytes], tables: Float32[np.ndarray, "2 bins"]) -> int:
    """Pairs whose sides lean apart, in either direction: many exchanged pairs are no sign of one language."""
    halves = _halves(sources, targets)
    return int(((_evidence(sources, halves, tables) > 0) != (_evidence(targets, halves, tables) > 0)).sum())


def _log_odds(source: Int[np.ndarray, "2 bins"], target: Int[np.ndarray, "2 bins"]) -> Float32[np.ndarray, "2 bins"]:
    in_source = np.log(source + _PRIOR) - np.log(source.sum(1, keepdims=True) + _PRIOR * _BINS)
    in_target = np.log(target + _PRIOR) - np.log(target.sum(1, keepdims=True) + _PRIOR * _BINS)
    odds = (in_source - in_target).astype(np.float32)
    odds[:, _NO_TRIGRAM] = 0
    return odds


def _count(lines: Sequence[bytes], halves: Int[np.ndarray, " lines"]) -> Int[np.ndarray, "2 bins"]:
    return np.bincount(_trigrams(lines, halves)[0], minlength=2 * _BINS).reshape(2, _BINS)


def _evidence(
    lines: Sequence[bytes], halves: Int[np.ndarray, " lines"], tables: Float32[np.ndarray, "2 bins"]
) -> Float32[np.ndarray, " lines"]:
    """The sum over each line's trigrams of what they speak for."""
    if not lines:
        return np.zeros(0, np.float32)
    codes, starts = _trigrams(lines, halves)
    return np.add.reduceat(tables.ravel()[codes], starts)


def _trigrams(
    lines: Sequence[bytes], halves: Int[np.ndarray, " lines"]
) -> tuple[Int[np.ndarray, " trigrams"], Int[np.ndarray, " lines"]]:
    """Hashed byte trigrams of all lines in a row, by half, and where each line begins. A line feed marks either end."""
    raw = np.frombuffer(b"".join(b"\n" + line + b"\n" for line in lines) + b"\n\n", np.uint8).astype(np.uint32)
    codes = (raw[:-2] << np.uint32(16)) | (raw[1:-1] << np.uint32(8)) | raw[2:]
    hashed = ((codes * np.uint32(2654435761)) >> np.uint32(14)).astype(np.int64)
    lengths = np.fromiter((len(line) + 2 for line in lines), np.int64, len(lines))
    ends = np.cumsum(lengths)
    # The trigram at a line's last byte begins with two line feeds and tells of the next line only.
    hashed[ends - 1] = _NO_TRIGRAM
    return hashed + np.repeat(halves * _BINS, lengths), ends - lengths
