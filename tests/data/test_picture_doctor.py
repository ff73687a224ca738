"""The doctor of pictures names what is unreadable, doubled, contradictory, rare, empty or alone."""

import json
import shutil
from pathlib import Path

import numpy as np
import picture_examples
import pytest
import toy
from PIL import Image

from heedful.data.picture_doctor import doctor_pictures
from heedful.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return picture_examples.write_pictures(tmp_path / "pictures", each=12)


def messages(folder: Path) -> list[tuple[str, str]]:
    return [(finding.severity, finding.message) for finding in doctor_pictures(folder).findings]


def test_good_pictures_have_no_findings(folder: Path) -> None:
    found = doctor_pictures(folder)
    assert found.pictures == 36
    assert found.labels == (("across", 12), ("down", 12), ("plain", 12))
    assert found.findings == ()


def test_each_problem_is_named(folder: Path) -> None:
    (folder / "down" / "1.png").write_bytes(b"no picture")
    shutil.copy(folder / "down" / "2.png", folder / "down" / "copy.png")
    shutil.copy(folder / "down" / "3.png", folder / "plain" / "wrong.png")
    Image.new("L", (12, 12), 7).save(folder / "plain" / "nothing.png")
    (folder / "rare").mkdir()
    pixels = np.random.default_rng(5).integers(0, 256, (100, 90, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(folder / "rare" / "large.png")
    assert messages(folder) == [
        ("error", f"{folder}/down/1.png is not a PNG or JPEG picture; convert or remove it"),
        (
            "warning",
            f"{folder}/plain/wrong.png and {folder}/down/3.png: are the same picture under two labels",
        ),
        ("warning", "rare: have fewer than 10 pictures, too few to learn"),
        ("warning", f"{folder}/plain/nothing.png: show nothing: every pixel is the same"),
        ("note", f"{folder}/down/copy.png and {folder}/down/2.png: are the same picture"),
        ("note", "the shorter sides have 12 to 90 pixels; all are resized to one size"),
        ("note", "38 of 40 pictures are grey and the others have colours"),
    ]


def test_one_class_alone_is_an_error(folder: Path) -> None:
    for label in ("down", "plain"):
        shutil.rmtree(folder / label)
    assert ("error", "all pictures have the label across, so there is nothing to tell apart") in messages(folder)
    ran = toy.run("doctor", "--images", folder)
    assert ran.code == 1
    assert "nothing to tell apart" in ran.out


def test_the_command_prints_and_has_json(folder: Path) -> None:
    ran = toy.run("doctor", "--images", folder)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == ["36 pictures, 3 labels: across 12, down 12, plain 12", "no problems found"]
    assert json.loads(toy.run("doctor", "--images", folder, "--json").out)["pictures"] == 36


def test_a_place_without_pictures_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist; give a folder"):
        doctor_pictures(tmp_path / "nowhere")
