"""A language pair of two dozen words that a tiny model learns in seconds, and the command line within this process."""

import contextlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from safetensors.torch import load_file
from torch import Tensor

WORDS = 20
LONGEST = 5

# A model that takes a millisecond a step, on one thread.
TINY = (
    "train.threads=1",
    "model.preset=modern",
    "model.d_model=32",
    "model.d_ff=64",
    "model.num_heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.dropout=0.0",
    "text.kind=words",
    "text.vocabulary_size=400",
)

# Where nothing says that text is UTF-8.
PLAIN_LOCALE = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}


def dictionary() -> dict[str, str]:
    """The words of one language and what they are in the other."""
    chance = random.Random(5)
    found: set[str] = set()
    while len(found) < 2 * WORDS:
        found.add("".join(chance.choice("bdfgklmnprstv") + chance.choice("aeiouü") for _ in range(2)))
    words = sorted(found)
    return dict(zip(words[::2], words[1::2], strict=True))


def translated(sentence: str) -> str:
    """Word by word, in reversed order."""
    known = dictionary()
    return " ".join(known[word] for word in reversed(sentence.split()))


def sentences(count: int, seed: int, longest: int = LONGEST) -> list[str]:
    """Random sentences of the first language."""
    chance, words = random.Random(seed), list(dictionary())
    return [" ".join(chance.choices(words, k=chance.randint(1, longest))) for _ in range(count)]


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def write_pairs(folder: Path, name: str, count: int, seed: int, longest: int = LONGEST) -> tuple[Path, Path]:
    """`name.en` and its translation `name.de`."""
    source = sentences(count, seed, longest)
    return (
        write_lines(folder / f"{name}.en", source),
        write_lines(folder / f"{name}.de", [translated(line) for line in source]),
    )


def settings(*more: str) -> list[str]:
    """Options of `heedful train` for the tiny model, and others."""
    return [part for setting in (*TINY, *more) for part in ("--set", setting)]


# The command


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.split("\n")[:-1]


def run(*arguments: object, stdin: bytes = b"") -> Ran:
    """`heedful ARGUMENTS` in this process, which need not import PyTorch again."""
    from heedful.cli.commands import main

    out, err = io.BytesIO(), io.BytesIO()
    with contextlib.ExitStack() as stack:
        # As Python opens them: what cannot be encoded is an error on stdout and escaped on stderr.
        text_out = stack.enter_context(_text(out, "strict"))
        text_err = stack.enter_context(_text(err, "backslashreplace"))
        given = stack.enter_context(tempfile.TemporaryFile())
        given.write(stdin)
        given.seek(0)
        replaced: Any = {"argv": ["heedful", *map(str, arguments)], "stdin": io.TextIOWrapper(given, encoding="utf-8")}
        stack.enter_context(mock.patch.multiple(sys, stdout=text_out, stderr=text_err, **replaced))
        stack.enter_context(mock.patch("heedful.device._cores", return_value=1))
        stack.enter_context(mock.patch.dict(os.environ))
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        text_out.flush()
        text_err.flush()
        assert isinstance(code, int)
        return Ran(code, out.getvalue().decode(), err.getvalue().decode())
    raise AssertionError


def _text(file: io.BytesIO, errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(file, encoding="utf-8", errors=errors, newline="\n")


def command(*arguments: object) -> list[str]:
    """What to run it by as a process of its own."""
    return [sys.executable, "-m", "heedful", *map(str, arguments)]


def start(
    *arguments: object, program: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """`heedful ARGUMENTS` as a process of its own."""
    return subprocess.Popen(
        [*program, *map(str, arguments)] if program else command(*arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )


# What it leaves behind


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def last_checkpoint(folder: Path) -> dict[str, Tensor]:
    name = (folder / "checkpoints" / "latest").read_text().strip()
    files = sorted((folder / "checkpoints" / name).glob("*.safetensors"))
    return {tensor: value for file in files for tensor, value in load_file(file).items()}


def same_bits(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    """Byte by byte, for NaN is equal to itself there and -0.0 is not 0.0."""
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and left[name].numpy().tobytes() == right[name].numpy().tobytes()
        for name in left
    )


@contextlib.contextmanager
def plain_log() -> Iterator[None]:
    """Neither TensorBoard nor pictures, which take longer than a tiny training."""
    with (
        mock.patch("heedful.training.events._open_tensorboard", return_value=None),
        mock.patch("heedful.training.events.draw_curve"),
        mock.patch("heedful.training.run.draw_curve"),
    ):
        yield
