"""Captioned pictures: files, the corpus on disk, epochs, and the middle of a picture."""

from pathlib import Path

import caption_examples
import numpy as np
import pytest
from PIL import Image

from heedful.config import TextConfig
from heedful.data.captions import (
    CaptionCorpus,
    CaptionedPicture,
    CaptionEncoder,
    CaptionWriter,
    measure_captions,
    read_captioned,
    read_captions,
)
from heedful.data.pictures import crop_picture, list_picture_files, make_thumbnail, read_cropped
from heedful.errors import DataError, FolderError
from heedful.text.tokenizer import START
from heedful.text.tokenizer_training import learn_tokenizer


def write(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_a_picture_is_relative_to_its_file_and_keeps_all_its_captions(tmp_path: Path) -> None:
    name = write(tmp_path / "a.tsv", "p/1.png\ta  red\tcar ", "", "p/2.png\ta dog", "p/1.png\tcar", "p/1.png\tcar")
    assert read_captioned([name]) == [
        CaptionedPicture(tmp_path / "p/1.png", ("a red car", "car")),
        CaptionedPicture(tmp_path / "p/2.png", ("a dog",)),
    ]
    assert [each.line for each in read_captions(Path(name))] == [1, 3, 4, 5]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no tab here", "line 2: no tab; a line must be picture, tab, caption"),
        ("\tcaption", "line 2: no picture; a line must be"),
        ("a.png\t  ", "line 2: the caption of a.png is empty"),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read_captioned([write(tmp_path / "a.tsv", "p.png\tfirst", line)])


def test_pictures_and_words_are_counted(tmp_path: Path) -> None:
    captions = caption_examples.write_captioned(tmp_path, each=2, more=True)
    found = measure_captions(read_captioned([str(captions)]))
    assert (found.pictures, found.captions, found.distinct, found.usual) == (24, 48, 24, 12)
    assert (found.words, found.distinct_words) == (24 * 3 + 24 * 2, 1 + 4 + 3 + 3)  # "square," and "square"


def test_one_caption_alone_teaches_nothing(tmp_path: Path) -> None:
    caption_examples.write_captioned(tmp_path, each=1)
    name = write(tmp_path / "one.tsv", "pictures/1.png\ta cat", "pictures/2.png\ta cat")
    with pytest.raises(DataError, match="all captions are 'a cat', so there is nothing to tell apart"):
        measure_captions(read_captioned([name]))


def encoder(longest: int) -> CaptionEncoder:
    tokenizer = learn_tokenizer(["a red car"] * 3, TextConfig(kind="bytes", vocabulary_size=258), (START,))
    return CaptionEncoder(tokenizer, longest)


def test_a_caption_has_a_start_and_an_end_however_long_it_is() -> None:
    short, long = encoder(9), "x" * 30
    tokenizer = short.tokenizer
    first, second = short(["ab", long])
    assert first == [tokenizer.start_id, *tokenizer.encode("ab")]
    assert len(second) == 9
    assert (second[0], second[-1]) == (tokenizer.start_id, tokenizer.eos_id)


def corpus(folder: Path, pictures: int = 7, captions: int = 3) -> tuple[CaptionCorpus, np.ndarray]:
    pixels = np.random.default_rng(2).integers(0, 256, (pictures, 6, 6, 3)).astype(np.uint8)
    writer = CaptionWriter(folder, 6, 300)
    for number in range(pictures):
        writer.add(pixels[number], [[5, 10 + number, 20 + text, 1] for text in range(1 + number % captions)])
    return writer.close(), pixels


def test_what_is_written_is_read(tmp_path: Path) -> None:
    found, pixels = corpus(tmp_path)
    assert np.array_equal(found.pixels, pixels)
    assert found.count_captions().tolist() == [1, 2, 3, 1, 2, 3, 1]
    assert found.captions(2) == [[5, 12, 20, 1], [5, 12, 21, 1], [5, 12, 22, 1]]
    assert found.captions(0) == [[5, 10, 20, 1]]
    source, target = found.lengths()
    assert source.tolist() == [108] * 7
    assert target.tolist() == [1] * 7  # one caption is asked about, however long it is
    batch = found.batch([4, 1], 0)
    assert batch.target_in.tolist() == [5, 14, 20, 1, 5, 11, 20, 1]
    assert np.array_equal(batch.source.view(2, 6, 6, 3).numpy(), pixels[[4, 1]])


def test_an_epoch_always_draws_the_same_captions_and_others_draw_others(tmp_path: Path) -> None:
    found, pixels = corpus(tmp_path, pictures=40)
    epochs = found.epochs(seed=3, shift=0, flip=False)
    drawn = [epochs[number].batch(range(40), 0).target_in.view(40, 4)[:, 2].tolist() for number in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    own = [[text[2] for text in found.captions(number)] for number in range(40)]
    assert all(one in several for one, several in zip(drawn[2], own, strict=True))
    assert {one for one, several in zip(drawn[2], own, strict=True) if len(several) == 3} == {20, 21, 22}
    assert found.epochs(4, 0, False)[0].batch(range(40), 0).target_in.view(40, 4)[:, 2].tolist() != drawn[0]
    assert np.array_equal(epochs[0].batch([5], 0).source.view(6, 6, 3).numpy(), pixels[5])
    moved = found.epochs(3, 2, False)[0].batch([5], 0).source.view(6, 6, 3).numpy()
    assert not np.array_equal(moved, pixels[5])


@pytest.mark.parametrize("name", ["pixels.bytes", "captions.ids", "captions.ends", "pictures.ends"])
def test_a_damaged_corpus_is_refused(name: str, tmp_path: Path) -> None:
    corpus(tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[:-8])
    with pytest.raises(FolderError, match="is damaged"):
        CaptionCorpus(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(FolderError, match="is missing"):
        CaptionCorpus(tmp_path)


class TestMiddle:
    """The square in the middle of a picture."""

    @pytest.mark.parametrize(("width", "height"), [(31, 23), (20, 64), (16, 16), (17, 40), (200, 33)])
    def test_pixels_are_those_of_transformers(self, width: int, height: int) -> None:
        transformers = pytest.importorskip("transformers")
        processor = transformers.CLIPImageProcessorPil(
            size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}, do_rescale=False, do_normalize=False
        )
        pixels = np.random.default_rng(5).integers(0, 256, (height, width, 3)).astype(np.uint8)
        wanted = np.asarray(processor(Image.fromarray(pixels), return_tensors="np")["pixel_values"][0])
        found = crop_picture(Image.fromarray(pixels), 16).astype(np.int64)
        assert np.abs(found - wanted.transpose(1, 2, 0)).max() <= 1  # rounding of the edges of the box

    def test_a_very_long_picture_takes_no_memory(self) -> None:
        assert crop_picture(Image.new("RGB", (1, 60_000), (7, 8, 9)), 224).shape == (224, 224, 3)

    def test_it_is_in_colour_and_upright_on_white(self, tmp_path: Path) -> None:
        grey = Image.new("L", (9, 5), 77)
        grey.save(tmp_path / "grey.png")
        assert (read_cropped(tmp_path / "grey.png", 4) == 77).all()
        Image.new("RGBA", (5, 9), (0, 0, 0, 0)).save(tmp_path / "clear.png")
        assert (read_cropped(tmp_path / "clear.png", 4) == 255).all()

    def test_a_thumbnail_is_a_small_jpeg(self, tmp_path: Path) -> None:
        import io

        Image.new("RGB", (300, 100), (200, 10, 10)).save(tmp_path / "a.png")
        small = Image.open(io.BytesIO(make_thumbnail(tmp_path / "a.png", 60)))
        assert (small.format, small.size) == ("JPEG", (60, 20))


def test_a_folder_is_searched_with_its_sub_folders(tmp_path: Path) -> None:
    for name in ("b/2.JPG", "a.png", "b/.hidden.png", ".git/x.png", "notes.txt", "b/c/3.jpeg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    found = [str(path.relative_to(tmp_path)) for path in list_picture_files([tmp_path, tmp_path / "a.png"])]
    assert found == ["a.png", "b/2.JPG", "b/c/3.jpeg"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty holds no PNG or JPEG pictures"):
        list_picture_files([tmp_path / "empty"])
    with pytest.raises(DataError, match="nowhere does not exist"):
        list_picture_files([tmp_path / "nowhere"])
