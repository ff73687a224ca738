"""The demo, without a network and without training."""

import errno
import io
import os
import struct
import tarfile
import zipfile
from pathlib import Path

import demo
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import DataError, FolderError, UserError

LIMIT = 5000
TEXT = "Go.\tVa !\tby A\nGo.\tVas-y.\tby B\nHi.\tSalut\u202f!\tby C\n"

words = st.sampled_from("abcdefgh")


def zipped(content: bytes, name: str = "fra.txt") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def archive_of(folder: Path, content: bytes, *, member: str = "data.zip", kind: bytes = tarfile.REGTYPE) -> Path:
    path = folder / "a.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        other, found = tarfile.TarInfo("../outside"), tarfile.TarInfo(member)
        other.size = 3
        tar.addfile(other, io.BytesIO(b"no!"))
        found.type, found.linkname = kind, "../outside"
        found.size = len(content) if kind == tarfile.REGTYPE else 0
        tar.addfile(found, io.BytesIO(content))
    return path


def read(path: Path, sha256: str = "") -> bytes:
    return demo.read_archive(path, sha256 or demo.digest(path.read_bytes()), "data.zip", "fra.txt", LIMIT)


class TestArchive:
    def test_the_text_is_read_and_nothing_is_unpacked(self, tmp_path: Path) -> None:
        assert read(archive_of(tmp_path, zipped(TEXT.encode()))) == TEXT.encode()
        assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]

    def test_another_hash_is_refused_before_the_archive_is_opened(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tar.gz"
        path.write_bytes(b"this is no archive at all")
        with pytest.raises(DataError, match=r"a\.tar\.gz is not the file that was meant: its sha256 is [0-9a-f]{64}"):
            read(path, "0" * 64)

    def test_a_member_that_is_too_large_is_not_read(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"data\.zip has \d+ bytes, over the limit of 5000"):
            read(archive_of(tmp_path, zipped(os.urandom(2 * LIMIT))))

    def test_a_small_file_that_unpacks_to_a_large_one_is_not_read(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"fra\.txt has 400000 bytes, over the limit of 5000"):
            read(archive_of(tmp_path, zipped(bytes(80 * LIMIT))))

    def test_a_size_that_is_a_lie_does_not_help(self, tmp_path: Path) -> None:
        honest, size = zipped(bytes(80 * LIMIT)), struct.pack("<I", 80 * LIMIT)
        assert honest.count(size) == 2  # in the file's own header and in the directory at the end
        with pytest.raises(DataError):
            read(archive_of(tmp_path, honest.replace(size, struct.pack("<I", 17))))

    @pytest.mark.parametrize(
        ("content", "member", "kind", "message"),
        [
            (zipped(b"x", "other.txt"), "data.zip", tarfile.REGTYPE, r"the archive has no fra\.txt"),
            (zipped(b"x"), "other.zip", tarfile.REGTYPE, r"the archive has no data\.zip"),
            (b"", "data.zip", tarfile.SYMTYPE, r"data\.zip is not a plain file"),
            (b"", "data.zip", tarfile.DIRTYPE, r"data\.zip is not a plain file"),
            (b"PK no zip", "data.zip", tarfile.REGTYPE, r"a\.tar\.gz is damaged"),
        ],
    )
    def test_what_is_not_as_it_should_be_is_named(
        self, content: bytes, member: str, kind: bytes, message: str, tmp_path: Path
    ) -> None:
        with pytest.raises(DataError, match=message):
            read(archive_of(tmp_path, content, member=member, kind=kind))

    def test_an_archive_that_breaks_off_is_named(self, tmp_path: Path) -> None:
        path = archive_of(tmp_path, zipped(os.urandom(4000)))
        path.write_bytes(path.read_bytes()[:2000])
        with pytest.raises(DataError, match=r"a\.tar\.gz is damaged"):
            read(path)

    def test_a_download_stops_at_its_limit(self) -> None:
        with demo.Limit(None) as limit:
            limit.update(demo.MAX_BYTES)
            with pytest.raises(DataError, match="is larger than"):
                limit.update(1)


class TestSplit:
    @given(st.lists(st.tuples(words, words), max_size=30), st.integers(0, 4), st.integers(0, 3))
    def test_no_sentence_is_on_two_sides(self, pairs: list[tuple[str, str]], test: int, valid: int) -> None:
        parts = demo.split(pairs, test, valid)
        for side in (0, 1):
            trained, validated, tested = (
                {pair[side] for pair in part} for part in (parts.train, parts.valid, parts.test)
            )
            assert not trained & validated
            assert not trained & tested
            assert not validated & tested

    @given(st.lists(st.tuples(words, words), max_size=30))
    def test_as_many_are_tested_as_were_asked_for_each_once(self, pairs: list[tuple[str, str]]) -> None:
        tested = demo.split(pairs, 3, 2).test
        assert len(tested) == len({english for english, _ in tested}) == min(3, len(dict(pairs)))
        assert set(tested) <= set(pairs)

    @given(st.lists(st.tuples(words, words), max_size=30))
    def test_without_held_out_sentences_all_are_trained_on(self, pairs: list[tuple[str, str]]) -> None:
        assert demo.split(pairs, 0, 0).train == pairs

    def test_it_is_the_same_whatever_the_order(self) -> None:
        pairs = [(f"sentence {number}", f"phrase {number}") for number in range(50)]
        parts, turned = demo.split(pairs, 5, 4), demo.split(pairs[::-1], 5, 4)
        assert (parts.test, parts.valid, sorted(parts.train)) == (turned.test, turned.valid, sorted(turned.train))
        assert [english for english, _ in parts.test[:2]] == ["sentence 29", "sentence 45"]

    def test_white_space_is_plain_and_the_authors_are_left_out(self) -> None:
        assert demo.read_pairs(TEXT) == [("Go.", "Va !"), ("Go.", "Vas-y."), ("Hi.", "Salut !")]


class TestCache:
    def test_what_is_there_needs_no_network(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(demo, "TEXT_SHA256", demo.digest(TEXT.encode()))
        monkeypatch.setattr(demo, "fetch", lambda _: pytest.fail("it went to the network"))
        (tmp_path / "tatoeba-en-fr.tsv").write_bytes(TEXT.encode())
        assert demo.cached_text(tmp_path) == TEXT

    def test_what_is_damaged_is_fetched_again_and_the_archive_does_not_stay(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = archive_of(tmp_path, zipped(TEXT.encode()), member=demo.MEMBER).read_bytes()
        cache = tmp_path / "cache"
        cache.mkdir()
        (cache / "tatoeba-en-fr.tsv").write_text("Go.\tVa")
        monkeypatch.setattr(demo, "ARCHIVE_SHA256", demo.digest(source))
        monkeypatch.setattr(demo, "fetch", lambda path: path.write_bytes(source))
        assert demo.cached_text(cache) == TEXT
        assert {path.name: path.read_bytes() for path in cache.iterdir()} == {"tatoeba-en-fr.tsv": TEXT.encode()}

    def test_it_is_where_caches_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", "caches")
        assert demo.cache_folder() == Path("caches/heedful")
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", "me")
        assert demo.cache_folder() == Path("me/.cache/heedful")

    def test_the_index_of_pip_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PIP_INDEX_URL", "http://index.example/simple")
        assert demo.index_of_pip() == "http://index.example/simple"

    def test_no_network_is_a_sentence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise requests.ConnectionError

        monkeypatch.setattr(requests.Session, "request", refuse)
        monkeypatch.setenv("PIP_INDEX_URL", "http://index.example/simple")
        with pytest.raises(UserError, match=r"cannot be fetched \(ConnectionError\); connect to the network"):
            demo.fetch(tmp_path / "a.tar.gz")


class TestFolder:
    def test_what_an_earlier_demo_made_is_made_anew(self, tmp_path: Path) -> None:
        demo.renew(tmp_path / "demo")
        (tmp_path / "demo" / "old").touch()
        demo.renew(tmp_path / "demo")
        assert [path.name for path in (tmp_path / "demo").iterdir()] == [demo.MARK]

    def test_what_somebody_else_made_stays(self, tmp_path: Path) -> None:
        (tmp_path / "mine").touch()
        with pytest.raises(FolderError, match="exists and no demo made it; move it away"):
            demo.renew(tmp_path)
        assert (tmp_path / "mine").exists()

    def test_the_files_have_the_pairs_line_by_line(self, tmp_path: Path) -> None:
        demo.write(demo.Split([("a", "à"), ("b", "é")], [("c", "ç")], []), tmp_path / "data")
        assert (tmp_path / "data" / "train.fr").read_bytes() == "à\né\n".encode()
        assert (tmp_path / "data" / "valid.en").read_bytes() == b"c\n"
        assert len(list((tmp_path / "data").iterdir())) == 6


class TestWhole:
    def test_it_trains_scores_and_shows(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        lines = [f"This is sentence number {number}.\tVoici la phrase {number}.\tby A\n" for number in range(1600)]
        called: list[tuple[str, ...]] = []

        def heedful(*arguments: str) -> int:
            called.append(arguments)
            if arguments[0] == "evaluate":
                sources = Path(arguments[arguments.index("--source") + 1]).read_text().splitlines()
                Path(arguments[-1]).write_text("".join(f"sortie de {source}\n" for source in sources))
            return 0

        monkeypatch.setattr(demo, "cached_text", lambda _: "".join(lines))
        monkeypatch.setattr(demo, "heedful", heedful)
        assert demo.demo(tmp_path / "demo", 0.5) == 0
        assert [arguments[0] for arguments in called] == ["train", "evaluate"]
        assert "train.max_minutes=0.5" in called[0]
        shown = capsys.readouterr().out
        assert "100 pairs to train on, 500 to validate, 1000 to test" in shown
        assert shown.count("   heedful    sortie de This is sentence") == demo.SHOWN
        assert "tatoeba.org, CC-BY 2.0" in shown

    def test_a_training_that_fails_ends_it_with_its_code(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(demo, "cached_text", lambda _: TEXT)
        monkeypatch.setattr(demo, "heedful", lambda *_: 6)
        assert demo.demo(tmp_path / "demo", 0.5) == 6

    def test_a_full_disk_is_a_sentence(self) -> None:
        full = OSError(errno.ENOSPC, "No space left on device", "runs/demo/data/train.en")
        assert demo.explain(full) == (
            "the disk is full while writing runs/demo/data/train.en; about 200 MB are needed",
            5,
        )
        assert demo.explain(OSError(errno.EACCES, "Permission denied", "runs")) == ("runs: Permission denied", 2)
