"""Files are whole or absent, damage is seen, and every failure is one of our sentences."""

import errno
import hashlib
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import FolderError, HeedfulError, OutOfSpace, UserError
from heedful.storage import files
from heedful.storage.files import (
    aside,
    check_manifest,
    disk_errors,
    load_tensors,
    new_folder,
    out_of_space,
    read_json,
    remove,
    remove_temporaries,
    sha256,
    write_atomically,
    write_manifest,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Files


@settings(max_examples=30, deadline=None)
@given(old=st.binary(max_size=40), new=st.binary(max_size=90))
def test_a_written_file_has_its_content_and_no_temporary_is_left(
    tmp_path_factory: pytest.TempPathFactory, old: bytes, new: bytes
) -> None:
    folder = tmp_path_factory.mktemp("f")
    write_atomically(folder / "a", old)
    write_atomically(folder / "a", new)
    assert (folder / "a").read_bytes() == new
    assert names(folder) == ["a"]


def test_text_is_written_as_utf8(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", "Übergröße\n")
    assert (tmp_path / "a").read_bytes() == "Übergröße\n".encode()


def test_a_new_file_has_the_permissions_that_the_user_asked_for(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_one_byte_writes_still_write_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:1]))
    write_atomically(tmp_path / "a", b"seven bytes and more")
    assert (tmp_path / "a").read_bytes() == b"seven bytes and more"


def test_a_write_of_zero_bytes_is_an_error_and_not_an_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", lambda descriptor, data: 0)
    with pytest.raises(HeedfulError, match="Input/output error"):
        write_atomically(tmp_path / "a", b"x")
    assert names(tmp_path) == []


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_failure_before_the_rename_leaves_the_old_file_and_no_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    write_atomically(tmp_path / "a", b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OutOfSpace):
        write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_an_interrupt_leaves_the_old_file_and_no_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "a", b"old")

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_a_file_system_that_cannot_fsync_folders_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def refuse_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    write_atomically(tmp_path / "a", b"x")
    assert (tmp_path / "a").read_bytes() == b"x"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_really_full_device_is_out_of_space() -> None:
    with pytest.raises(OutOfSpace), disk_errors(Path("/dev/full")):
        descriptor = os.open("/dev/full", os.O_WRONLY)
        try:
            os.write(descriptor, b"x")
        finally:
            os.close(descriptor)


def test_sha256_is_that_of_the_standard_example(tmp_path: Path) -> None:
    """FIPS 180-2, appendix B.1."""
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


# Messages


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_says_what_to_do_with_exit_code_5(number: int) -> None:
    with pytest.raises(OutOfSpace) as caught, disk_errors(Path("runs/x")):
        raise OSError(number, os.strerror(number))
    assert str(caught.value) == (
        "the disk is full while writing runs/x; free some space and try again "
        "(resume an interrupted training with: heedful train --resume FOLDER)"
    )
    assert caught.value.exit_code == 5
    assert out_of_space(OSError(number, ""))


@pytest.mark.parametrize(
    ("number", "exit_code", "message"),
    [
        (errno.EACCES, 2, "(Permission denied); check its permissions or choose another folder"),
        (errno.EROFS, 2, "(Read-only file system); check its permissions or choose another folder"),
        (errno.EISDIR, 2, "(Is a directory); check the path"),
        (errno.ENOENT, 2, "(No such file or directory); check the path"),
        (errno.EIO, 1, "(Input/output error); check the disk and try again"),
        (errno.EMFILE, 1, "(Too many open files); check the disk and try again"),
    ],
)
def test_other_disk_errors_name_the_file_and_the_reason(number: int, exit_code: int, message: str) -> None:
    with pytest.raises(HeedfulError) as caught, disk_errors(Path("runs/x")):
        raise OSError(number, os.strerror(number))
    assert str(caught.value) == f"runs/x cannot be read or written {message}"
    assert caught.value.exit_code == exit_code
    assert not out_of_space(OSError(number, ""))


def test_a_message_never_shows_a_temporary_name() -> None:
    with pytest.raises(UserError, match=r"^runs/x cannot"), disk_errors(Path("runs/x/.tmp-0a/model")):
        raise OSError(errno.EACCES, "Permission denied")
    with pytest.raises(UserError, match=r"^runs/x cannot"), disk_errors(Path("runs/x/.tmp-0a")):
        raise OSError(errno.EACCES, "Permission denied")


def test_a_folder_in_place_of_the_file_and_a_missing_folder_are_the_users_errors(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(UserError, match=r"a cannot be read or written \(Is a directory\)"):
        write_atomically(tmp_path / "a", b"x")
    with pytest.raises(UserError, match="none/a cannot be read or written"):
        write_atomically(tmp_path / "none" / "a", b"x")
    with pytest.raises(UserError, match="No such file"):
        sha256(tmp_path / "b")


# Folders


def test_a_folder_appears_whole_when_its_block_ends(tmp_path: Path) -> None:
    final = tmp_path / "runs" / "x"
    with new_folder(final) as temporary:
        (temporary / "sub").mkdir()
        (temporary / "sub" / "a").write_text("1")
        assert not final.exists()
    assert (final / "sub" / "a").read_text() == "1"
    assert names(final.parent) == ["x"]


def test_a_folder_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    for text in ("old", "new"):
        with new_folder(tmp_path / "x") as temporary:
            (temporary / text).write_text(text)
    assert names(tmp_path) == ["x"]
    assert names(tmp_path / "x") == ["new"]


def test_a_failing_block_leaves_the_old_folder(tmp_path: Path) -> None:
    with new_folder(tmp_path / "x") as temporary:
        (temporary / "old").write_text("1")
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "x") as temporary:
        (temporary / "new").write_text("1")
        raise ZeroDivisionError
    assert names(tmp_path) == ["x"]
    assert names(tmp_path / "x") == ["old"]


def test_the_old_folder_comes_back_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_folder(tmp_path / "x") as temporary:
        (temporary / "old").write_text("1")
    rename = os.rename

    def fail_for_temporaries(source: Path, target: Path) -> None:
        if source.name.startswith(".tmp-"):
            raise OSError(errno.EIO, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail_for_temporaries)
    with pytest.raises(HeedfulError, match="Input/output error"), new_folder(tmp_path / "x") as temporary:
        (temporary / "new").write_text("1")
    assert names(tmp_path) == ["x"]
    assert names(tmp_path / "x") == ["old"]


def test_removing_works_for_files_folders_links_and_missing_paths(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "a").write_text("1")
    (tmp_path / "link").symlink_to(tmp_path / "kept", target_is_directory=True)
    (tmp_path / "full" / "sub").mkdir(parents=True)
    (tmp_path / "file").write_text("1")
    for name in ("link", "full", "file", "absent"):
        remove(tmp_path / name)
    assert names(tmp_path) == ["kept"]
    assert names(tmp_path / "kept") == ["a"]


def test_only_temporaries_are_removed(tmp_path: Path) -> None:
    for name in (".tmp-1", ".lock", "model", "x.tmp-1"):
        (tmp_path / name).write_text("1")
    (tmp_path / ".tmp-2" / "sub").mkdir(parents=True)
    remove_temporaries(tmp_path)
    remove_temporaries(tmp_path / "absent")
    assert names(tmp_path) == [".lock", "model", "x.tmp-1"]
    assert aside(tmp_path / "model") == tmp_path / "model.old"


# Manifests


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "x" / "sub").mkdir(parents=True)
    (tmp_path / "x" / "a.txt").write_text("first")
    (tmp_path / "x" / "sub" / "b").write_bytes(bytes(range(97)))
    (tmp_path / "x" / "empty").touch()
    write_manifest(tmp_path / "x", ["a.txt", "sub/b", "empty"])
    return tmp_path / "x"


def test_an_unchanged_folder_verifies_and_other_files_do_not_matter(folder: Path) -> None:
    (folder / "README.md").write_text("hello")
    check_manifest(folder, required=["a.txt"])


def test_the_manifest_holds_sizes_and_sums(folder: Path) -> None:
    content = json.loads((folder / "manifest.json").read_text())
    assert content["format"] == 1
    assert content["files"]["a.txt"] == {"sha256": sha256(folder / "a.txt"), "bytes": 5}
    assert set(content["files"]) == {"a.txt", "sub/b", "empty"}


def test_every_kind_of_damage_has_its_own_message(folder: Path) -> None:
    with pytest.raises(FolderError, match=r"x is damaged \(manifest.json: does not name c\); restore it from a copy$"):
        check_manifest(folder, required=["c"])
    (folder / "a.txt").write_text("fIrst")
    with pytest.raises(FolderError, match=r"x is damaged \(a.txt: sha256 differs\)"):
        check_manifest(folder)
    (folder / "a.txt").write_text("longer")
    with pytest.raises(FolderError, match=r"\(a.txt: 6 bytes instead of 5\)"):
        check_manifest(folder)
    (folder / "a.txt").unlink()
    with pytest.raises(FolderError, match=r"\(a.txt: missing\)"):
        check_manifest(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(FolderError, match=r"\(manifest.json: missing\)"):
        check_manifest(folder)
    (folder / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(FolderError, match=r"\(manifest.json: not JSON\)"):
        check_manifest(folder)


def test_a_file_that_cannot_be_read_is_damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(hashlib, "file_digest", fail)
    with pytest.raises(FolderError, match=r"\(a.txt: Input/output error\)"):
        check_manifest(folder)


def test_a_manifest_of_a_later_format_asks_for_an_update(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"format": 2}')
    with pytest.raises(FolderError, match=r"has format 2, but this heedful reads format 1; update heedful$"):
        check_manifest(folder)


@pytest.mark.parametrize(
    "name", ["../a", "/etc/passwd", "a/../../b", "", ".", "a\0", "a\n", "\ud800", "x" * 300, "a//b"]
)
def test_a_manifest_cannot_name_a_file_outside_its_folder(folder: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a plain name"):
        write_manifest(folder, [name])
    crafted = files._manifest_text({name: {"sha256": "0", "bytes": 1}})
    (folder / "manifest.json").write_text(crafted)
    with pytest.raises(FolderError, match=r"manifest.json: names"):
        check_manifest(folder)


def test_a_named_pipe_does_not_block(folder: Path) -> None:
    (folder / "a.txt").unlink()
    os.mkfifo(folder / "a.txt")
    with pytest.raises(FolderError, match=r"a.txt is a named pipe instead of a file; remove it"):
        check_manifest(folder)
    with pytest.raises(FolderError, match="named pipe"):
        load_tensors(folder / "a.txt")
    with pytest.raises(FolderError, match="named pipe"):
        read_json(folder / "a.txt")


def test_every_changed_byte_of_a_manifest_is_noticed(folder: Path) -> None:
    content = (folder / "manifest.json").read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position * 5 % 8
        (folder / "manifest.json").write_bytes(damaged)
        with pytest.raises(FolderError):
            check_manifest(folder)
