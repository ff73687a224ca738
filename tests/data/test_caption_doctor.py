"""The doctor of captions names pictures that are missing, broken or doubled, and captions that are empty or doubled."""

import json
import shutil
from pathlib import Path

import caption_examples
import numpy as np
import pytest
import toy
from PIL import Image

from heedful.data.caption_doctor import doctor_captions
from heedful.errors import DataError


@pytest.fixture
def captions(tmp_path: Path) -> Path:
    return caption_examples.write_captioned(tmp_path / "shapes", each=10)


def messages(path: Path) -> list[tuple[str, str]]:
    return [(finding.severity, finding.message) for finding in doctor_captions(path).findings]


def add(path: Path, *lines: str) -> None:
    path.write_text(path.read_text() + "\n".join(lines) + "\n")


def test_shared_captions_are_only_noted(captions: Path) -> None:
    found = doctor_captions(captions)
    assert (found.pictures, found.captions, found.words) == (120, 120, 360)
    assert [(each.severity, each.count) for each in found.findings] == [("note", 12)]
    assert "12 captions stand beside several pictures, such as 'a red square'; all of them" in found.findings[0].message


def test_every_problem_is_named_the_worst_first(captions: Path) -> None:
    pictures = captions.parent / "pictures"
    shutil.copy(pictures / "1.png", pictures / "copy.png")
    (pictures / "broken.png").write_bytes(b"no picture")
    Image.new("RGB", (9, 9), (3, 3, 3)).save(pictures / "flat.png")
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (9, 40, 3)).astype(np.uint8)).save(pictures / "long.png")
    add(
        captions,
        *("pictures/gone.png\ta cat", "pictures/broken.png\ta dog", "pictures/2.png\t", "pictures/copy.png\tcopied"),
        *("pictures/flat.png\tnothing", "pictures/3.png\ta red square", f"pictures/long.png\t{'word ' * 60}"),
    )
    found = messages(captions)
    assert [severity for severity, _ in found] == ["error"] * 3 + ["warning"] * 2 + ["note"] * 4
    for (_, message), part in zip(
        found,
        (
            "gone.png: do not exist",
            "broken.png is not a PNG or JPEG picture",
            "1 line without a caption",
            "flat.png: show nothing",
            "1 line of more than 50 words",
            "1 line that occur twice",
            "are the same picture",
            "long.png: are long: only the square in the middle is seen",
            "stand beside several pictures",
        ),
        strict=True,
    ):
        assert part in message


def test_few_pictures_and_a_single_caption_are_named(captions: Path) -> None:
    few = captions.with_name("few.tsv")
    few.write_text("pictures/1.png\ta cat\npictures/2.png\ta cat\n")
    severities = {message: severity for severity, message in messages(few)}
    assert severities["all captions are 'a cat', so there is nothing to tell apart"] == "error"
    assert severities["2 pictures are too few to learn what words mean; give thousands"] == "warning"


def test_the_command_prints_findings_and_exits_with_1_for_an_error(captions: Path) -> None:
    good = toy.run("doctor", "--captions", captions)
    assert good.code == 0
    assert good.out.splitlines()[0] == "120 pictures and 120 captions of 360 words"
    add(captions, "pictures/gone.png\ta cat", "no tab")
    bad = toy.run("doctor", "--captions", captions, "--json")
    assert bad.code == 1
    found = json.loads(bad.out)
    assert [finding["kind"] for finding in found["findings"]][:2] == ["unreadable", "unreadable"]
    assert "no tab; a line must be picture, tab, caption" in found["findings"][0]["message"]
    refused = toy.run("doctor", "--captions", captions, "--images", captions.parent)
    assert refused.code == 2
    assert "--captions is examined alone" in refused.err


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(DataError, match=r"there is no file nowhere\.tsv"):
        doctor_captions("nowhere.tsv")
