"""Every mistake and mishap ends in one sentence and the exit code for it, and leaves nothing half made."""

import errno
import gzip
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import toy

DATA = "train --source {d}/few.en --target {d}/few.de --out {d}/new"
SHORT = toy.settings("train.max_steps=2", "train.batch_tokens=128", "train.validate_bleu=false")


@pytest.fixture(scope="module")
def folder(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text and run folders, sound and broken; `new` is not there."""
    d = tmp_path_factory.mktemp("errors")
    toy.write_pairs(d, "few", 30, seed=3)
    toy.write_lines(d / "more.de", ["x"] * 33)
    toy.write_lines(d / "blank.en", ["", " ", ""])
    toy.write_lines(d / "void.en", ["", "", ""])
    (d / "empty.en").touch()
    (d / "latin.de").write_bytes(b"ja\nnein\nsch\xf6n\n" + b"x\n" * 27)
    (d / "binary.de").write_bytes(b"a\nb\x00c\n")
    (d / "cut.gz").write_bytes(gzip.compress(random.Random(1).randbytes(999).hex().encode())[:-300])
    toy.write_lines(d / "table.tsv", ["a\tb", "no tab"])
    toy.write_lines(d / "long.en", ["x" * 9000])
    (d / "bad.toml").write_text("[train\n")
    (d / "good.toml").write_text("")
    (d / "folder").mkdir()
    os.mkfifo(d / "pipe")
    shutil.copytree(trained / "run", d / "run")
    shutil.copytree(trained / "run", d / "later")
    config = (d / "later" / "config.json").read_text()
    (d / "later" / "config.json").write_text(config.replace('"heedful_format": 1', '"heedful_format": 2'))
    shutil.copytree(trained / "run", d / "bare")
    (d / "bare" / "model.safetensors").unlink()
    return d


USAGE = [
    ("trian", "no such command 'trian'. Did you mean 'train'?"),
    ("train --sorce x", "no such option: --sorce; did you mean '--source'?"),
    ("train --xyzzy", "no such option: --xyzzy; see --help"),
    ("train --source", "option '--source' requires an argument"),
    ("heads", "missing argument 'MODEL'"),
    ("evaluate {d}/run", "give --source and --reference, because the run has no data.test_source"),
    ("doctor", "there is nothing to examine; give --source and --target, --text, --labels, --images or --captions"),
    ("translate {d}/run x --beam 0", "invalid value for '--beam'"),
    ("translate {d}/run x --beam two", "invalid value for '--beam'"),
    ("info", "name a model, or a preset with --preset"),
    ("info {d}/run --preset base", "name a model, or a preset with --preset"),
    ("info --preset bsae", "unknown preset: bsae; did you mean 'base'?"),
]

OPTIONS = [
    (f"{DATA} --set max_steps", "--set max_steps: write it as key=value"),
    (f"{DATA} --set train.max_stepz=3", "unknown key: train.max_stepz; did you mean 'max_steps'?"),
    (f"{DATA} --set trian.max_steps=3", "unknown key: trian; did you mean 'train'?"),
    (f"{DATA} --set train.max_steps=many", "train.max_steps must be a whole number, but is 'many' instead"),
    (f"{DATA} --set train.max_steps=0", "train.max_steps must be at least 1, but is 0 instead"),
    (f"{DATA} --set model.num_heads=7", "which 7 heads do not divide"),
    (f"{DATA} --set model.preset=tinny", "unknown preset: tinny; did you mean 'tiny'?"),
    (f"{DATA} --set train.device=cuda", "device 'cuda' is not available on this machine, which has cpu"),
    (f"{DATA} --set train.device=gpu", "train.device must be one of auto, cpu, cuda, mps, but is 'gpu' instead"),
    (f"{DATA} --set seed=-1", "seed must be at least 0"),
    (f"{DATA} --set text.vocabulary_size=9999", "text.vocabulary_size is 9999 but this text has only"),
    (f"{DATA} --set text.vocabulary_size=9", "set it to at least 258"),
    (f"{DATA} --set data.hold_out=30", "data.hold_out is 30, but there are only 30 pairs"),
    (f"{DATA} --set data.max_length=1", "no pairs are left to train on: 0 with an empty side and 2"),
    ("train --source {d}/few.en --out {d}/new", "source and target go together"),
    ("train --out {d}/new", "no training data; give source and target"),
    ("train --corpus {d}/few,en --out {d}/new", "write it as PREFIX,SRC,TRG"),
    (f"{DATA} --valid-source {{d}}/few.en", "valid_source and valid_target go together"),
    ("train {d}/god.toml --out {d}/new", "no recipe {d}/god.toml; did you mean 'good.toml'?"),
    ("train {d}/bad.toml --out {d}/new", "{d}/bad.toml is not TOML"),
    ("train {d}/folder --out {d}/new", "{d}/folder is a folder, not a recipe"),
    ("train {d}/good.toml --out {d}/new", "no training data"),
    ("train --source {d}/few.en --target {d}/few.de --out {d}/run", "{d}/run already exists; resume it with"),
    ("train --source {d}/few.en --target {d}/few.de --out {d}/good.toml", "{d}/good.toml already exists"),
]

FILES = [
    ("train --source {d}/fwe.en --target {d}/few.de --out {d}/new", "no file {d}/fwe.en; did you mean 'few.en'?"),
    ("train --source {d}/folder --target {d}/few.de --out {d}/new", "{d}/folder is a folder; give a text file"),
    ("train --source {d}/few.en --target {d}/more.de --out {d}/new", "few.en has 30 lines but {d}/more.de has 33"),
    ("train --source {d}/empty.en --target {d}/few.de --out {d}/new", "{d}/empty.en is empty"),
    ("train --source {d}/blank.en --target {d}/blank.en --out {d}/new", "left to train on: 3 with an empty side and 0"),
    ("train --source {d}/void.en --target {d}/void.en --out {d}/new", "no text to learn a vocabulary from"),
    ("train --source {d}/few.en --target {d}/latin.de --out {d}/new", "{d}/latin.de, line 3: not UTF-8 (byte 0xf6"),
    ("train --source {d}/few.en --target {d}/binary.de --out {d}/new", "{d}/binary.de, line 2: holds a NUL byte"),
    ("train --source {d}/cut.gz --target {d}/few.de --out {d}/new", "{d}/cut.gz ends in the middle"),
    ("train --tsv {d}/table.tsv --out {d}/new", "{d}/table.tsv, line 2: no tab"),
    ("train --source - --target {d}/few.de --out {d}/new", "- can be read only once"),
    ("train --source {d}/pipe --target {d}/few.de --out {d}/new", "{d}/pipe can be read only once"),
    (f"{DATA} --valid-source {{d}}/few.en --valid-target {{d}}/more.de", "few.en has 30 lines but {d}/more.de has 33"),
    (f"{DATA} --valid-source {{d}}/few.en --valid-target {{d}}/none.de", "there is no file {d}/none.de"),
    (f"{DATA} --set text.tokenizer_file={{d}}/none.json", "{d}/none.json cannot be read"),
    (f"{DATA} --set text.tokenizer_file={{d}}/few.en", "{d}/few.en is not"),
]

FOLDERS = [
    ("translate {d}/none x", "no run folder {d}/none; make one with"),
    ("translate {d}/folder x", "{d}/folder is not a run folder: it has no config.json"),
    ("translate {d}/few.en x", "no run folder {d}/few.en"),
    ("translate {d}/later x", "{d}/later has format 2, but this heedful reads format 1"),
    ("translate {d}/bare x", "{d}/bare has no model yet; go on training with: heedful train --resume {d}/bare"),
    ("translate {d}/run x --device cuda", "device 'cuda' is not available on this machine"),
    ("translate {d}/run x --device cdua", "--device must be one of auto, cpu, cuda, mps, but is cdua; did you mean"),
    ("translate {d}/run x --beam 2 --n-best 3", "you asked for 3 translations, but search.beam is 2"),
    ("translate {d}/run x --input {d}/few.en", "give either texts or --input, not both"),
    ("translate {d}/run --input {d}/none.en", "there is no file {d}/none.en"),
    ("translate {d}/run --input {d}/folder", "{d}/folder is a folder"),
    ("translate {d}/run --input {d}/latin.de", "{d}/latin.de, line 3: not UTF-8"),
    ("translate {d}/run --no-split --input {d}/long.en", "text 1 has 9"),
    ("translate {d}/run x --output {d}/folder", "--output {d}/folder is a folder"),
    ("translate {d}/run x --output {d}/none/out", "there is no folder {d}/none"),
    ("translate {d}/run x --set train.max_steps=3", "--set train: here only keys of [search] can be set"),
    ("translate {d}/run x --set search.bema=3", "unknown key: search.bema; did you mean 'beam'?"),
    ("evaluate {d}/none --source {d}/few.en --reference {d}/few.de", "no run folder {d}/none"),
    ("evaluate {d}/run --source {d}/few.en --reference {d}/more.de", "few.en has 30 lines but {d}/more.de has 33"),
    ("evaluate {d}/run --source {d}/few.en --reference {d}/few.de --tokenize 13b", "--tokenize must be one of 13a"),
    ("info {d}/none", "no run folder {d}/none"),
    ("info {d}/folder", "{d}/folder is not a run folder"),
    ("train --resume {d}/none", "no run folder {d}/none"),
    ("train --resume {d}/folder", "{d}/folder is not a run folder"),
    ("train --resume {d}/later", "{d}/later has format 2"),
    ("train --resume {d}/run --out {d}/new", "--resume takes everything from its folder"),
    ("train --resume {d}/run --set model.d_model=64", "model.d_model cannot change from 32 to 64 in a resumed run"),
    (
        "train --resume {d}/run --set train.clip_norm=0.5",
        "train.clip_norm cannot change from 1.0 to 0.5 in a resumed run",
    ),
    ("train --resume {d}/run --set train.max_stepz=5", "unknown key: train.max_stepz"),
]


@pytest.mark.parametrize(("line", "message"), [*USAGE, *OPTIONS, *FILES, *FOLDERS])
def test_a_mistake_gets_one_sentence_and_leaves_nothing_behind(folder: Path, line: str, message: str) -> None:
    before = contents(folder)
    ran = toy.run(*line.format(d=folder).split())
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert "Traceback" not in ran.err
    last = ran.err.split("\n")[-2]
    assert last.startswith("heedful: ")
    assert message.format(d=folder) in last
    assert ran.err.count("heedful: ") == 1
    assert contents(folder) == before


def contents(folder: Path) -> dict[str, int]:
    """All files and when they were written, except for locks."""
    return {
        str(path): path.lstat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != ".lock"
    } | {str(path): 0 for path in folder.iterdir()}


def test_the_traceback_is_shown_on_request_with_the_same_exit_code(folder: Path) -> None:
    ran = toy.run("--debug", "info", folder / "none")
    assert ran.code == 2
    assert ran.err.startswith("heedful: no run folder")
    assert "Traceback (most recent call last):" in ran.err
    assert ran.err.rstrip().split("\n")[-1].startswith("heedful.errors.FolderError: no run folder")


def test_an_error_that_nobody_thought_of_is_a_sentence_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.cli.info._page", lambda _: 1 / 0)
    ran = toy.run("info", "--preset", "base")
    assert ran.code == 1
    assert ran.err == (
        "heedful: unexpected ZeroDivisionError: division by zero; "
        "run again with --debug before the command to see where\n"
    )


# Damage


def flipped(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content))
    content[place] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


NEEDED = ("model.safetensors", "config.json", "generation_config.json", "experiment.toml", "tokenizer.json")


@pytest.mark.parametrize("name", [*NEEDED, "manifest.json"])
def test_a_flipped_bit_anywhere_in_a_model_is_found(trained: Path, tmp_path: Path, name: str) -> None:
    run = Path(shutil.copytree(trained / "run", tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints", "data")))
    whole = (run / name).read_bytes()
    chance = random.Random(name)
    for _ in range(10):
        flipped(run / name, chance)
        ran = toy.run("translate", run, "x")
        assert (ran.code, ran.out) == (2, ""), ran
        assert ran.err.startswith("heedful: ")
        assert str(run) in ran.err
        (run / name).write_bytes(whole)
    assert toy.run("translate", run, "x").code == 0


@pytest.mark.parametrize("name", [*NEEDED, "manifest.json"])
@pytest.mark.parametrize("how", ["cut", "emptied", "removed", "replaced by a folder", "rubbish"])
def test_a_file_that_is_not_whole_is_named(trained: Path, tmp_path: Path, name: str, how: str) -> None:
    run = Path(shutil.copytree(trained / "run", tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints", "data")))
    path = run / name
    content = path.read_bytes()
    match how:
        case "cut":
            path.write_bytes(content[: len(content) // 2])
        case "emptied":
            path.write_bytes(b"")
        case "removed":
            path.unlink()
        case "replaced by a folder":
            path.unlink()
            path.mkdir()
        case _:
            path.write_bytes(b"\x80\x05\x95" + random.Random(1).randbytes(2000))
    for command in (("translate", run, "x"), ("info", run)):
        ran = toy.run(*command)
        if command[0] == "info" and (name, how) == ("model.safetensors", "removed"):
            continue  # a training that has no model yet can be looked at
        assert (ran.code, ran.out) == (2, ""), ran
        assert ran.err.startswith("heedful: ")
        assert name in ran.err or "no model yet" in ran.err


def test_output_goes_through_a_link(trained: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "out.de")
    line = toy.lines_of(trained / "test.en")[0]
    assert toy.run("translate", trained / "run", line, "--output", link).code == 0
    assert link.is_symlink()
    assert toy.lines_of(tmp_path / "out.de") == [toy.translated(line)]


def test_what_is_read_is_not_written_to(trained: Path, tmp_path: Path) -> None:
    text, link = toy.write_lines(tmp_path / "in.en", ["a"]), tmp_path / "link"
    link.symlink_to(text)
    both = ("--source", text, "--reference", text)
    for target in (text, link):
        for command in (("translate", trained / "run", "--input", text), ("evaluate", trained / "run", *both)):
            ran = toy.run(*command, "--output", target)
            assert (ran.code, f"--output {target} is also an input file" in ran.err) == (2, True)
    assert toy.lines_of(text) == ["a"]


def test_files_of_other_kinds_are_refused_by_name(trained: Path, tmp_path: Path) -> None:
    toy.write_lines(tmp_path / "app.properties", ["title=Save the file"])
    ran = toy.run("translate", trained / "run", "--input", tmp_path / "app.properties")
    assert (ran.code, "unsupported file type .properties; supported: " in ran.err) == (2, True)
    (tmp_path / "film.en").write_bytes(b"\x00\x01\xff\xfe\n")
    ran = toy.run("translate", trained / "run", "--input", tmp_path / "film.en")
    assert (ran.code, "it is not a text file" in ran.err, "iconv" in ran.err) == (2, True, False)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("memory", b"<tmx/>\n", "XML or HTML"),
        ("memory.en", b'<?xml version="1.0"?>\n<tmx version="1.4"><body/></tmx>\n', "XML or HTML"),
        ("strings.en", b'{"title": "Save the file"}\n', "JSON"),
        ("letter.en", b"PK\x03\x04...", "a ZIP archive"),
        ("paper.en", b"%PDF-1.7\n", "a PDF file"),
    ],
)
def test_files_of_other_kinds_are_refused_by_content(
    trained: Path, tmp_path: Path, name: str, content: bytes, kind: str
) -> None:
    (tmp_path / name).write_bytes(content)
    ran = toy.run("translate", trained / "run", "--input", tmp_path / name, "--output", tmp_path / "out")
    assert (ran.code, ran.out) == (2, "")
    assert f"{name} looks like {kind}, and would break if it were translated line by line; supported: .txt" in ran.err
    assert not (tmp_path / "out").exists()


def test_xml_from_standard_input_is_refused(trained: Path) -> None:
    ran = toy.run("translate", trained / "run", stdin=b'\n<?xml version="1.0"?>\n<tmx/>\n')
    assert (ran.code, "standard input looks like XML" in ran.err) == (2, True)


# No room


def test_a_full_disk_under_the_output_ends_with_5(trained: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/dev/full")
    for target in (Path("/dev/full"), link):
        ran = toy.run("translate", trained / "run", "x", "--output", target)
        assert (ran.code, ran.out) == (5, "")
        assert f"heedful: the disk is full while writing {target}" in ran.err
    assert Path("/dev/full").is_char_device()
    assert link.is_symlink()
    assert toy.run("translate", trained / "run", "x", "--output", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("calls", [0, 3, 8, 11, 14, 17])
def test_a_disk_that_fills_up_in_training_ends_with_5_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    toy.write_pairs(tmp_path, "few", 60, seed=3)
    options = ("--source", tmp_path / "few.en", "--target", tmp_path / "few.de", "--out", tmp_path / "run")
    steps = toy.settings("train.max_steps=3", "train.batch_tokens=128", "train.save_every=1", "train.best_by=loss")
    left = [calls]
    write = os.write

    def full(descriptor: int, content: bytes) -> int:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 1
        return write(descriptor, content)

    with toy.plain_log():
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            ran = toy.run("train", *options, *steps)
        assert (ran.code, ran.out) == (5, ""), ran
        assert "Traceback" not in ran.err
        assert ran.err.split("\n")[-2].startswith("heedful: the disk is full while writing")
        assert not list(tmp_path.rglob(".tmp-*"))
        begun = (tmp_path / "run" / "experiment.toml").exists()
        again = ("--resume", tmp_path / "run") if begun else (*options, *steps)
        ran = toy.run("train", *again)
        assert ran.code == 0, ran.err
    assert [event["step"] for event in toy.events(tmp_path / "run", "StepDone")] == [1, 2, 3]


def failing(make: Callable[[], object]) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        return make()

    return fail


def no_memory() -> object:
    return torch.empty(1 << 50)


def no_python_memory() -> object:
    return bytearray(1 << 60)


@pytest.mark.parametrize("make", [no_memory, no_python_memory])
def test_memory_that_does_not_suffice_ends_with_5(
    folder: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], object]
) -> None:
    monkeypatch.setattr("heedful.decoding.torch_engine.TorchEngine.decode", failing(make))
    ran = toy.run("translate", folder / "run", "x")
    assert (ran.code, ran.out) == (5, "")
    assert ran.err.startswith("heedful: out of memory; lower train.batch_tokens")
    assert ran.err.count("\n") == 1


def test_ctrl_c_ends_with_130_and_without_a_word(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("heedful.decoding.torch_engine.TorchEngine.decode", failing(interrupt))
    ran = toy.run("translate", folder / "run", "x", "--output", folder / "out")
    assert (ran.code, ran.out, ran.err) == (130, "", "")
    assert not (folder / "out").exists()


# Divergence


@pytest.mark.parametrize(("rate", "every"), [("1e30", 100), ("1e30", 1), ("1e300", 1)])
def test_a_training_that_diverges_ends_with_6_and_spares_what_is_on_disk(tmp_path: Path, rate: str, every: int) -> None:
    toy.write_pairs(tmp_path, "few", 60, seed=3)
    run = tmp_path / "run"
    steps = ("train.max_steps=3", "train.batch_tokens=128", "train.save_every=3", "train.validate_bleu=false")
    with toy.plain_log():
        toy.run("train", "--source", tmp_path / "few.en", "--target", tmp_path / "few.de", "--out", run,
                *toy.settings(*steps, "train.schedule=constant", "train.ema_decay=0.0"))  # fmt: skip
        model, checkpoint = (run / "model.safetensors").read_bytes(), toy.last_checkpoint(run)
        more = ("train.max_steps=9", f"train.learning_rate={rate}", f"train.save_every={every}")
        ran = toy.run("train", "--resume", run, *(part for setting in more for part in ("--set", setting)))
        assert (ran.code, ran.out) == (6, ""), ran.err
        last = ran.err.split("\n")[-2]
        assert last.startswith("heedful: ")
        assert "lower train.learning_rate" in last
        assert (run / "model.safetensors").read_bytes() == model
        if rate == "1e300" or every == 100:
            assert toy.same_bits(toy.last_checkpoint(run), checkpoint)
        assert all(tensor.isfinite().all() for tensor in toy.last_checkpoint(run).values())
        assert toy.run("translate", run, "x").code == 0
        if every == 100:  # what the message advises is possible
            ran = toy.run("train", "--resume", run, "--set", "train.learning_rate=0.001")
            assert ran.code == 0, ran.err


# The streams of the process


def shell(line: str) -> "subprocess.CompletedProcess[bytes]":
    program = " ".join(toy.command())
    return subprocess.run(["bash", "-c", line.replace("heedful", program)], capture_output=True, check=False)


@pytest.mark.parametrize("buffered", ["", "PYTHONUNBUFFERED=1 "])
def test_a_full_disk_behind_standard_output_ends_with_5(buffered: str) -> None:
    ran = shell(f"{buffered}heedful info --preset base > /dev/full")
    assert ran.returncode == 5
    assert ran.stderr.startswith(b"heedful: ")
    assert ran.stderr.count(b"\n") == 1


@pytest.mark.parametrize("buffered", ["", "PYTHONUNBUFFERED=1 "])
def test_a_reader_that_leaves_early_is_no_error(buffered: str) -> None:
    ran = shell(f"set -o pipefail; {buffered}heedful info --preset base | (exec <&-; sleep 0.5)")
    assert ran.returncode in (0, 1)
    assert ran.stderr == b""


def test_closed_streams_are_no_error() -> None:
    ran = shell("heedful info --preset base >&- <&- 2>&-")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    ran = shell("heedful info --preset nothing 2>&-")
    assert (ran.returncode, ran.stdout) == (2, b"")
