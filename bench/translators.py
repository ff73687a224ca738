"""Who translates in the race, in which formats they want the model, and what settings they choose from."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from contender_translate import Job, Setting
from peers import PEERS
from race import HERE, Contender, ContenderFailed, Kind, environment

_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_THREADS = sorted({1, _CORES})
_BATCHES: tuple[Setting, ...] = (
    *({"max_batch_size": tokens, "batch_type": "tokens"} for tokens in (2048, 512, 1024, 4096, 8192)),
    *({"max_batch_size": texts, "batch_type": "examples"} for texts in (16, 32, 64)),
)
_SAMPLE = 128  # texts that the slow ones are tuned on
_ALONE = 20  # texts that all are tuned on, for one at a time
_JOEYNMT = next(peer for peer in PEERS if peer.name == "joeynmt")
TORCH, FLOAT, INT8 = "heedful torch", "heedful ctranslate2 float32", "heedful ctranslate2 int8"


@dataclass(frozen=True, slots=True)
class Entrant:
    """Someone who translates. Settings are chosen stage by stage, the best of each is kept for the next."""

    name: str
    kind: Kind
    script: str
    model: str  # the format: a folder of `prepare`
    stages: Sequence[Sequence[Setting]]
    alone: Sequence[Setting]  # for one text at a time
    sample: int = 0  # texts to tune on; 0: all
    python: str = sys.executable

    def contender(self, job: Path, action: str) -> Contender:
        """Its process."""
        return Contender(self.name, self.kind, [self.python, str(HERE / self.script), str(job), action])


def entrants() -> list[Entrant]:
    """All of them."""
    own = "contender_translator.py"
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


def _plain(numbers: str) -> Entrant:
    """CTranslate2: workers and threads first, then batches."""
    layouts = [{"inter_threads": _CORES, "intra_threads": 1}, {"inter_threads": 1, "intra_threads": _CORES}]
    stages = [[{**layout, **_BATCHES[0]} for layout in layouts], _BATCHES]
    alone: list[Setting] = [{"inter_threads": 1, "intra_threads": number} for number in _THREADS]
    return Entrant(f"CTranslate2 {numbers}", "shipped", "contender_ctranslate2.py", numbers, stages, alone)


def _marian(name: str, more: Setting) -> Entrant:
    stages = [[{**setting, **more} for setting in _on_torch(32)], _batches(16, 32, 64, 128)]
    alone = [{**setting, **more} for setting in _on_torch(1)]
    return Entrant(name, "shipped", "contender_huggingface.py", "huggingface", stages, alone, _SAMPLE)


def _joeynmt() -> Entrant:
    stages = [_on_torch(32), _batches(16, 32, 64)]
    python = str(_JOEYNMT.folder / "bin" / "python")
    return Entrant("JoeyNMT", "shipped", "contender_joeynmt.py", "joeynmt", stages, _on_torch(1), _SAMPLE, python)


def _on_torch(batch: int) -> list[Setting]:
    return [{"batch": batch, "threads": number} for number in _THREADS]


def _batches(*sizes: int) -> list[Setting]:
    return [{"batch": size} for size in sizes]


def prepare(run: Path, folder: Path, formats: Iterable[str]) -> dict[str, str]:
    """The model in these formats, each in a folder of its name; and why one is not there."""
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
            absent[name] = "JoeyNMT is not installed; get it by: python bench/peers.py install joeynmt"
    return absent


def last_words(stderr: str) -> str:
    """Why a process failed."""
    return (stderr.strip().splitlines() or ["it said nothing"])[-1]


@dataclass(frozen=True, slots=True)
class Tuned:
    """What settings took, and the best of them."""

    best: Setting
    seconds: Mapping[str, float] = field(default_factory=dict)


def tune(entrant: Entrant, job: Job, path: Path) -> Tuned:
    """Choose its settings for this job, in a process of its own: what it holds then is not in the race."""
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
    """For people."""
    return ", ".join(f"{key} {value}" for key, value in setting.items())
