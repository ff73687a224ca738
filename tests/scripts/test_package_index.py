"""Archives from the package index, including hostile ones and a missing network."""

import io
import os
import struct
import tarfile
import zipfile
from pathlib import Path

import package_index
import pytest
import requests
import tatoeba
from package_index import Archive, Unreachable, digest, fetch_archive

from heedful.errors import DataError

LIMIT = 5000
TEXT = "Go.\tVa !\tby A\nGo.\tVas-y.\tby B\nHi.\tSalut\u202f!\tby C\n"


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


def archive(content: bytes = b"right") -> Archive:
    return Archive("project", "a.tar.gz", digest(content), "5 bytes")


def read(path: Path) -> bytes:
    return tatoeba.read_archive(path, "data.zip", "fra.txt", LIMIT)


class TestArchive:
    def test_the_text_is_read_and_nothing_is_unpacked(self, tmp_path: Path) -> None:
        assert read(archive_of(tmp_path, zipped(TEXT.encode()))) == TEXT.encode()
        assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]

    def test_a_member_that_is_too_large_is_not_read(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"data\.zip has \d+ bytes, over the limit of 5000"):
            read(archive_of(tmp_path, zipped(os.urandom(2 * LIMIT))))

    def test_a_small_file_that_unpacks_to_a_large_one_is_not_read(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"fra\.txt has 400000 bytes, over the limit of 5000"):
            read(archive_of(tmp_path, zipped(bytes(80 * LIMIT))))

    def test_a_false_size_in_the_header_does_not_help(self, tmp_path: Path) -> None:
        honest, size = zipped(bytes(80 * LIMIT)), struct.pack("<I", 80 * LIMIT)
        assert honest.count(size) == 2  # in the member's header and in the central directory
        with pytest.raises(DataError):
            read(archive_of(tmp_path, honest.replace(size, struct.pack("<I", 17))))

    @pytest.mark.parametrize(
        ("content", "member", "kind", "message"),
        [
            (zipped(b"x", "other.txt"), "data.zip", tarfile.REGTYPE, r"the archive has no fra\.txt"),
            (zipped(b"x"), "other.zip", tarfile.REGTYPE, r"a\.tar\.gz has no data\.zip"),
            (b"", "data.zip", tarfile.SYMTYPE, r"data\.zip is not a plain file"),
            (b"", "data.zip", tarfile.DIRTYPE, r"data\.zip is not a plain file"),
            (b"PK no zip", "data.zip", tarfile.REGTYPE, r"a\.tar\.gz is damaged"),
        ],
    )
    def test_an_unexpected_archive_is_refused_by_name(
        self, content: bytes, member: str, kind: bytes, message: str, tmp_path: Path
    ) -> None:
        with pytest.raises(DataError, match=message):
            read(archive_of(tmp_path, content, member=member, kind=kind))

    def test_a_truncated_archive_is_refused_by_name(self, tmp_path: Path) -> None:
        path = archive_of(tmp_path, zipped(os.urandom(4000)))
        path.write_bytes(path.read_bytes()[:2000])
        with pytest.raises(DataError, match=r"a\.tar\.gz is damaged"):
            read(path)

    def test_white_space_is_normalised_and_authors_are_left_out(self) -> None:
        assert tatoeba.read_pairs(TEXT) == [("Go.", "Va !"), ("Go.", "Vas-y."), ("Hi.", "Salut !")]


class TestCache:
    def test_a_cached_archive_needs_no_network(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(package_index, "download", lambda *_: pytest.fail("it went to the network"))
        (tmp_path / "a.tar.gz").write_bytes(b"right")
        assert fetch_archive(archive(), tmp_path) == tmp_path / "a.tar.gz"

    def test_a_damaged_archive_is_downloaded_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        cache = tmp_path / "caches" / "heedful"
        cache.mkdir(parents=True)
        (cache / "a.tar.gz").write_bytes(b"rig")
        monkeypatch.setattr(package_index, "download", lambda _, path: path.write_bytes(b"right"))
        assert fetch_archive(archive(), cache).read_bytes() == b"right"
        assert [path.name for path in cache.iterdir()] == ["a.tar.gz"]

    def test_an_archive_with_another_hash_is_refused_and_deleted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(package_index, "download", lambda _, path: path.write_bytes(b"wrong"))
        with pytest.raises(DataError, match=r"a\.tar\.gz is not the expected file: its sha256 is [0-9a-f]{64}"):
            fetch_archive(archive(), tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_it_is_in_the_users_cache_folder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", "caches")
        assert package_index.cache_folder() == Path("caches/heedful")
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", "me")
        assert package_index.cache_folder() == Path("me/.cache/heedful")


class TestNetwork:
    def test_the_index_of_pip_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PIP_INDEX_URL", "http://index.example/simple")
        assert package_index.index_of_pip() == "http://index.example/simple"

    def test_a_download_stops_at_its_limit(self) -> None:
        with package_index.Limit(None) as limit:
            limit.update(package_index.MAX_BYTES)
            with pytest.raises(DataError, match="larger than"):
                limit.update(1)

    def test_no_network_is_a_sentence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise requests.ConnectionError

        monkeypatch.setattr(requests.Session, "request", refuse)
        monkeypatch.setenv("PIP_INDEX_URL", "http://index.example/simple")
        with pytest.raises(Unreachable, match=r"cannot be downloaded \(ConnectionError\); connect to the network"):
            fetch_archive(archive(), tmp_path)
        assert list(tmp_path.iterdir()) == []
