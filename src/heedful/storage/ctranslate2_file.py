"""Check a model in CTranslate2's format before CTranslate2 sees it.

CTranslate2 trusts what it reads: a wrong number of heads or a wrong shape makes it divide by zero or read foreign
memory, which ends the process. So every file, name, number and shape must be what `heedful export` writes for the model
that the run folder describes. Only the values of the weights are free. Nothing here imports PyTorch.
"""

import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from heedful.config import Activation, ModelConfig
from heedful.errors import FolderError
from heedful.models.size import Vocabulary
from heedful.storage.files import read_json
from heedful.untrusted_files import open_file

KINDS = ("float32", "int8", "int16", "int32", "float16", "bfloat16")  # in the order of their numbers in the file
_ITEM_SIZES = (4, 1, 2, 4, 2, 2)
_VERSION = 6  # of the binary format
_SPECIFICATION, _REVISION = "TransformerSpec", 7
_MOST_VARIABLES = 100_000  # a thousand layers have a third of them
_MOST_POSITIONS = 1 << 16
_LARGEST = 1 << 15  # number and width of heads are 16-bit numbers
_ACTIVATIONS: Mapping[Activation, int] = {"relu": 0, "gelu-tanh": 1, "swish": 2, "gelu": 3}
_MODEL, _CONFIG, _MANIFEST = "model.bin", "config.json", "manifest.json"
_SHARED, _SEPARATE = "shared_vocabulary.json", ("source_vocabulary.json", "target_vocabulary.json")


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the file: its type, its shape, and where its bytes are."""

    kind: str
    shape: tuple[int, ...]
    start: int
    size: int


def check_ctranslate2_model(folder: Path, config: ModelConfig, vocabulary: Vocabulary) -> None:
    """Raise FolderError unless the folder holds the export of a Transformer of this configuration, and nothing else."""
    path = folder / _MODEL
    if config.family != "transformer" or config.window:
        raise FolderError(f"{path} is a plain Transformer, but experiment.toml describes a different model")
    for side in ("encoder", "decoder"):
        if max(_fit_heads(config, side)) >= _LARGEST:
            raise FolderError(f"{path} cannot have the heads that experiment.toml describes; it is a different model")
    _check_names(folder)
    numbers, positions = _check_config(folder, vocabulary)
    found = read_layout(path)
    if config.encoder_layers + config.decoder_layers > len(found):  # before a list of all their variables is made
        raise FolderError(f"{path} has fewer layers than experiment.toml; it belongs to a different model")
    wanted = dict(_list_weights(config, vocabulary, positions, numbers)) | dict(_list_scalars(config))
    for name in sorted(found.keys() ^ wanted.keys()):
        if name in found or name not in _OPTIONAL:
            state = "an unknown" if name in found else "no"
            raise FolderError(f"{path} has {state} variable {name[:80]}; it belongs to a different model")
    with open_file(path) as file:
        for name, variable in found.items():
            kind, shape, value = wanted[name]
            if (variable.kind, variable.shape) != (kind, shape):
                raise FolderError(
                    f"{path} has {name} as {variable.kind} {list(variable.shape)} instead of {kind} {list(shape)}; "
                    "it belongs to a different model"
                )
            if value is not None:
                file.seek(variable.start)
                if (there := file.read(variable.size)) != value:
                    raise FolderError(
                        f"{path} has {name} {_show(there, kind)} instead of {_show(value, kind)}; "
                        "it belongs to a different model"
                    )


def read_layout(path: Path) -> dict[str, Variable]:
    """All variables of the file by name, also by their second names; FolderError if it is not in the format."""
    try:
        with open_file(path) as file:
            return _Reader(file).layout()
    except OSError as error:
        raise FolderError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FolderError(
            f"{path} is not a model in CTranslate2's format {_VERSION} ({error}); export it again"
        ) from error


class _Reader:
    """Reads the names, types and shapes of a file and skips the values."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size

    def layout(self) -> dict[str, Variable]:
        header = (self._number("I"), self._string(), self._number("I"))
        if header != (_VERSION, _SPECIFICATION, _REVISION):
            raise ValueError(f"it is version {header[0]} of {header[1][:80]!r}, revision {header[2]}")
        found: dict[str, Variable] = {}
        for _ in range(self._count()):
            name, variable = self._variable()
            if name in found:
                raise ValueError(f"it has {name[:80]!r} twice")
            found[name] = variable
        aliases = dict(self._alias(found) for _ in range(self._count()))
        if self._file.tell() != self._size:
            raise ValueError("it does not end where it should")
        # CTranslate2 also gives a second name to the scale of a rounded variable.
        scales = {f"{alias}_scale": f"{name}_scale" for alias, name in aliases.items() if f"{name}_scale" in found}
        return found | {alias: found[name] for alias, name in (aliases | scales).items()}

    def _count(self) -> int:
        if (count := self._number("I")) > _MOST_VARIABLES:
            raise ValueError(f"it has {count} variables")
        return count

    def _variable(self) -> tuple[str, Variable]:
        name = self._string()
        shape = tuple(self._number("I") for _ in range(self._number("B")))
        kind, size = self._number("B"), self._number("I")
        if kind >= len(KINDS):
            raise ValueError(f"{name[:80]!r} has the unknown type {kind}")
        items = 1
        for length in shape:  # not math.prod: 255 lengths would make an enormous number
            items = min(items * length, size + 1)
        if items * _ITEM_SIZES[kind] != size:
            raise ValueError(f"{name[:80]!r} has {size} bytes for the shape {list(shape[:8])}")
        start = self._file.tell()
        if start + size > self._size:
            raise ValueError("it ends too early")
        self._file.seek(size, os.SEEK_CUR)
        return name, Variable(KINDS[kind], shape, start, size)

    def _alias(self, found: Mapping[str, Variable]) -> tuple[str, str]:
        """The second name of a variable, and its first."""
        alias, name = self._string(), self._string()
        if name not in found or alias in found or f"{alias}_scale" in found:
            raise ValueError(f"it names {name[:80]!r} also {alias[:80]!r}")
        return alias, name

    def _string(self) -> str:
        """A string that ends in its only zero byte; CTranslate2 reads up to one, wherever that is."""
        content = self._take(self._number("H"))
        if content.find(b"\0") != len(content) - 1 or not content:
            raise ValueError("a name does not end where it should")
        return content[:-1].decode()

    def _number(self, form: str) -> int:
        (number,) = struct.unpack(f"<{form}", self._take(struct.calcsize(f"<{form}")))
        return int(number)

    def _take(self, length: int) -> bytes:
        content = self._file.read(length)
        if len(content) != length:
            raise ValueError("it ends too early")
        return content


# The folder


def _check_names(folder: Path) -> None:
    """CTranslate2 reads other files if they are there, such as a vocabulary map."""
    there = {path.name for path in folder.iterdir()}
    vocabularies = {_SHARED} if _SHARED in there else set(_SEPARATE)
    wanted = {_MODEL, _CONFIG, _MANIFEST} | vocabularies
    for name in sorted(wanted ^ there):
        state = "has no" if name in wanted else "has an unknown file"
        raise FolderError(f"{folder} {state} {name[:80]}; export the model again")


def _check_config(folder: Path, vocabulary: Vocabulary) -> tuple[str, int]:
    """The type of the weights and the number of positions, after all other settings were compared."""
    path = folder / _CONFIG
    source, target = _read_vocabularies(folder)
    for side, pieces, size in (("source", source, vocabulary.source), ("target", target, vocabulary.target)):
        if len(pieces) != size:
            raise FolderError(
                f"{folder} has {len(pieces)} {side} pieces, but the tokenizer has {size}; export it again"
            )
    pad, eos = target[vocabulary.pad_id], target[vocabulary.eos_id]
    if pad not in source:
        raise FolderError(f"{folder} has no padding among its source pieces; export it again")
    wanted = {
        **{"add_source_bos": False, "add_source_eos": False, "multi_query_attention": False},
        **{"bos_token": pad, "decoder_start_token": pad, "unk_token": pad, "eos_token": eos},
    }
    match read_json(path):
        case {
            "heedful": {"numbers": "float32" | "float16" | "int8" as numbers, "positions": int(positions)},
            "layer_norm_epsilon": float(epsilon),
            **others,
        } if _same_json(others, wanted) and 0.0 < epsilon < 1.0 and 0 < positions <= _MOST_POSITIONS:
            return numbers, positions
    raise FolderError(f"{path} does not have the settings that heedful writes; export the model again")


def _same_json(one: object, other: object) -> bool:
    """Whether two values have the same JSON. In Python 0 == False, but CTranslate2 refuses a number for a Boolean."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _read_vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    if (folder / _SHARED).exists():
        pieces = _read_pieces(folder / _SHARED)
        return pieces, pieces
    source, target = (_read_pieces(folder / name) for name in _SEPARATE)
    return source, target


def _read_pieces(path: Path) -> list[str]:
    pieces = read_json(path)
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise FolderError(f"{path} is not a list of pieces; export the model again")
    if len(set(pieces)) != len(pieces):
        raise FolderError(f"{path} has a piece twice; export the model again")
    try:
        "".join(pieces).encode()
    except UnicodeEncodeError as error:
        raise FolderError(f"{path} has a piece that is not Unicode text; export the model again") from error
    return pieces


# The variables of an export

_Wanted = tuple[str, tuple[int, ...], bytes | None]  # type, shape, and the bytes of a scalar
_FORMS = {"float32": "<f", "int8": "<b", "int16": "<h", "int32": "<i"}
# Some versions of CTranslate2 do not write these; it has the same defaults.
_OPTIONAL = frozenset(
    {
        *("encoder/multi_query_attention", "decoder/alibi", "decoder/alibi_use_positive_positions"),
        *("decoder/scale_alibi", "decoder/start_from_zero_embedding"),
    }
)


def _list_weights(
    config: ModelConfig, vocabulary: Vocabulary, positions: int, numbers: str
) -> Iterator[tuple[str, _Wanted]]:
    plain = "float16" if numbers == "float16" else "float32"
    d_model = config.d_model

    def table(name: str, *shape: int) -> Iterator[tuple[str, _Wanted]]:
        """A matrix that is rounded to 8 bits, with a scale for each row, or not at all."""
        if numbers == "int8":
            yield f"{name}/weight", ("int8", shape, None)
            yield f"{name}/weight_scale", ("float32", shape[:1], None)
        else:
            yield f"{name}/weight", (plain, shape, None)

    def linear(name: str, outputs: int, inputs: int) -> Iterator[tuple[str, _Wanted]]:
        yield from table(name, outputs, inputs)
        yield f"{name}/bias", (plain, (outputs,), None)

    def norm(name: str) -> Iterator[tuple[str, _Wanted]]:
        for end in ("gamma", "beta"):
            yield f"{name}/layer_norm/{end}", (plain, (d_model,), None)

    yield from table("encoder/embeddings_0", vocabulary.source, d_model)
    yield from table("decoder/embeddings", vocabulary.target, d_model)
    yield from table("decoder/projection", vocabulary.target, d_model)
    if config.output_bias:
        yield "decoder/projection/bias", (plain, (vocabulary.target,), None)
    for side in ("encoder", "decoder"):
        if config.positions != "relative":
            yield f"{side}/position_encodings/encodings", (plain, (positions, d_model), None)
        if config.norm == "pre":
            yield from norm(side)
    for layer, _ in _list_layers(config):
        yield from linear(f"{layer}/ffn/linear_0", config.d_ff, d_model)
        yield from linear(f"{layer}/ffn/linear_1", d_model, config.d_ff)
        yield from norm(f"{layer}/ffn")
    for attention, (heads, width) in _list_attentions(config):
        # Self-attention projects queries, keys and values at once, cross-attention the queries apart.
        rows = (3,) if attention.endswith("self_attention") else (1, 2)
        for number, parts in enumerate(rows):
            yield from linear(f"{attention}/linear_{number}", parts * heads * width, d_model)
        yield from linear(f"{attention}/linear_{len(rows)}", d_model, heads * width)
        yield from norm(attention)
        if config.positions == "relative" and attention.endswith("self_attention"):
            yield f"{attention}/relative_position_keys", (plain, (2 * config.max_distance + 1, width), None)


def _list_scalars(config: ModelConfig) -> Iterator[tuple[str, _Wanted]]:
    def scalar(name: str, kind: str, value: float) -> tuple[str, _Wanted]:
        return name, (kind, (), struct.pack(_FORMS[kind], value))

    for side in ("encoder", "decoder"):
        yield scalar(f"{side}/num_heads", "int16", _fit_heads(config, side)[0])
        yield scalar(f"{side}/pre_norm", "int8", config.norm == "pre")
        yield scalar(f"{side}/activation", "int8", _ACTIVATIONS[config.activation])
        yield scalar(f"{side}/scale_embeddings", "int8", 1)
    for name in ("encoder/embeddings_merge", *_OPTIONAL):
        yield scalar(name, "int8", 0)
    yield scalar("decoder/alignment_layer", "int16", -1)
    yield scalar("decoder/alignment_heads", "int16", 1)
    d_k = config.d_k or config.d_model // config.num_heads
    for attention, (_, width) in _list_attentions(config):
        yield scalar(f"{attention}/head_dim", "int32", width)
        yield scalar(f"{attention}/queries_scale", "float32", d_k**-0.5)


def _list_layers(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """The layers of both stacks, with the name of their stack."""
    for side, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for number in range(count):
            yield f"{side}/layer_{number}", side


def _list_attentions(config: ModelConfig) -> Iterator[tuple[str, tuple[int, int]]]:
    """All attentions with the number of their heads and the width of each, after padding."""
    for layer, side in _list_layers(config):
        heads = _fit_heads(config, side)
        yield f"{layer}/self_attention", heads
        if side == "decoder":
            yield f"{layer}/attention", heads


def _fit_heads(config: ModelConfig, side: str) -> tuple[int, int]:
    """All attentions of a stack have the most heads and the largest width that any of them needs.

    A bias by distance takes a column for each head (see `heedful.formats.ctranslate2`).
    """
    pruned = [config.encoder_heads] if side == "encoder" else [config.decoder_heads, config.cross_heads]
    count = max(max(heads, default=config.num_heads) for heads in pruned)
    own = config.d_model // config.num_heads
    bias_columns = count if config.positions == "relative" else 0
    return count, max(config.d_k or own, config.d_v or own) + bias_columns


def _show(content: bytes, kind: str) -> str:
    return f"{struct.unpack(_FORMS[kind], content)[0]:g}"
