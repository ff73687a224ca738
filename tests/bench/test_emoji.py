"""The benchmark on emoji: which concepts are held out, the baseline of colours, and a finder that knows everything."""

import json
from pathlib import Path

import emoji as bench
import numpy as np
import pytest
import torch
from emoji import Colours, Emoji, histograms, measure, read_emoji, write_captions
from PIL import Image

COLOURS = {"1f534": (220, 20, 20), "1f535": (20, 20, 220), "1f7e1": (20, 200, 20)}


@pytest.fixture
def drawn(tmp_path: Path) -> tuple[dict[str, Emoji], dict[str, dict[str, Path]]]:
    """Three circles in all styles, of which each concept has its own colour."""
    known = {
        code: Emoji(code, f"{name} circle", (name,))
        for code, name in zip(COLOURS, ("red", "blue", "green"), strict=True)
    }
    pictures: dict[str, dict[str, Path]] = {}
    for style in (*bench.TRAINED, bench.UNSEEN_STYLE):
        (tmp_path / style).mkdir()
        pictures[style] = {}
        for code, colour in COLOURS.items():
            pictures[style][code] = tmp_path / style / f"{code}.png"
            Image.new("RGB", (9, 9), colour).save(pictures[style][code])
    return known, pictures


def test_a_seventh_of_the_concepts_is_held_out_and_always_the_same() -> None:
    held = [Emoji(f"{number:x}", "x", ()).unseen for number in range(0x1F300, 0x1F300 + 4000)]
    assert 0.12 < np.mean(held) < 0.18
    assert held == [Emoji(f"{number:x}", "y", ("z",)).unseen for number in range(0x1F300, 0x1F300 + 4000)]


def test_flags_and_components_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "captions" / "package" / "en"
    folder.mkdir(parents=True)
    entries = [
        {"hexcode": "2764-FE0F", "label": "red heart", "tags": ["love"], "group": 8},
        {"hexcode": "1F1E9-1F1EA", "label": "flag: Germany", "group": 9},
        {"hexcode": "1F3FB", "label": "light skin tone", "group": 2},
        {"hexcode": "1F1E6", "label": "regional indicator A"},
    ]
    (folder / "data.json").write_text(json.dumps(entries))
    assert read_emoji(tmp_path) == {"2764": Emoji("2764", "red heart", ("love",))}
    assert Emoji("2764", "red heart", ("love",)).captions == ("red heart", "red heart, love")


def test_colours_find_what_has_the_colour_of_the_caption(
    drawn: tuple[dict[str, Emoji], dict[str, dict[str, Path]]],
) -> None:
    known, pictures = drawn
    assert not any(one.unseen for one in known.values())
    paths = list(pictures[bench.UNSEEN_STYLE].values())
    assert histograms(paths).sum(1) == pytest.approx(np.ones(3))
    scores = Colours.of(known, pictures).scores(["a blue thing", "red circle"], paths)
    assert scores.argmax(1).tolist() == [1, 0]


def test_the_training_set_has_neither_the_held_out_style_nor_concept(
    drawn: tuple[dict[str, Emoji], dict[str, dict[str, Path]]], tmp_path: Path
) -> None:
    known, pictures = drawn
    write_captions(tmp_path / "captions.tsv", known, pictures)
    lines = (tmp_path / "captions.tsv").read_text().splitlines()
    assert len(lines) == 3 * 3 * 2
    assert not any(line.startswith(bench.UNSEEN_STYLE) for line in lines)
    assert "google/1f534.png\tred circle, red" in lines


def test_a_finder_that_knows_everything_has_a_recall_of_100(
    drawn: tuple[dict[str, Emoji], dict[str, dict[str, Path]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    known, pictures = drawn

    class Knowing:
        def encode_texts(self, texts: list[str]) -> torch.Tensor:
            return torch.eye(3)[[["red circle", "blue circle", "green circle"].index(text) for text in texts]]

        def encode_pictures(self, paths: list[Path]) -> torch.Tensor:
            return torch.eye(3)[[list(COLOURS).index(path.stem) for path in paths]]

    colours = Colours.of(known, pictures)
    found = measure(Knowing(), colours, known, pictures[bench.UNSEEN_STYLE], unseen=False)  # type: ignore[arg-type]
    assert found == {"pictures": 3, "clip": 100.0, "colours": 100.0, "chance": 100.0}
