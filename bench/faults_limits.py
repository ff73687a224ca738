"""Attack the memory and the time of commands that open a folder: each must refuse quickly, with exit code 2."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from faults_common import Outcome, last_line, tell

from heedful.storage.files import MANIFEST, write_manifest

_SECONDS = 300  # until a command counts as hanging; on a busy machine PyTorch alone takes a minute to load
_MEBIBYTES = 700  # the libraries alone need 400
_BUILT_IN = "en-de"


def limits(folder: Path, count: int, chance: random.Random) -> Outcome:
    """Run each attack; `count` and `chance` are not needed."""
    failures, rows = [], []
    for name, attack in _ATTACKS.items():
        place = folder / name
        arguments = attack(place)
        code, seconds, mebibytes, err = _run(arguments)
        rows.append(f"{name}: exit code {code}, {seconds:.1f} s, {mebibytes} MiB")
        tell(f"{rows[-1]}: {last_line(err)}")
        if code != 2 or mebibytes > _MEBIBYTES or "Traceback" in err:
            failures.append(f"{rows[-1]}: {last_line(err)}")
        shutil.rmtree(place, ignore_errors=True)
    return Outcome(len(rows), tuple(failures), "; ".join(rows))


def _run(arguments: list[str]) -> tuple[int, float, int, str]:
    """The exit code (that of SIGKILL if it hangs), the seconds, the peak of the memory, and standard error."""
    began = time.monotonic()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "heedful", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, _resident(process.pid))
        if time.monotonic() - began > _SECONDS or peak > 8 << 30:
            process.send_signal(signal.SIGKILL)
        time.sleep(0.02)
    _, err = process.communicate()
    return process.returncode, time.monotonic() - began, peak >> 20, err.decode(errors="replace")


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


# Attacks: each makes a folder and gives the command that opens it


def _copy(place: Path) -> Path:
    from heedful.storage.model_names import find_model

    shutil.copytree(find_model(_BUILT_IN), place)
    return place


def _reseal(place: Path) -> None:
    write_manifest(place, json.loads((place / MANIFEST).read_text())["files"])


def _sparse(name: str) -> Callable[[Path], list[str]]:
    def attack(place: Path) -> list[str]:
        with (_copy(place) / name).open("r+b") as file:
            file.truncate(1 << 30)
        _reseal(place)
        return ["info", str(place)]

    return attack


def _pipe(name: str) -> Callable[[Path], list[str]]:
    def attack(place: Path) -> list[str]:
        (_copy(place) / name).unlink(missing_ok=True)
        os.mkfifo(place / name)
        return ["info", str(place)]

    return attack


def _link(place: Path) -> list[str]:
    (_copy(place) / "about.json").rename(place.parent / "elsewhere.json")
    (place / "about.json").symlink_to(place.parent / "elsewhere.json")
    return ["info", str(place)]


def _long_key(place: Path) -> list[str]:
    path = _copy(place) / "experiment.toml"
    path.write_text(".".join(["a"] * 20_000) + " = 1\n" + path.read_text())
    _reseal(place)
    return ["info", str(place)]


def _deep(place: Path) -> list[str]:
    path = _copy(place) / "experiment.toml"
    path.write_text("name = " + "[" * 5000 + "]" * 5000 + "\n")
    _reseal(place)
    return ["info", str(place)]


def _deep_about(place: Path) -> list[str]:
    (_copy(place) / "about.json").write_text('{"a":' * 900 + "1" + "}" * 900)
    return ["info", str(place)]


def _marian(change: dict[str, object]) -> Callable[[Path], list[str]]:
    def attack(place: Path) -> list[str]:
        make_marian(place, change)
        return ["import", str(place), str(place / "out")]

    return attack


def make_marian(place: Path, change: dict[str, object]) -> None:
    """A small folder in the form of Hugging Face's Marian, with changes to its config.json."""
    import torch

    from heedful.config import Experiment, ModelConfig, SearchConfig, TextConfig
    from heedful.formats.export import export
    from heedful.models.build import build_seq2seq
    from heedful.storage.run_folder import RunFolder, Tokenizers
    from heedful.text.tokenizer_training import learn_tokenizer

    config = ModelConfig(d_model=16, d_ff=24, num_heads=2, encoder_layers=1, decoder_layers=1)
    text = TextConfig(kind="words", vocabulary_size=300)
    tokenizer = learn_tokenizer(["one", "two", "three", "four"], text)
    tokenizers = Tokenizers(tokenizer, tokenizer)
    experiment = Experiment(model=config, text=text, search=SearchConfig(beam=2))
    torch.manual_seed(3)
    run = RunFolder.create(place.with_name("run"))
    run.begin(experiment)
    run.describe(experiment, tokenizers)
    run.write_weights(dict(build_seq2seq(config, tokenizers.vocabulary).named_parameters()), "random")
    export(run, "huggingface", place)
    shutil.rmtree(run.path)
    path = place / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


_ATTACKS: dict[str, Callable[[Path], list[str]]] = {
    "sparse-json": _sparse("config.json"),
    "sparse-toml": _sparse("experiment.toml"),
    "sparse-tokenizer": _sparse("tokenizer.json"),
    "pipe-manifest": _pipe("manifest.json"),
    "pipe-events": _pipe("events.jsonl"),
    "link": _link,
    "long-key": _long_key,
    "deep-toml": _deep,
    "deep-json": _deep_about,
    "import-d_model": _marian({"d_model": 10**9}),
    "import-missing": _marian({"d_model": None}),
    "import-layers": _marian({"encoder_layers": "1"}),
}
