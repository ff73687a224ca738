"""Learn a tokenizer from text, or reuse an existing tokenizer.json."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, assert_never

from tokenizers import AddedToken, models, trainers
from tokenizers import Tokenizer as RustTokenizer

from heedful.config.experiment import TextConfig, TokenizerKind
from heedful.errors import ConfigError, DataError
from heedful.text.byte_level_bpe import EOS, PAD, byte_characters
from heedful.text.tokenizer import CONTINUATION, EOS_NAMES, PAD_NAMES, Tokenizer, first_of, rust_errors
from heedful.text.tokenizer_allowlist import MAX_FILE_CHARACTERS, STRETCH_LENGTH, check_tokenizer_json
from heedful.text.tokenizer_kinds import empty_model, make_pipeline
from heedful.untrusted_files import read_bytes

SAMPLE_LINES = 2_000_000  # more lines would hardly change a vocabulary


def learn_tokenizer(lines: Iterable[str], config: TextConfig, more: Sequence[str] = ()) -> Tokenizer:
    """Learn a vocabulary from the first `SAMPLE_LINES` lines, which are read once and not kept in memory.

    The same lines give the same tokenizer. Kinds that learn subwords have exactly `vocabulary_size` pieces; "words",
    "symbols", "characters" and "bytes" have at most that many. `more` are special pieces beyond these.
    """
    _require_room(config)
    sample = _require_text(islice(lines, SAMPLE_LINES))
    with rust_errors("no vocabulary could be learnt from this text"):
        model = _learn_model(sample, config)
    rust = make_pipeline(config.kind, model)
    rust.add_special_tokens([PAD, EOS, *more])
    return Tokenizer(rust, "the new tokenizer")


def reuse_tokenizer(path: Path, more: Sequence[str] = ()) -> Tokenizer:
    """Read a tokenizer.json for a new model, and add a padding and an end-of-sentence piece if it lacks them.

    `more` are special pieces that it gets as well.
    """
    try:
        # A link to another folder is fine here: you have named the file yourself.
        text = read_bytes(path.resolve(), 4 * MAX_FILE_CHARACTERS).decode()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); name an existing tokenizer.json") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not JSON (it is not UTF-8); give a tokenizer.json") from error
    data = check_tokenizer_json(text, str(path))
    if data["decoder"] is None and data["model"]["type"] != "WordLevel":  # whole words are joined by spaces
        raise DataError(
            f'{path} has no "decoder", so pieces could not be joined to words; add one with the program that made it, '
            "or leave out text.tokenizer_file"
        )
    return complete_tokenizer(data, str(path), more)


def complete_tokenizer(data: Mapping[str, Any], origin: str, more: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer of a checked tokenizer.json, with a padding and an end-of-sentence piece if it lacks them.

    `more` are special pieces that it gets as well.
    """
    added = _add_pad_and_eos(data["added_tokens"])
    specials = [token["content"] for token in added if token.get("special")]
    stripped = {**data, "added_tokens": [], "model": _hide_specials(data, specials)}
    with rust_errors(f"{origin} is not a tokenizer that heedful can use"):
        rust = RustTokenizer.from_str(json.dumps(stripped))
        rust.add_tokens([_added_token(token) for token in added])
        rust.add_special_tokens(list(more))
    return Tokenizer(rust, origin)


def _smallest(kind: TokenizerKind) -> list[str]:
    """The pieces that every vocabulary of this kind has, in the order of their ids."""
    alphabet = list(byte_characters())
    continued = [CONTINUATION + character for character in alphabet] if kind == "wordpiece" else []
    return [PAD, EOS, *alphabet, *continued]


def _require_room(config: TextConfig) -> None:
    least = len(_smallest(config.kind))
    if config.vocabulary_size < least:
        raise ConfigError(
            f"text.vocabulary_size is {config.vocabulary_size}, but kind '{config.kind}' needs room for every byte; "
            f"set it to at least {least}"
        )


def _require_text(lines: Iterable[str]) -> Iterator[str]:
    """Pass on the lines one by one; an error if none has text."""
    rest = iter(lines)
    first = next((line for line in rest if line), None)
    if first is None:
        raise DataError("there is no text to learn a vocabulary from; name files that have lines with text")
    return chain([first], rest)


def _learn_model(lines: Iterator[str], config: TextConfig) -> Any:
    match config.kind:
        case "bpe":
            return _learn_bpe(lines, config.vocabulary_size)
        case "unigram":
            return _learn_unigram(lines, config.vocabulary_size)
        case "wordpiece":
            return _learn_wordpiece(lines, config.vocabulary_size)
        case "words" | "symbols" | "characters":
            return _learn_whole(lines, config.kind, config.vocabulary_size)
        case "bytes":
            return models.BPE(vocab=_number_pieces(_smallest("bytes")), merges=[])
    assert_never(config.kind)


def _learn_bpe(lines: Iterator[str], size: int) -> Any:
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=_smallest("bpe"),  # one by one, so that neither ids nor ties depend on the order of a hash table
        show_progress=False,
    )
    rust = make_pipeline("bpe", empty_model("bpe"))
    rust.train_from_iterator(lines, trainer)
    _require_pieces(rust.get_vocab_size(), size)
    return rust.model


def _learn_wordpiece(lines: Iterator[str], size: int) -> Any:
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=_smallest("wordpiece"), show_progress=False)
    rust = make_pipeline("wordpiece", empty_model("wordpiece"))
    rust.train_from_iterator(lines, trainer)
    _require_pieces(rust.get_vocab_size(), size)
    # Words are cut after `STRETCH_LENGTH` bytes, so none is too long for the model.
    return models.WordPiece(
        vocab=rust.get_vocab(), continuing_subword_prefix=CONTINUATION, max_input_chars_per_word=STRETCH_LENGTH
    )


def _learn_unigram(lines: Iterator[str], size: int) -> Any:
    trainer = trainers.UnigramTrainer(
        vocab_size=size, special_tokens=[PAD, EOS], initial_alphabet=list(byte_characters()), show_progress=False
    )
    rust = make_pipeline("unigram", empty_model("unigram"))
    rust.train_from_iterator(lines, trainer)
    _require_pieces(rust.get_vocab_size(), size)
    learnt = [(piece, score) for piece, score in json.loads(rust.to_str())["model"]["vocab"] if piece not in (PAD, EOS)]
    return models.Unigram([(PAD, 0.0), (EOS, 0.0), *_make_reproducible(learnt)], unk_id=None, byte_fallback=False)


def _make_reproducible(learnt: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Remove from the scores whatever depends on the order of threads and hash tables.

    The trainer adds in varying order, so the last digits differ. It also orders bytes that it has hardly seen at
    random, each 0.0001 above the one before; here all of them get the lowest score.
    """
    lowest = min(score for _, score in learnt)
    unseen = lowest + 0.0001 * (256 + 1)
    steady = [(piece, round(lowest if len(piece) == 1 and score < unseen else score, 6)) for piece, score in learnt]
    return sorted(steady, key=lambda entry: (-entry[1], entry[0]))


def _learn_whole(lines: Iterator[str], kind: TokenizerKind, size: int) -> Any:
    """The most frequent words or characters are pieces; BPE without merges writes all others in bytes."""
    rust = make_pipeline(kind, models.WordLevel())
    rust.train_from_iterator(lines, trainers.WordLevelTrainer(vocab_size=size, show_progress=False))
    found = rust.get_vocab()
    known = _smallest(kind)
    whole = [piece for piece in sorted(found, key=lambda piece: found[piece]) if len(piece) > 1]
    return models.BPE(vocab=_number_pieces([*known, *whole][:size]), merges=[], ignore_merges=True)


def _number_pieces(pieces: list[str]) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(pieces)}


def _require_pieces(found: int, size: int) -> None:
    if found < size:
        raise DataError(
            f"text.vocabulary_size is {size} but this text has only {found} different pieces; set it to at most {found}"
        )


def _add_pad_and_eos(added: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make sure that a padding and an end-of-sentence token are among the special ones."""
    contents = [token["content"] for token in added]
    wanted = (first_of(PAD_NAMES, contents) or PAD, first_of(EOS_NAMES, contents) or EOS)
    marked = [{**token, "special": True} if token["content"] in wanted else token for token in added]
    return marked + [{"content": name, "special": True} for name in wanted if name not in contents]


def _hide_specials(data: Mapping[str, Any], specials: list[str]) -> dict[str, Any]:
    """Rename special pieces that the model would find in text, so that a literal "</s>" is spelt out instead.

    The special token itself then gets a new id after those of the model.
    """
    model: dict[str, Any] = data["model"]
    # U+FFFF is not a character; even a text that contains it in this place decodes to itself.
    renamed = {name: name + "\uffff" for name in specials if name != model.get("unk_token")}
    if model["type"] == "Unigram":
        unknown = model.get("unk_id")
        entries = enumerate(model["vocab"])
        spelt = [[piece if place == unknown else renamed.get(piece, piece), score] for place, (piece, score) in entries]
        return {**model, "vocab": spelt}
    if model["type"] == "WordLevel" or model.get("ignore_merges"):
        return {**model, "vocab": {renamed.get(piece, piece): number for piece, number in model["vocab"].items()}}
    return model


def _added_token(token: dict[str, Any]) -> AddedToken:
    flags = {
        name: bool(token.get(name, False)) for name in ("single_word", "lstrip", "rstrip", "normalized", "special")
    }
    return AddedToken(token["content"], **flags)
