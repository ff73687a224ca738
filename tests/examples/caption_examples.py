"""Captioned pictures that a tiny CLIP learns in seconds: shapes in colours."""

import itertools
from pathlib import Path

import numpy as np
import toy
from numpy.typing import NDArray
from PIL import Image

COLOURS = {"red": (220, 30, 30), "green": (30, 180, 60), "blue": (40, 60, 220), "yellow": (230, 210, 40)}
SHAPES = ("square", "frame", "bar")
TINY_CLIP = (
    *("seed=3", "train.threads=1", "model.d_model=24", "model.d_ff=32", "model.num_heads=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "model.dropout=0.0", "model.image_size=12"),
    *("model.patch_size=4", "train.warmup_steps=5", "text.vocabulary_size=270"),
)


def draw(colour: str, shape: str, chance: np.random.Generator, size: tuple[int, int] = (12, 12)) -> NDArray[np.uint8]:
    """The shape somewhere on a bright ground."""
    pixels = chance.integers(200, 256, (*size, 3)).astype(np.uint8)
    top, left = (int(place) for place in chance.integers(0, 4, 2))
    inside = np.zeros(size, dtype=np.bool_)
    if shape == "bar":
        inside[top : top + 3, :] = True
    else:
        inside[top : top + 8, left : left + 8] = True
    if shape == "frame":
        inside[top + 2 : top + 6, left + 2 : left + 6] = False
    pixels[inside] = COLOURS[colour]
    return pixels


def write_captioned(
    folder: Path, each: int = 5, seed: int = 1, more: bool = False, names: tuple[str, str] = ("pairs.tsv", "pictures")
) -> Path:
    """A file of captions beside a folder of PNG and JPEG files; with `more`, each picture has a second caption."""
    chance = np.random.default_rng(seed)
    (folder / names[1]).mkdir(parents=True)
    lines = []
    for number, (colour, shape, _) in enumerate(itertools.product(COLOURS, SHAPES, range(each))):
        name = f"{names[1]}/{number}.{'jpg' if number % 5 == 0 else 'png'}"
        Image.fromarray(draw(colour, shape, chance)).save(folder / name)
        lines.append(f"{name}\ta {colour} {shape}")
        if more:
            lines.append(f"{name}\t{shape}, {colour}")
    path = folder / names[0]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def options(*more: str) -> list[str]:
    """Options of `heedful train` for the tiny model, and others."""
    return [part for setting in (*TINY_CLIP, *more) for part in ("--set", setting)]


def train_clip(captions: Path, out: Path, *more: str) -> Path:
    with toy.plain_log():
        ran = toy.run("train", "--captions", captions, "--out", out, *options(*more))
    assert ran.code == 0, ran.err
    return out
