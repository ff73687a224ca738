"""Span corruption: nothing is lost, the counts are T5's, and every place is left out at some time."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.corpus import Corpus, PairLimits, write_corpus
from heedful.data.pairs import Pair, read_passages
from heedful.data.spans import SENTINELS, CorruptedEpochs, CorruptedPassages, corrupt, count_noise, draw_noise

FIRST, EOS, PAD = 1000, 1, 0
MARKS = [FIRST + number for number in range(len(SENTINELS))]


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def restore(source: list[int], target: list[int]) -> list[int]:
    """The passage: each sentinel of the source is replaced by what stands behind it in the target."""
    spans: dict[int, list[int]] = {}
    for token in target[:-1]:
        if token >= FIRST:
            spans[token] = latest = []
        else:
            latest.append(token)
    return [token for mark in source for token in (spans[mark] if mark >= FIRST else [mark])]


class TestNoise:
    def test_a_passage_of_568_pieces_becomes_512_and_114(self) -> None:
        """T5's own figures (Raffel et al., 2020), EOS included: 85 pieces in 28 spans."""
        ids = np.append(np.arange(2, 570), EOS)
        source, target = corrupt(ids, draw_noise(568, generator(3)), MARKS)
        assert (len(source), len(target)) == (512, 114)

    @settings(deadline=None)
    @given(pieces=st.integers(1, 900), seed=st.integers(0, 2**63 - 1))
    def test_source_and_target_together_are_the_passage(self, pieces: int, seed: int) -> None:
        ids = np.append(np.arange(2, 2 + pieces) % 900 + 2, EOS)
        source, target = (part.tolist() for part in corrupt(ids, draw_noise(pieces, generator(seed)), MARKS))
        assert restore(source, target) == ids.tolist()
        (noise,), (spans,) = count_noise(np.array([pieces]))
        assert (len(source), len(target)) == (pieces - noise + spans + 1, noise + spans + 1)
        assert [token for token in source if token >= FIRST] == MARKS[:spans]

    @pytest.mark.parametrize(("pieces", "noise", "spans"), [(1, 1, 1), (2, 1, 1), (7, 1, 1), (20, 3, 1), (40, 6, 2)])
    def test_15_percent_are_left_out_in_spans_of_3(self, pieces: int, noise: int, spans: int) -> None:
        mask = draw_noise(pieces, generator(5))
        assert mask.sum() == noise
        assert np.count_nonzero(np.diff(mask.astype(int), prepend=0) == 1) == spans

    @pytest.mark.parametrize("pieces", [5, 12, 45])
    def test_every_place_is_left_out_at_some_time(self, pieces: int) -> None:
        drawn = np.stack([draw_noise(pieces, generator(seed)) for seed in range(600)])
        assert drawn.mean(axis=0).min() > 0.02
        assert drawn.mean(axis=0).max() < 0.5

    def test_there_are_never_more_spans_than_sentinels(self) -> None:
        assert count_noise(np.array([40_000]))[1].tolist() == [len(SENTINELS)]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    texts = [" ".join(map(str, range(2, 2 + length))) for length in (9, 30, 1, 17)]

    def encode(lines: list[str]) -> list[list[int]]:
        return [[*map(int, line.split()), EOS] for line in lines]

    pairs = [Pair(text, text) for text in texts]
    return write_corpus(tmp_path / "corpus", pairs, (encode, encode), 50, PairLimits(99))  # type: ignore[arg-type]


class TestCorpus:
    def test_lengths_are_those_of_the_pairs(self, corpus: Corpus) -> None:
        passages = CorruptedPassages(corpus, MARKS, seed=4, epoch=7)
        source, target = passages.lengths()
        for index in range(len(passages)):
            assert tuple(map(len, passages.pair(index))) == (source[index], target[index])

    def test_a_passage_does_not_depend_on_its_batch(self, corpus: Corpus) -> None:
        passages = CorruptedPassages(corpus, MARKS, seed=4, epoch=7)
        together, alone = passages.batch([3, 0, 1], PAD), passages.batch([0], PAD)
        start = int(together.source_lengths[0])
        assert together.source[start : start + len(alone.source)].tolist() == alone.source.tolist()
        assert alone.target_in.tolist() == [PAD, *alone.target_out[:-1].tolist()]
        assert together.indices.tolist() == [3, 0, 1]
        assert torch.equal(passages.batch([3, 0, 1], PAD).source, together.source)

    def test_each_epoch_and_each_seed_leave_out_other_spans(self, corpus: Corpus) -> None:
        first, second = (CorruptedEpochs([corpus], MARKS, seed=4)[epoch] for epoch in (0, 1))
        other = CorruptedPassages(corpus, MARKS, seed=5, epoch=0)
        shown = [[passages.pair(1)[0].tolist() for passages in (first, second, other)]]
        assert len({tuple(ids) for ids in shown[0]}) == 3
        assert CorruptedEpochs([corpus], MARKS, seed=4)[1].pair(1)[0].tolist() == second.pair(1)[0].tolist()

    def test_passages_of_one_epoch_lose_spans_independently(self, tmp_path: Path) -> None:
        text = " ".join(map(str, range(2, 42)))

        def encode(lines: list[str]) -> list[list[int]]:
            return [[*map(int, line.split()), EOS] for line in lines]

        same = [Pair(text, text)] * 8
        corpus = write_corpus(tmp_path / "same", same, (encode, encode), 50, PairLimits(99))  # type: ignore[arg-type]
        passages = CorruptedPassages(corpus, MARKS, seed=4, epoch=0)
        assert len({tuple(passages.pair(index)[0].tolist()) for index in range(8)}) > 5


class TestPassages:
    def test_each_line_is_one_and_empty_lines_are_none(self, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("One line.\n\n  Another. \n", encoding="utf-8")
        assert list(read_passages(tmp_path / "text")) == ["One line.", "Another."]

    def test_long_lines_are_divided_between_words(self, tmp_path: Path) -> None:
        words = [f"word{number}" for number in range(300)]
        (tmp_path / "text").write_text(" ".join(words), encoding="utf-8")
        found = list(read_passages(tmp_path / "text"))
        assert " ".join(found) == " ".join(words)
        assert max(map(len, found)) <= 500
        assert len(found) == 5

    def test_a_line_without_spaces_is_divided_too(self, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("字" * 1100, encoding="utf-8")
        assert [len(passage) for passage in read_passages(tmp_path / "text")] == [500, 500, 100]
