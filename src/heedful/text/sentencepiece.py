"""SentencePiece models as tokenizers of ours, whose ids a vocabulary of its own gives (as OPUS-MT's `vocab.json` does).

SentencePiece cuts text into pieces. The vocabulary numbers them; it may be shared with another language's pieces, and
it may lack some, which are then unknown. So the pieces of our tokenizer are, in this order:

- those of the vocabulary, by their numbers; one that SentencePiece does not cut text into has `ELSEWHERE` after its
  name, so that no text has it;
- `ELSEWHERE` itself;
- the pieces that SentencePiece cuts text into and the vocabulary lacks.

`Tokenizer` does the rest. The file of a model is a protocol buffer, of which only a few fields are needed. They are
read here, and what comes of them passes the allow-list as any other tokenizer does.
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
# What is read from no text: less than that of any piece, for it is taken only where nothing else could be. A character
# that no piece has gets 10 less than the least, so it costs the same on every way through a text.
_NEVER = -10_000.0


@dataclass(frozen=True, slots=True)
class _Model:
    """What a file says."""

    pieces: Mapping[str, float]  # those that text is cut into, and their scores
    charsmap: bytes
    adds_space: bool
    joins_spaces: bool


def sentencepiece_tokenizer(content: bytes, vocabulary: Mapping[str, int], origin: str) -> Tokenizer:
    """Make a tokenizer of a file's content and the ids of its pieces; `origin` is the file's name in errors."""
    for name in (_EOS, _UNK, _PAD):
        if name not in vocabulary:
            raise DataError(f"the vocabulary of {origin} has no piece {name}; only Marian's can be used")
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
    """Codes, which name a language before the text, are read from text; what is special is not."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": vocabulary[name], "content": name, "special": special, **flags}


def _normalizers(model: _Model) -> Iterator[dict[str, object]]:
    if model.charsmap:
        yield {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(model.charsmap).decode()}
    # The mark is no character, but a text can have it: here it becomes another one that is none.
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
                    raise DataError(f"{origin} has the piece {piece!r} of kind {kind}, which heedful cannot use")
                if kind == _NORMAL:
                    pieces[piece] = score
            elif number == 2:
                training |= _fields(_bytes(value))
            elif number == 3:
                normalising |= _fields(_bytes(value))
    except (IndexError, ValueError, struct.error) as error:
        raise DataError(f"{origin} is not a SentencePiece model, or is damaged ({error})") from error
    if not pieces:
        raise DataError(f"{origin} is not a SentencePiece model: it has no pieces")
    if training.get(3, _UNIGRAM) != _UNIGRAM:
        raise DataError(f"{origin} is not a unigram model, the only kind of SentencePiece's that heedful can use")
    if training.get(24, 0) or not normalising.get(5, 1):
        raise DataError(f"{origin} writes spaces in another way than before a word, which heedful cannot use")
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
    """Give the number and the value of each field of a protocol buffer; values of a fixed size as bytes."""
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
    """Read a number of seven bits a byte, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        value |= (content[place] & 127) << shift
        place += 1
        if content[place - 1] < 128:
            return value, place
    raise ValueError("a number of more than ten bytes")
