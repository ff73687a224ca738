"""After any crash, failure or flipped bit, a training resumes from an intact checkpoint or says why it cannot."""

import errno
import math
import os
import random
import shutil
from pathlib import Path

import pytest
import torch
from checkpoint_examples import checkpoint, latest, same
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import FolderError, UserError
from heedful.storage.checkpoint import Checkpoint, Checkpoints
from heedful.storage.files import aside, write_manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three saved checkpoints, of which two are kept, so that the next save has everything to do."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    for step in (100, 200, 300):
        checkpoints.save(checkpoint(step))
    return tmp_path / "checkpoints"


# Round trips

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(state=st.dictionaries(st.text(), JSON, max_size=4), step=st.integers(0, 10**12))
def test_every_state_comes_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, state: dict[str, object], step: int
) -> None:
    checkpoints = Checkpoints(tmp_path_factory.mktemp("c"), keep=2)
    checkpoints.save(Checkpoint(step, {"model.x": torch.tensor(1.5)}, state))
    found = checkpoints.load_latest()
    assert found is not None
    assert (found[0].step, repr(found[0].state), found[1]) == (step, repr(state), ())


def test_nan_and_infinity_come_back(tmp_path: Path) -> None:
    Checkpoints(tmp_path, 2).save(Checkpoint(1, {}, {"a": math.nan, "b": [math.inf, -math.inf], "c": -0.0}))
    assert repr(latest(tmp_path)[0].state) == "{'a': nan, 'b': [inf, -inf], 'c': -0.0}"


def test_tensors_of_every_kind_come_back(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path, 2).save(checkpoint(7))
    assert path == tmp_path / "step-00000007"
    assert same(latest(tmp_path)[0], checkpoint(7))
    assert sorted(file.name for file in path.iterdir()) == ["manifest.json", "state.json", "tensors.safetensors"]
    assert (tmp_path / "latest").read_text() == "step-00000007\n"


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": (1, 2)}, r"^state\.a is a tuple, which JSON cannot restore$"),
        ({"a": [{"b": torch.tensor(1)}]}, r"^state\.a\[0\]\.b is a Tensor, which"),
        ({"a": {1: 2}}, r"^state\.a has the key 1, but JSON keys are strings$"),
    ],
)
def test_a_state_that_would_come_back_changed_is_refused(
    tmp_path: Path, state: dict[str, object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        Checkpoints(tmp_path / "c", 2).save(Checkpoint(1, {}, state))
    assert not (tmp_path / "c").exists()


def test_a_negative_step_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a step cannot be negative, but this is -1"):
        Checkpoints(tmp_path, 2).save(checkpoint(-1))


def test_the_weights_of_one_step_are_read_without_their_prefix(folder: Path) -> None:
    weights = Checkpoints(folder, 2).load_model(200, "ema.")
    assert weights.keys() == {"weight", "flag"}
    assert torch.equal(weights["weight"], checkpoint(200).tensors["ema.weight"])
    with pytest.raises(FolderError, match=r"step-00000100 does not exist; .*checkpoints holds the steps \[200, 300\]$"):
        Checkpoints(folder, 2).load_model(100, "ema.")
    (folder / "step-00000200" / "state.json").write_text("{}")
    with pytest.raises(FolderError, match=r"step-00000200 is damaged \(state\.json: 2 bytes instead of"):
        Checkpoints(folder, 2).load_model(200, "ema.")


# Keeping and removing


@pytest.mark.parametrize(("keep", "kept"), [(0, [8, 9]), (1, [8, 9]), (2, [8, 9]), (5, [5, 6, 7, 8, 9])])
def test_the_newest_are_kept_and_never_fewer_than_two(tmp_path: Path, keep: int, kept: list[int]) -> None:
    checkpoints = Checkpoints(tmp_path, keep)
    for step in range(10):
        checkpoints.save(checkpoint(step))
    assert checkpoints.steps() == kept
    assert {path.name for path in tmp_path.iterdir()} == {"latest", *(f"step-0000000{step}" for step in kept)}


def test_temporaries_of_killed_processes_are_removed_and_other_files_stay(folder: Path) -> None:
    (folder / ".tmp-1").mkdir()
    (folder / ".tmp-2").write_text("x")
    for name in ("notes.txt", "step-x", "step-000000001", "best"):
        (folder / name).write_text("x")
    Checkpoints(folder, 2).save(checkpoint(400))
    assert {path.name for path in folder.iterdir()} == {
        *("latest", "step-00000300", "step-00000400"),
        *("notes.txt", "step-x", "step-000000001", "best"),
    }


def test_a_damaged_checkpoint_does_not_count_as_kept(folder: Path) -> None:
    (folder / "step-00000300" / "state.json").unlink()
    checkpoints = Checkpoints(folder, keep=2)
    found = checkpoints.load_latest()
    assert found is not None
    assert found[0].step == 200
    checkpoints.save(checkpoint(250))
    assert checkpoints.steps() == [200, 250, 300]
    checkpoints.save(checkpoint(350))
    assert checkpoints.steps() == [250, 350]


def test_a_damaged_step_that_is_reached_again_counts_again(folder: Path) -> None:
    (folder / "step-00000300" / "state.json").unlink()
    checkpoints = Checkpoints(folder, keep=2)
    checkpoints.load_latest()
    checkpoints.save(checkpoint(300, salt=1))
    assert checkpoints.steps() == [200, 300]
    assert same(latest(folder)[0], checkpoint(300, salt=1))


def test_an_old_folder_set_aside_is_removed_with_its_step(folder: Path) -> None:
    shutil.copytree(folder / "step-00000200", aside(folder / "step-00000200"))
    Checkpoints(folder, keep=2).save(checkpoint(400))
    assert {path.name for path in folder.iterdir()} == {"latest", "step-00000300", "step-00000400"}


def test_saving_a_step_again_replaces_it(folder: Path) -> None:
    checkpoints = Checkpoints(folder, keep=2)
    checkpoints.save(checkpoint(300, salt=1))
    assert checkpoints.steps() == [200, 300]
    assert same(latest(folder)[0], checkpoint(300, salt=1))


def test_a_checkpoint_that_cannot_be_removed_does_not_stop_the_training(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def refuse(source: Path, target: Path) -> None:
        if source.name == "step-00000200":
            raise OSError(errno.EACCES, "Permission denied")
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    Checkpoints(folder, 2).save(checkpoint(400))
    assert Checkpoints(folder, 2).steps() == [200, 300, 400]


# Loading


def test_no_folder_and_an_empty_folder_hold_no_checkpoint(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        assert Checkpoints(folder, 2).load_latest() is None
        assert Checkpoints(folder, 2).steps() == []


def test_a_file_in_place_of_the_folder_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    for use in (Checkpoints(tmp_path / "a", 2).load_latest, lambda: Checkpoints(tmp_path / "a", 2).save(checkpoint(1))):
        with pytest.raises(UserError, match=r"a(/step-00000001)? cannot be read or written"):
            use()


@pytest.mark.parametrize("content", [None, b"", b"step-00000200\n", b"\xff\x00", b"../../etc", b"step-99"])
def test_the_newest_is_found_whatever_the_pointer_says(folder: Path, content: bytes | None) -> None:
    (folder / "latest").unlink()
    if content is not None:
        (folder / "latest").write_bytes(content)
    found, complaints = latest(folder)
    assert same(found, checkpoint(300))
    assert complaints == ()


def test_a_damaged_checkpoint_is_skipped_with_a_message(folder: Path) -> None:
    path = folder / "step-00000300" / "tensors.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    found, complaints = latest(folder)
    assert same(found, checkpoint(200))
    assert complaints == (
        "checkpoints/step-00000300 is damaged (tensors.safetensors: sha256 differs); resuming from step 200",
    )


def test_a_missing_checkpoint_is_skipped_with_a_message(folder: Path) -> None:
    shutil.rmtree(folder / "step-00000300")
    found, complaints = latest(folder)
    assert same(found, checkpoint(200))
    assert complaints == ("checkpoints/step-00000300 is missing; resuming from step 200",)


def test_if_all_checkpoints_are_damaged_the_training_does_not_silently_start_again(folder: Path) -> None:
    (folder / "step-00000200" / "manifest.json").unlink()
    (folder / "step-00000300" / "state.json").unlink()
    with pytest.raises(FolderError) as caught:
        latest(folder)
    assert str(caught.value) == (
        "checkpoints/step-00000300 is damaged (state.json: missing); "
        "checkpoints/step-00000200 is damaged (manifest.json: missing); "
        "no checkpoint is left to resume from: train in a new folder"
    )
    shutil.rmtree(folder / "step-00000200")
    shutil.rmtree(folder / "step-00000300")
    with pytest.raises(FolderError, match="step-00000300 is missing; no checkpoint is left"):
        latest(folder)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"step": 200, "state": {}}', "state.json: belongs to step 200"),
        ('{"step": 300}', "state.json: has no step or state"),
        ("[" * 10_000, "state.json: not JSON"),
        ('"\udcff"', "state.json: not JSON"),
    ],
)
def test_a_state_that_verifies_but_makes_no_sense_is_damage(folder: Path, content: str, reason: str) -> None:
    path = folder / "step-00000300"
    (path / "state.json").write_bytes(content.encode(errors="surrogateescape"))
    write_manifest(path, ["tensors.safetensors", "state.json"])
    found, complaints = latest(folder)
    assert found.step == 200
    assert complaints == (f"checkpoints/step-00000300 is damaged ({reason}); resuming from step 200",)


def test_a_file_that_the_manifest_omits_is_damage(folder: Path) -> None:
    write_manifest(folder / "step-00000300", ["state.json"])
    assert "(manifest.json: does not name tensors.safetensors)" in latest(folder)[1][0]


def test_a_checkpoint_that_was_being_replaced_is_found_under_its_old_name(folder: Path) -> None:
    (folder / "step-00000300").rename(aside(folder / "step-00000300"))
    assert same(latest(folder)[0], checkpoint(300))
    assert Checkpoints(folder, 2).steps() == [200, 300]
    Checkpoints(folder, 2).save(checkpoint(300, salt=1))
    assert not aside(folder / "step-00000300").exists()
    assert same(latest(folder)[0], checkpoint(300, salt=1))


def test_five_hundred_flipped_bits_are_all_noticed(folder: Path) -> None:
    source = random.Random(11)
    files = [*sorted((folder / "step-00000300").iterdir()), folder / "latest"]
    for _ in range(500):
        path = source.choice(files)
        good = path.read_bytes()
        bad = bytearray(good)
        bad[source.randrange(len(bad))] ^= 1 << source.randrange(8)
        path.write_bytes(bad)
        found, complaints = latest(folder)
        if path.name == "latest":
            assert same(found, checkpoint(300))
        else:
            assert same(found, checkpoint(200))
            assert "step-00000300 is damaged" in complaints[0]
        path.write_bytes(good)
