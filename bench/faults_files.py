"""Checks with damaged and hostile files: checkpoints and model folders."""

import json
import random
import re
import resource
import shutil
import signal
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import faults_common as common
import torch
from faults_common import Outcome, tell

from heedful.errors import HeedfulError
from heedful.storage.checkpoint import Checkpoints
from heedful.storage.files import MANIFEST, load_tensors, write_manifest
from heedful.storage.run_folder import RunFolder
from heedful.translation.translator import Translator

SECONDS_TO_REFUSE = 1.0
BYTES_TO_REFUSE = 500 << 20
_SENTENCE = "dodik sale"

# Damaged checkpoints


def checkpoints(folder: Path, count: int, chance: random.Random) -> Outcome:
    """Damage the newest one to three of four checkpoints; the newest intact one must be loaded, with the same bits."""
    common.write_text(folder, lines=300)
    run = common.train_here(folder, folder / "run", "train.max_steps=4", "train.save_every=1")
    place, spare = run / "checkpoints", folder / "spare"
    steps = Checkpoints(place, 4).steps()
    shutil.copytree(place, spare)
    good = {step: _bits(place, step) for step in steps}
    failures, kinds = [], Counter[str]()
    for _ in range(count):
        damaged = steps[-chance.randint(1, 3) :]
        for step in damaged:
            kinds[_damage(place, step, chance)] += 1
        wanted = max(set(steps) - set(damaged))
        failures += _found(place, wanted, damaged, good)
        for step in damaged:
            shutil.rmtree(place / f"step-{step:08d}")
            shutil.copytree(spare / f"step-{step:08d}", place / f"step-{step:08d}")
    note = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    return Outcome(
        sum(kinds.values()), tuple(failures), f"{note}; each time the newest intact one was loaded, with a message"
    )


def _damage(place: Path, step: int, chance: random.Random) -> str:
    """Damage one file of a checkpoint; return the kind of damage."""
    folder = place / f"step-{step:08d}"
    path = chance.choice(sorted(folder.iterdir()))
    content = path.read_bytes()
    at = chance.randrange(len(content))
    kind = chance.choice(("flipped", "truncated", "half-written", "missing", "from another step"))
    match kind:
        case "flipped":
            path.write_bytes(_flip(content, at, chance))
        case "truncated":
            path.write_bytes(content[:at])
        case "half-written":  # as a power cut leaves a file that was not flushed
            path.write_bytes(content[:at] + bytes(len(content) - at))
        case "missing":
            path.unlink()
        case _:
            other = min(Checkpoints(place, 4).steps())
            path.write_bytes((place / f"step-{other:08d}" / path.name).read_bytes())
    return kind


def _flip(content: bytes, at: int, chance: random.Random) -> bytes:
    changed = bytearray(content)
    changed[at] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _bits(place: Path, step: int) -> dict[str, bytes]:
    tensors = Checkpoints(place, 4).load_model(step, "")
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def _found(place: Path, wanted: int, damaged: list[int], good: dict[int, dict[str, bytes]]) -> list[str]:
    """The failures of loading the newest checkpoint."""
    try:
        found = Checkpoints(place, 4).load_latest()
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    if found is None or found[0].step != wanted:
        return [f"step {found[0].step if found else None} was loaded instead of {wanted}"]
    bits = {name: tensor.numpy().tobytes() for name, tensor in found[0].tensors.items()}
    said = all(f"step-{step:08d} is damaged" in "".join(found[1]) for step in damaged)
    return [*([] if bits == good[wanted] else ["different bits"]), *([] if said else ["no message"])]


# Flipped bits


def flips(folder: Path, count: int, chance: random.Random) -> Outcome:
    """Flip one bit of a model folder and load it: it is refused, or the file is not one that is loaded."""
    run = _model_folder(folder)
    loaded = [*_checked(run), MANIFEST, "model.safetensors"]
    others = sorted(str(path.relative_to(run)) for path in _files(run) if str(path.relative_to(run)) not in loaded)
    wanted = _translated(run)
    failures, refused, harmless = [], Counter[str](), Counter[str]()
    for number in range(count):
        # Nine in ten in files that are loaded, where a flip matters.
        name = chance.choice(others if number % 10 == 0 else loaded)
        with _flipped(run / name, chance) as where:
            try:
                same = _translated(run) == wanted
            except HeedfulError:
                refused[name] += 1
                continue
            except Exception as error:
                failures.append(f"{name}, {where}: {type(error).__name__}: {error}")
                continue
        harmless[name] += 1
        if name in loaded or not same:
            failures.append(f"{name}, {where}: not noticed, {'the same' if same else 'ANOTHER'} translation")
        if number % 1000 == 0:
            tell(f"flip {number}")
    note = f"{sum(refused.values())} refused ({', '.join(f'{n} {name}' for name, n in sorted(refused.items()))}); "
    return Outcome(
        count, tuple(failures), f"{note}{sum(harmless.values())} in files that are not loaded: {_names(harmless)}"
    )


def _names(counts: Counter[str]) -> str:
    return ", ".join(sorted({name.partition("/")[0] for name in counts}))


@contextmanager
def _flipped(path: Path, chance: random.Random) -> Iterator[str]:
    """Flip a bit in place while the block runs."""
    place, bit = chance.randrange(path.stat().st_size), chance.randrange(8)
    was = _flip_at(path, place, bit)
    try:
        yield f"byte {place}, bit {bit}, was {was}"
    finally:
        _flip_at(path, place, bit)


def _flip_at(path: Path, place: int, bit: int) -> int:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1 << bit]))
    return byte


def _model_folder(folder: Path) -> Path:
    """A run folder as people share it: without checkpoints and prepared data."""
    common.write_text(folder, lines=300)
    run = common.train_here(folder, folder / "run", "train.max_steps=4")
    for part in ("checkpoints", "data"):
        shutil.rmtree(run / part)
    return run


def _files(run: Path) -> list[Path]:
    return [path for path in run.rglob("*") if path.is_file() and path.stat().st_size]


def _checked(run: Path) -> list[str]:
    """The files that the manifest names."""
    return sorted(json.loads((run / MANIFEST).read_text())["files"])


def _translated(run: Path) -> tuple[str, float]:
    best = Translator.load(run, "cpu").translate([_SENTENCE], beam=1)[0]
    return best.text, best.score


# Hostile folders


def hostile(folder: Path, count: int, chance: random.Random) -> Outcome:
    """Mutate a file and correct its checksum: loading gives our own error or a model, in little time and memory."""
    run = _model_folder(folder)
    checked = _checked(run)
    names = [*checked, MANIFEST, "model.safetensors"]
    good = {name: (run / name).read_bytes() for name in names}
    before, slowest = _peak(), 0.0
    failures, refused = [], Counter[str]()
    with mock.patch("os.fsync"):  # this check is not about the disk
        for number in range(count):
            name = chance.choice(names)
            if name == "model.safetensors" and number % 3 == 0:
                _write_other_weights(run, chance)
            else:
                (run / name).write_bytes(_mutated(name, good[name], chance))
            if name in checked:
                write_manifest(run, checked)
            began = time.perf_counter()
            wrong, was_refused = _load(run)
            seconds = time.perf_counter() - began
            slowest, refused[name] = max(slowest, seconds), refused[name] + was_refused
            if wrong or seconds > SECONDS_TO_REFUSE:
                failures.append(f"{number} {name}: {wrong or f'{seconds:.1f} s'}")
            for changed in {name, MANIFEST}:
                (run / changed).write_bytes(good[changed])
            if number % 1000 == 0:
                tell(f"mutant {number}")
    grown = _peak() - before
    if grown > BYTES_TO_REFUSE:
        failures.append(f"memory grew by {grown >> 20} MiB")
    total = sum(refused.values())
    note = f"{total} refused, {count - total} still a model; the slowest took {slowest:.2f} s"
    return Outcome(count, tuple(failures), f"{note}; {grown >> 20} MiB more memory")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _load(run: Path) -> tuple[str, bool]:
    """A failure or an empty string, and whether the folder was refused."""

    def too_long(*_: object) -> None:
        raise TimeoutError("over 10 s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, 10.0)
    try:
        Translator.load(run, "cpu")
    except HeedfulError:
        return "", True
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}", False
    else:
        return "", False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


_NUMBERS = (
    b"0",
    b"-1",
    b"1",
    b"7",
    b"65536",
    b"2147483648",
    b"9223372036854775807",
    b"1e308",
    b"-0.5",
    b"NaN",
    b"1e999",
)
_VALUES: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    1 << 40,
    1e300,
    float("nan"),
    "",
    "x" * 5000,
    [],
    {},
    [[[[]]]],
    {"a": {"b": 1}},
    "../../x",
)
_WORDS = (
    *(
        b'"F32"',
        b'"F4"',
        b'"F8_E8M0"',
        b'"BOOL"',
        b"[0,0]",
        b"null",
        b"{}",
        b"[]",
        b"true",
        b'"',
        b"\\u0000",
        b"\xff\xfe",
    ),
    *(b"[" * 300, b'{"a":' * 300, b"../", b"<unk>", b"ByteLevel", b"[model]", b"= 99999999", b"\n", b"\x00"),
)


def _mutated(name: str, content: bytes, chance: random.Random) -> bytes:
    """Make one to three changes that break parsers and sizes."""
    ways: list[Callable[[bytes, random.Random], bytes]] = [_spliced, _renumbered, _cut]
    if name.endswith(".json"):
        ways += [_restructured, _restructured]
    for _ in range(chance.randint(1, 3)):
        content = chance.choice(ways)(content, chance)
    if name == "model.safetensors" and chance.random() < 0.5 and len(content) > 8:
        # Correct the header's length, so that its content is parsed.
        content = struct.pack("<Q", max(0, content.rfind(b"}}", 0, 1 << 16) - 6)) + content[8:]
    return content


def _write_other_weights(run: Path, chance: random.Random) -> None:
    """Write weights with a correct checksum, but with one missing, extra, or of another shape or type."""
    weights = load_tensors(run / "model.safetensors")
    name = chance.choice(sorted(weights))
    match chance.randrange(5):
        case 0:
            del weights[name]
        case 1:
            weights[name] = weights[name].reshape(-1)[: chance.randrange(weights[name].numel())]
        case 2:
            weights[name] = weights[name].to(chance.choice((torch.float64, torch.int8, torch.bool, torch.bfloat16)))
        case 3:
            weights[name] = torch.zeros(0, 1 << 40)
        case _:
            weights[chance.choice(("x" * 5000, "", "../x", "encoder"))] = weights[name]
    RunFolder(run).write_weights(weights, "hostile")


def _spliced(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(min(len(content), 20_000) + 1)
    word = chance.choice((*_WORDS, chance.randbytes(chance.randint(1, 9)), content[at : at + chance.randint(1, 99)]))
    return content[:at] + word + content[at + chance.choice((0, 1, len(word), 40)) :]


def _renumbered(content: bytes, chance: random.Random) -> bytes:
    places = list(re.finditer(rb"(?<=[:,=\[ ])-?\d+(?:\.\d+)?(?=[,\]}\n])", content[:20_000]))
    if not places:
        return content
    place = chance.choice(places)
    return content[: place.start()] + chance.choice(_NUMBERS) + content[place.end() :]


def _cut(content: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(len(content) + 1)
    return content[:begin] if chance.random() < 0.3 else content[:begin] + content[begin + chance.randint(1, 200) :]


def _restructured(content: bytes, chance: random.Random) -> bytes:
    """Replace a value at some place of the JSON, or add or remove a key."""
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        return content
    node = tree
    while isinstance(node, dict | list) and node:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = chance.choice(keys)
        child = node[key]
        if not isinstance(child, dict | list) or not child or chance.random() < 0.3:
            match chance.randrange(4):
                case 0:
                    del node[key]
                case 1 if isinstance(node, dict):
                    node[chance.choice(("x", "dropout", "type", str(key) * 2))] = child
                case _:
                    node[key] = chance.choice(_VALUES)
            break
        node = child
    return json.dumps(tree).encode()
