"""Raw text to ids and back. This is the only place where text meets ids."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from heedful.errors import DataError, is_installed, missing_library
from heedful.text.byte_level_bpe import (
    EOS,
    PAD,
    BpeEncoding,
    ByteLevelBpe,
    byte_characters,
    find_bpe_kind,
    read_merges,
    replay_merges,
)
from heedful.text.tokenizer_allowlist import check_tokenizer_json

if TYPE_CHECKING:
    from tokenizers import Encoding
    from tokenizers import Tokenizer as RustTokenizer

CONTINUATION = "##"  # before a piece of a "wordpiece" tokenizer that does not begin a word

PAD_NAMES = (PAD, "[PAD]", "<PAD>", "<|pad|>", "<|finetune_right_pad_id|>")
EOS_NAMES = (EOS, "<eos>", "[EOS]", "<EOS>", "[SEP]", "<|endoftext|>", "<|end_of_text|>", "<|eos|>", "<|im_end|>")
CLS, MASK = "[CLS]", "[MASK]"  # in front of a text that an encoder reads, and in place of a hidden token
CLS_NAMES = (CLS, "<s>", "<cls>")
MASK_NAMES = (MASK, "<mask>")
START = "<|startoftext|>"  # in front of a caption

# A suffix of pieces that no text is split into, because they belong to another language. On its own it stands before
# the pieces that text is split into but for which the model has no ids. See `heedful.text.sentencepiece`. This code
# point is not a character, so no text contains it.
ELSEWHERE = "\ufdd0"

# An Encoding holds offsets, masks and strings besides its ids: a million of them would take gigabytes.
TEXTS_AT_A_TIME = 4096


class Tokenizer:
    """Raw text to ids and back, exactly: `decode(encode(x)) == x` for every valid Unicode text.

    A tokenizer from another program (`kind` "foreign") is only as exact as its normalizer.
    """

    def __init__(self, rust: "RustTokenizer | ByteLevelBpe", origin: str) -> None:
        """Wrap a tokenizer that has a padding and an end-of-sentence piece; `origin` names it in errors."""
        self._rust = rust
        # Otherwise a literal "</s>" in a text would end the sentence. tokenizer.json does not store this setting.
        rust.encode_special_tokens = True
        self._pad_id = _id_of_one(rust, PAD_NAMES, "padding", origin)
        self._eos_id = _id_of_one(rust, EOS_NAMES, "end-of-sentence", origin)
        self._kind = _find_kind(rust)
        pieces = rust.get_vocab(with_added_tokens=True)
        self._size = pieces.get(ELSEWHERE, 1 + max(pieces.values()))
        self._elsewhere = {name[:-1]: number for name, number in pieces.items() if name.endswith(ELSEWHERE)}
        data = json.loads(rust.to_str())
        unknown = _unknown(data["model"])
        self._unknown = pieces.get(unknown or "", -1)  # some models name a piece that they lack
        # Only models of foreign files can turn text into a special id.
        never = _special_ids(rust, unknown) | {self._pad_id, self._eos_id}
        self._never = never if self._kind == "foreign" else frozenset()
        self._shown: dict[int, str] = {}
        self._byte_of = {character: byte for byte, character in enumerate(byte_characters())}
        self._is_byte_level = '"ByteLevel"' in json.dumps(data["decoder"])
        if not isinstance(rust, ByteLevelBpe):
            _append_eos(rust, self._eos_id)

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        """Pickle and copy through JSON, because the Rust object loses settings that are not in its file."""
        return Tokenizer.from_json, (self.to_json(), "a copied tokenizer")

    @property
    def vocabulary_size(self) -> int:
        """The number of ids, including special ones."""
        return self._size

    @property
    def pad_id(self) -> int:
        """The id that fills up a batch and that a decoder starts from."""
        return self._pad_id

    @property
    def eos_id(self) -> int:
        """The id that ends every sentence."""
        return self._eos_id

    def special_id(self, name: str) -> int:
        """The id of the special piece with this name."""
        number = self._rust.token_to_id(name)
        if number is None:
            raise DataError(f"the vocabulary has no piece {name}; train a model with --objective spans from the start")
        return int(number)

    @property
    def cls_id(self) -> int:
        """The id in front of a text that an encoder reads; only vocabularies of encoders have it."""
        return _id_of_one(self._rust, CLS_NAMES, "beginning", "the vocabulary")

    @property
    def mask_id(self) -> int:
        """The id in place of a hidden token; only vocabularies of encoders have it."""
        return _id_of_one(self._rust, MASK_NAMES, "mask", "the vocabulary")

    @property
    def start_id(self) -> int:
        """The id in front of a caption; only vocabularies of captions have it."""
        return _id_of_one(self._rust, (START,), "start", "the vocabulary")

    @property
    def kind(self) -> str:
        """A value of `text.kind`, or "foreign"."""
        return self._kind

    def encode(self, text: str) -> list[int]:
        """The ids of a text and EOS. No text gives another special id, except the unknown id of a foreign file."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode many texts, on all cores."""
        ids: list[list[int]] = []
        for start in range(0, len(texts), TEXTS_AT_A_TIME):
            ids += self._encode_some(list(texts[start : start + TEXTS_AT_A_TIME]))
        return ids

    def encode_stream(self, chunks: Iterable[str]) -> Iterator[list[int]]:
        """The ids of one long text that comes in chunks, without EOS: the same as those of the whole text."""
        by_characters = self._kind in ("characters", "bytes")
        held, inside = "", False
        for chunk in chunks:
            held += chunk
            # Elsewhere, every text gets a space in front. A cut before a space and a word can give one of them back.
            cut = len(held) if by_characters else _last_word(held)
            if self._kind != "foreign" and cut > 0:
                yield self.encode(held[1:cut] if inside and not by_characters else held[:cut])[:-1]
                held, inside = held[cut:], True
        if held:
            yield self.encode(held[1:] if inside and not by_characters else held)[:-1]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end in the text of each id of `encode`; EOS is an empty span at the end."""
        require_unicode([text])
        with rust_errors("this text cannot be encoded"):
            encoding = self._rust.encode(text, add_special_tokens=False)
        found = zip(encoding.ids, encoding.offsets, strict=True)
        return [*(span for number, span in found if number not in self._never), (len(text), len(text))]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of any ids, without PAD and EOS; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_all([ids])[0]

    def decode_all(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Decode many sentences, on all cores."""
        left_out = (self._pad_id, self._eos_id)
        kept = [[number for number in sentence if number not in left_out] for sentence in ids]
        with rust_errors("these ids cannot be decoded"):
            return self._rust.decode_batch(kept, skip_special_tokens=True)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each id in readable form: "▁" for a space, "<0xE4>" for a byte that is only part of a character."""
        for number in ids:
            if number not in self._shown:
                self._shown[number] = self._show(number)
        return [self._shown[number] for number in ids]

    def stages(self, id: int) -> list[list[str]]:
        """How BPE merged this piece: from its characters to the piece itself, in readable form.

        Pieces of other kinds of tokenizers, and special ones, have no stages.
        """
        if self._kind != "bpe" or id in (self._pad_id, self._eos_id):
            return []
        ids, merges = read_merges(json.loads(self.to_json())["model"])
        return [self.pieces(stage) for stage in replay_merges([ids[each] for each in self.piece_at(id)], merges)]

    def piece_at(self, id: int) -> str:
        """The raw entry of the vocabulary."""
        piece = self._rust.id_to_token(id) if id >= 0 else None
        if piece is None:
            raise DataError(f"there is no piece {id} in a vocabulary of {self._size} pieces")
        return piece

    def to_json(self) -> str:
        """The tokenizer.json, which other programs can read, too."""
        return self._rust.to_str()

    def to_plain_json(self) -> str:
        """Like `to_json`, without the pieces for which the model has no ids: other programs would misread them."""
        if not self._elsewhere:
            return self.to_json()
        data = json.loads(self.to_json())
        return json.dumps(data | {"model": data["model"] | {"vocab": data["model"]["vocab"][: self._size]}})

    @classmethod
    def from_json(cls, text: str, origin: str) -> "Tokenizer":
        """Read a tokenizer.json if all of it is on the allow-list; `origin` names it in errors."""
        data = check_tokenizer_json(text, origin)
        if not is_installed("tokenizers"):
            if kind := find_bpe_kind(data):
                return cls(ByteLevelBpe(data, kind), origin)
            raise missing_library(f"{origin}, which is not byte-level BPE,", "tokenizers")
        from tokenizers import Tokenizer as RustTokenizer

        with rust_errors(f"{origin} is not a tokenizer that heedful can use"):
            rust = RustTokenizer.from_str(json.dumps(data))
        return cls(rust, origin)

    def _encode_some(self, texts: list[str]) -> list[list[int]]:
        require_unicode(texts)
        with rust_errors("this text cannot be encoded"):
            if self._elsewhere:  # the fast method does not return the pieces
                encodings = self._rust.encode_batch(texts, add_special_tokens=False)
            else:
                encodings = self._rust.encode_batch_fast(texts, add_special_tokens=False)
        found = [self._known(encoding) if self._elsewhere else encoding.ids for encoding in encodings]
        if self._never:
            found = [[number for number in ids if number not in self._never] for ids in found]
        return [[*ids, self._eos_id] for ids in found]

    def _known(self, encoding: "Encoding | BpeEncoding") -> list[int]:
        """The ids that the model has: an unknown piece may be one of another language, taken whole."""
        found = zip(encoding.ids, encoding.tokens, strict=True)
        return [
            self._elsewhere.get(piece, self._unknown) if number == self._unknown or number > self._size else number
            for number, piece in found
        ]

    def _show(self, number: int) -> str:
        if number == self._eos_id:
            return EOS
        piece = self.piece_at(number).removesuffix(ELSEWHERE)
        if number == self._pad_id or not self._is_byte_level:
            return piece
        if self._kind == "wordpiece":
            piece = piece.removeprefix(CONTINUATION)
        return _show_bytes(piece, self._byte_of)


def _last_word(text: str) -> int:
    """The place of the last space that is followed by a letter; 0 if there is none."""
    place = len(text)
    while (place := text.rfind(" ", 0, place)) > 0:
        if text[place + 1 : place + 2].isalpha():
            return place
    return 0


# surrogateescape turns a stray byte b into U+DC00 + b, which no UTF-8 text contains.
_SHOWN = {0x20: "▁"} | {0xDC00 + byte: f"<0x{byte:02X}>" for byte in range(0x80, 0x100)}


def _show_bytes(piece: str, byte_of: Mapping[str, int]) -> str:
    """A byte-level piece in readable form."""
    if not all(character in byte_of for character in piece):
        return piece  # an added token of a foreign file, which is written as it is
    text = bytes(byte_of[character] for character in piece).decode("utf-8", errors="surrogateescape")
    return text.translate(_SHOWN)


@contextmanager
def rust_errors(context: str) -> Iterator[None]:
    """Turn an error or a panic of the Rust library into a DataError that starts with `context`."""
    try:
        yield
    except BaseException as error:
        if not _is_from_rust(error):
            raise
        raise DataError(f"{context}: {error}") from error


def _is_from_rust(error: BaseException) -> bool:
    # An error arrives as a bare Exception, a panic as a BaseException whose class no module exports.
    return type(error) is Exception or type(error).__name__ == "PanicException"


def first_of(names: Iterable[str], known: Iterable[str]) -> str | None:
    """The first name that is known, or None."""
    known = frozenset(known)
    return next((name for name in names if name in known), None)


def _find_kind(rust: "RustTokenizer | ByteLevelBpe") -> str:
    if isinstance(rust, ByteLevelBpe):
        return rust.kind
    from heedful.text.tokenizer_kinds import find_kind

    return find_kind(rust)


def _append_eos(rust: "RustTokenizer", eos_id: int) -> None:
    """Let other programs that read the file end every sentence as the model expects it."""
    from tokenizers import processors

    eos = rust.id_to_token(eos_id)
    rust.post_processor = processors.TemplateProcessing(f"$A {eos}", special_tokens=[(eos, eos_id)])


def _id_of_one(rust: "RustTokenizer | ByteLevelBpe", names: Sequence[str], role: str, origin: str) -> int:
    specials = [token.content for token in rust.get_added_tokens_decoder().values() if token.special]
    number = rust.token_to_id(first_of(names, specials) or "")
    if number is None:
        raise DataError(
            f"{origin} has no {role} piece such as {names[0]}; name the file as text.tokenizer_file to have it added"
        )
    return number


def _unknown(model: Mapping[str, Any]) -> str | None:
    """The piece that unknown text becomes."""
    name = model["vocab"][model["unk_id"]][0] if model.get("unk_id") is not None else model.get("unk_token")
    return name if isinstance(name, str) else None


def _special_ids(rust: "RustTokenizer | ByteLevelBpe", unknown: str | None) -> frozenset[int]:
    """The ids that no text may become: all special ones except the unknown id."""
    return frozenset(
        number
        for number, token in rust.get_added_tokens_decoder().items()
        if token.special and token.content != unknown
    )


def require_unicode(texts: Sequence[str]) -> None:
    """Refuse half a surrogate pair, which a Python string can hold but UTF-8 cannot."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        stray = ord(error.object[error.start])
        raise DataError(f"a text contains U+{stray:04X}, half of a surrogate pair; remove it") from error
