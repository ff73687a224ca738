"""The translators that are compared: the formats of their models, and the settings to choose from."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from peers import PEERS
from race import HERE, Contender, ContenderFailed, Kind, environment
from translation_contenders import Job, Setting

_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_THREADS = sorted({1, _CORES})
_BATCHES: tuple[Setting, ...] = (
    *({"max_batch_size": tokens, "batch_type": "tokens"} for tokens in (2048, 512, 1024, 4096, 8192)),
    *({"max_batch_size": texts, "batch_type": "examples"} for texts in (16, 32, 64)),
)
_SAMPLE = 128  # texts on which the slow ones are tuned
_ALONE = 20  # texts on which all are tuned for one text at a time
_JOEYNMT = next(peer for peer in PEERS if peer.name == "joeynmt")
TORCH, FLOAT, INT8 = "heedful torch", "heedful ctranslate2 float32", "heedful ctranslate2 int8"


@dataclass(frozen=True, slots=True)
class Entrant:
    """A translator. Its settings are tuned in stages; the best of each stage is kept for the next."""

    name: str
    kind: Kind
    script: Sequence[str]  # a file of this folder and its first arguments
    model: str  # the format, which is a folder of `prepare`
    stages: Sequence[Sequence[Setting]]
    alone: Sequence[Setting]  # for one text at a time
    sample: int = 0  # texts to tune on; 0: all
    python: str = sys.executable

    def contender(self, job: Path, action: str) -> Contender:
        """The process that does this job."""
        file, *arguments = self.script
        return Contender(self.name, self.kind, [self.python, str(HERE / file), *arguments, str(job), action])


def entrants() -> list[Entrant]:
    """All translators."""
    own = _run("heedful")
    engine: Setting = {"engine": "ctranslate2"}
    alone: list[Setting] = [{"engine": "torch", "threads": number} for number in _THREADS]
    return [
        Entrant(TORCH, "heedful", own, "torch", [[{"engine": "torch"}]], alone),
        Entrant(FLOAT, "heedful", own, "float32", [[engine]], [engine]),
        Entrant(INT8, "heedful", own, "int8", [[engine]], [engine]),
        _plain("float32"),
        _plain("int8"),
        _marian("Hugging Face", {}),
        _marian("Hugging Face, early stopping", {"early_stopping": True}),
        _joeynmt(),
    ]


def _run(name: str) -> tuple[str, str]:
    return "translation_contenders.py", name


def _plain(numbers: str) -> Entrant:
    """CTranslate2: choose workers and threads first, then batches."""
    layouts = [{"inter_threads": _CORES, "intra_threads": 1}, {"inter_threads": 1, "intra_threads": _CORES}]
    stages = [[{**layout, **_BATCHES[0]} for layout in layouts], _BATCHES]
    alone: list[Setting] = [{"inter_threads": 1, "intra_threads": number} for number in _THREADS]
    return Entrant(f"CTranslate2 {numbers}", "shipped", _run("ctranslate2"), numbers, stages, alone)


def _marian(name: str, more: Setting) -> Entrant:
    stages = [[{**setting, **more} for setting in _on_torch(32)], _batches(16, 32, 64, 128)]
    alone = [{**setting, **more} for setting in _on_torch(1)]
    return Entrant(name, "shipped", _run("huggingface"), "huggingface", stages, alone, _SAMPLE)


def _joeynmt() -> Entrant:
    stages = [_on_torch(32), _batches(16, 32, 64)]
    python = str(_JOEYNMT.folder / "bin" / "python")
    return Entrant("JoeyNMT", "shipped", _run("joeynmt"), "joeynmt", stages, _on_torch(1), _SAMPLE, python)


def _on_torch(batch: int) -> list[Setting]:
    return [{"batch": batch, "threads": number} for number in _THREADS]


def _batches(*sizes: int) -> list[Setting]:
    return [{"batch": size} for size in sizes]


def prepare(run: Path, folder: Path, formats: Iterable[str]) -> dict[str, str]:
    """Write the model in these formats, each to a folder of that name; return why some are missing."""
    (folder / "torch").symlink_to(run.resolve())
    export = [sys.executable, "-m", "heedful", "export", str(run)]
    commands = {
        "float32": [*export, str(folder / "float32"), "--to", "ctranslate2"],
        "int8": [*export, str(folder / "int8"), "--to", "ctranslate2", "--numbers", "int8"],
        "huggingface": [*export, str(folder / "huggingface"), "--to", "huggingface"],
        "joeynmt": [sys.executable, str(HERE / "joeynmt_model.py"), str(run), str(folder / "joeynmt")],
    }
    absent: dict[str, str] = {}
    for name in commands.keys() & set(formats):
        done = subprocess.run(commands[name], capture_output=True, text=True, check=False)
        if done.returncode:
            absent[name] = last_words(done.stderr)
        elif name == "joeynmt" and not _JOEYNMT.installed:
            absent[name] = "JoeyNMT is not installed; install it with: python bench/peers.py install joeynmt"
    return absent


def last_words(stderr: str) -> str:
    """The last line of a failed process."""
    return (stderr.strip().splitlines() or ["it wrote nothing"])[-1]


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best settings, and the seconds that each took."""

    best: Setting
    seconds: Mapping[str, float] = field(default_factory=dict)


def tune(entrant: Entrant, job: Job, path: Path) -> Tuned:
    """Choose the settings for this job in a separate process, so that tuning does not count towards memory."""
    alone = job.together == 1
    stages = [entrant.alone] if alone else entrant.stages
    best: Setting = {}
    seconds: dict[str, float] = {}
    for stage in stages:
        settings = [{**best, **setting} for setting in stage]
        if len(settings) > 1:
            counts = [count for count in (job.texts, _ALONE if alone else entrant.sample) if count]
            replace(job, settings=settings, texts=min(counts, default=0)).write(path)
            contender = entrant.contender(path, "tune")
            done = subprocess.run(
                contender.command,
                env=environment(contender),
                capture_output=True,
                text=True,
                check=False,
                cwd=path.parent,
            )
            if done.returncode:
                raise ContenderFailed(f"{entrant.name} ended: {last_words(done.stderr)}")
            found = json.loads(done.stdout)
            seconds |= {spelled(setting): round(time, 3) for setting, time in zip(settings, found, strict=True)}
            settings = [settings[found.index(min(found))]]
        best = settings[0]
    return Tuned(best, seconds)


def spelled(setting: Setting) -> str:
    """The summary as text."""
    return ", ".join(f"{key} {value}" for key, value in setting.items())
