"""Does CLIP know what a picture shows, or has it learnt one drawing? Emoji, drawn by four designers.

::

    .venv/bin/python bench/emoji.py FOLDER

gets the drawings and captions with npm into FOLDER, writes them as PNG files with a file of captions, trains a CLIP on
three of the styles, and measures recall@5 of captions for pictures

- of concepts that it has seen, in a style that it has never seen,
- of concepts that it has never seen, in styles that it has seen,
- of concepts and in a style that it has never seen,

each against chance and a baseline that knows captions and colours: it takes the drawings whose caption has the most
words in common with the query, and looks for pictures with similar colours. Flags and skin tones are left out.

The drawings are Google's Noto (Apache 2.0), Twitter's Twemoji (CC-BY 4.0), Microsoft's Fluent (MIT) and OpenMoji
(CC-BY-SA 4.0, never trained on); the captions are emojibase's (MIT). `pip install resvg_py` draws OpenMoji's files.
"""

import argparse
import io
import json
import subprocess
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import heedful
from heedful.data.pictures import read_cropped
from heedful.metrics.recall import Ranks, find_ranks
from heedful.retrieval.finder import Finder

PACKAGES = {
    "captions": "emojibase-data@17.0.0",
    "google": "emoji-datasource-google@16.0.0",
    "twitter": "emoji-datasource-twitter@16.0.0",
    "microsoft": "@lobehub/fluent-emoji-3d@1.1.0",
    "openmoji": "openmoji@17.0.0",
}
DRAWINGS = {
    "google": "package/img/google/64/*.png",
    "twitter": "package/img/twitter/64/*.png",
    "microsoft": "package/assets/*.webp",
    "openmoji": "package/color/svg/*.svg",
}
TRAINED, UNSEEN_STYLE = ("google", "twitter", "microsoft"), "openmoji"
SIDE = 64  # pixels
UNSEEN_SHARE = 0.15
_COMPONENTS, _FLAGS = 2, 9  # groups of emojibase
_BINS = 4  # of each colour


@dataclass(frozen=True, slots=True)
class Emoji:
    """A concept: its name, and all that it is known by."""

    code: str
    name: str
    tags: tuple[str, ...]

    @property
    def unseen(self) -> bool:
        """Whether it is held out: by its hash, so that the same are in every measurement."""
        return blake2b(self.code.encode(), digest_size=2).digest()[0] < 256 * UNSEEN_SHARE

    @property
    def captions(self) -> tuple[str, ...]:
        """The name alone, and the name with its tags."""
        return (self.name, ", ".join((self.name, *self.tags))) if self.tags else (self.name,)


def fetch(folder: Path) -> None:
    """Get and unpack the packages that are not there yet."""
    for name, package in PACKAGES.items():
        place = folder / name
        if place.exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        packed = subprocess.run(
            ["npm", "pack", package, "--silent"], cwd=folder, check=True, capture_output=True, text=True
        ).stdout.split()[-1]
        with tarfile.open(folder / packed) as archive:
            archive.extractall(place, filter="data")


def read_emoji(folder: Path, language: str = "en") -> dict[str, Emoji]:
    """The concepts by their code, in which signs for the form of presentation are left out."""
    entries = json.loads((folder / "captions/package" / language / "data.json").read_text(encoding="utf-8"))
    kept = [entry for entry in entries if entry.get("group", _COMPONENTS) not in (_COMPONENTS, _FLAGS)]
    found = [Emoji(_code(entry["hexcode"]), entry["label"], tuple(entry.get("tags", ()))) for entry in kept]
    return {each.code: each for each in found}


def _code(name: str) -> str:
    return "-".join(part for part in name.lower().split("-") if part != "fe0f")


def write_pictures(folder: Path, emoji: Mapping[str, Emoji]) -> dict[str, dict[str, Path]]:
    """The drawings of each style as PNG files, by code."""
    found: dict[str, dict[str, Path]] = {}
    for style, pattern in DRAWINGS.items():
        place = folder / "pictures" / style
        place.mkdir(parents=True, exist_ok=True)
        drawings = {_code(path.stem): path for path in sorted((folder / style).glob(pattern))}
        found[style] = {}
        for code in sorted(emoji.keys() & drawings.keys()):
            target = place / f"{code}.png"
            if not target.exists():
                _draw(drawings[code]).save(target)
            found[style][code] = target
    return found


def _draw(path: Path) -> Image.Image:
    """The drawing on white."""
    if path.suffix == ".svg":
        import resvg_py

        content = io.BytesIO(resvg_py.svg_to_bytes(svg_path=str(path), width=SIDE, height=SIDE))
    else:
        content = io.BytesIO(path.read_bytes())
    image = Image.open(content).convert("RGBA")
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, image).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def write_captions(path: Path, emoji: Mapping[str, Emoji], pictures: Mapping[str, Mapping[str, Path]]) -> None:
    """The training set: seen concepts in the styles to train on."""
    lines = [
        f"{picture.relative_to(path.parent)}\t{caption}"
        for style in TRAINED
        for code, picture in pictures[style].items()
        if not emoji[code].unseen
        for caption in emoji[code].captions
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Colours:
    """The baseline: which colours the drawings have whose captions share the most words with a query."""

    words: Sequence[frozenset[str]]
    histograms: NDArray[np.float64]

    @classmethod
    def of(cls, emoji: Mapping[str, Emoji], pictures: Mapping[str, Mapping[str, Path]]) -> "Colours":
        """The words and colours of the training pictures."""
        shown = [(emoji[code], path) for style in TRAINED for code, path in pictures[style].items()]
        seen = [(one, path) for one, path in shown if not one.unseen]
        words = [frozenset(" ".join(one.captions).replace(",", "").split()) for one, _ in seen]
        return cls(words, histograms([path for _, path in seen]))

    def scores(self, queries: Sequence[str], candidates: Sequence[Path]) -> NDArray[np.float64]:
        """How similar the colours of each candidate are to those of the drawings nearest to each query."""
        theirs, rows = histograms(candidates), []
        for query in queries:
            asked = set(query.replace(",", "").split())
            overlap = np.array([len(asked & words) / len(asked | words) for words in self.words])
            nearest = self.histograms[overlap == overlap.max()]
            rows.append(np.stack([np.minimum(one, theirs).sum(-1) for one in nearest]).max(0))
        return np.stack(rows)


def histograms(pictures: Sequence[Path]) -> NDArray[np.float64]:
    """The share of each colour in each picture."""
    rows = []
    for path in pictures:
        bins = read_cropped(path, SIDE).reshape(-1, 3).astype(np.int64) // (256 // _BINS)
        rows.append(np.bincount(bins @ [_BINS * _BINS, _BINS, 1], minlength=_BINS**3) / len(bins))
    return np.stack(rows)


def measure(
    finder: Finder, colours: Colours, emoji: Mapping[str, Emoji], pictures: Mapping[str, Path], unseen: bool
) -> dict[str, float]:
    """Recall@5 of the names of concepts for the pictures of one style, by CLIP, by colours and by chance."""
    codes = [code for code in pictures if emoji[code].unseen == unseen]
    names = [emoji[code].name for code in codes]
    paths = [pictures[code] for code in codes]
    right = np.array([[one == other for other in names] for one in names])
    scores = (finder.encode_texts(names) @ finder.encode_pictures(paths).T).numpy()
    clip, plain = (
        Ranks(find_ranks(each, right), right.sum(1), len(codes)) for each in (scores, colours.scores(names, paths))
    )
    return {"pictures": len(codes), "clip": clip.recall(5), "colours": plain.recall(5), "chance": clip.chance(5)}


def main() -> None:
    """Get the data, train, measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the packages, the pictures and the run are")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--set", action="append", default=[], help="any key of a recipe, such as model.d_model=192")
    asked = parser.parse_args()
    folder: Path = asked.folder
    fetch(folder)
    emoji = read_emoji(folder)
    pictures = write_pictures(folder, emoji)
    captions = folder / "captions.tsv"
    write_captions(captions, emoji, pictures)
    run = folder / f"clip-{asked.seed}"
    began = time.monotonic()
    if not run.exists():
        more = {key: json.loads(value) for key, value in (setting.split("=", 1) for setting in asked.set)}
        settings = {"seed": asked.seed, "train.threads": 1, "train.max_minutes": asked.minutes, **more}
        heedful.train(captions=captions, out=run, settings=settings)
        print(f"trained in {(time.monotonic() - began) / 60:.1f} minutes")
    finder, colours = Finder.load(run), Colours.of(emoji, pictures)
    rows = [
        ("concepts seen, style never seen", pictures[UNSEEN_STYLE], False),
        *((f"concepts never seen, style of {style}", pictures[style], True) for style in TRAINED),
        ("concepts and style never seen", pictures[UNSEEN_STYLE], True),
    ]
    for name, style, unseen in rows:
        found = measure(finder, colours, emoji, style, unseen)
        print(f"{name}: " + ", ".join(f"{key} {value:.4g}" for key, value in found.items()))


if __name__ == "__main__":
    main()
