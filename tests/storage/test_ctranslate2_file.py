"""A crafted or damaged CTranslate2 export is refused before CTranslate2, which would crash, reads it."""

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import faults_exports
import pytest
from engine_examples import POST, untrained_run
from faults_exports import _Binary, _Entry

from heedful.config import Positions
from heedful.errors import FolderError
from heedful.formats.export import export
from heedful.storage.files import write_manifest
from heedful.storage.run_folder import RunFolder


@pytest.fixture(scope="module", autouse=True)
def fast() -> Iterator[None]:
    with mock.patch("os.fsync"):
        yield


@pytest.fixture(scope="module")
def made(fast: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports")
    faults_exports.make_exports(folder)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> RunFolder:
    shutil.copytree(made / "int8", tmp_path / "run")
    return RunFolder.open(tmp_path / "run")


def reseal(run: RunFolder) -> None:
    names = ("model.bin", "config.json", "source_vocabulary.json", "target_vocabulary.json")
    write_manifest(run.ctranslate2, names)


def change(run: RunFolder, how: Callable[[_Binary], None]) -> None:
    path = run.ctranslate2 / "model.bin"
    binary = _Binary.parse(path.read_bytes())
    how(binary)
    path.write_bytes(binary.dump())
    reseal(run)


def entry(binary: _Binary, name: str) -> _Entry:
    return next(one for one in binary.variables if one.name == name.encode() + b"\0")


@pytest.mark.parametrize("numbers", ["float32", "int8", "float16"])
def test_an_export_passes(numbers: str, made: Path) -> None:
    RunFolder.open(made / numbers).check_ctranslate2()


@pytest.mark.parametrize("positions", ["sinusoidal", "relative"])
def test_an_export_with_heads_of_different_widths_passes(positions: Positions, tmp_path: Path) -> None:
    config = replace(
        POST,
        positions=positions,
        d_k=3,
        d_v=5,
        num_heads=3,
        decoder_heads=(2, 1),
        cross_heads=(1, 3),
        encoder_heads=(2,),
    )
    export(untrained_run(tmp_path / "run", config), "ctranslate2", tmp_path / "out")
    RunFolder.open(tmp_path / "out").check_ctranslate2()


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("decoder/alignment_layer", b"\x03\x00", "3 instead of -1"),  # an invalid pointer in CTranslate2
        ("decoder/alignment_layer", b"\x68\x08", "2152 instead of -1"),  # a segmentation fault
        ("encoder/num_heads", b"\x00\x00", "0 instead of 1"),  # a division by zero
        ("decoder/num_heads", b"\x03\x00", "3 instead of 2"),
        ("decoder/layer_1/attention/head_dim", b"\x00\x00\x00\x80", "-2.14748e+09 instead of 8"),
        ("encoder/activation", b"\x63", "99 instead of 3"),
        ("encoder/layer_0/self_attention/queries_scale", b"\x00\x00\xc0\x7f", "nan instead of 0.353553"),
    ],
)
def test_every_scalar_must_be_that_of_the_configuration(name: str, data: bytes, shown: str, run: RunFolder) -> None:
    change(run, lambda binary: setattr(entry(binary, name), "data", data))
    with pytest.raises(FolderError, match=re.escape(f"model.bin has {name} {shown}; it belongs to a different model")):
        run.check_ctranslate2()


def test_every_shape_and_type_must_be_that_of_the_configuration(run: RunFolder) -> None:
    def widen(binary: _Binary) -> None:
        one = entry(binary, "encoder/layer_0/ffn/linear_0/bias")
        one.shape, one.data = [25], one.data + bytes(4)

    change(run, widen)
    with pytest.raises(FolderError, match=r"linear_0/bias as float32 \[25\] instead of float32 \[24\]; it belongs"):
        run.check_ctranslate2()


def test_every_variable_must_be_known(run: RunFolder) -> None:
    def add(binary: _Binary) -> None:
        binary.variables.append(_Entry(b"decoder/layer_0/self_attention/rotary_dim\0", [], 3, bytes(4)))

    change(run, add)
    with pytest.raises(FolderError, match="unknown variable decoder/layer_0/self_attention/rotary_dim; it belongs"):
        run.check_ctranslate2()


def test_no_variable_may_be_missing(run: RunFolder) -> None:
    change(run, lambda binary: binary.variables.remove(entry(binary, "decoder/layer_norm/beta")))
    with pytest.raises(FolderError, match="no variable decoder/layer_norm/beta; it belongs to a different model"):
        run.check_ctranslate2()


def test_a_name_ends_in_its_only_zero_byte(run: RunFolder) -> None:
    """CTranslate2 would read on behind the name until it finds a zero byte."""

    def unend(binary: _Binary) -> None:
        entry(binary, "decoder/num_heads").name = b"decoder/num_heads"

    change(run, unend)
    with pytest.raises(FolderError, match="a name does not end where it should"):
        run.check_ctranslate2()


def test_a_second_name_must_have_the_shape_of_the_first(run: RunFolder) -> None:
    def mislead(binary: _Binary) -> None:
        binary.aliases[0] = (binary.aliases[0][0], b"decoder/layer_0/ffn/linear_1/weight\0")

    change(run, mislead)
    with pytest.raises(FolderError, match="it belongs to a different model"):
        run.check_ctranslate2()


def test_a_second_name_must_be_of_a_variable(run: RunFolder) -> None:
    change(run, lambda binary: binary.aliases.append((b"a\0", b"b\0")))
    with pytest.raises(FolderError, match="it names 'b' also 'a'"):
        run.check_ctranslate2()


def test_nothing_follows_the_last_name(run: RunFolder) -> None:
    path = run.ctranslate2 / "model.bin"
    path.write_bytes(path.read_bytes() + b"\0")
    reseal(run)
    with pytest.raises(FolderError, match="it does not end where it should"):
        run.check_ctranslate2()


@pytest.mark.parametrize("name", ["vmap.txt", "shared_vocabulary.txt", "source_1_vocabulary.json"])
def test_a_file_that_ctranslate2_would_also_read_is_refused(name: str, run: RunFolder) -> None:
    (run.ctranslate2 / name).write_bytes(b"one\ttwo\n")
    with pytest.raises(FolderError, match=f"ctranslate2 has an unknown file {name}; export the model again"):
        run.check_ctranslate2()


@pytest.mark.parametrize(
    ("change_pieces", "sentence"),
    [
        (lambda pieces: [*pieces, "more"], "target pieces, but the tokenizer has"),
        (lambda pieces: pieces[:-1], "target pieces, but the tokenizer has"),
        (lambda pieces: [*pieces[:-1], pieces[0]], "target_vocabulary.json has a piece twice"),
        (lambda pieces: [*pieces[:-1], 7], "target_vocabulary.json is not a list of pieces"),
        (lambda _: {"a": 1}, "target_vocabulary.json is not a list of pieces"),
        (lambda pieces: [*pieces[:-1], "\ud800"], "target_vocabulary.json has a piece that is not Unicode text"),
    ],
)
def test_a_vocabulary_must_fit(change_pieces: Callable[[list[str]], object], sentence: str, run: RunFolder) -> None:
    path = run.ctranslate2 / "target_vocabulary.json"
    path.write_text(json.dumps(change_pieces(json.loads(path.read_text()))))
    reseal(run)
    with pytest.raises(FolderError, match=sentence):
        run.check_ctranslate2()


@pytest.mark.parametrize(
    "setting",
    [
        {"eos_token": "nothing"},
        {"unk_token": None},
        {"add_source_bos": True},
        {"add_source_bos": 0},
        {"multi_query_attention": 0.0},
        {"layer_norm_epsilon": 0.0},
        {"layer_norm_epsilon": "a"},
        {"quantization_type": 1},
        {"heedful": {"numbers": "int8", "positions": "2048"}},
        {"heedful": {"numbers": "int4", "positions": 2048}},
        {"heedful": []},
    ],
    ids=str,
)
def test_every_setting_must_be_one_that_heedful_writes(setting: dict[str, object], run: RunFolder) -> None:
    path = run.ctranslate2 / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | setting))
    reseal(run)
    with pytest.raises(FolderError, match="does not have the settings that heedful writes; export the model again"):
        run.check_ctranslate2()


def test_positions_beyond_the_table_are_refused(run: RunFolder) -> None:
    path = run.ctranslate2 / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"heedful": {"numbers": "int8", "positions": 4096}}))
    reseal(run)
    with pytest.raises(FolderError, match=r"encodings as float32 \[2048, 16\] instead of float32 \[4096, 16\]"):
        run.check_ctranslate2()


def test_five_hundred_mutants_are_refused_or_translate(tmp_path: Path) -> None:
    """In processes of their own: one that is ended by a signal is a failure. See bench/faults.py --only exports."""
    outcome = faults_exports.exports(tmp_path, 500, random.Random(11))
    assert outcome.failures == ()
    assert outcome.tried == 500
