"""Plain text as a stream of tokens: spans of files, and windows for the training loop."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_examples import write_text

from heedful.config import TextConfig
from heedful.data.batch import Batching, Examples, epoch_batches
from heedful.data.text import TextCorpus, TextSpan, TextStatistics, measure_text, write_text_corpus
from heedful.errors import DataError, FolderError
from heedful.text import Tokenizer
from heedful.text.tokenizer_training import learn_tokenizer

PAD = 0


def by_bytes() -> Tokenizer:
    return learn_tokenizer(["a"], TextConfig(kind="bytes", vocabulary_size=258))


def corpus(folder: Path, *texts: str, start: int = 0, stop: int | None = None) -> TextCorpus:
    files = tuple(str(write_text(folder / f"{number}.txt", text)) for number, text in enumerate(texts))
    stop = sum(map(len, texts)) if stop is None else stop
    return write_text_corpus(folder / "corpus", TextSpan(files, start, stop), by_bytes())


class TestReading:
    def test_characters_are_counted_over_all_files(self, tmp_path: Path) -> None:
        one, two = write_text(tmp_path / "one", "abä\n"), write_text(tmp_path / "two", "b☃ä")
        assert measure_text([str(one), str(two)]) == TextStatistics(2, 7, distinct=5, beyond_ascii=2)

    def test_every_line_end_becomes_a_line_feed_and_a_mark_at_the_start_is_left_out(self, tmp_path: Path) -> None:
        file = tmp_path / "text"
        file.write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n")
        assert list(TextSpan((str(file),), 0, 6).chunks()) == ["a\nb\nc\n", None]

    def test_compressed_text_is_unpacked(self, tmp_path: Path) -> None:
        file = tmp_path / "text.gz"
        file.write_bytes(gzip.compress("später".encode()))
        assert measure_text([str(file)]).characters == 6

    @pytest.mark.parametrize(
        ("content", "sentence"),
        [
            (b"", "is empty; give a file with text"),
            (b"a\nb\xff", r"is not UTF-8 after line 1 \(byte 0xff\); convert it with: iconv"),
            (b"a\nb\n\0", "line 3: holds a NUL byte, so the file is binary or UTF-16"),
        ],
    )
    def test_a_file_that_is_no_text_is_refused(self, tmp_path: Path, content: bytes, sentence: str) -> None:
        (tmp_path / "text").write_bytes(content)
        with pytest.raises(DataError, match=sentence):
            measure_text([str(tmp_path / "text")])

    @given(texts=st.lists(st.text("ab\n", min_size=1, max_size=9), min_size=1, max_size=4), data=st.data())
    def test_two_spans_that_meet_are_the_whole_text(
        self, tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: st.DataObject
    ) -> None:
        folder, total = tmp_path_factory.mktemp("texts"), sum(map(len, texts))
        files = tuple(str(write_text(folder / str(number), text)) for number, text in enumerate(texts))
        cut = data.draw(st.integers(0, total))
        parts = [list(TextSpan(files, *span).chunks()) for span in ((0, cut), (cut, total))]
        written = "".join("|" if chunk is None else chunk for part in parts for chunk in part)
        assert written == "".join(f"{text}|" for text in texts)


class TestCorpus:
    def test_each_text_ends_with_eos(self, tmp_path: Path) -> None:
        text = corpus(tmp_path, "ab", "c")
        tokenizer = by_bytes()
        assert text.ids.tolist() == [*tokenizer.encode("ab"), *tokenizer.encode("c")]
        assert text.characters == 3

    def test_a_text_that_is_cut_has_no_end(self, tmp_path: Path) -> None:
        text = corpus(tmp_path, "abcd", start=1, stop=3)
        assert text.ids.tolist() == by_bytes().encode("bc")[:-1]

    def test_damage_is_noticed(self, tmp_path: Path) -> None:
        folder = tmp_path / "corpus"
        corpus(tmp_path, "abcd")
        (folder / "text.ids").write_bytes(b"abcd")
        with pytest.raises(FolderError, match=r"text\.ids holds 2 tokens instead of 5"):
            TextCorpus(folder)
        (folder / "corpus.json").write_text(json.dumps({"format": 1, "tokens": "5"}))
        with pytest.raises(FolderError, match=r"corpus\.json is damaged"):
            TextCorpus(folder)


class TestWindows:
    @given(length=st.integers(2, 40), context=st.integers(1, 9), first=st.integers(0, 8))
    def test_every_token_but_the_first_is_predicted_once(
        self, tmp_path_factory: pytest.TempPathFactory, length: int, context: int, first: int
    ) -> None:
        text = corpus(tmp_path_factory.mktemp("text"), "x" * (length - 1))
        windows = text.windows(context, first % context)
        _, lengths = windows.lengths()
        assert isinstance(windows, Examples)
        assert max(lengths) <= context
        assert min(lengths) >= 1
        predicted = np.concatenate([windows.tokens(number)[1:] for number in range(len(windows))])
        assert predicted.tolist() == text.ids[1:].tolist()

    def test_a_batch_reads_each_window_from_its_first_token(self, tmp_path: Path) -> None:
        text = corpus(tmp_path, "abcdefgh")
        a, b, c, d, e, f, g, h, eos = text.ids.tolist()
        batch = text.windows(3).batch([2, 0], PAD)
        assert batch.source.tolist() == [g, a]
        assert batch.target_in.tolist() == [PAD, h, PAD, b, c]
        assert batch.target_out.tolist() == [h, eos, b, c, d]
        assert batch.target_lengths.tolist() == [2, 3]
        assert (batch.source_lengths.tolist(), batch.indices.tolist()) == ([1, 1], [2, 0])
        assert {d, e, f} & set(batch.source.tolist()) == set()

    def test_a_batch_has_as_many_windows_as_its_tokens_hold(self, tmp_path: Path) -> None:
        text = corpus(tmp_path, "x" * 100)
        source, target = text.windows(5).lengths()
        sizes = [len(batch) for batch in epoch_batches(source, target, Batching(15, 1), 0)]
        assert sorted(sizes) == [2, *[3] * 6]

    def test_windows_begin_elsewhere_in_each_epoch(self, tmp_path: Path) -> None:
        epochs = corpus(tmp_path, "x" * 60).epochs(7)
        starts = [int(windows.lengths()[1][0]) for windows in epochs]
        assert len(epochs) == 7
        assert sorted(starts) == [1, 2, 3, 4, 5, 6, 7]
        assert [len(windows) for windows in epochs[1:3]] == [len(epochs[1]), len(epochs[2])]
