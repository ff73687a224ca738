"""Read lines and pairs of text; each mistake has its own message."""

import gzip
import hashlib
import io
import sys
import tracemalloc
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.config.experiment import DataConfig
from heedful.data.pairs import (
    MAX_LINE_BYTES,
    Pair,
    fingerprint,
    guess_language,
    read_lines,
    read_parallel,
    read_raw_lines,
    read_table,
)
from heedful.errors import DataError
from heedful.tasks.translation import TRANSLATION

sentences = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), max_size=30).filter(
    lambda line: not line.startswith("\ufeff")
)


def write(path: Path, *lines: str) -> str:
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return str(path)


def refused(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    assert caught.value.exit_code == 2
    return str(caught.value)


@given(st.lists(sentences, min_size=1, max_size=7))
def test_lines_are_read_exactly_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    write(folder / "plain.en", *lines)
    (folder / "packed.en.gz").write_bytes(gzip.compress((folder / "plain.en").read_bytes()))
    assert list(read_lines(folder / "plain.en")) == lines
    assert list(read_lines(folder / "packed.en.gz")) == lines


def test_a_line_ends_at_a_line_feed_and_nowhere_else(tmp_path: Path) -> None:
    odd = "one\u2028two\x0bthree\x0cfour\x85five\x1csix\rseven"
    write(tmp_path / "odd.en", odd, "next")
    assert list(read_lines(tmp_path / "odd.en")) == [odd, "next"]


def test_the_last_line_needs_no_line_feed_and_crlf_and_bom_are_removed(tmp_path: Path) -> None:
    (tmp_path / "windows.de").write_bytes(b"\xef\xbb\xbfeins\r\nzwei\r\n\r\ndrei")
    assert list(read_lines(tmp_path / "windows.de")) == ["eins", "zwei", "", "drei"]


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("früh\nspät\n".encode())))
    assert list(read_lines(Path("-"))) == ["früh", "spät"]
    assert list(read_lines(Path("-"))) == [], "nothing in, nothing out"


def test_all_files_are_paired_in_order_and_tables_come_last(tmp_path: Path) -> None:
    first, second = write(tmp_path / "1.en", "a", "b"), write(tmp_path / "2.en", "c")
    third, fourth = write(tmp_path / "1.de", "A", "B"), write(tmp_path / "2.de", "C")
    table = write(tmp_path / "more.tsv", "d\tD", "e\tE\t0.7\tweb")
    data = DataConfig(source=(first, second), target=(third, fourth), tsv=(table,))
    assert list(TRANSLATION.read_pairs(data)) == [Pair(x, x.upper()) for x in "abcde"]


def test_pairs_are_streamed_in_constant_memory(tmp_path: Path) -> None:
    line = "x" * 999
    source, target = tmp_path / "big.en", tmp_path / "big.de"
    for path in (source, target):
        path.write_text((line + "\n") * 20_000)
    tracemalloc.start()
    count = sum(1 for _ in read_parallel([str(source)], [str(target)]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (count, peak < 1_000_000) == (20_000, True)


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("train.lc.norm.tok.de", "de"),
        ("a/b/corpus.en.gz", "en"),
        ("europarl-v7.de-en.en", "en"),
        ("train.DE", "de"),
        ("flores.swh", "swh"),
        ("news.fr.txt", "fr"),
        ("data.txt", ""),
        ("data.tsv", ""),
        ("train.src", ""),
        ("de", ""),
        ("", ""),
    ],
)
def test_the_language_is_in_the_last_suffix(name: str, language: str) -> None:
    assert guess_language(name) == language


def test_a_fingerprint_is_the_sha256_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc\r\n" * 77_777)
    assert fingerprint(tmp_path / "x") == hashlib.sha256(b"abc\r\n" * 77_777).hexdigest()
    with pytest.raises(DataError, match="standard input"):
        fingerprint(Path("-"))


def test_a_missing_file_is_named_with_the_nearest_one_before_anything_is_read(tmp_path: Path) -> None:
    write(tmp_path / "train.en", "a")
    with pytest.raises(DataError) as caught:
        read_lines(tmp_path / "trian.en")
    assert str(caught.value) == f"there is no file {tmp_path}/trian.en; did you mean 'train.en'?"
    with pytest.raises(DataError, match=r"there is no file .*zzz/train\.en$"):
        read_lines(tmp_path / "zzz" / "train.en")
    with pytest.raises(DataError, match="there is no file"):
        TRANSLATION.read_pairs(DataConfig(tsv=(str(tmp_path / "missing.tsv"),)))


def test_a_folder_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"{tmp_path} is a folder; give a text file"
    (tmp_path / "no.en").touch()
    assert refused(tmp_path / "no.en") == f"{tmp_path}/no.en is empty; it must hold one sentence a line"


@pytest.mark.parametrize(("source_count", "target_count"), [(1000, 998), (3, 11), (1, 2)])
def test_unequal_files_are_refused_with_both_counts(tmp_path: Path, source_count: int, target_count: int) -> None:
    source = write(tmp_path / "my.de", *["x"] * source_count)
    target = write(tmp_path / "my.en", *["y"] * target_count)
    pairs = read_parallel([source], [target])
    common = min(source_count, target_count)
    assert len(list(islice(pairs, common))) == common
    with pytest.raises(DataError) as caught:
        next(pairs)
    assert str(caught.value) == (
        f"{source} has {source_count} line{'s' if source_count != 1 else ''} but {target} has {target_count}; "
        "parallel files must pair up line by line"
    )


def test_lists_of_files_must_pair_up_too(tmp_path: Path) -> None:
    name = write(tmp_path / "a.en", "a")
    with pytest.raises(DataError, match="you gave 2 source files but 1 target file; each source needs its target"):
        read_parallel([name, name], [name])
    with pytest.raises(DataError, match=r"standard input \(-\) can be read only once"):
        read_parallel(["-"], ["-"])
    with pytest.raises(DataError, match=r"names no training text; set data\.source and data\.target, or data\.tsv"):
        TRANSLATION.read_pairs(DataConfig())


def test_wrong_encoding_is_named_by_line_and_column_with_the_way_to_convert(tmp_path: Path) -> None:
    path = tmp_path / "my.en"
    path.write_bytes(b"fine\n" * 6 + "ä".encode() + b"b\xffcd\n")
    assert refused(path) == (
        f"{path}, line 7: not UTF-8 (byte 0xff at column 3); "
        f"convert it with: iconv -f ISO-8859-1 -t UTF-8 {path} > {tmp_path}/my.utf8.en"
    )
    path.write_bytes("hallo\n".encode("utf-16"))
    assert f"line 1: not UTF-8 (byte 0xff at column 1); convert it with: iconv -f UTF-16 -t UTF-8 {path}" in refused(
        path
    )
    path.write_bytes(gzip.compress(b"hello\n"))
    assert refused(path).endswith(f"; it is compressed by gzip, so rename it to {path}.gz")


def test_errors_call_standard_input_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def said_of(content: bytes) -> str:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        return refused(Path("-"))

    wrong = "standard input, line 1: not UTF-8 (byte"
    assert said_of(b"\xff\n") == f"{wrong} 0xff at column 1); convert it with: iconv -f ISO-8859-1 -t UTF-8"
    assert said_of(gzip.compress(b"a\n")).endswith("; it is compressed by gzip, so pipe it through gunzip")
    assert said_of(b"a\0b\n").startswith("standard input, line 1: holds a NUL byte")


def test_a_file_that_may_not_be_read_is_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied")

    path = Path(write(tmp_path / "my.en", "a"))
    monkeypatch.setattr(Path, "open", locked)
    assert refused(path) == f"{path} cannot be read: Permission denied"
    with pytest.raises(DataError, match="cannot be read: Permission denied"):
        fingerprint(path)


def test_truncated_damaged_or_uncompressed_gzip_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "my.en.gz"
    whole = gzip.compress(bytes(range(97, 120)) * 1000 + b"\n")
    path.write_bytes(whole[: len(whole) // 2])
    assert refused(path).startswith(f"{path} ends in the middle")
    path.write_bytes(b"plain text\n")
    assert refused(path).startswith(f"{path} is not a valid gzip file")
    path.write_bytes(whole[:20] + b"\xff\xff\xff" + whole[23:])
    assert refused(path).startswith(f"{path} is not a valid gzip file")


def test_a_table_needs_a_tab_and_text_has_no_zero_bytes(tmp_path: Path) -> None:
    table = write(tmp_path / "t.tsv", "a\tb", "only one column")
    with pytest.raises(DataError) as caught:
        list(read_table(Path(table)))
    assert str(caught.value) == f"{table}, line 2: no tab; a line must be source, tab, target"
    write(tmp_path / "x.en", "fine", "b\0ad")
    assert refused(tmp_path / "x.en").startswith(f"{tmp_path}/x.en, line 2: holds a NUL byte")


def test_an_endless_line_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "endless.en"
    longest = "x" * MAX_LINE_BYTES
    write(path, "short", longest, longest + "x" * 9 * MAX_LINE_BYTES, "last")
    tracemalloc.start()
    assert refused(path) == (
        f"{path}, line 3: longer than {MAX_LINE_BYTES} bytes; give a file with one sentence a line"
    )
    assert [len(line) for line in read_raw_lines(path)] == [5, MAX_LINE_BYTES, MAX_LINE_BYTES + 1, 4]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * MAX_LINE_BYTES
