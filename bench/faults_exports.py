"""Check that no CTranslate2 export, however crafted, ends the process or raises anything but our own errors.

Each mutant has correct checksums. Child processes load and translate with many of them in a row; if one is ended by a
signal, the next child continues with the mutant after it.
"""

import json
import random
import re
import shutil
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from faults_common import Outcome, last_line, tell

from heedful.config import Experiment, ModelConfig, SearchConfig, Vocabularies
from heedful.errors import HeedfulError
from heedful.storage.files import MANIFEST, write_manifest
from heedful.storage.run_folder import RunFolder, Tokenizers
from heedful.text.tokenizer_training import learn_tokenizer
from heedful.translation.translator import Translator

_TEXTS = ("one two", "seven three five two four")
_WORDS = ["one", "two", "three", "four", "five", "six", "seven"]
_SMALL = ModelConfig(d_model=16, d_ff=24, num_heads=2, encoder_layers=1, decoder_layers=2)
_FORMS = ("f", "b", "h", "i", "e", "H")  # by the numbers of CTranslate2's types; bfloat16 as raw bits


def exports(folder: Path, count: int, chance: random.Random) -> Outcome:
    """Load and translate with this many mutants of small exports."""
    with mock.patch("os.fsync"):
        make_exports(folder)
    seed, number = chance.randrange(1 << 30), 0
    failures, kinds = [], Counter[str]()
    while number < count:
        command = [sys.executable, __file__, str(folder), str(seed), str(number), str(count - number)]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in process.stdout.splitlines()]
        for line in lines:
            kinds[line.get("result", "")] += 1
            if line.get("wrong"):
                failures.append(f"mutant {line['number']} ({line['what']}): {line['wrong']}")
        number += sum("result" in line for line in lines)
        if process.returncode:
            what = lines[-1]["what"] if lines else "before the first"
            failures.append(f"mutant {number} ({what}): exit code {process.returncode} {last_line(process.stderr)}")
            kinds["fatal"] += 1
            number += 1
        tell(f"mutant {number}")
    note = f"{kinds['refused']} refused, {kinds['loaded']} still translate"
    return Outcome(count, tuple(failures), f"{note}, {kinds['unexpected']} other exceptions, {kinds['fatal']} fatal")


def make_exports(folder: Path) -> None:
    """Small exports: of all types of numbers, both norms, all kinds of positions, one vocabulary and two."""
    import torch  # the children do without it

    from heedful.formats.export import export
    from heedful.models.build import build_seq2seq

    makes: list[tuple[Any, ModelConfig]] = [
        ("float32", _SMALL),
        ("int8", replace(_SMALL, norm="pre", sharing="target", activation="gelu", encoder_heads=(1,))),
        ("float16", replace(_SMALL, positions="learned", max_positions=2048, sharing="none", output_bias=True)),
    ]
    for numbers, config in makes:
        experiment = Experiment(model=config, search=SearchConfig(beam=2, max_extra=3))
        vocabularies: Vocabularies = "joint" if config.sharing == "all" else "separate"
        text = replace(experiment.text, kind="words", vocabulary_size=300, vocabularies=vocabularies)
        experiment = replace(experiment, text=text)
        source, target = learn_tokenizer(_WORDS, text), learn_tokenizer([word[::-1] for word in _WORDS], text)
        tokenizers = Tokenizers(source, source if config.sharing == "all" else target)
        torch.manual_seed(3)
        run = RunFolder.create(folder / f"run-{numbers}")
        run.begin(experiment)
        run.describe(experiment, tokenizers)
        model = build_seq2seq(config, tokenizers.vocabulary)
        # Random biases and norms, too: CTranslate2 stores equal variables once.
        weights = {name: weight + 0.1 * torch.randn_like(weight) for name, weight in model.named_parameters()}
        run.write_weights(weights, "random")
        export(run, "ctranslate2", folder / numbers, numbers)


# The child process


def _try_mutants(folder: Path, seed: int, first: int, count: int) -> None:
    good = {numbers: _read_all(folder / numbers) for numbers in ("float32", "int8", "float16")}
    with mock.patch("os.fsync"):
        for number in range(first, first + count):
            chance = random.Random(f"{seed} {number}")
            numbers = chance.choice(sorted(good))
            run = folder / "mutant"
            files = dict(good[numbers])
            what = _mutate(files, chance)
            print(json.dumps({"number": number, "what": f"{numbers}, {what}"}), flush=True)
            _write_all(run, files)
            result, wrong = _translate(run)
            print(json.dumps({"number": number, "what": what, "result": result, "wrong": wrong}), flush=True)


def _translate(run: Path) -> tuple[str, str]:
    try:
        translator = Translator.load(run, engine="ctranslate2")
        translator.translate(_TEXTS)
        translator.engine.score(translator.encode(["one"]), translator.encode(["two three"]))
    except HeedfulError:
        return "refused", ""
    except Exception as error:
        return "unexpected", f"{type(error).__name__}: {str(error)[:200]}"
    return "loaded", ""


def _read_all(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def _write_all(run: Path, files: dict[str, bytes]) -> None:
    """Write the files, remove all others, and correct both manifests."""
    shutil.rmtree(run, ignore_errors=True)
    (run / "ctranslate2").mkdir(parents=True)
    for name, content in files.items():
        (run / name).write_bytes(content)
    for place in (run, run / "ctranslate2"):
        names = json.loads(files[str((place / MANIFEST).relative_to(run))])["files"]
        write_manifest(place, [name for name in names if (place / name).exists()])


# Mutations


@dataclass(slots=True)
class _Binary:
    """The content of a model.bin."""

    version: int
    specification: bytes
    revision: int
    variables: list["_Entry"] = field(default_factory=list)
    aliases: list[tuple[bytes, bytes]] = field(default_factory=list)

    @classmethod
    def parse(cls, content: bytes) -> "_Binary":
        at = 0

        def take(length: int) -> bytes:
            nonlocal at
            at += length
            return content[at - length : at]

        def number(form: str) -> int:
            return int(struct.unpack(f"<{form}", take(struct.calcsize(f"<{form}")))[0])

        def string() -> bytes:
            return take(number("H"))

        found = cls(number("I"), string(), number("I"))
        for _ in range(number("I")):
            name, shape = string(), [number("I") for _ in range(number("B"))]
            found.variables.append(_Entry(name, shape, number("B"), take(number("I"))))
        found.aliases = [(string(), string()) for _ in range(number("I"))]
        return found

    def dump(self) -> bytes:
        def string(text: bytes) -> bytes:
            return struct.pack("<H", len(text)) + text

        parts = [struct.pack("<I", self.version), string(self.specification), struct.pack("<I", self.revision)]
        parts.append(struct.pack("<I", len(self.variables)))
        for one in self.variables:
            shape = struct.pack(f"<B{len(one.shape)}I", len(one.shape), *one.shape)
            parts += [string(one.name), shape, struct.pack("<BI", one.kind, len(one.data)), one.data]
        parts.append(struct.pack("<I", len(self.aliases)))
        parts += [string(text) for alias in self.aliases for text in alias]
        return b"".join(parts)


@dataclass(slots=True)
class _Entry:
    name: bytes
    shape: list[int]
    kind: int
    data: bytes


_INTEGERS = (0, 1, 2, 3, 4, 5, 7, 8, 16, 24, 48, 127, 128, 2152, 32767, -1, -2, -128, -32768, 2**31 - 1, -(2**31))
_FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, 65504.0, float("nan"), float("inf"), float("-inf"))
_EXTRA = (  # variables that CTranslate2 reads if they are there
    *("rotary_dim", "rotary_scaling_type", "num_heads_kv", "multi_query", "sliding_window", "relative_position_keys"),
    *("relative_position_values", "relative_attention_bias", "relative_attention_max_distance", "memory_kv/weight"),
    *("relative_asymmetric_position_keys", "q_norm/gamma", "linear_0/weight_zero", "linear_0/weight_packed"),
    *("linear_0/weight_compensation", "linear_0_noact/weight", "input_layer_norm/gamma", "layer_scalar"),
    *("shared_layer_norm/gamma", "layernorm_embedding/gamma", "project_in/weight", "project_out/weight"),
    *("scale_outputs", "final_logit_softcapping", "layer_norm_use_residual", "embeddings/multiply_by_sqrt_depth"),
)


def _mutate(files: dict[str, bytes], chance: random.Random) -> str:
    """Change some of the files; return what was done."""
    ways: list[tuple[int, Callable[[dict[str, bytes], random.Random], str]]] = [
        (12, _mutate_structure),
        (4, _mutate_bytes),
        (2, _mutate_vocabulary),
        (2, _mutate_json),
        (3, _mutate_experiment),
        (1, _add_file),
    ]
    (way,) = chance.choices([way for _, way in ways], [weight for weight, _ in ways])
    return way(files, chance)


def _mutate_structure(files: dict[str, bytes], chance: random.Random) -> str:
    binary = _Binary.parse(files["ctranslate2/model.bin"])
    done = [_mutate_binary(binary, chance) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
    files["ctranslate2/model.bin"] = binary.dump()
    return "; ".join(done)


def _mutate_binary(binary: _Binary, chance: random.Random) -> str:
    ways = (_set_values, _resize, _reshape, _retype, _rename, _remove, _add, _alias, _reversion)
    return chance.choice((*ways, _set_scalar, _set_scalar, _set_scalar))(binary, chance)


def _set_scalar(binary: _Binary, chance: random.Random) -> str:
    one = chance.choice([one for one in binary.variables if not one.shape])
    value = chance.choice(_FLOATS if one.kind in (0, 4) else _INTEGERS)
    form = _FORMS[one.kind]
    if form not in "fe":
        bits = 8 * struct.calcsize(form)
        value = (int(value) + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    one.data = struct.pack(f"<{form}", value)
    return f"{one.name.decode(errors='replace')} = {value}"


def _resize(binary: _Binary, chance: random.Random) -> str:
    one = _choose_array(binary, chance)
    axis = chance.randrange(len(one.shape))
    one.shape[axis] = abs(chance.choice((*_INTEGERS[:14], one.shape[axis] - 1, one.shape[axis] + 1)))
    _fit_data(one)
    return f"{one.name.decode(errors='replace')} of shape {one.shape}"


def _reshape(binary: _Binary, chance: random.Random) -> str:
    one = _choose_array(binary, chance)
    one.shape = chance.choice((one.shape[::-1], [len(one.data)], [1, *one.shape], [], [*one.shape, 1]))
    if chance.random() < 0.7:
        _fit_data(one)
    return f"{one.name.decode(errors='replace')} as shape {one.shape}"


def _retype(binary: _Binary, chance: random.Random) -> str:
    one = chance.choice(binary.variables)
    one.kind = chance.choice((0, 1, 2, 3, 4, 5, 6, 255))
    if chance.random() < 0.8:
        _fit_data(one)
    return f"{one.name.decode(errors='replace')} of type {one.kind}"


def _rename(binary: _Binary, chance: random.Random) -> str:
    one, other = chance.choice(binary.variables), chance.choice(binary.variables).name
    before = one.name
    one.name = chance.choice((other, before[:-1], before[:-2] + b"\0", b"", b"\0", before + b"x\0", b"\xff\0"))
    return f"{before.decode(errors='replace')} renamed"


def _remove(binary: _Binary, chance: random.Random) -> str:
    one = chance.choice(binary.variables)
    binary.variables.remove(one)
    return f"without {one.name.decode(errors='replace')}"


def _add(binary: _Binary, chance: random.Random) -> str:
    places = ("encoder", "decoder", "encoder/layer_0", "decoder/layer_1/self_attention")
    place = chance.choice((*places, "decoder/layer_0/attention", "encoder/layer_0/ffn"))
    name = f"{place}/{chance.choice(_EXTRA)}\0".encode()
    like = chance.choice(binary.variables)
    entry = _Entry(name, list(like.shape), like.kind, like.data)
    binary.variables.insert(chance.randrange(len(binary.variables)), entry)
    return f"with {name.decode(errors='replace')} like {like.name.decode(errors='replace')}"


def _alias(binary: _Binary, chance: random.Random) -> str:
    names = [entry.name for entry in binary.variables] + [b"nothing\0", b"", b"\0"]
    alias = (chance.choice(names), chance.choice(names))
    if binary.aliases and chance.random() < 0.7:
        place = chance.randrange(len(binary.aliases))
        before, name = binary.aliases[place]
        alias = binary.aliases[place] = chance.choice((alias, (before, alias[1]), (alias[0], name)))
    else:
        binary.aliases.append(alias)
    return f"alias {alias}"


def _reversion(binary: _Binary, chance: random.Random) -> str:
    binary.version = chance.choice((1, 2, 3, 4, 5, 6, 7))
    binary.revision = chance.choice((1, 2, 3, 4, 5, 6, 7, 8))
    names = (b"TransformerSpec\0", b"TransformerBase\0", b"TransformerDecoderSpec\0", b"WhisperSpec\0", b"")
    binary.specification = chance.choice(names)
    return f"version {binary.version} of {binary.specification!r}, revision {binary.revision}"


def _set_values(binary: _Binary, chance: random.Random) -> str:
    """Zeros, tiny numbers or NaN everywhere; CTranslate2 must survive them."""
    one = _choose_array(binary, chance)
    form = {0: "<I", 4: "<H", 1: "<b"}.get(one.kind, "<i")
    nan = {0: 0x7FC00000, 4: 0x7E00, 1: -128}.get(one.kind, 0)
    item = struct.pack(form, chance.choice((nan, 0, 1)))
    one.data = item * (len(one.data) // len(item))
    return f"{one.name.decode(errors='replace')} of equal values"


def _choose_array(binary: _Binary, chance: random.Random) -> _Entry:
    return chance.choice([one for one in binary.variables if one.shape])


def _fit_data(one: _Entry) -> None:
    """Cut or repeat the data to the length that type and shape need, if that is not too long."""
    size = struct.calcsize(f"<{_FORMS[min(one.kind, 5)]}")
    for length in one.shape:
        size *= length
    if size <= 1 << 20:
        one.data = (one.data * (1 + size // max(1, len(one.data))))[:size]


def _mutate_bytes(files: dict[str, bytes], chance: random.Random) -> str:
    content = bytearray(files["ctranslate2/model.bin"])
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(min(len(content), chance.choice((64, 2000, len(content)))))
        match chance.randrange(4):
            case 0:
                content[at] ^= 1 << chance.randrange(8)
            case 1:
                content[at] = chance.choice((0, 1, 255, 128))
            case 2:
                del content[at : at + chance.choice((1, 4, 100, len(content)))]
            case _:
                content[at:at] = chance.randbytes(chance.choice((1, 4, 100)))
        content = content or bytearray(b"\6")
    files["ctranslate2/model.bin"] = bytes(content)
    return "bytes"


def _mutate_vocabulary(files: dict[str, bytes], chance: random.Random) -> str:
    name = chance.choice([name for name in files if name.endswith("vocabulary.json")])
    pieces: Any = json.loads(files[name])
    kind = chance.choice(("less", "more", "twice", "other", "type", "surrogate", "special", "empty", "order", "deep"))
    at = chance.randrange(len(pieces))
    match kind:
        case "less":
            del pieces[at:]
        case "more":
            pieces += [f"new{number}" for number in range(chance.choice((1, 50, 5000)))]
        case "twice":
            pieces[at] = chance.choice(pieces)
        case "other":
            pieces[at] = chance.choice(("", "x" * 5000, "\0", "new"))
        case "type":
            pieces[at] = chance.choice((None, 1, [], {}, True, 1.5))
        case "surrogate":
            pieces[at] = "\ud800"
        case "special":
            pieces[chance.randrange(2)] = "new"
        case "empty":
            pieces = chance.choice(([], {}, "", None, 1, {"a": 1}))
        case "order":
            chance.shuffle(pieces)
        case _:
            files[name] = b"[" * 100_000
            return f"{name}: deep"
    files[name] = json.dumps(pieces).encode()
    return f"{name}: {kind}"


_VALUES: tuple[object, ...] = (
    *(None, True, False, 0, -1, 2**40, 1e300, float("nan")),
    *("", "x", "one", "</s>", [], {}, [[]], {"numbers": 1}),
)


def _mutate_json(files: dict[str, bytes], chance: random.Random) -> str:
    name = chance.choice(("ctranslate2/config.json", "ctranslate2/config.json", "config.json"))
    content = json.loads(files[name])
    place = content["heedful"] if "heedful" in content and chance.random() < 0.4 else content
    others = ("quantization_type", "quantization_bits", "lang_ids", "alignment_heads", "new")
    key = chance.choice((*place, chance.choice(others)))
    if chance.random() < 0.2:
        place.pop(key, None)
    else:
        place[key] = chance.choice((*_VALUES, *_INTEGERS))
    files[name] = json.dumps(content).encode()
    return f"{name}: {key} = {str(place.get(key))[:40]}"


def _mutate_experiment(files: dict[str, bytes], chance: random.Random) -> str:
    """Change the model that the run folder describes, so that the export does not fit."""
    lines = files["experiment.toml"].decode().splitlines()
    sizes = ("d_model", "d_ff", "num_heads", "d_k", "d_v", "_layers", "_heads", "window", "max_positions")
    choices = ("norm", "activation", "positions", "sharing", "output_bias", "family")
    places = [at for at, line in enumerate(lines) if re.match(rf"\w*({'|'.join(sizes + choices)}) = ", line)]
    at = chance.choice(places)
    key, _, value = lines[at].partition(" = ")
    words = ('"pre"', '"post"', '"relu"', '"gelu"', '"learned"', '"sinusoidal"', '"all"', '"none"')
    others = [word for word in (*words, "true", "[1]", "[2, 1]") if word[0] == value[0]]
    lines[at] = f"{key} = {chance.choice(others or [str(number) for number in _INTEGERS])}"
    files["experiment.toml"] = "\n".join(lines).encode() + b"\n"
    return lines[at]


def _add_file(files: dict[str, bytes], chance: random.Random) -> str:
    names = ("vmap.txt", "shared_vocabulary.json", "shared_vocabulary.txt", "source_1_vocabulary.json", "new")
    name = f"ctranslate2/{chance.choice((*names, 'target_vocabulary.txt'))}"
    files[name] = chance.choice((b"", b"one two\tthree\n", b'["one"]', b"[]", chance.randbytes(99), b"\t\t\n" * 999))
    return f"with {name}"


if __name__ == "__main__":
    _try_mutants(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
