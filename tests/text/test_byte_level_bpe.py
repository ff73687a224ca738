"""Byte-level BPE in Python equals the `tokenizers` library on every file that it accepts."""

import json
import random
import sys
import unicodedata
from functools import cache
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import pre_tokenizers

from heedful.config.experiment import TextConfig, TokenizerKind
from heedful.errors import ConfigError
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder
from heedful.text import Tokenizer, byte_level_bpe
from heedful.text.byte_level_bpe import ByteLevelBpe, find_bpe_kind, merge, replay_merges
from heedful.text.tokenizer_training import learn_tokenizer

BPE_KINDS: tuple[TokenizerKind, ...] = ("bpe", "words", "symbols", "characters", "bytes")
TEXTS = st.text(max_size=40) | st.text(alphabet=" \t\n'sdre1²Ⅷaé\u00a0\u200b日🎉\x1c", max_size=40)


@cache
def file(kind: TokenizerKind) -> str:
    """A tokenizer.json of this kind."""
    pick = random.Random(5)
    words = [stem + end for stem in ("über", "hund", "straße", "don't", "1985", "blau") for end in ("", "e", "s!", "³")]
    lines = [" ".join(pick.choices(words, k=7)) for _ in range(190)]
    size = {"wordpiece": 540, "unigram": 262}.get(kind, 287)
    return learn_tokenizer(lines, TextConfig(kind=kind, vocabulary_size=size)).to_json()


@cache
def both(kind: TokenizerKind) -> tuple[Tokenizer, Tokenizer]:
    """The same file, read in Python and by the library."""
    return Tokenizer(ByteLevelBpe(json.loads(file(kind)), kind), "ours"), Tokenizer.from_json(file(kind), "theirs")


def test_exactly_the_kinds_that_are_bpe_are_read() -> None:
    for kind in get_args(TokenizerKind):
        assert find_bpe_kind(json.loads(file(kind))) == (kind if kind in BPE_KINDS else None)


@pytest.mark.parametrize("change", ["dropout", "added", "normalizer", "byte"])
def test_a_file_that_differs_is_left_to_the_library(change: str) -> None:
    data = json.loads(file("bpe"))
    match change:
        case "dropout":
            data["model"]["dropout"] = 0.1
        case "added":
            data["added_tokens"].append(data["added_tokens"][0] | {"id": 5, "content": "x"})
        case "normalizer":
            data["normalizer"] = {"type": "NFC"}
        case "byte":
            data["model"]["vocab"]["?"] = data["model"]["vocab"].pop("a")
    assert find_bpe_kind(data) is None


@pytest.mark.parametrize("kind", BPE_KINDS)
@given(text=TEXTS)
@settings(max_examples=200, deadline=None)
def test_ids_spans_and_texts_are_those_of_the_library(kind: TokenizerKind, text: str) -> None:
    text = text.encode(errors="ignore").decode()
    ours, theirs = both(kind)
    ids = theirs.encode(text)
    assert ours.encode(text) == ids
    assert ours.spans(text) == theirs.spans(text)
    assert ours.pieces(ids) == theirs.pieces(ids)
    assert ours.decode(ids) == theirs.decode(ids) == text


@pytest.mark.parametrize("kind", BPE_KINDS)
@given(ids=st.lists(st.integers(0, 400)))
@settings(max_examples=100, deadline=None)
def test_any_ids_have_the_text_that_the_library_gives_them(kind: TokenizerKind, ids: list[int]) -> None:
    ours, theirs = both(kind)
    assert ours.decode(ids) == theirs.decode(ids)


@pytest.mark.parametrize("kind", BPE_KINDS)
def test_it_describes_itself_as_the_library_does(kind: TokenizerKind) -> None:
    ours, theirs = both(kind)
    for name in ("kind", "vocabulary_size", "pad_id", "eos_id"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert json.loads(ours.to_json()) == json.loads(theirs.to_json())
    assert RustTokenizer.from_str(ours.to_json()).to_str() == RustTokenizer.from_str(theirs.to_json()).to_str()


def test_every_character_that_python_knows_is_of_the_same_class() -> None:
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    classes = [unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1)]
    rare = {"Lo": 11, "Co": 1013}  # ideographs and private use: large blocks of one class, so not each of them
    known = [
        chr(code)
        for code, found in enumerate(classes)
        if found not in ("Cs", "Cn") and (code % rare.get(found, 1) == 0 or classes[code - 1] != found)
    ]
    for start in range(0, len(known), 300):
        text = "".join(f"a{character}5{character} \n" for character in known[start : start + 300])
        lengths = [end - begin for _, (begin, end) in gpt2.pre_tokenize_str(text)]
        assert [len(word) for word in byte_level_bpe._split_words(text)] == lengths


def test_the_cache_of_words_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_level_bpe, "MAX_WORDS", 3)
    ours, theirs = both("bpe")
    lines = ["one two three four five six", "x" * 100]
    assert ours.encode_all(lines) == theirs.encode_all(lines)
    assert len(ours._rust._known) <= 3  # type: ignore[union-attr]


def test_without_the_library_other_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own, foreign = file("bpe"), file("unigram")
    wanted = Tokenizer.from_json(own, "theirs").encode("ein hund")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert Tokenizer.from_json(own, "mine").encode("ein hund") == wanted
    sentence = (
        "mine, which is not byte-level BPE, needs tokenizers, which is not installed; run: pip install tokenizers"
    )
    with pytest.raises(ConfigError, match=f"^{sentence}$"):
        Tokenizer.from_json(foreign, "mine")


def test_the_stages_of_a_piece_begin_with_its_characters_and_end_with_itself() -> None:
    tokenizer = RunFolder.open(find_model("en-de")).tokenizers().source
    for number in tokenizer.encode("The animal crossed the street.")[:-1]:
        stages = tokenizer.stages(number)
        assert stages[-1] == tokenizer.pieces([number])
        assert all(len(piece) == 1 for piece in stages[0])
        assert [len(stage) for stage in stages] == list(range(len(stages[0]), 0, -1))
    assert tokenizer.stages(tokenizer.eos_id) == []


def test_replaying_merges_ends_where_merging_does() -> None:
    merges = {(2, 3): (1, 5), (3, 4): (0, 6), (5, 6): (2, 7), (2, 6): (3, 8)}
    for ids in ([2, 3, 4], [2, 3, 2, 3, 4], [4, 3, 2], [2], []):
        assert replay_merges(ids, merges)[-1] == merge(ids, merges)
    assert replay_merges([2, 3, 4], merges) == [[2, 3, 4], [2, 6], [8]]
