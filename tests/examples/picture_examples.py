"""Pictures that a tiny ViT learns in seconds: stripes across, stripes down, and none."""

import gzip
import struct
from pathlib import Path

import numpy as np
import toy
from numpy.typing import NDArray
from PIL import Image

CLASSES = ("across", "down", "plain")
TINY_VIT = (
    *("seed=3", "train.threads=1", "model.d_model=24", "model.d_ff=32", "model.num_heads=2"),
    *("model.encoder_layers=1", "model.dropout=0.0", "model.image_size=12", "model.patch_size=4"),
    *("train.warmup_steps=5",),
)


def draw(label: str, chance: np.random.Generator, shape: tuple[int, ...] = (12, 12)) -> NDArray[np.uint8]:
    pixels = chance.integers(0, 90, shape).astype(np.uint8)
    place = int(chance.integers(1, 10))
    if label == "across":
        pixels[place : place + 2] = 230
    if label == "down":
        pixels[:, place : place + 2] = 230
    return pixels


def write_pictures(folder: Path, each: int = 20, seed: int = 1, shape: tuple[int, ...] = (12, 12)) -> Path:
    """A folder with one sub-folder a class, of PNG and JPEG files."""
    chance = np.random.default_rng(seed)
    for label in CLASSES:
        (folder / label).mkdir(parents=True)
        for number in range(each):
            suffix = "jpg" if number % 4 == 0 else "png"
            Image.fromarray(draw(label, chance, shape)).save(folder / label / f"{number}.{suffix}")
    return folder


def write_idx(path: Path, values: NDArray[np.uint8]) -> Path:
    content = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_mnist(folder: Path, each: int = 20, gz: str = "") -> Path:
    """A training set and a test set with the names of MNIST's files."""
    folder.mkdir(parents=True)
    for seed, name in enumerate(("train", "t10k")):
        chance = np.random.default_rng(seed)
        labels = np.tile(np.arange(3, dtype=np.uint8), each)
        pixels = np.stack([draw(CLASSES[label], chance) for label in labels])
        write_idx(folder / f"{name}-images-idx3-ubyte{gz}", pixels)
        write_idx(folder / f"{name}-labels-idx1-ubyte{gz}", labels)
    return folder


def options(*more: str) -> list[str]:
    """Options of `heedful train` for the tiny model, and others."""
    return [part for setting in (*TINY_VIT, *more) for part in ("--set", setting)]


def train_vit(images: Path, out: Path, *more: str) -> Path:
    with toy.plain_log():
        ran = toy.run("train", "--images", images, "--out", out, *options(*more))
    assert ran.code == 0, ran.err
    return out
