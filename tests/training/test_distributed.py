"""Several processes train like one, and survive the loss of a process."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from shutil import copytree

import pytest
import torch
import toy
from resume_examples import WHOLE, assert_same, steps_logged

from heedful.data.batch import Batching, Position, epoch_batches
from heedful.data.corpus import Corpus
from heedful.training import process_group
from heedful.training.loop import UpdateSplit, make_updates
from heedful.training.process_group import join_process_group
from heedful.translation.translator import Translator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ROUNDING = 1e-5
LONG = ("train.max_steps=60", "train.save_every=7", "train.validate_every=25")
# Batches differ in their number of pairs, and one has a single pair, so three of its four parts are empty.
UNEVEN = ("data.hold_out=0", "train.batch_tokens=60", "train.accumulate=2", "model.dropout=0.1", "train.max_steps=8")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    toy.write_pairs(folder, "train", 150, seed=21)
    toy.write_pairs(folder, "valid", 20, seed=22)
    source = [*toy.sentences(30, seed=23), " ".join(toy.sentences(12, seed=24))]
    toy.write_lines(folder / "uneven.en", source)
    toy.write_lines(folder / "uneven.de", [toy.translated(line) for line in source])
    return folder


EXACT = "train.precision=float32"  # otherwise losses would depend on how a batch is split


def options(pairs: Path, run: Path, *settings: str) -> list[str]:
    """Arguments of `heedful train` for a training with every kind of state."""
    files = ("--source", pairs / "train.en", "--target", pairs / "train.de")
    valid = ("--valid-source", pairs / "valid.en", "--valid-target", pairs / "valid.de")
    given = (part for setting in ("model.preset=paper", EXACT, *WHOLE, *settings) for part in ("--set", setting))
    return list(map(str, ["train", *files, *valid, "--out", run, *given]))


def uneven(pairs: Path, run: Path) -> list[str]:
    files = ("--source", pairs / "uneven.en", "--target", pairs / "uneven.de")
    return list(map(str, ["train", *files, "--out", run, *toy.settings(*UNEVEN, EXACT)]))


def begun_with(pairs: Path, run: Path, parent: Path, *settings: str) -> list[str]:
    """A training that starts from an existing model."""
    files = ("--source", pairs / "uneven.en", "--target", pairs / "uneven.de", "--init", parent, "--out", run)
    wanted = ("train.threads=1", "train.max_steps=6", "train.validate_every=3", "data.hold_out=5", EXACT, *settings)
    return list(map(str, ["train", *files, *(part for setting in wanted for part in ("--set", setting))]))


def changing(pairs: Path, run: Path, first: str, then: str) -> list[list[str]]:
    """A training that stops and resumes, possibly with other settings."""
    more = ["--set", "train.max_steps=13", "--set", f"train.parallel={then}"]
    half = options(pairs, run, f"train.parallel={first}", "train.clip_norm=0.5", "train.max_steps=6")
    return [half, ["train", "--resume", str(run), *more]]


@dataclass
class Job:
    """A running torchrun."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def workers(self) -> dict[int, int]:
        """The process id of each rank."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        found: dict[int, int] = {}
        for child in children:
            environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            found |= {int(entry[5:]): int(child) for entry in environment if entry.startswith(b"RANK=")}
        return found

    def wait_for(self, sentence: str, where: Path | None = None) -> None:
        until = time.monotonic() + 300
        while self.process.poll() is None and time.monotonic() < until:
            path = where or self.log
            if path.exists() and sentence in path.read_text(encoding="utf-8"):
                return
            time.sleep(0.02)
        raise AssertionError(f"{sentence} is not in {self.log.read_text()}")

    def wait_for_step(self, run: Path, step: int) -> None:
        self.wait_for(f'"event": "StepDone", "step": {step},', run / "events.jsonl")

    def end(self) -> tuple[int, str]:
        """The exit code and all output."""
        code = self.process.wait(timeout=600)
        return code, self.log.read_text(encoding="utf-8")


@contextmanager
def torchrun(folder: Path, plan: Sequence[list[str]], *more: str) -> Iterator[Job]:
    """Two processes that run these commands one after another."""
    (folder / "plan").write_text("".join(json.dumps(arguments) + "\n" for arguments in plan))
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *more]
    places = os.pathsep.join(filter(None, [str(EXAMPLES), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": places}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*program, str(EXAMPLES / "team_worker.py"), str(folder / "plan")], stdout=log, stderr=log, env=environment
        )
        try:
            yield Job(process, folder / "log")
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=60)


@pytest.fixture(scope="module")
def interrupted(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of two processes, one of which got SIGTERM, and their output."""
    folder = tmp_path_factory.mktemp("interrupted")
    with torchrun(folder, [options(pairs, folder / "run", *LONG)]) as job:
        job.wait_for_step(folder / "run", 10)
        os.kill(job.workers()[1], signal.SIGTERM)
        code, said = job.end()
    assert code == 1  # torchrun's own code, whatever its workers return
    return folder / "run", said


@pytest.fixture(scope="module")
def runs(pairs: Path, interrupted: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trainings in one process and in two; the latter share one start of torchrun, which takes longest."""
    folder = tmp_path_factory.mktemp("runs")
    with toy.plain_log():
        assert toy.run(*options(pairs, folder / "one")).code == 0
        assert toy.run(*uneven(pairs, folder / "uneven-one")).code == 0
        assert toy.run(*options(pairs, folder / "one-two", "train.max_steps=6")).code == 0
        assert toy.run(*begun_with(pairs, folder / "tuned-one", folder / "one")).code == 0
    plan = [
        options(pairs, folder / "two"),
        uneven(pairs, folder / "uneven-two"),
        ["train", "--resume", str(folder / "one-two"), "--set", "train.max_steps=13"],
        options(pairs, folder / "two-one", "train.max_steps=6"),
        options(pairs, folder / "shards", "train.parallel=shards", "train.clip_norm=0.5"),
        options(pairs, folder / "copies", "train.parallel=copies", "train.clip_norm=0.5"),
        *changing(pairs, folder / "shards-shards", "shards", "shards"),
        *changing(pairs, folder / "shards-copies", "shards", "copies"),
        *changing(pairs, folder / "copies-shards", "copies", "shards"),
        options(pairs, folder / "whole", *LONG),
        begun_with(pairs, folder / "tuned-two", folder / "one"),
        begun_with(pairs, folder / "tuned-shards", folder / "one", "train.parallel=shards"),
        ["train", "--resume", str(interrupted[0])],
    ]
    with torchrun(folder, plan) as job:
        code, said = job.end()
    assert code == 0, said
    with toy.plain_log():
        ran = toy.run("train", "--resume", folder / "two-one", "--set", "train.max_steps=13")
    assert ran.code == 0, ran.err
    assert "processes was 2 and is 1" in ran.err
    return folder


def losses(run: Path, kind: str = "StepDone") -> list[float]:
    return [event["loss"] for event in toy.events(run, kind)]


@pytest.mark.parametrize(
    ("one", "two"), [("one", "two"), ("uneven-one", "uneven-two"), ("one", "one-two"), ("one", "two-one")]
)
def test_two_processes_have_the_losses_of_one(runs: Path, one: str, two: str) -> None:
    assert steps_logged(runs / two) == steps_logged(runs / one)
    assert losses(runs / two) == pytest.approx(losses(runs / one), abs=ROUNDING)
    # A run that ended and got more steps has also validated its first end.
    validated = {event["step"]: event["loss"] for event in toy.events(runs / two, "Validated")}
    for event in toy.events(runs / one, "Validated"):
        assert validated[event["step"]] == pytest.approx(event["loss"], abs=ROUNDING)


@pytest.mark.parametrize("two", ["tuned-two", "tuned-shards"])
def test_two_processes_start_with_the_same_model(runs: Path, two: str) -> None:
    for kind in ("StepDone", "Validated"):
        assert losses(runs / two, kind) == pytest.approx(losses(runs / "tuned-one", kind), abs=1e-4)
    assert [event["step"] for event in toy.events(runs / two, "Validated")] == [0, 3, 6]


def test_the_uneven_corpus_has_a_batch_of_one_pair(runs: Path) -> None:
    source, target = Corpus(runs / "uneven-two" / "data" / "train-0").lengths()
    sizes = [len(batch) for batch in epoch_batches(source, target, Batching(60, 1), 0)]
    assert min(sizes) == 1 < max(sizes)
    assert sum(sizes) == 31


def test_only_one_process_logs(runs: Path) -> None:
    for run in ("two", "uneven-two", "shards"):
        assert len(toy.events(runs / run, "Started")) == len(toy.events(runs / run, "Finished")) == 1
    assert steps_logged(runs / "two") == list(range(1, 14))
    assert toy.events(runs / "two", "Started")[0]["processes"] == 2
    assert [event["step"] for event in toy.events(runs / "two", "Saved")] == [4, 8, 12, 13]


@pytest.mark.parametrize("parts", [1, 3])
def test_every_pair_goes_to_exactly_one_process(runs: Path, parts: int) -> None:
    corpora = [Corpus(runs / "one" / "data" / f"train-{variant}") for variant in range(2)]
    seen: list[int] = []
    tokens = []
    for rank in range(3):
        split, cpu = UpdateSplit(parts, rank, 3), torch.device("cpu")
        whole = make_updates(corpora, Position(1), Batching(100, 7), split, 0, cpu)
        mine = list(takewhile(lambda update: update.epoch == 1, whole))
        seen += [index for update in mine for part in update.parts for index in part.indices.tolist()]
        tokens.append([(update.tokens, update.target_tokens, update.next) for update in mine])
    assert sorted(seen) == list(range(150))
    assert tokens[0] == tokens[1] == tokens[2]


def test_sharded_weights_train_like_replicated_ones(runs: Path) -> None:
    assert losses(runs / "shards") == pytest.approx(losses(runs / "copies"), abs=1e-4)
    assert losses(runs / "shards", "Validated") == pytest.approx(losses(runs / "copies", "Validated"), abs=1e-4)
    norms = [[event["gradient_norm"] for event in toy.events(runs / run, "StepDone")] for run in ("shards", "copies")]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    assert toy.last_checkpoint(runs / "shards").keys() == toy.last_checkpoint(runs / "copies").keys()
    # Not all weights: the bias of a key has no effect, so Adam amplifies its rounding errors.
    shards, copies = toy.weights(runs / "shards"), toy.weights(runs / "copies")
    assert shards.keys() == copies.keys()
    name = "target_embedding.weight"
    torch.testing.assert_close(shards[name], copies[name], atol=1e-4, rtol=1e-3)
    sentence = toy.sentences(1, seed=1)
    assert Translator.load(runs / "shards").translate(sentence) == Translator.load(runs / "copies").translate(sentence)


def test_a_sharded_run_resumes_to_the_same_bits(runs: Path) -> None:
    assert losses(runs / "shards-shards") == losses(runs / "shards")
    assert toy.same_bits(toy.last_checkpoint(runs / "shards-shards"), toy.last_checkpoint(runs / "shards"))


@pytest.mark.parametrize("run", ["shards-copies", "copies-shards"])
def test_a_sharded_run_can_resume_replicated_and_the_reverse(runs: Path, run: str) -> None:
    assert steps_logged(runs / run) == list(range(1, 14))
    assert losses(runs / run) == pytest.approx(losses(runs / "copies"), abs=1e-4)
    counts = [t for name, t in toy.last_checkpoint(runs / run).items() if name.startswith("optimizer.step.")]
    assert set(map(float, counts)) == {13.0}


def test_a_sharded_checkpoint_also_has_one_file_with_all_weights(runs: Path) -> None:
    written = runs / "shards" / "checkpoints" / "step-00000013"
    names = ["manifest.json", "state.json", "tensors.safetensors", "whole.safetensors"]
    assert sorted(path.name for path in written.iterdir()) == names
    assert sorted(json.loads((written / "manifest.json").read_text())["files"]) == names[1:]


def test_a_sharded_run_resumes_in_one_process(runs: Path, tmp_path: Path) -> None:
    copytree(runs / "shards", tmp_path / "run")
    with toy.plain_log():
        ran = toy.run("train", "--resume", tmp_path / "run", "--set", "train.max_steps=15")
    assert ran.code == 0, ran.err
    assert steps_logged(tmp_path / "run") == list(range(1, 16))


@pytest.mark.parametrize("name", ["tensors.safetensors", "whole.safetensors"])
def test_a_damaged_sharded_checkpoint_is_skipped(runs: Path, tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    copytree(runs / "shards", run)
    file = run / "checkpoints" / "step-00000013" / name
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with toy.plain_log():
        ran = toy.run("train", "--resume", run)
    assert ran.code == 0, ran.err
    assert f"checkpoints/step-00000013 is damaged ({name}: sha256 differs); resuming from step 12" in ran.err
    assert losses(run) == pytest.approx(losses(runs / "shards"), abs=1e-4)


def test_a_signal_to_one_process_stops_all_and_the_run_resumes_to_the_same_bits(
    runs: Path, interrupted: tuple[Path, str]
) -> None:
    run, said = interrupted
    assert said.count("stopped by SIGTERM at step") == 1
    assert said.count("exitcode  : 75") + said.count("exitcode  : -15") >= 1
    assert "exitcode  : 1 " not in said
    assert_same(run, runs / "whole")


def test_a_training_that_torchrun_restarts_ends_with_the_same_bits(pairs: Path, runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with torchrun(tmp_path, [options(pairs, run, *LONG)], "--max-restarts", "3") as job:
        job.wait_for_step(run, 20)
        os.kill(job.workers()[0], signal.SIGKILL)
        code, said = job.end()
    assert code == 0, said
    assert f"torchrun has restarted the processes: resuming {run}" in said
    assert len(toy.events(run, "Started")) == 2
    assert_same(run, runs / "whole")


def test_a_folder_that_existed_before_is_still_refused_after_a_restart(runs: Path, pairs: Path, tmp_path: Path) -> None:
    before = (runs / "two" / "events.jsonl").read_bytes()
    with torchrun(tmp_path, [options(pairs, runs / "two")], "--max-restarts", "1") as job:
        code, said = job.end()
    assert code == 1
    assert said.count(f"{runs / 'two'} already exists; resume it with --resume") == 2
    assert (runs / "two" / "events.jsonl").read_bytes() == before


def test_a_process_that_hangs_is_named(pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = ("train.max_steps=100000", "train.timeout_minutes=0.1", "train.validate_every=100000")
    with torchrun(tmp_path, [options(pairs, run, *settings)]) as job:
        job.wait_for_step(run, 5)
        stopped = job.workers()[1]
        os.kill(stopped, signal.SIGSTOP)
        job.wait_for("process 1 did not answer within train.timeout_minutes = 0.1 at step ")
        os.kill(stopped, signal.SIGKILL)  # torchrun itself would wait half a minute before that
        code, said = job.end()
    assert code == 1
    assert "continue with --resume" in said


@pytest.mark.parametrize(
    ("words", "others"),
    [
        ("Operation timed out!", True),  # the timeout of one operation, which races with that of its group
        ("[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 6000ms for recv operation to complete", True),
        ("mat1 and mat2 shapes cannot be multiplied", False),
    ],
)
def test_a_lost_process_is_distinguished_from_other_errors(words: str, others: bool) -> None:
    assert process_group._is_connection_error(RuntimeError(words)) is others


def test_without_torchrun_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    with join_process_group() as group:
        assert (group.is_first, group.world_size, group.agree_on("why"), group.sum_over_processes(2.5)) == (
            True,
            1,
            "why",
            2.5,
        )
        group.connect(1.0)
        assert not torch.distributed.is_initialized()
