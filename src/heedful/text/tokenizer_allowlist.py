"""The allow-list for tokenizer.json files.

Such a file is a program: a chain of replacements can fill the memory, and a nested regular expression can panic or
never end. So only the components, patterns and sizes on this page reach the `tokenizers` library.
"""

import base64
import binascii
import json
import math
from typing import Any, NoReturn

from heedful.errors import DataError

ANY_CHARACTER = r"[\s\S]"
SYMBOL = r" [^ ]+| "  # each has a space before it; see `make_pipeline` in tokenizer_kinds.py
STRETCH = r"[\s\S]{1,64}"  # see `wordpiece` in tokenizer_kinds.py
STRETCH_LENGTH = 64

VERSION = "1.0"
MAX_FILE_CHARACTERS = 100_000_000  # the largest public files, with 256 000 pieces, have 35 million
MAX_PIECES = 1_000_000
MAX_MERGES = 2_000_000
MAX_ADDED_TOKENS = 20_000
MAX_COMPONENTS = 16  # of a sequence; the longest in public files have about 8
MAX_STRING = 256
MAX_NUMBER = 1024
MAX_WORD_CHARACTERS = 256  # WordPiece needs at least quadratic time in the length of a word
MAX_EXPANSION = 64  # bytes that a character may be normalised to; NFKC needs at most 33

_KNOWN = {
    "normalizer": (
        *("Sequence", "Prepend", "Replace", "Strip", "StripAccents", "Lowercase", "BertNormalizer", "Precompiled"),
        *("NFC", "NFD", "NFKC", "NFKD", "Nmt"),
    ),
    "pre_tokenizer": (
        *("Sequence", "ByteLevel", "Metaspace", "Split", "BertPreTokenizer", "Whitespace", "WhitespaceSplit"),
        *("Punctuation", "Digits"),
    ),
    "decoder": (
        *("Sequence", "ByteLevel", "Metaspace", "WordPiece", "BPEDecoder", "ByteFallback", "Fuse", "Replace", "Strip"),
    ),
}
_MEMBERS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
_MODELS = ("BPE", "Unigram", "WordLevel", "WordPiece")

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
_PATTERNS = frozenset(
    {
        *(_CLIP, r"<\|startoftext\|>|<\|endoftext\|>|" + _CLIP),
        ANY_CHARACTER,
        SYMBOL,
        STRETCH,
        " {2,}",  # T5, ALBERT, NLLB
        r"\A | \z",  # one space at either end; see sentencepiece.py
        r"\p{N}",
        r"\s+",
        # GPT-2
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST,  # Llama 3
        _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST,  # Qwen 2
    }
)


def check_tokenizer_json(text: str, origin: str) -> dict[str, Any]:
    """Parse a tokenizer.json, and return the parts that heedful uses; an error if one is not on the allow-list.

    Truncation and padding are left out because they change ids silently, and the post-processor because heedful adds
    the end of the sentence itself. A missing decoder is added if the other parts say which.
    """
    data = _parse(text, origin)
    for part in _KNOWN:
        _check_part(part, data.get(part), origin)
    added = data.get("added_tokens", [])
    _check_added_tokens(added, origin)
    model = _check_model(data["model"], origin)
    return {
        "version": VERSION,
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        **{part: data.get(part) for part in _KNOWN},
        "decoder": data.get("decoder") or _find_decoder(data.get("pre_tokenizer"), model),
        "post_processor": None,
        "model": model,
    }


def _find_decoder(pre_tokenizer: dict[str, Any] | None, model: dict[str, Any]) -> dict[str, Any] | None:
    """The decoder that undoes the marks which this pre-tokenizer or model puts into pieces; None if there are none."""
    whole = pre_tokenizer or {}
    for component in whole.get(_MEMBERS["pre_tokenizer"], [whole]):
        match component:
            case {"type": "ByteLevel"}:
                return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
            case {"type": "Metaspace"}:
                return component
    match model:
        case {"type": "WordPiece", "continuing_subword_prefix": str(prefix)} if len(prefix) <= MAX_STRING:
            return {"type": "WordPiece", "prefix": prefix, "cleanup": False}
        case {"type": "BPE", "end_of_word_suffix": str(suffix)} if 0 < len(suffix) <= MAX_STRING:
            return {"type": "BPEDecoder", "suffix": suffix}
    return None


def _parse(text: str, origin: str) -> dict[str, Any]:
    if len(text) > MAX_FILE_CHARACTERS:
        _refuse(origin, f"it has {len(text)} characters, and the limit is {MAX_FILE_CHARACTERS}")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{origin} is not JSON ({error}); give a tokenizer.json") from error
    if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
        raise DataError(f"{origin} is not a tokenizer, because it has no model; give a tokenizer.json")
    if data.get("version") != VERSION:
        found = json.dumps(data.get("version"))[:MAX_STRING]
        raise DataError(f"{origin} has tokenizer version {found}, but heedful reads version {json.dumps(VERSION)}")
    return data


def _refuse(origin: str, reason: str) -> NoReturn:
    raise DataError(f"{origin} is not a tokenizer that heedful can use: {reason}")


def _check_part(part: str, component: object, origin: str) -> None:
    if component is None:
        return
    whole = _known_component(part, component, origin)
    if whole["type"] != "Sequence":
        _check_component(part, whole, origin)
        return
    members = whole.get(_MEMBERS[part])
    if not isinstance(members, list) or len(members) > MAX_COMPONENTS:
        _refuse(origin, f"its {part} is not a sequence of at most {MAX_COMPONENTS} components")
    kinds = [_known_component(part, member, origin)["type"] for member in members]
    if "Sequence" in kinds:
        _refuse(origin, f"its {part} has a sequence inside a sequence")
    if kinds.count("Precompiled") > 1:
        _refuse(origin, f"its {part} has more than one Precompiled")
    for member in members:
        _check_component(part, member, origin)


def _known_component(part: str, component: object, origin: str) -> dict[str, Any]:
    if not isinstance(component, dict) or not isinstance(component.get("type"), str):
        _refuse(origin, f"its {part} is not a component with a type")
    kind = component["type"]
    if kind not in _KNOWN[part]:
        _refuse(origin, f"its {part} is {kind[:MAX_STRING]!r}, and known ones are {', '.join(_KNOWN[part])}")
    return component


def _check_component(part: str, component: dict[str, Any], origin: str) -> None:
    if component["type"] == "Precompiled":
        _check_charsmap(component.get("precompiled_charsmap"), origin)
    for key, value in component.items():
        if key == "pattern":
            _check_pattern(part, value, component.get("content"), origin)
        elif key != "precompiled_charsmap" and not _is_small(value):
            _refuse(origin, f"its {part} has a {key[:MAX_STRING]!r} that is too large or of the wrong type")


def _is_small(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_STRING
    return value is None or (isinstance(value, bool | int | float) and 0 <= value <= MAX_NUMBER)


def _check_pattern(part: str, pattern: object, content: object, origin: str) -> None:
    shown = json.dumps(pattern)[:MAX_STRING]
    match list(pattern.items()) if isinstance(pattern, dict) else []:
        case [("String", str(string))] if 0 < len(string) <= MAX_STRING:
            longest = len(string)
        case [("Regex", str(expression))] if expression in _PATTERNS:
            longest = 1
        case _:
            _refuse(origin, f"its {part} has the pattern {shown}, which is not on the allow-list")
    # In a chain of replacements, each one that makes the text longer multiplies its length.
    if isinstance(content, str) and len(content) > longest:
        _refuse(origin, f"its {part} replaces {shown} with something longer")


def _check_charsmap(charsmap: object, origin: str) -> None:
    """Check the sizes in SentencePiece's compiled map: a length of 4 bytes, a trie, and strings that end in NUL."""
    try:
        raw = base64.b64decode(charsmap if isinstance(charsmap, str) else "", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    trie_size = int.from_bytes(raw[:4], "little")
    if len(raw) < 8 or trie_size % 4 or not 4 <= trie_size <= len(raw) - 4:
        _refuse(origin, "its normalizer has a damaged precompiled_charsmap")
    if max(map(len, raw[4 + trie_size :].split(b"\0"))) > MAX_EXPANSION:
        _refuse(origin, f"its normalizer turns one character into more than {MAX_EXPANSION} bytes")


def _check_added_tokens(tokens: object, origin: str) -> None:
    if not isinstance(tokens, list) or len(tokens) > MAX_ADDED_TOKENS:
        _refuse(origin, f"its added_tokens are not a list of at most {MAX_ADDED_TOKENS}")
    for token in tokens:
        content = token.get("content") if isinstance(token, dict) else None
        if not isinstance(content, str) or not 0 < len(content) <= MAX_STRING:
            _refuse(origin, f"an added token does not have 1 to {MAX_STRING} characters")


def _check_model(model: dict[str, Any], origin: str) -> dict[str, Any]:
    """Check the model, and add its type, which old files leave out."""
    kind = model.get("type") or _guess_type(model)
    if kind not in _MODELS:
        _refuse(origin, f"its model is {str(kind)[:MAX_STRING]!r}, and known ones are {', '.join(_MODELS)}")
    if kind == "Unigram":
        _check_scores(model.get("vocab"), origin)
    else:
        _check_ids(model.get("vocab"), origin)
    merges = model.get("merges", [])
    if not isinstance(merges, list) or len(merges) > MAX_MERGES:
        _refuse(origin, f"its merges are not a list of at most {MAX_MERGES}")
    longest = model.get("max_input_chars_per_word", 1)
    if type(longest) is not int or not 0 < longest <= MAX_WORD_CHARACTERS:
        _refuse(origin, f"max_input_chars_per_word is {str(longest)[:MAX_STRING]}, not 1 to {MAX_WORD_CHARACTERS}")
    # A file can turn on dropout, which would give different ids at every call.
    return {**model, "type": kind} | ({"dropout": None} if kind == "BPE" else {})


def _guess_type(model: dict[str, Any]) -> str:
    if "merges" in model:
        return "BPE"
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    return "WordPiece" if "max_input_chars_per_word" in model else "WordLevel"


def _check_ids(vocab: object, origin: str) -> None:
    if not isinstance(vocab, dict) or not 0 < len(vocab) <= MAX_PIECES:
        _refuse(origin, f"its vocabulary does not have 1 to {MAX_PIECES} pieces")
    if {type(number) for number in vocab.values()} != {int} or set(vocab.values()) != set(range(len(vocab))):
        _refuse(origin, f"the ids of its {len(vocab)} pieces are not 0 to {len(vocab) - 1}")


def _check_scores(vocab: object, origin: str) -> None:
    if not isinstance(vocab, list) or not 0 < len(vocab) <= MAX_PIECES:
        _refuse(origin, f"its vocabulary does not have 1 to {MAX_PIECES} pieces")
    for entry in vocab:
        match entry:
            case [str(), float() | int() as score] if math.isfinite(score):
                pass
            case _:
                _refuse(origin, f"{json.dumps(entry)[:MAX_STRING]} is not a piece and its score")
