"""Pairs as ids on disk: they read back exactly, and damage is named."""

import json
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.data import corpus as corpus_module
from heedful.data.batch import pack
from heedful.data.corpus import Corpus, DroppedPairs, PairLimits, write_corpus
from heedful.data.pairs import Pair
from heedful.errors import FolderError

START = 0
IDS = st.lists(st.lists(st.integers(2, 60_000), min_size=1, max_size=9), min_size=2, max_size=2)


def numbers(texts: Sequence[str]) -> list[list[int]]:
    """The words of these texts are the ids themselves; 1 is EOS."""
    return [[*map(int, text.split()), 1] for text in texts]


def as_pair(source: Sequence[int], target: Sequence[int]) -> Pair:
    return Pair(" ".join(map(str, source)), " ".join(map(str, target)))


def write(
    folder: Path, pairs: Sequence[Pair], vocabulary: int = 60_001, longest: int = 256, ratio: float = 0.0
) -> Corpus:
    return write_corpus(folder, pairs, (numbers, numbers), vocabulary, PairLimits(longest, ratio))


@pytest.fixture
def small(tmp_path: Path) -> Corpus:
    return write(
        tmp_path / "small", [as_pair([5, 6, 7], [8]), as_pair([9], [10, 11, 12, 13]), as_pair([14, 15], [16, 17])]
    )


class TestRoundTrip:
    @settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(pairs=st.lists(IDS, max_size=12), vocabulary=st.sampled_from([60_001, 70_000]))
    def test_a_written_corpus_reads_back(self, tmp_path: Path, pairs: list[list[list[int]]], vocabulary: int) -> None:
        corpus = write(tmp_path / "c", [as_pair(*pair) for pair in pairs], vocabulary)
        again = Corpus(tmp_path / "c")
        assert len(corpus) == len(again) == len(pairs)
        for index, (source, target) in enumerate(pairs):
            assert again.sentence("source", index).tolist() == [*source, 1]
            assert again.sentence("target", index).tolist() == [*target, 1]
        source_lengths, target_lengths = again.lengths()
        assert source_lengths.tolist() == [len(source) + 1 for source, _ in pairs]
        assert target_lengths.tolist() == [len(target) + 1 for _, target in pairs]

    @pytest.mark.parametrize(
        ("vocabulary", "largest", "size"), [(65_536, 65_535, 2), (65_537, 65_536, 4), (200_000, 199_999, 4)]
    )
    def test_ids_take_two_bytes_if_they_fit(self, tmp_path: Path, vocabulary: int, largest: int, size: int) -> None:
        corpus = write(tmp_path, [as_pair([largest, 3], [largest])], vocabulary)
        assert (tmp_path / "source.ids").stat().st_size == 3 * size
        assert json.loads((tmp_path / "corpus.json").read_text())["dtype"] == f"uint{8 * size}"
        assert corpus.sentence("source", 0).tolist() == [largest, 3, 1]

    def test_each_side_has_its_own_encoder(self, tmp_path: Path) -> None:
        def doubled(texts: Sequence[str]) -> list[list[int]]:
            return [[2 * token for token in ids] for ids in numbers(texts)]

        corpus = write_corpus(tmp_path, [as_pair([5, 6], [7])], (numbers, doubled), 99, PairLimits(256))
        assert corpus.sentence("source", 0).tolist() == [5, 6, 1]
        assert corpus.sentence("target", 0).tolist() == [14, 2]

    def test_a_new_corpus_replaces_an_old_one(self, tmp_path: Path) -> None:
        write(tmp_path, [as_pair([5, 6, 7], [8]), as_pair([9], [10])])
        assert len(write(tmp_path, [as_pair([3], [4])])) == 1
        assert Corpus(tmp_path).sentence("target", 0).tolist() == [4, 1]

    def test_a_corpus_may_be_empty(self, tmp_path: Path) -> None:
        corpus = write(tmp_path, [Pair("", "5")])
        assert len(corpus) == 0
        assert corpus.dropped.empty == 1
        assert [lengths.tolist() for lengths in corpus.lengths()] == [[], []]


class TestDropped:
    def test_pairs_are_dropped_and_counted_by_reason(self, tmp_path: Path) -> None:
        pairs = [
            as_pair([5, 6], [7, 8]),
            Pair("", "5"),
            Pair("5", "  \t"),
            as_pair([5] * 7, [6]),  # eight pieces with EOS
            as_pair([6], [5] * 8),
            as_pair([5] * 9, [6] * 9),
            as_pair([5] * 6, [6]),  # seven against two
            as_pair([5] * 5, [6]),  # six against two: just even enough
        ]
        corpus = write(tmp_path, pairs, longest=7, ratio=3.0)
        assert corpus.dropped == DroppedPairs(empty=2, too_long=3, uneven=1)
        assert corpus.dropped.total == 6
        assert [corpus.sentence("source", i).tolist() for i in range(len(corpus))] == [[5, 6, 1], [5, 5, 5, 5, 5, 1]]
        assert Corpus(tmp_path).dropped == corpus.dropped

    def test_without_a_ratio_no_pair_is_uneven(self, tmp_path: Path) -> None:
        assert len(write(tmp_path, [as_pair([5] * 200, [6])])) == 1

    def test_nothing_dropped_counts_nothing(self, small: Corpus) -> None:
        assert small.dropped.total == 0


class TestBatch:
    def test_a_batch_is_the_pairs_end_to_end(self, small: Corpus) -> None:
        batch = small.batch([2, 0], START)
        assert batch.source.tolist() == [14, 15, 1, 5, 6, 7, 1]
        assert batch.source_lengths.tolist() == [3, 4]
        assert batch.target_out.tolist() == [16, 17, 1, 8, 1]
        assert batch.target_lengths.tolist() == [3, 2]
        assert batch.indices.tolist() == [2, 0]
        assert batch.tokens == 7 + 5

    def test_the_decoders_input_is_the_target_shifted_right(self, small: Corpus) -> None:
        batch = small.batch(np.array([1, 2, 0]), START)
        shifted = zip(
            batch.target_in.split(batch.target_lengths.tolist()),
            batch.target_out.split(batch.target_lengths.tolist()),
            strict=True,
        )
        for given_to, expected_of in shifted:
            assert given_to.tolist() == [START, *expected_of.tolist()[:-1]]
            assert expected_of[-1] == 1

    def test_a_batch_holds_no_padding(self, small: Corpus) -> None:
        batch = small.batch([1, 0, 2], START)
        assert len(batch.source) == batch.source_lengths.sum() == small.lengths()[0].sum()
        assert len(batch.target_out) == len(batch.target_in) == batch.target_lengths.sum() == small.lengths()[1].sum()
        assert (batch.source != START).all()
        assert (batch.target_out != START).all()

    def test_ids_have_the_type_that_an_embedding_takes(self, small: Corpus) -> None:
        batch = small.batch([0, 1], START)
        tensors = (batch.source, batch.source_lengths, batch.target_in, batch.target_out, batch.target_lengths)
        assert {tensor.dtype for tensor in tensors} == {torch.int64}

    def test_a_batch_moves_as_a_whole(self, small: Corpus) -> None:
        there = small.batch([0, 1], START).to(torch.device("meta"))
        fields = type(there).__slots__
        assert {getattr(there, name).device.type for name in fields} == {"meta"}

    def test_the_corpus_is_not_changed_by_its_batches(self, small: Corpus) -> None:
        small.batch([0], START).source.zero_()
        assert small.sentence("source", 0).tolist() == [5, 6, 7, 1]

    def test_packing_lists_gives_the_same_tensors(self) -> None:
        ids, lengths = pack([[5, 6, 1], [7, 1]])
        assert (ids.tolist(), lengths.tolist()) == ([5, 6, 1, 7, 1], [3, 2])
        assert pack([])[0].dtype == torch.int64


class TestMemory:
    def test_pairs_are_read_as_they_are_needed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """While a chunk is encoded, nothing of the next one has been read, so memory does not grow with the corpus."""
        monkeypatch.setattr(corpus_module, "_PAIRS_AT_A_TIME", 10)
        given_out: list[int] = []
        portions: list[tuple[int, int]] = []
        seen: list[int] = []

        def pairs() -> Iterator[Pair]:
            for number in range(35):
                given_out.append(number)
                yield as_pair([number + 2], [number + 2])

        def encode(texts: Sequence[str]) -> list[list[int]]:
            portions.append((len(given_out), len(texts)))
            return numbers(texts)

        corpus = write_corpus(tmp_path, pairs(), (encode, numbers), 99, PairLimits(256), seen.append)
        assert portions == [(10, 10), (20, 10), (30, 10), (35, 5)]
        assert seen == [10, 20, 30, 35]
        assert len(corpus) == 35

    def test_ids_are_mapped_and_not_read(self, small: Corpus) -> None:
        assert all(isinstance(array, np.memmap) for array in (*small._ids.values(), *small._ends.values()))

    def test_a_failure_while_writing_leaves_no_corpus_and_no_open_file(self, tmp_path: Path) -> None:
        def broken() -> Iterator[Pair]:
            yield as_pair([5], [6])
            raise RuntimeError("cut off")

        with pytest.raises(RuntimeError, match="cut off"):
            write_corpus(tmp_path, broken(), (numbers, numbers), 99, PairLimits(256))
        with pytest.raises(FolderError, match="holds no prepared corpus"):
            Corpus(tmp_path)


def cut(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


def change(path: Path, key: str, value: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))


class TestDamage:
    def refused(self, folder: Path) -> str:
        with pytest.raises(FolderError) as caught:
            Corpus(folder).lengths()
        return str(caught.value)

    def test_a_folder_without_a_corpus_is_named(self, tmp_path: Path) -> None:
        assert self.refused(tmp_path) == (
            f"{tmp_path} holds no prepared corpus; train again without --resume to make it"
        )

    @pytest.mark.parametrize("name", ["source.ids", "source.ends", "target.ids", "target.ends"])
    def test_a_missing_file_is_named(self, small: Corpus, name: str) -> None:
        path = small.folder / name
        path.unlink()
        assert self.refused(small.folder) == f"{path} is missing; delete {small.folder} and train again"

    @pytest.mark.parametrize(("name", "count"), [("source.ids", 2), ("source.ends", 8), ("target.ids", 12)])
    def test_files_that_do_not_fit_together_are_named(self, small: Corpus, name: str, count: int) -> None:
        cut(small.folder / name, count)
        assert self.refused(small.folder) == (
            f"{small.folder} is damaged: its files do not hold its 3 pairs; delete it and train again"
        )

    @pytest.mark.parametrize("name", ["source.ids", "target.ends"])
    def test_a_file_cut_within_a_number_is_named(self, small: Corpus, name: str) -> None:
        cut(small.folder / name, 1)
        path = small.folder / name
        assert self.refused(small.folder) == (
            f"{path} is damaged: it is incomplete; delete {small.folder} and train again"
        )

    def test_ends_that_decrease_are_named(self, small: Corpus) -> None:
        np.array([4, 4, 9], dtype=np.int64).tofile(small.folder / "source.ends")
        assert self.refused(small.folder) == (
            f"{small.folder} is damaged: a sentence ends before it begins; delete it and train again"
        )

    @pytest.mark.parametrize(
        "damage",
        [
            lambda path: path.write_text("{"),
            lambda path: path.write_bytes(b"\xff"),
            lambda path: change(path, "dtype", "float64"),
            lambda path: change(path, "pairs", "3"),
            lambda path: change(path, "dropped", {"empty": 0}),
            lambda path: change(path, "dropped", None),
        ],
        ids=["not JSON", "not text", "dtype", "pairs", "dropped", "no dropped"],
    )
    def test_a_damaged_description_is_named(self, small: Corpus, damage: Callable[[Path], object]) -> None:
        path = small.folder / "corpus.json"
        damage(path)
        assert self.refused(small.folder) == f"{path} is damaged; delete {small.folder} and train again"

    @pytest.mark.parametrize("text", ["[]", "{}", '{"format": 2}'])
    def test_a_different_format_is_named(self, small: Corpus, text: str) -> None:
        path = small.folder / "corpus.json"
        path.write_text(text)
        assert self.refused(small.folder) == (
            f"{path} is not a corpus of format 1; delete {small.folder} and train again"
        )

    @pytest.mark.parametrize("name", corpus_module.FILES)
    def test_a_named_pipe_is_refused_and_does_not_block(self, small: Corpus, name: str) -> None:
        path = small.folder / name
        path.unlink()
        os.mkfifo(path)
        assert self.refused(small.folder).startswith(f"{path} is a named pipe instead of a file; remove it")

    @pytest.mark.parametrize("name", corpus_module.FILES)
    def test_a_link_out_of_the_folder_is_refused(self, small: Corpus, name: str, tmp_path: Path) -> None:
        path = (small.folder / name).rename(tmp_path / name)
        (small.folder / name).symlink_to(path)
        assert self.refused(small.folder).startswith(f"{small.folder / name} is a link that leaves its folder")

    @pytest.mark.parametrize("name", corpus_module.FILES)
    def test_a_sparse_terabyte_is_refused_unread(self, small: Corpus, name: str) -> None:
        path = small.folder / name
        with path.open("r+b") as file:
            file.truncate(1 << 40)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        sentence = self.refused(small.folder)
        if name == "corpus.json":
            assert sentence.startswith(f"{path} has 1,099,511,627,776 bytes, over the 1,048,576 of such a file")
        else:
            assert sentence.startswith(f"{small.folder} is damaged: its files do not hold its 3 pairs")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB

    def test_a_description_of_many_levels_is_refused(self, small: Corpus) -> None:
        path = small.folder / "corpus.json"
        path.write_text("[" * 100_000)
        assert self.refused(small.folder) == f"{path} is damaged; delete {small.folder} and train again"
