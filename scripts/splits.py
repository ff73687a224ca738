"""Split pairs so that no test sentence is in the training text, and write them to files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

Pairs = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Split:
    """Pairs of two languages. No sentence of `test` or `valid` is in `train`, on either side."""

    train: Pairs
    valid: Pairs
    test: Pairs


def split(pairs: Sequence[tuple[str, str]], test: int, valid: int, key: Callable[[str], str] = str) -> Split:
    """Hold out this many sentences of the first language, chosen by their hash and so always the same.

    A sentence often has several translations. A held-out one keeps the first, and every other pair that shares a
    sentence with it, in either language, is left out. Two sentences are the same if `key` gives the same result.
    """
    first = {key(source): (source, target) for source, target in reversed(pairs)}
    order = sorted(first, key=lambda source: blake2b(source.encode(), digest_size=8).digest())
    held_out = order[: test + valid]
    test_pairs = [first[source] for source in held_out[:test]]
    seen = {key(target) for _, target in test_pairs}
    valid_pairs = [first[source] for source in held_out[test:] if key(first[source][1]) not in seen]
    sources, targets = set(held_out), {key(first[source][1]) for source in held_out}
    train = [pair for pair in pairs if key(pair[0]) not in sources and key(pair[1]) not in targets]
    return Split(train, valid_pairs, test_pairs)


def write_split(parts: Split, folder: Path, languages: tuple[str, str]) -> None:
    """Write train, val and test of two languages: `train.en` beside `train.fr`, and so on."""
    for name, pairs in (("train", parts.train), ("val", parts.valid), ("test", parts.test)):
        write_sides(pairs, folder / name, languages)


def write_sides(pairs: Sequence[tuple[str, str]], path: Path, suffixes: tuple[str, str]) -> None:
    """Write two files that pair up line by line, such as `path.en` and `path.fr`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for side, suffix in enumerate(suffixes):
        lines = "".join(f"{pair[side]}\n" for pair in pairs)
        path.with_name(f"{path.name}.{suffix}").write_text(lines, encoding="utf-8", newline="\n")
