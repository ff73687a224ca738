"""SentencePiece models with a separate vocabulary of ids, such as OPUS-MT's `vocab.json`, as tokenizers.

SentencePiece splits text into pieces. The vocabulary numbers them; it may also have the pieces of another language, and
it may lack some pieces, which are then unknown. So our tokenizer has these pieces, in this order:

- those of the vocabulary, by number; a piece that SentencePiece never splits text into gets the suffix `ELSEWHERE`, so
  that no text contains it;
- `ELSEWHERE` itself;
- the pieces that SentencePiece splits text into but the vocabulary lacks.

`Tokenizer` does the rest. A model file is a protocol buffer. This module reads the few fields that it needs, and the
result has to pass the allow-list like any other tokenizer.
"""

import base64
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from heedful.errors import DataError
from heedful.text.tokenizer import ELSEWHERE, Tokenizer
from heedful.text.tokenizer_allowlist import VERSION

_UNIGRAM = 1
_NORMAL, _UNKNOWN, _CONTROL, _UNUSED = 1, 2, 3, 5
_SPACE = "▁"
_EOS, _UNK, _PAD = "</s>", "<unk>", "<pad>"
# The score of pieces that no text may become. It is below that of every other piece, so they are chosen only if nothing
# else fits. A character that is in no piece gets 10 less than the lowest score, whichever way the text is split.
_NEVER = -10_000.0


@dataclass(frozen=True, slots=True)
class _Model:
    """The content of a model file."""

    pieces: Mapping[str, float]  # the pieces that text is split into, and their scores
    charsmap: bytes
    adds_space: bool
    joins_spaces: bool


def sentencepiece_tokenizer(content: bytes, vocabulary: Mapping[str, int], origin: str) -> Tokenizer:
    """A tokenizer from the content of a model file and the ids of its pieces; `origin` names the file in errors."""
    for name in (_EOS, _UNK, _PAD):
        if name not in vocabulary:
            raise DataError(f"the vocabulary of {origin} has no piece {name}; give one of a Marian model")
    model = _read(content, origin)
    named = (_EOS, _UNK, _PAD)
    codes = [piece for piece in vocabulary if piece.startswith(">>") and piece.endswith("<<")]
    numbered = sorted(vocabulary, key=lambda piece: vocabulary[piece])
    if [vocabulary[piece] for piece in numbered] != list(range(len(numbered))):
        raise DataError(f"the ids of the {len(numbered)} pieces of {origin} are not 0 to {len(numbered) - 1}")
    entries = [_entry(piece, model, piece in named or piece in codes) for piece in numbered]
    beyond = [(piece, score) for piece, score in model.pieces.items() if piece not in vocabulary]
    return Tokenizer.from_json(
        json.dumps(
            {
                "version": VERSION,
                "added_tokens": [_added(name, vocabulary, special=True) for name in named]
                + [_added(code, vocabulary, special=False) for code in codes],
                "normalizer": {"type": "Sequence", "normalizers": list(_normalizers(model))},
                "decoder": {"type": "Sequence", "decoders": _DECODERS},
                "model": {
                    "type": "Unigram",
                    "unk_id": vocabulary[_UNK],
                    "vocab": [*entries, (ELSEWHERE, 0.0), *beyond],
                    "byte_fallback": False,
                },
            }
        ),
        origin,
    )


def _entry(piece: str, model: _Model, is_named: bool) -> tuple[str, float]:
    if is_named:
        return piece, _NEVER
    score = model.pieces.get(piece)
    return (piece + ELSEWHERE, 0.0) if score is None else (piece, score)


def _added(name: str, vocabulary: Mapping[str, int], special: bool) -> dict[str, object]:
    """Language codes, which stand before the text, are read from text; special tokens are not."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": vocabulary[name], "content": name, "special": special, **flags}


def _normalizers(model: _Model) -> Iterator[dict[str, object]]:
    if model.charsmap:
        yield {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(model.charsmap).decode()}
    # A text can contain the mark, although it is not a character: replace it with another such code point.
    yield _replace({"String": ELSEWHERE}, "\ufffe")
    if model.joins_spaces:
        yield _replace({"Regex": " {2,}"}, " ")
        yield _replace({"Regex": r"\A | \z"}, "")
    if model.adds_space:
        yield {"type": "Prepend", "prepend": _SPACE}
    yield _replace({"String": " "}, _SPACE)


def _replace(pattern: dict[str, str], content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": pattern, "content": content}


_DECODERS = [
    _replace({"String": ELSEWHERE}, ""),
    _replace({"String": _SPACE}, " "),
    {"type": "Fuse"},
    _replace({"Regex": r"\A | \z"}, ""),
]


def _read(content: bytes, origin: str) -> _Model:
    """Read the pieces (1), the training (2) and the normalisation (3) of a model."""
    pieces: dict[str, float] = {}
    training: dict[int, bytes | int] = {}
    normalising: dict[int, bytes | int] = {}
    try:
        for number, value in _fields(content):
            if number == 1:
                piece, score, kind = _piece(dict(_fields(_bytes(value))))
                if kind not in (_NORMAL, _UNKNOWN, _CONTROL, _UNUSED):
                    raise DataError(f"{origin} has the piece {piece!r} of type {kind}, which heedful cannot use")
                if kind == _NORMAL:
                    pieces[piece] = score
            elif number == 2:
                training |= _fields(_bytes(value))
            elif number == 3:
                normalising |= _fields(_bytes(value))
    except (IndexError, ValueError, struct.error) as error:
        raise DataError(f"{origin} is not a SentencePiece model, or it is damaged ({error})") from error
    if not pieces:
        raise DataError(f"{origin} is not a SentencePiece model: it has no pieces")
    if training.get(3, _UNIGRAM) != _UNIGRAM:
        raise DataError(f"{origin} is not a unigram model, the only kind of SentencePiece model that heedful can use")
    if training.get(24, 0) or not normalising.get(5, 1):
        raise DataError(f"{origin} does not write spaces before words, so heedful cannot use it")
    charsmap = _bytes(normalising.get(2, b""))
    return _Model(pieces, charsmap, bool(normalising.get(3, 1)), bool(normalising.get(4, 1)))


def _piece(fields: Mapping[int, bytes | int]) -> tuple[str, float, int]:
    (score,) = struct.unpack("<f", _bytes(fields.get(2, b"\0\0\0\0")))
    kind = fields.get(3, _NORMAL)
    if not isinstance(kind, int):
        raise ValueError("a kind is not a number")
    return _bytes(fields[1]).decode(), score, kind


def _bytes(value: bytes | int) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number is where bytes should be")
    return value


def _fields(content: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Number and value of each field of a protocol buffer; values of fixed size are bytes."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        match key & 7:
            case 0:
                value, place = _varint(content, place)
                yield key >> 3, value
                continue
            case 1 | 5 as kind:
                length = 8 if kind == 1 else 4
            case 2:
                length, place = _varint(content, place)
            case kind:
                raise ValueError(f"a field of kind {kind}")
        if length > len(content) - place:
            raise ValueError("it ends too early")
        yield key >> 3, content[place : place + length]
        place += length


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """A number with seven bits in each byte, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        value |= (content[place] & 127) << shift
        place += 1
        if content[place - 1] < 128:
            return value, place
    raise ValueError("a number of more than ten bytes")
