"""`heedful find`: the ranking, the page, the Python API, and mistakes in one sentence."""

import html
import json
import re
from pathlib import Path

import caption_examples
import numpy as np
import pytest
import toy
from PIL import Image

import heedful
from heedful.errors import ConfigError, DataError
from heedful.retrieval.finder import Finder
from heedful.retrieval.results_page import make_results_page

SETTINGS = ("train.max_steps=300", "train.save_every=150", "train.validate_every=150", "train.learning_rate=0.01")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("find")
    captions = caption_examples.write_captioned(folder / "shapes", each=14)
    return caption_examples.train_clip(captions, folder / "run", *SETTINGS)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A picture of each shape in each colour, in a folder of each colour."""
    folder, chance = tmp_path_factory.mktemp("photos"), np.random.default_rng(8)
    for colour in caption_examples.COLOURS:
        (folder / colour).mkdir()
        for shape in caption_examples.SHAPES:
            Image.fromarray(caption_examples.draw(colour, shape, chance)).save(folder / colour / f"{shape}.png")
    return folder


def test_words_find_the_pictures_that_they_describe(run: Path, photos: Path) -> None:
    right = 0
    for colour in caption_examples.COLOURS:
        ran = toy.run("find", run, f"a {colour} bar", photos, "--n", 3)
        assert ran.code == 0, ran.err
        lines = [line.split("\t") for line in ran.out.splitlines()]
        assert len(lines) == 3
        scores = [float(score) for score, _ in lines]
        assert scores == sorted(scores, reverse=True)
        right += any(Path(name) == photos / colour / "bar.png" for _, name in lines)
    assert right >= 3


def test_a_picture_finds_itself_first(run: Path, photos: Path) -> None:
    given = photos / "blue" / "frame.png"
    ran = toy.run("find", run, given, photos, "--json")
    assert ran.code == 0, ran.err
    found = [json.loads(line) for line in ran.out.splitlines()]
    assert [one["rank"] for one in found] == list(range(1, 11))
    assert found[0]["picture"] == str(given)
    assert found[0]["score"] == pytest.approx(1.0, abs=1e-5)


def test_python_finds_the_same(run: Path, photos: Path) -> None:
    finder = heedful.Finder.load(run)
    index = finder.index(photos)
    assert len(index.pictures) == len(index.vectors) == 12
    found = finder.find("a  red square", index, n=12)
    texts, pictures = finder.encode_texts(["a red square"]), finder.encode_pictures(index.pictures)
    wanted = (texts @ pictures.T)[0]
    assert [one.picture for one in found] == [index.pictures[int(place)] for place in wanted.argsort(descending=True)]
    assert [one.score for one in found] == pytest.approx(wanted.sort(descending=True).values.tolist(), abs=1e-5)
    assert finder.find_like(index.pictures[3], index, n=1)[0].picture == index.pictures[3]
    assert finder.index([photos / "red", photos / "blue" / "bar.png"]).pictures[-1] == str(photos / "blue" / "bar.png")


def test_broken_files_are_named_and_left_out(run: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes((photos / "red" / "bar.png").read_bytes())
    (tmp_path / "b.png").write_bytes(b"no picture")
    ran = toy.run("find", run, "a red bar", tmp_path)
    assert ran.code == 0
    assert "left out: " in ran.err
    assert "b.png is not a PNG or JPEG picture" in ran.err
    assert len(ran.out.splitlines()) == 1
    (tmp_path / "a.png").unlink()
    with pytest.raises(DataError, match="no picture can be read: "):
        Finder.load(run).index(tmp_path)


def test_the_page_shows_small_copies_and_loads_nothing(run: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for number, source in enumerate(sorted(photos.rglob("*.png"))[:4]):
        (tmp_path / "photos" / f"<b>{number}&.png").write_bytes(source.read_bytes())
    page = tmp_path / "found.html"
    ran = toy.run("find", run, "<script>alert(1)</script>", tmp_path / "photos", "--html", page)
    assert ran.code == 0, ran.err
    assert str(page) in ran.err
    text = page.read_text()
    assert len(re.findall(r'<img src="data:image/jpeg;base64,', text)) == 4
    assert "default-src 'none'" in text
    assert "img-src data:" in text
    assert "<script>alert" not in text
    assert html.escape("<b>0&.png") in text
    assert not re.search(r'(?:src|href)="(?!data:)', text)
    like = make_results_page(
        "x.png", Finder.load(run).find("a bar", Finder.load(run).index(photos), 2), 12, photos / "red/bar.png"
    )
    assert len(re.findall("<img ", like)) == 3
    assert "Similar pictures" in like
    assert "The best 2 pictures of 12." in like


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a cat", "{photos}/nowhere"), "nowhere does not exist; name a folder of pictures"),
        (("{photos}/cat.png", "{photos}"), "cat.png does not exist; name a PNG or JPEG picture"),
        (("  ", "{photos}"), "the text is empty; say what the pictures should show"),
        (("a cat", "{photos}", "--html", "x.txt"), "--html x.txt must end in .html"),
        (("a cat", "{photos}", "--n", "0"), "--n"),
        (("a cat",), "PICTURES"),
    ],
)
def test_mistakes_get_one_sentence(arguments: tuple[str, ...], message: str, run: Path, photos: Path) -> None:
    ran = toy.run("find", run, *(part.format(photos=photos) for part in arguments))
    assert ran.code == 2, ran.err
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_n_must_be_positive(run: Path, photos: Path) -> None:
    finder = Finder.load(run)
    with pytest.raises(ConfigError, match="n must be at least 1, but is 0 instead"):
        finder.find("a cat", finder.index(photos), n=0)
