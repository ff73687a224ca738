"""Plain text that a tiny GPT learns in seconds, and such a GPT."""

import random
from pathlib import Path

import toy

# A model that takes milliseconds a step, on one thread.
TINY_GPT = (
    *("seed=3", "train.threads=1", "model.d_model=32", "model.d_ff=64", "model.num_heads=2"),
    *("model.decoder_layers=2", "model.max_positions=16", "model.dropout=0.0"),
    *("train.batch_tokens=160", "train.warmup_steps=5"),
)


def rhymes(lines: int, seed: int = 1) -> str:
    """Lines of words that follow each other by a rule."""
    chance = random.Random(seed)
    return "".join(f"the {chance.choice(('cat', 'dog'))} sat on the mät and ran off;\n" for _ in range(lines))


def write_text(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def options(*more: str) -> list[str]:
    """Options of `heedful train` for the tiny model, and others."""
    return [part for setting in (*TINY_GPT, *more) for part in ("--set", setting)]


def train_gpt(folder: Path, *more: str, lines: int = 150) -> Path:
    """A run folder whose model knows the rhymes."""
    text = write_text(folder / "rhymes.txt", rhymes(lines))
    with toy.plain_log():
        ran = toy.run("train", "--text", text, "--out", folder / "run", *options(*more))
    assert ran.code == 0, ran.err
    return folder / "run"
