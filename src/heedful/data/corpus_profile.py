"""What is usual in a parallel corpus, learnt from the corpus itself: the trigrams of each side, and the lengths."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

MIN_PAIRS = 100  # with fewer, neither languages nor lengths can be judged

_BINS = 1 << 18  # byte trigrams are hashed into so many
_NO_TRIGRAM = 0  # a bin that does not count
_PRIOR = 0.5
_SWAP_MARGIN = 8.0  # nats by which each side must look like the other
_SAME_LANGUAGE = 0.7  # if fewer pairs than this share can be told apart, it is one language; chance gives 0.5
_SIGMAS = 6.0
_MIN_FACTOR = 2.5  # a pair within this factor of the usual ratio is never an outlier, however regular the corpus
_OFFSET = 10.0  # added to lengths in characters, so that very short lines may differ freely


@dataclass(frozen=True, slots=True)
class UsualRange:
    """The usual log(target length / source length), and how far from it a pair may be."""

    centre: float
    reach: float

    def outside(self, log_ratio: Float[np.ndarray, " pairs"]) -> Bool[np.ndarray, " pairs"]:
        """Which ratios are too far from the centre."""
        return np.abs(log_ratio - self.centre) > self.reach


@dataclass(frozen=True, slots=True, eq=False)
class CorpusProfile:
    """Judge blocks of pairs by what is usual in their corpus."""

    pairs: int  # that it was learnt from
    told_apart: float  # share of pairs whose two sides look like different languages
    characters: UsualRange
    words: UsualRange
    tables: Float32[np.ndarray, "2 bins"]  # the evidence of a trigram for the source side, in nats, for each half

    @property
    def enough(self) -> bool:
        """Whether there were enough pairs to learn from."""
        return self.pairs >= MIN_PAIRS

    @property
    def same_language(self) -> bool:
        """Whether the two sides look like the same language."""
        return self.enough and self.told_apart < _SAME_LANGUAGE

    def find_swapped(self, sources: Sequence[bytes], targets: Sequence[bytes]) -> Bool[np.ndarray, " pairs"]:
        """Pairs whose source looks like the target language and whose target looks like the source language."""
        if not self.enough or self.same_language:
            return np.zeros(len(sources), np.bool_)
        halves = _halves(sources, targets)
        as_source = _evidence(sources, halves, self.tables)
        as_target = _evidence(targets, halves, self.tables)
        return (as_source < -_SWAP_MARGIN) & (as_target > _SWAP_MARGIN)

    def find_unequal(
        self, characters: Int[np.ndarray, "2 pairs"], words: Int[np.ndarray, "2 pairs"]
    ) -> Bool[np.ndarray, " pairs"]:
        """Pairs whose lengths are too different for a sentence and its translation."""
        if not self.enough:
            return np.zeros(characters.shape[1], np.bool_)
        by_characters = self.characters.outside(log_ratios(characters, _OFFSET))
        return by_characters | self.words.outside(log_ratios(words, _OFFSET / 4))


def learn_profile(
    blocks: Sequence[tuple[Sequence[bytes], Sequence[bytes]]],
    characters: Int[np.ndarray, "2 pairs"],
    words: Int[np.ndarray, "2 pairs"],
) -> CorpusProfile:
    """Learn from a sample: blocks of tidied lines (source, target), and the lengths of all lines."""
    source_counts, target_counts = np.zeros((2, _BINS), np.int64), np.zeros((2, _BINS), np.int64)
    for sources, targets in blocks:
        halves = _halves(sources, targets)
        source_counts += _count(sources, halves)
        target_counts += _count(targets, halves)
    # A pair is judged by the other half: its own names and numbers would count as typical of its side.
    tables = _log_odds(source_counts, target_counts)[::-1].copy()
    pairs = characters.shape[1]
    return CorpusProfile(
        pairs=pairs,
        told_apart=sum(_count_told_apart(sources, targets, tables) for sources, targets in blocks) / max(1, pairs),
        characters=_usual_range(log_ratios(characters, _OFFSET)),
        words=_usual_range(log_ratios(words, _OFFSET / 4)),
        tables=tables,
    )


def log_ratios(lengths: Int[np.ndarray, "2 pairs"], offset: float) -> Float[np.ndarray, " pairs"]:
    """log(target / source) of the lengths, damped for short lines."""
    logs = np.log(lengths + offset)
    return logs[1] - logs[0]


def guess_divergence(source: Int[np.ndarray, " sources"], target: Int[np.ndarray, " targets"]) -> int:
    """The line (from 1) at which two files of different lengths get out of step, by the lengths of their lines.

    Before it, lines match as they are; from it on, they match better if shifted by the difference in length. If it is
    one past the end of the shorter file, they never get out of step and the longer file has a tail.
    """
    shift, count = len(target) - len(source), min(len(source), len(target))
    logs_s, logs_t = np.log(source + _OFFSET), np.log(target + _OFFSET)
    straight = logs_t[:count] - logs_s[:count]
    shifted = logs_t[shift:] - logs_s if shift > 0 else logs_t - logs_s[-shift:]
    centre = float(np.median(straight)) if count else 0.0
    gain = np.abs(shifted - centre) - np.abs(straight - centre)  # positive where the lines match as they are
    return int(np.argmax(np.concatenate([[0.0], np.cumsum(gain)]))) + 1


def _usual_range(ratios: Float[np.ndarray, " pairs"]) -> UsualRange:
    if not len(ratios):
        return UsualRange(0.0, np.inf)
    centre = float(np.median(ratios))
    sigma = 1.4826 * float(np.median(np.abs(ratios - centre)))
    return UsualRange(centre, max(_SIGMAS * sigma, float(np.log(_MIN_FACTOR))))


def _halves(sources: Sequence[bytes], targets: Sequence[bytes]) -> Int[np.ndarray, " pairs"]:
    """0 or 1 for each pair. It depends on the pair alone, so that repeated pairs are in the same half."""
    return np.fromiter(((len(a) + len(b)) & 1 for a, b in zip(sources, targets, strict=True)), np.int64, len(sources))


def _count_told_apart(sources: Sequence[bytes], targets: Sequence[bytes], tables: Float32[np.ndarray, "2 bins"]) -> int:
    """The number of pairs whose sides look different, in either direction: swapped pairs count, too."""
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
    """The evidence of each line for the source side: the sum over its trigrams."""
    if not lines:
        return np.zeros(0, np.float32)
    codes, starts = _trigrams(lines, halves)
    return np.add.reduceat(tables.ravel()[codes], starts)


def _trigrams(
    lines: Sequence[bytes], halves: Int[np.ndarray, " lines"]
) -> tuple[Int[np.ndarray, " trigrams"], Int[np.ndarray, " lines"]]:
    """Hashed byte trigrams of all lines in a row, by half, and where each line begins. Line feeds mark both ends."""
    raw = np.frombuffer(b"".join(b"\n" + line + b"\n" for line in lines) + b"\n\n", np.uint8).astype(np.uint32)
    codes = (raw[:-2] << np.uint32(16)) | (raw[1:-1] << np.uint32(8)) | raw[2:]
    hashed = ((codes * np.uint32(2654435761)) >> np.uint32(14)).astype(np.int64)
    lengths = np.fromiter((len(line) + 2 for line in lines), np.int64, len(lines))
    ends = np.cumsum(lengths)
    # The trigram at a line's last byte begins with two line feeds and belongs to the next line.
    hashed[ends - 1] = _NO_TRIGRAM
    return hashed + np.repeat(halves * _BINS, lengths), ends - lengths
