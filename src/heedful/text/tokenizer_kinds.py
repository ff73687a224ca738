"""How each kind of tokenizer cuts text into words before the model, and joins pieces after it.

All of it stands in tokenizer.json, so that other programs read text as heedful does. Every kind is over bytes: there
is no text that it cannot write, and so no unknown piece.
"""

import json
from typing import Any, assert_never, get_args

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as RustTokenizer

from heedful.config.experiment import TokenizerKind
from heedful.text.tokenizer_allowlist import ANY_CHARACTER, STRETCH, SYMBOL

PAD = "<pad>"
EOS = "</s>"
CONTINUATION = "##"


def shell(kind: TokenizerKind, model: Any) -> RustTokenizer:
    """Put a model between the two ends of its kind; it has no special pieces yet."""
    rust = RustTokenizer(model)
    rust.pre_tokenizer = _pre_tokenizer(kind)
    rust.decoder = decoders.ByteLevel()
    if not _is_by_characters(kind):
        # One space more before every text, so that a first word is the same piece as anywhere else; the decoder takes
        # away that one and no other. Empty text stays empty.
        rust.normalizer = normalizers.Prepend(" ")
        rust.decoder = decoders.Sequence([*_continuation(kind), decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return rust


def kind_of(rust: RustTokenizer) -> str:
    """Tell which kind of ours a tokenizer is, or "foreign"."""
    if (rust.token_to_id(PAD), rust.token_to_id(EOS)) != (0, 1):
        return "foreign"
    ends = _ends(rust)
    return next((kind for kind in get_args(TokenizerKind) if _ends(shell(kind, empty_model(kind))) == ends), "foreign")


def empty_model(kind: TokenizerKind) -> Any:
    """Give the model of this kind with nothing in it."""
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
    """Whether no piece is longer than a character, so that a space before the text would only cost a position."""
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
            # "#" stands alone, so that a "##" in a piece is always the mark and never text. Words are cut after 64
            # bytes because the model's time grows with more than the square of a word.
            hashes = pre_tokenizers.Split("#", "isolated")
            return pre_tokenizers.Sequence([hashes, gpt2, pre_tokenizers.Split(Regex(STRETCH), "isolated")])
    assert_never(kind)
