"""Byte-level BPE in Python, so that translating needs no other tokenizer library.

It reads the tokenizer.json of heedful's own kinds that are built on BPE, and gives the ids, spans and texts that the
`tokenizers` library gives. That library learns vocabularies and reads all other files. It is faster on large corpora,
but needs ten packages that translating does not use.
"""

import heapq
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from heedful.text.tokenizer_allowlist import ANY_CHARACTER, SYMBOL

PAD = "<pad>"
EOS = "</s>"

# White space as the `tokenizers` library defines it; Python's `\s` has four characters more.
WHITE_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

MAX_WORDS = 100_000  # whose pieces are kept
MAX_WORD_LENGTH = 64  # longer words, such as those of texts without spaces, do not occur again

Merges = Mapping[tuple[int, int], tuple[int, int]]  # from two neighbouring ids to the rank and the result of the merge


def byte_characters() -> tuple[str, ...]:
    """The printable character that stands for each byte, as in GPT-2, in the order of the bytes."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in printable]
    shifted = {byte: 256 + place for place, byte in enumerate(hidden)}
    return tuple(chr(shifted.get(byte, byte)) for byte in range(256))


class _Shadow(dict[int, int]):
    """Maps every character outside ASCII to one inside that GPT-2's pattern treats alike.

    Python's regular expressions have no classes of letters and numbers. "z" occurs in no contraction.
    """

    _space = re.compile(f"[{WHITE_SPACE}]")

    def __missing__(self, code: int) -> int:
        character = chr(code)
        if code < 128:
            found = character
        elif self._space.match(character):
            found = "\t"
        else:
            found = {"L": "z", "N": "0"}.get(unicodedata.category(character)[0], "!")
        return self.setdefault(code, ord(found))


_GPT2 = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\t-\r A-Za-z0-9]+|[\t-\r ]+(?![^\t-\r ])|[\t-\r ]+"
)
_SHADOW = _Shadow()


def _split_words(text: str) -> Iterator[str]:
    if text.isascii():
        return iter(_GPT2.findall(text))
    return (text[found.start() : found.end()] for found in _GPT2.finditer(text.translate(_SHADOW)))


# How each kind splits text: the components of its file before the model, and the function that does the same.
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
_WHOLE = _BYTE_LEVEL | {"use_regex": False}


def _isolate(pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _WHOLE]}


_SPLITS: dict[str, tuple[dict[str, Any], bool, Callable[[str], Iterator[str]]]] = {  # with `ignore_merges`
    "bpe": (_BYTE_LEVEL | {"use_regex": True}, False, _split_words),
    "words": (_BYTE_LEVEL | {"use_regex": True}, True, _split_words),
    "symbols": (_isolate(SYMBOL), True, lambda text: iter(re.findall(SYMBOL, text))),
    "characters": (_isolate(ANY_CHARACTER), True, iter),
    "bytes": (_WHOLE, False, lambda text: iter([text] if text else [])),
}
_PREPEND = {"type": "Prepend", "prepend": " "}
_DECODER = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
_STRIPPING = {"type": "Sequence", "decoders": [_DECODER, _STRIP]}
_PLAIN_MODEL = {  # settings of a model that this module does not implement, as heedful writes them
    **dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")),
    "fuse_unk": False,
    "byte_fallback": False,
}


@dataclass(frozen=True, slots=True)
class BpeEncoding:
    """What a text became, without EOS."""

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class SpecialPiece:
    """A piece that no text becomes."""

    content: str
    special: bool = True


class ByteLevelBpe:
    """A tokenizer of one of heedful's kinds, with those methods of `tokenizers.Tokenizer` that heedful uses."""

    encode_special_tokens = True  # a literal "</s>" in a text is text

    def __init__(self, data: Mapping[str, Any], kind: str) -> None:
        """`data` is a checked tokenizer.json of this kind; see `find_bpe_kind`."""
        self.kind = kind
        self._data = data
        self._ids, self._merges = read_merges(data["model"])
        self._names = {number: piece for piece, number in self._ids.items()}
        self._specials = {number: SpecialPiece(name) for number, name in enumerate((PAD, EOS))}
        _, self._takes_whole, self._split = _SPLITS[kind]
        self._prefix = " " if data["normalizer"] else ""
        self._characters = byte_characters()
        self._byte_of = {character: byte for byte, character in enumerate(self._characters)}
        self._known: dict[str, list[int]] = {}

    def to_str(self) -> str:
        """The tokenizer.json."""
        return json.dumps(self._data, ensure_ascii=False)

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        """All pieces with their ids."""
        return dict(self._ids) if with_added_tokens else {k: v for k, v in self._ids.items() if k not in (PAD, EOS)}

    def get_added_tokens_decoder(self) -> dict[int, SpecialPiece]:
        """The special pieces by their ids."""
        return self._specials

    def token_to_id(self, token: str) -> int | None:
        """The id of a piece, if there is such a piece."""
        return self._ids.get(token)

    def id_to_token(self, id: int) -> str | None:
        """The piece with this id, if there is one."""
        return self._names.get(id)

    def encode(self, sequence: str, add_special_tokens: bool = False) -> BpeEncoding:
        """The ids of a text, and where in the text each comes from."""
        text = self._prefix + sequence if sequence else ""
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        place = 0  # in the text
        shift = len(self._prefix)
        for word in self._split(text):
            # The character of each byte. The space in front counts as part of the first character.
            owners = [place + index for index, character in enumerate(word) for _ in character.encode()]
            begin = 0
            for number in (found := self._encode_word(word)):
                end = begin + len(self._names[number])
                offsets.append((max(owners[begin] - shift, 0), max(owners[end - 1] + 1 - shift, 1)))
                begin = end
            ids += found
            place += len(word)
        return BpeEncoding(ids, [self._names[number] for number in ids], offsets)

    def encode_batch(self, input: Sequence[str], add_special_tokens: bool = False) -> list[BpeEncoding]:
        """The ids of each text, and where in the text each comes from."""
        return [self.encode(text) for text in input]

    def encode_batch_fast(self, input: Sequence[str], add_special_tokens: bool = False) -> list[BpeEncoding]:
        """The ids of each text, without the rest."""
        found: list[BpeEncoding] = []
        for sequence in input:
            ids: list[int] = []
            for word in self._split(self._prefix + sequence if sequence else ""):
                ids += self._encode_word(word)
            found.append(BpeEncoding(ids, [], []))
        return found

    def decode_batch(self, sequences: Sequence[Sequence[int]], skip_special_tokens: bool = True) -> list[str]:
        """The text of each list of ids; ids without a piece are left out."""
        return [self._decode(ids) for ids in sequences]

    def _decode(self, ids: Sequence[int]) -> str:
        names = [self._names[number] for number in ids if number in self._names and number not in self._specials]
        text = bytes(self._byte_of[character] for name in names for character in name).decode(errors="replace")
        return text.removeprefix(self._prefix) if self._prefix else text

    def _encode_word(self, word: str) -> list[int]:
        if (known := self._known.get(word)) is not None:
            return known
        spelt = "".join(map(self._characters.__getitem__, word.encode()))
        whole = self._ids.get(spelt) if self._takes_whole else None
        ids = [whole] if whole is not None else merge([self._ids[character] for character in spelt], self._merges)
        if len(word) <= MAX_WORD_LENGTH:
            if len(self._known) >= MAX_WORDS:
                self._known.clear()
            self._known[word] = ids
        return ids


def find_bpe_kind(data: Mapping[str, Any]) -> str | None:
    """The kind of a tokenizer.json that `ByteLevelBpe` can read, or None."""
    model = data["model"]
    added = [(token["id"], token["content"], token["special"]) for token in data["added_tokens"]]
    ids = model["vocab"]
    if (
        model["type"] != "BPE"
        or added != [(0, PAD, True), (1, EOS, True)]
        or any(model.get(name) != value for name, value in _PLAIN_MODEL.items())
        or (ids.get(PAD), ids.get(EOS)) != (0, 1)
        or not set(byte_characters()) <= ids.keys()
    ):
        return None
    for kind, (splits, ignores_merges, _) in _SPLITS.items():
        by_characters = kind in ("characters", "bytes")
        before, after = (None, _DECODER) if by_characters else (_PREPEND, _STRIPPING)
        ends = (data.get("normalizer"), data.get("pre_tokenizer"), data.get("decoder"))
        if (*ends, bool(model.get("ignore_merges"))) == (before, splits, after, ignores_merges):
            return kind
    return None


def merge(ids: Sequence[int], merges: Merges, drops: Callable[[], bool] | None = None) -> list[int]:
    """Apply merges, lowest rank first and leftmost first, until none is possible or `drops()` has skipped all of them.

    After each merge, all skipped merges are candidates again, as in algorithm 1 of BPE dropout.
    """
    pieces: list[int | None] = list(ids)
    after = list(range(1, len(pieces) + 1))
    before = list(range(-1, len(pieces) - 1))
    queue: list[tuple[int, int, int, int, int]] = []
    skipped: list[tuple[int, int, int, int, int]] = []

    def offer(left: int, right: int) -> None:
        if left >= 0 and right < len(pieces):
            first, second = pieces[left], pieces[right]
            if first is not None and second is not None and (found := merges.get((first, second))) is not None:
                heapq.heappush(queue, (found[0], left, found[1], first, second))

    for place in range(len(pieces) - 1):
        offer(place, place + 1)
    while queue:
        candidate = heapq.heappop(queue)
        _, left, made, first, second = candidate
        right = after[left]
        if pieces[left] != first or right >= len(pieces) or pieces[right] != second:
            continue  # one of the two has been merged with another piece since
        if drops and drops():
            skipped.append(candidate)
            continue
        pieces[left], pieces[right], after[left] = made, None, after[right]
        if after[left] < len(pieces):
            before[after[left]] = left
        for dropped in skipped:
            heapq.heappush(queue, dropped)
        skipped.clear()
        offer(before[left], left)
        offer(left, after[left])
    return [piece for piece in pieces if piece is not None]


def replay_merges(ids: Sequence[int], merges: Merges) -> list[list[int]]:
    """The pieces before the first merge and after each one: the last list is that of `merge`."""
    stages = [list(ids)]
    while True:
        pieces = stages[-1]
        found = [(merges[pair], place) for place, pair in enumerate(pairwise(pieces)) if pair in merges]
        if not found:
            return stages
        (_, made), place = min(found, key=lambda each: (each[0][0], each[1]))
        stages.append([*pieces[:place], made, *pieces[place + 2 :]])


def read_merges(model: Mapping[str, Any]) -> tuple[dict[str, int], dict[tuple[int, int], tuple[int, int]]]:
    """The id of each piece of a BPE model, and its merges."""
    ids: dict[str, int] = model["vocab"]
    return ids, {
        (ids[left], ids[right]): (rank, ids[left + right]) for rank, (left, right) in enumerate(model["merges"])
    }
