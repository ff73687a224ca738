"""What bench/faults.py counts in thousands, a few times each; and the sentences that it looks for."""

import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import faults_files
import faults_processes
import faults_runs
import pytest
import torch
import toy
from faults_common import Check
from resume_examples import Drive, experiment

from heedful.config import TrainConfig
from heedful.errors import FolderError, OutOfSpace, out_of_memory
from heedful.storage.files import write_manifest
from heedful.training.loop import explain_out_of_memory
from heedful.translation.translator import Translator


@pytest.fixture(autouse=True)
def no_pictures() -> Iterator[None]:
    with toy.plain_log():
        yield


@pytest.mark.parametrize(
    ("check", "count"),
    [
        (faults_files.checkpoints, 20),
        (faults_files.flips, 200),
        (faults_files.hostile, 100),
        (faults_runs.data, 20),
        (faults_runs.numbers, 6),
    ],
    ids=["checkpoints", "flips", "hostile", "data", "numbers"],
)
def test_a_promise_holds(check: Check, count: int, tmp_path: Path) -> None:
    outcome = check(tmp_path, count, random.Random(4))
    assert outcome.failures == ()
    assert outcome.tried >= count


# Other data


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts and a run of them that was stopped at step 4."""
    folder = tmp_path_factory.mktemp("begun")
    toy.write_pairs(folder, "train", 150, seed=21)
    toy.write_pairs(folder, "valid", 20, seed=22)
    with toy.plain_log():
        Drive(folder / "run").start(experiment(folder), until=4)
    return folder


@pytest.fixture
def texts(begun: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(begun, tmp_path / "texts"))


def test_a_text_that_changed_is_refused_by_name(begun: Path) -> None:
    path = begun / "valid.de"
    before, times = path.read_bytes(), path.stat()
    for content in (before + b"x\n", before[:-1], before.swapcase()):
        path.write_bytes(content)
        ran = toy.run("train", "--resume", begun / "run")
        path.write_bytes(before)
        sentence = f"{path} has changed since this run began; restore it, or start a new run with the new text"
        assert (ran.code, ran.out, ran.err) == (2, "", f"heedful: {sentence}\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "has changed" not in toy.run("train", "--resume", begun / "run", "--set", "train.max_steps=4").err


def test_a_text_that_is_the_same_is_not_read(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> str:
        pytest.fail(f"{path} was read")

    monkeypatch.setattr("heedful.training.prepare.fingerprint", refuse)
    assert toy.run("train", "--resume", begun / "run", "--set", "train.max_steps=4").code == 0


def test_relative_names_are_looked_for_from_the_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home" / "other").mkdir(parents=True)
    toy.write_pairs(tmp_path / "home", "text", 60, seed=3)
    monkeypatch.chdir(tmp_path / "home")
    files = ("--source", "text.en", "--target", "text.de", "--out", "runs/a")
    assert toy.run("train", *files, *toy.settings("train.max_steps=1", "train.batch_tokens=99")).code == 0
    # A file of the same name where the command is called is not the one; and all may move together.
    toy.write_lines(tmp_path / "home" / "other" / "text.en", ["not the same"])
    (tmp_path / "home").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved" / "other")
    ran = toy.run("train", "--resume", "../runs/a")
    assert (ran.code, "missing: " in ran.err) == (0, False)
    (tmp_path / "moved" / "text.en").rename(tmp_path / "moved" / "elsewhere.en")
    ran = toy.run("train", "--resume", "../runs/a")
    assert ran.code == 0
    assert "missing: text.en; training continues with the text that it has prepared" in ran.err


@pytest.mark.parametrize("name", ["train-1/source.ids", "train-0/target.ends", "valid/source.ids", "valid.json"])
def test_a_prepared_file_that_changed_is_refused_by_name(texts: Path, name: str) -> None:
    path = texts / "run" / "data" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    ran = toy.run("train", "--resume", texts / "run")
    assert (ran.code, ran.out) == (2, "")
    assert f"/run/data has changed since this run prepared it ({name}: sha256 differs); restore it" in ran.err
    assert "or train in a new folder" in ran.err


def test_a_run_of_an_earlier_version_goes_on_unverified(texts: Path) -> None:
    (texts / "run" / "data" / "manifest.json").unlink()
    ran = toy.run("train", "--resume", texts / "run")
    assert ran.code == 0, ran.err
    assert "is from an earlier version and cannot be verified" in ran.err


# Memory


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            True,
        ),
        (RuntimeError("std::bad_alloc"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (OSError(28, "No space left on device"), False),
        (RuntimeError("shapes differ"), False),
    ],
)
def test_every_way_to_run_out_of_memory_names_the_budget(error: Exception, is_memory: bool) -> None:
    assert out_of_memory(error) is is_memory
    sentence = (
        "^out of memory with train.batch_tokens = 4096 and train.accumulate = 2; free some memory and continue with "
        r"--resume, or start a new run with a higher train.accumulate \(the same updates in smaller parts\) or a lower"
    )
    with (
        pytest.raises(OutOfSpace if is_memory else type(error), match=sentence if is_memory else None),
        explain_out_of_memory(TrainConfig(batch_tokens=4096, accumulate=2)),
    ):
        raise error


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits the memory of a process")
def test_a_training_with_too_little_memory_keeps_its_checkpoint(begun: Path, texts: Path) -> None:
    room, run = 600 << 20, texts / "run"
    hungry = "import torch\nfrom heedful.models.transformer import Transformer\n"
    hungry += "Transformer.features = lambda *_: torch.ones(1 << 28)\n"
    line = [sys.executable, "-c", hungry + faults_processes.LIMITED, str(room), "train", "--resume", str(run)]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)
    assert ran.returncode == 5, ran.stderr
    assert "heedful: out of memory with train.batch_tokens = 500 and train.accumulate = 2;" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert toy.same_bits(toy.last_checkpoint(run), toy.last_checkpoint(begun / "run"))


# A folder that lies


def test_a_description_of_a_huge_model_is_refused_before_it_is_built(texts: Path) -> None:
    run = texts / "run"
    Drive(run).resume()
    assert Translator.load(run, "cpu")
    names = ("config.json", "generation_config.json", "experiment.toml", "tokenizer.json")
    good = (run / "experiment.toml").read_text()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for small, huge in (("encoder_layers = 1", "encoder_layers = 2000000000"), ("d_ff = 24", "d_ff = 9000000000000")):
        assert small in good
        (run / "experiment.toml").write_text(good.replace(small, huge))
        write_manifest(run, names)
        with pytest.raises(
            FolderError, match=r"model\.safetensors holds [\d,]+ values, but experiment\.toml describes"
        ):
            Translator.load(run, "cpu")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500 << 10


def test_a_tokenizer_that_is_not_text_is_refused(texts: Path) -> None:
    run = texts / "run"
    (run / "tokenizer.json").write_bytes(b"\xff" + (run / "tokenizer.json").read_bytes())
    write_manifest(run, ("config.json", "generation_config.json", "experiment.toml", "tokenizer.json"))
    ran = toy.run("info", run)
    assert (ran.code, ran.out) == (2, "")
    assert "tokenizer.json: not UTF-8" in ran.err
    assert torch.is_grad_enabled()  # and nothing of it is left behind
