"""The kinds of tokenizers: how each splits text before its model, and joins pieces after it.

All of this is in tokenizer.json, so that other programs read text as heedful does. Every kind works on bytes, so it
can write any text and needs no unknown piece.
"""

import json
from typing import Any, assert_never, get_args

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as RustTokenizer

from heedful.config.experiment import TokenizerKind
from heedful.text.byte_level_bpe import EOS, PAD
from heedful.text.tokenizer import CONTINUATION
from heedful.text.tokenizer_allowlist import ANY_CHARACTER, STRETCH, SYMBOL


def make_pipeline(kind: TokenizerKind, model: Any) -> RustTokenizer:
    """A tokenizer of this kind around a model, without special pieces."""
    rust = RustTokenizer(model)
    rust.pre_tokenizer = _pre_tokenizer(kind)
    rust.decoder = decoders.ByteLevel()
    if not _is_by_characters(kind):
        # Every text gets a space in front, so that its first word is the same piece as anywhere else. The decoder
        # removes that space and no other. Empty text stays empty.
        rust.normalizer = normalizers.Prepend(" ")
        rust.decoder = decoders.Sequence([*_continuation(kind), decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return rust


def find_kind(rust: RustTokenizer) -> str:
    """The kind of a tokenizer, or "foreign" if heedful did not make it."""
    if (rust.token_to_id(PAD), rust.token_to_id(EOS)) != (0, 1):
        return "foreign"
    ends = _ends(rust)
    return next(
        (kind for kind in get_args(TokenizerKind) if _ends(make_pipeline(kind, empty_model(kind))) == ends), "foreign"
    )


def empty_model(kind: TokenizerKind) -> Any:
    """The model of this kind, with no pieces yet."""
    match kind:
        case "bpe" | "bytes":
            return models.BPE()
        case "words" | "symbols" | "characters":
            return models.BPE(ignore_merges=True)
        case "unigram":
            return models.Unigram()
        case "wordpiece":
            return models.WordPiece()
    assert_never(kind)


def _ends(rust: RustTokenizer) -> tuple[Any, ...]:
    data = json.loads(rust.to_str())
    model = data["model"]
    return data["normalizer"], data["pre_tokenizer"], data["decoder"], model["type"], model.get("ignore_merges")


def _is_by_characters(kind: TokenizerKind) -> bool:
    """Whether no piece is longer than a character, so that a space in front would only cost a position."""
    return kind in ("characters", "bytes")


def _continuation(kind: TokenizerKind) -> list[Any]:
    return [decoders.Replace(CONTINUATION, "")] if kind == "wordpiece" else []


def _pre_tokenizer(kind: TokenizerKind) -> Any:
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    match kind:
        case "bpe" | "unigram" | "words":
            return gpt2
        case "bytes":
            return whole
        case "symbols":
            return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SYMBOL), "isolated"), whole])
        case "characters":
            return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(ANY_CHARACTER), "isolated"), whole])
        case "wordpiece":
            # "#" is a word of its own, so that "##" in a piece is always the mark and never text. Words are cut after
            # 64 bytes, because the model's time grows faster than the square of a word's length.
            hashes = pre_tokenizers.Split("#", "isolated")
            return pre_tokenizers.Sequence([hashes, gpt2, pre_tokenizers.Split(Regex(STRETCH), "isolated")])
    assert_never(kind)
