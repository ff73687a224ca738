"""Tensors come back with the same bits, and a file can do nothing but hold numbers."""

import pickle
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heedful.errors import FolderError
from heedful.storage import files
from heedful.storage.files import (
    DamagedError,
    load_tensors,
    read_tensor_metadata,
    save_tensors,
)

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint8, torch.bool),
]


def bits(tensor: Tensor) -> list[int]:
    return tensor.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8).tolist()


def same(left: Tensor, right: Tensor) -> bool:
    """Equal in type, shape and every bit, NaN included."""
    return left.dtype == right.dtype and left.shape == right.shape and bits(left) == bits(right)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Random bits of any type and shape, some as a transposed or strided view."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    count = int(torch.tensor(shape).prod()) if shape else 1
    if dtype == torch.bool:
        tensor = torch.randint(0, 2, shape, generator=generator).bool()
    else:
        size = torch.empty(0, dtype=dtype).element_size()
        raw = torch.randint(0, 256, (count * size,), generator=generator, dtype=torch.uint8)
        tensor = raw.view(dtype).reshape(shape)
    return draw(
        st.sampled_from([tensor, tensor.mT if tensor.ndim > 1 else tensor, tensor[..., ::2] if shape else tensor])
    )


@settings(max_examples=100, deadline=None)
@given(content=st.dictionaries(st.text(min_size=1, max_size=8), tensors(), max_size=5), note=st.text(max_size=9))
def test_tensors_come_back_bit_by_bit(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Tensor], note: str
) -> None:
    path = tmp_path_factory.mktemp("t") / "a.safetensors"
    content = {name.encode(errors="replace").decode(): tensor for name, tensor in content.items()}
    save_tensors(path, content, {"note": note.encode(errors="replace").decode()})
    for loaded in (load_tensors(path), safetensors.torch.load(path.read_bytes())):
        assert loaded.keys() == content.keys()
        assert all(same(loaded[name], content[name]) for name in content)


def test_our_files_are_byte_identical_to_those_of_the_library(tmp_path: Path) -> None:
    content = {
        "b": torch.arange(15, dtype=torch.float32).reshape(3, 5),
        "a": torch.arange(7, dtype=torch.bfloat16),
        "c": torch.tensor(True),
        "d": torch.arange(2),
        "e": torch.empty(0, 4),
    }
    save_tensors(tmp_path / "ours", content, {"format": "pt"})
    assert (tmp_path / "ours").read_bytes() == safetensors.torch.save(content, {"format": "pt"})


def test_shared_memory_and_gradients_are_written_out_in_full(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.randn(6, 4, generator=torch.Generator().manual_seed(1)))
    save_tensors(tmp_path / "a", {"whole": weight, "again": weight, "part": weight[2:, 1]}, {})
    loaded = load_tensors(tmp_path / "a")
    assert same(loaded["whole"], weight.detach())
    assert same(loaded["again"], weight.detach())
    assert same(loaded["part"], weight.detach()[2:, 1])
    assert not loaded["whole"].requires_grad


def test_loaded_tensors_do_not_change_with_their_file(tmp_path: Path) -> None:
    before = torch.arange(5000.0)
    save_tensors(tmp_path / "a", {"x": before}, {})
    loaded = load_tensors(tmp_path / "a")
    with (tmp_path / "a").open("r+b") as file:
        file.write(b"\xff" * 20_000)
    assert torch.equal(loaded["x"], before)


def test_only_the_wanted_tensors_are_read(tmp_path: Path) -> None:
    save_tensors(tmp_path / "a", {"model.x": torch.zeros(2), "ema.x": torch.ones(3)}, {})
    assert list(load_tensors(tmp_path / "a", "ema.")) == ["ema.x"]


def test_unsupported_tensors_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    for content in ({"x": torch.zeros(2, dtype=torch.complex64)}, {"__metadata__": torch.zeros(2)}):
        with pytest.raises(ValueError, match="has no place in a safetensors file"):
            save_tensors(tmp_path / "a", content, {})
    assert names(tmp_path) == []


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("pickle-was-executed"),)  # type: ignore[return-value]


def hostile_pickles(random_source: random.Random) -> Iterator[bytes]:
    for protocol in range(6):
        bare = pickle.dumps(Bomb(), protocol)
        yield bare
        yield struct.pack("<Q", len(bare)) + bare
        yield struct.pack("<Q", len(bare) + 20) + b'{"x":' + bare
    header = b'{"x":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}'
    for _ in range(22):
        yield (header % (9, 10 ** random_source.randint(0, 20))) + pickle.dumps(Bomb())


def test_no_pickle_is_executed_whatever_its_disguise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for content in hostile_pickles(random.Random(5)):
        Path("model").write_bytes(content)
        with pytest.raises(FolderError, match=r"^model is damaged"):
            load_tensors(Path("model"))
    torch.save(Bomb(), "model")
    with pytest.raises(FolderError, match=r"^model is damaged"):
        load_tensors(Path("model"))
    assert names(tmp_path) == ["model"]


def test_nothing_in_storage_unpickles() -> None:
    text = "".join(path.read_text() for path in Path(files.__file__).parent.glob("*.py"))
    assert "torch.load(" not in text
    assert "import pickle" not in text


def test_a_mutated_file_gives_tensors_or_a_folder_error(tmp_path: Path) -> None:
    source = random.Random(3)
    save_tensors(tmp_path / "a", {"x": torch.arange(6.0).reshape(2, 3), "y": torch.zeros(5).bool()}, {"k": "v"})
    good = (tmp_path / "a").read_bytes()
    words = [
        b'"F32"',
        b'"F4"',
        b'"F8_E8M0"',
        b'"C64"',
        b"[0,0]",
        b"[2,3]",
        b"-1",
        b"99999999999999999999",
        b"null",
        b"{}",
    ]
    refused = unread = 0
    for _ in range(600):
        mutant = bytearray(good[: source.choice([len(good), source.randrange(len(good))])])
        for _ in range(source.randint(1, 3)):
            position = source.randrange(len(mutant) + 1)
            word = source.choice([*words, bytes([source.randrange(256)])])
            mutant[position : position + source.randint(0, 6)] = word
        mutant[:8] = source.choice([bytes(mutant[:8]), struct.pack("<Q", bytes(mutant).rfind(b"}") - 7 & 2**64 - 1)])
        (tmp_path / "a").write_bytes(mutant)
        try:
            load_tensors(tmp_path / "a")
        except FolderError:
            refused += 1
        try:
            read_tensor_metadata(tmp_path / "a")
        except FolderError:
            unread += 1
    assert refused > 400
    assert unread > 300


@settings(deadline=None, max_examples=25)
@given(
    st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=4),
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
)
def test_the_metadata_is_what_the_library_reads(metadata: dict[str, str], sizes: list[int]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        safetensors.torch.save_file({f"t{n}": torch.zeros(size) for n, size in enumerate(sizes)}, path, metadata)
        with safetensors.safe_open(path, framework="pt") as file:
            assert read_tensor_metadata(path) == (file.metadata() or {}) == metadata
        save_tensors(path, {f"t{n}": torch.zeros(size) for n, size in enumerate(sizes)}, metadata)
        assert read_tensor_metadata(path) == metadata
        for damaged in (
            path.read_bytes()[:-1],
            path.read_bytes() + b" ",
            b"\xff" * 8 + path.read_bytes()[8:],
            b"",
            b"{}",
        ):
            path.write_bytes(damaged)
            with pytest.raises(DamagedError, match=r"is damaged \("):
                read_tensor_metadata(path)
    with pytest.raises(DamagedError, match=r"is damaged \(missing\)"):
        read_tensor_metadata(path)
