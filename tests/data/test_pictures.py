"""Pictures as data: folders of classes, IDX files, hostile files, sizes, chance that can be repeated."""

import contextlib
import gzip
import io
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import picture_examples
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heedful.data.pictures import (
    MOST_PIXELS,
    PictureCorpus,
    PictureWriter,
    is_held_out,
    list_pictures,
    measure_pictures,
    read_idx,
    read_picture,
)
from heedful.errors import DataError, FolderError


def corpus_of(folder: Path, pixels: np.ndarray, labels: list[str]) -> PictureCorpus:
    writer = PictureWriter(folder, sorted(set(labels)), pixels.shape[1], pixels.shape[3])
    for picture, label in zip(pixels, labels, strict=True):
        writer.add(picture, label)
    return writer.close()


def some_pixels(count: int, size: int = 5, channels: int = 1) -> np.ndarray:
    return np.random.default_rng(2).integers(0, 256, (count, size, size, channels)).astype(np.uint8)


# Finding


def test_a_folder_has_a_class_for_each_sub_folder(tmp_path: Path) -> None:
    folder = picture_examples.write_pictures(tmp_path / "pictures", each=4)
    (folder / "down" / "notes.txt").write_text("no picture")
    (folder / ".hidden").mkdir()
    found = list_pictures(folder)
    assert [(Path(one.name).parent.name, one.label) for one in found] == [
        (label, label) for label in picture_examples.CLASSES for _ in range(4)
    ]
    measured = measure_pictures(found)
    assert measured.labels == (("across", 4), ("down", 4), ("plain", 4))
    assert (measured.pictures, measured.smallest, measured.usual, measured.grey) == (12, 12, 12, True)


@pytest.mark.parametrize("gz", ["", ".gz"])
def test_mnists_files_are_a_training_set_and_a_test_set(gz: str, tmp_path: Path) -> None:
    folder = picture_examples.write_mnist(tmp_path / "mnist", each=3, gz=gz)
    train, test = list_pictures(folder), list_pictures(folder, test=True)
    assert [one.label for one in train] == ["0", "1", "2"] * 3
    assert train[0].name == f"{folder}/train-images-idx3-ubyte{gz}, picture 1"
    assert test[0].name.startswith(f"{folder}/t10k")
    wanted = read_idx(folder / f"train-images-idx3-ubyte{gz}", 3)
    for one, pixels in zip(train, wanted, strict=True):
        assert np.array_equal(one.read(12, 1)[:, :, 0], pixels)
    assert [one.label for one in list_pictures(folder / f"t10k-images-idx3-ubyte{gz}")] == ["0", "1", "2"] * 3


def test_only_one_class_is_refused(tmp_path: Path) -> None:
    folder = picture_examples.write_pictures(tmp_path / "pictures", each=2)
    with pytest.raises(DataError, match="all pictures have the label 'down', so there is nothing to tell apart"):
        measure_pictures(one for one in list_pictures(folder) if one.label == "down")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "does not exist; give a folder with one sub-folder a class"),
        ("empty", "holds no sub-folders with PNG or JPEG pictures and no IDX files"),
        ("file.txt", "is not a folder, and not an IDX file of pictures"),
        ("train-images-idx3-ubyte", "has no labels beside it; copy train-labels-idx1-ubyte there"),
    ],
)
def test_other_places_are_refused(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("a")
    picture_examples.write_idx(tmp_path / "train-images-idx3-ubyte", some_pixels(2)[..., 0])
    with pytest.raises(DataError, match=message):
        list_pictures(tmp_path / name)


# IDX files


IDX = bytes((0, 0, 8, 1)) + struct.pack(">I", 3) + b"abc"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (IDX[:-1], "does not have the 3 bytes that its header describes"),
        (IDX + b"d", "does not have the 3 bytes that its header describes"),
        (b"\0\0\x0d\1" + IDX[4:], "is not an IDX file of bytes with one axis"),
        (IDX[:6], "is not an IDX file of bytes with one axis"),
        (IDX[:4] + b"\xff" * 4 + b"abc", "does not have the 4,294,967,295 bytes"),
    ],
    ids=range(5),
)
@pytest.mark.parametrize("gz", [False, True])
def test_a_damaged_idx_file_is_refused(content: bytes, message: str, gz: bool, tmp_path: Path) -> None:
    path = tmp_path / ("labels.gz" if gz else "labels")
    path.write_bytes(gzip.compress(content) if gz else content)
    with pytest.raises(DataError, match=message):
        read_idx(path, 1)


def test_an_idx_file_that_unpacks_to_more_than_it_says_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(IDX + bytes(50_000_000)))
    with pytest.raises(DataError, match="does not have the 3 bytes"):
        read_idx(path, 1)
    path.write_bytes(gzip.compress(IDX)[:-12])
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(path, 1)


# One picture


def saved(path: Path, image: Image.Image) -> Path:
    image.save(path)
    return path


def test_a_picture_of_the_right_size_keeps_its_pixels(tmp_path: Path) -> None:
    pixels = some_pixels(1, 7, 3)[0]
    assert np.array_equal(read_picture(saved(tmp_path / "a.png", Image.fromarray(pixels)), 7, 3), pixels)


def test_another_size_is_that_of_the_image_processor_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pixels = np.random.default_rng(3).integers(0, 256, (23, 31, 3)).astype(np.uint8)
    path = saved(tmp_path / "a.png", Image.fromarray(pixels))
    processor = transformers.ViTImageProcessorPil(size={"height": 12, "width": 12}, resample=2)
    wanted = processor(Image.open(path), return_tensors="np")["pixel_values"][0]
    found = read_picture(path, 12, 3).transpose(2, 0, 1) / 127.5 - 1.0
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_what_is_transparent_is_white_and_grey_is_repeated(tmp_path: Path) -> None:
    clear = Image.new("RGBA", (4, 4), (200, 0, 0, 0))
    assert (read_picture(saved(tmp_path / "clear.png", clear), 4, 3) == 255).all()
    grey = saved(tmp_path / "grey.png", Image.new("L", (4, 4), 77))
    assert read_picture(grey, 4, 3).tolist() == np.full((4, 4, 3), 77).tolist()
    deep = Image.fromarray(np.full((4, 4), 257 * 77, dtype=np.uint16))
    assert (read_picture(saved(tmp_path / "deep.png", deep), 4, 1) == 77).all()


def test_a_picture_that_was_taken_sideways_is_turned(tmp_path: Path) -> None:
    pixels = some_pixels(1, 8)[0, :, :, 0]
    turned = Image.fromarray(pixels)
    exif = turned.getexif()
    exif[0x0112] = 6  # the camera was turned
    turned.save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(read_picture(tmp_path / "a.png", 8, 1)[:, :, 0], np.rot90(pixels, -1))


def huge_png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 99)) + chunk(b"IEND", b"")
    )


def cut_png() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(some_pixels(1, 40, 3)[0]).save(buffer, "PNG")
    return buffer.getvalue()[:-600]


def as_gif() -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (4, 4)).save(buffer, "GIF")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: b"", "is not a PNG or JPEG picture; convert or remove it"),
        (lambda: b"text", "is not a PNG or JPEG picture"),
        (as_gif, "is not a PNG or JPEG picture"),
        (cut_png, r"is damaged \(.*\); replace or remove it"),
        (lambda: huge_png(100_000, 100_000), f"has 100,000 x 100,000 pixels, over the {MOST_PIXELS:,}|is not a PNG"),
        (lambda: huge_png(9000, 9000), f"has 9,000 x 9,000 pixels, over the {MOST_PIXELS:,} that heedful reads"),
    ],
    ids=["empty", "text", "gif", "cut", "bomb", "large"],
)
def test_a_hostile_picture_is_refused(content: Callable[[], bytes], message: str, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(content())
    with pytest.raises(DataError, match=message):
        read_picture(tmp_path / "a.png", 8, 3)


@given(st.binary(max_size=300), st.integers(0, 2000))
def test_no_bytes_raise_anything_but_a_data_error(noise: bytes, place: int) -> None:
    buffer = io.BytesIO()
    Image.fromarray(some_pixels(1, 20, 3)[0]).save(buffer, "JPEG")
    content = bytearray(buffer.getvalue())
    content[place % len(content) : place % len(content) + len(noise)] = noise
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.jpg").write_bytes(bytes(content))
        with contextlib.suppress(DataError):
            assert read_picture(Path(folder) / "a.jpg", 8, 3).shape == (8, 8, 3)


# Corpora


def test_a_corpus_gives_back_its_pictures(tmp_path: Path) -> None:
    pixels = some_pixels(6, 5, 3)
    corpus = corpus_of(tmp_path / "c", pixels, ["b", "a", "c", "a", "b", "c"])
    batch = corpus.batch([4, 1], 0)
    assert batch.source.view(2, 5, 5, 3).tolist() == pixels[[4, 1]].tolist()
    assert batch.target_out.tolist() == [1, 0]
    assert (batch.source_lengths.tolist(), batch.target_lengths.tolist()) == ([75, 75], [1, 1])
    source, target = corpus.lengths()
    assert (source.tolist(), target.tolist()) == ([75] * 6, [1] * 6)


def test_a_damaged_corpus_is_refused(tmp_path: Path) -> None:
    corpus_of(tmp_path / "c", some_pixels(3), ["a", "b", "a"])
    (tmp_path / "c" / "pixels.bytes").write_bytes(b"short")
    with pytest.raises(FolderError, match="is damaged: it does not hold 3 pictures"):
        PictureCorpus(tmp_path / "c")
    (tmp_path / "c" / "corpus.json").write_text('{"format": 1, "pictures": 3, "size": -5, "channels": 1}')
    with pytest.raises(FolderError, match="is damaged; delete"):
        PictureCorpus(tmp_path / "c")


def test_an_epoch_moves_and_mirrors_and_is_always_the_same(tmp_path: Path) -> None:
    pixels = some_pixels(40, 6)
    corpus = corpus_of(tmp_path / "c", pixels, ["a", "b"] * 20)
    epochs = corpus.epochs(2, flip=True)
    seen = epochs[3].batch(range(40), 0).source
    assert torch.equal(seen, epochs[3].batch(range(40), 0).source)
    assert not torch.equal(seen, epochs[4].batch(range(40), 0).source)
    assert torch.equal(epochs[3].batch([7, 30], 0).source.view(2, -1), seen.view(40, -1)[[7, 30]])
    found = set()
    for picture, original in zip(seen.view(40, 6, 6).numpy(), pixels[..., 0], strict=True):
        padded = np.pad(original, 2, mode="edge")
        ways = {
            (down, right, mirrored)
            for down in range(5)
            for right in range(5)
            for mirrored in (False, True)
            if np.array_equal(
                picture,
                (np.pad(original[:, ::-1], 2, mode="edge") if mirrored else padded)[down : down + 6, right : right + 6],
            )
        }
        assert len(ways) == 1
        found |= ways
    assert {down for down, _, _ in found} == {right for _, right, _ in found} == set(range(5))
    assert {mirrored for _, _, mirrored in found} == {False, True}


def test_without_shift_and_flip_an_epoch_is_the_corpus(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "c", some_pixels(5), ["a", "b", "a", "b", "a"])
    assert torch.equal(corpus.epochs(0, flip=False)[2].batch([3, 1], 0).source, corpus.batch([3, 1], 0).source)


def test_equal_pictures_are_held_out_together() -> None:
    pixels = some_pixels(2000)
    held = [is_held_out(picture, 0.2, 1) for picture in pixels]
    assert held == [is_held_out(picture.copy(), 0.2, 1) for picture in pixels]
    assert 300 < sum(held) < 500
    assert held != [is_held_out(picture, 0.2, 2) for picture in pixels]
