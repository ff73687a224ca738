import copy
import pickle
import random
from functools import cache
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as RustTokenizer

from heedful.config.experiment import TextConfig, TokenizerKind
from heedful.errors import DataError
from heedful.text import Tokenizer
from heedful.text.byte_level_bpe import byte_characters
from heedful.text.tokenizer_training import learn_tokenizer

KINDS: tuple[TokenizerKind, ...] = get_args(TokenizerKind)
STEMS = ("über", "gross", "hund", "läuf", "spiel", "wasser", "straße", "kind", "blau", "schnell", "berg", "stadt")
ENDINGS = ("", "e", "en", "er", "ung", "lich", "#1", "s,", "!", " 42")


def corpus() -> list[str]:
    pick = random.Random(7)
    words = [stem + ending for stem in STEMS for ending in ENDINGS]
    return [" ".join(pick.choices(words, k=9)) for _ in range(230)]


@cache
def tokenizer(kind: TokenizerKind) -> Tokenizer:
    size = 570 if kind == "wordpiece" else 283
    return learn_tokenizer(corpus(), TextConfig(kind=kind, vocabulary_size=size))


def any_text() -> st.SearchStrategy[str]:
    """Unicode of all sorts, and strings that are likely to be special in some tokenizer."""
    marks = st.sampled_from(
        ["</s>", "<pad>", "##", "#", "[UNK]", "▁", "Ġ", " ", "  ", "\n", "\t", "\x1c", "\u3000", "'s"]
    )
    return st.lists(st.one_of(st.text(max_size=9), marks, st.sampled_from(STEMS)), max_size=7).map("".join)


@pytest.mark.parametrize("kind", KINDS)
@given(text=any_text())
@settings(max_examples=150, deadline=None)
@example(text="")
@example(text=" ")
@example(text=" x")
@example(text="x  ")
@example(text="x</s>y<pad>")
@example(text="a##b ###c# ##")
@example(text="\x00\ufeff\uffff\U0010ffff")
@example(text="x" * 3001)
def test_every_text_round_trips_and_its_only_special_id_is_the_last(kind: TokenizerKind, text: str) -> None:
    ids = tokenizer(kind).encode(text)
    assert tokenizer(kind).decode(ids) == text
    assert ids[-1] == 1
    assert not {0, 1} & set(ids[:-1])
    assert max(ids) < tokenizer(kind).vocabulary_size


@pytest.mark.parametrize("kind", KINDS)
@given(chunks=st.lists(any_text(), max_size=4))
@settings(max_examples=150, deadline=None)
@example(chunks=["a  b", " c", "d \n e"])
@example(chunks=["", " x", "x "])
@example(chunks=[" a", "b##c #", "d 's"])
def test_a_text_that_comes_in_chunks_has_the_ids_of_the_whole(kind: TokenizerKind, chunks: list[str]) -> None:
    streamed = [number for ids in tokenizer(kind).encode_stream(chunks) for number in ids]
    assert streamed == tokenizer(kind).encode("".join(chunks))[:-1]


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁<"), max_size=30))
@settings(max_examples=60, deadline=None)
def test_pieces_join_to_the_text(kind: TokenizerKind, text: str) -> None:
    shown = "".join(tokenizer(kind).pieces(tokenizer(kind).encode(text)))
    lead = "" if kind in ("characters", "bytes") or not text else "▁"
    assert shown.endswith("</s>")
    assert _spelt(shown.removesuffix("</s>")) == (lead + text).replace(" ", "▁").encode()


def _spelt(shown: str) -> bytes:
    """Read "<0xE4>" as that byte again."""
    first, *rest = shown.split("<0x")
    return first.encode() + b"".join(bytes.fromhex(part[:2]) + part[3:].encode() for part in rest)


@pytest.mark.parametrize("kind", KINDS)
@given(ids=st.lists(st.integers(0, 569), max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_ids_decode_without_an_error_or_a_lost_byte(kind: TokenizerKind, ids: list[int]) -> None:
    known = [number for number in ids if number < tokenizer(kind).vocabulary_size]
    text = tokenizer(kind).decode(known)
    inner = [number for number in known if number > 1]
    spelt = b"".join(_bytes_of(tokenizer(kind).piece_at(number), kind) for number in inner)
    space = b"" if kind in ("characters", "bytes") else b" "
    assert text == spelt.removeprefix(space).decode(errors="replace")


def _bytes_of(piece: str, kind: TokenizerKind) -> bytes:
    characters = byte_characters()
    return bytes(
        characters.index(character) for character in (piece.replace("##", "") if kind == "wordpiece" else piece)
    )


def test_the_byte_alphabet_is_the_one_of_the_library() -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    cut = ByteLevel(add_prefix_space=False, use_regex=False)
    assert set(byte_characters()) == set(ByteLevel.alphabet())
    assert [cut.pre_tokenize_str(chr(byte))[0][0] for byte in range(128)] == list(byte_characters()[:128])


@pytest.mark.parametrize("kind", KINDS)
def test_json_gives_the_same_tokenizer_again(kind: TokenizerKind) -> None:
    first = tokenizer(kind)
    again = Tokenizer.from_json(first.to_json(), "tokenizer.json")
    text = "Hund</s> <pad> ##läufer 字"
    assert again.to_json() == first.to_json()
    assert (again.kind, again.vocabulary_size, again.pad_id, again.eos_id) == (kind, first.vocabulary_size, 0, 1)
    assert again.encode(text) == first.encode(text)


@pytest.mark.parametrize("kind", KINDS)
def test_other_programs_read_the_same_ids_from_the_plain_file(kind: TokenizerKind) -> None:
    rust = RustTokenizer.from_str(tokenizer(kind).to_json())
    for text in ("", " über hundert", "Straße #1!", "x"):
        ids = tokenizer(kind).encode(text)
        assert rust.encode(text).ids == ids
        assert rust.decode(ids) == text


def test_a_copy_still_reads_special_strings_as_text() -> None:
    first = tokenizer("bpe")
    for again in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert again.encode("a</s><pad>b") == first.encode("a</s><pad>b")


@pytest.mark.parametrize("kind", KINDS)
def test_many_texts_are_encoded_and_decoded_like_one_at_a_time(kind: TokenizerKind) -> None:
    texts = ["", *corpus()[:5], " </s>", "字"]
    together = tokenizer(kind).encode_all(texts)
    assert together == [tokenizer(kind).encode(text) for text in texts]
    assert tokenizer(kind).decode_all(together) == texts
    assert tokenizer(kind).encode_all([]) == []
    assert tokenizer(kind).decode_all([]) == []


def test_more_texts_than_fit_in_one_batch_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.text.tokenizer.TEXTS_AT_A_TIME", 3)
    assert tokenizer("bytes").decode_all(tokenizer("bytes").encode_all(list("abcdefgh"))) == list("abcdefgh")


def test_empty_text_is_only_eos() -> None:
    assert [tokenizer(kind).encode("") for kind in KINDS] == [[1]] * len(KINDS)


def test_a_first_word_is_the_same_piece_as_anywhere_else() -> None:
    for kind in ("bpe", "unigram", "wordpiece", "words", "symbols"):
        ids = tokenizer(kind).encode("hunden hunden")
        half = (len(ids) - 1) // 2
        assert ids[:half] == ids[half:-1]


def test_padding_and_eos_are_left_out_of_the_text_wherever_they_are() -> None:
    ids = tokenizer("bpe").encode("kind am berg")
    assert tokenizer("bpe").decode([0, 1, *ids, 0, 0, 1]) == "kind am berg"


def test_pieces_show_spaces_ends_and_parts_of_characters() -> None:
    bytewise = tokenizer("bytes")
    assert bytewise.pieces([*bytewise.encode("a ß"), 0]) == ["a", "▁", "<0xC3>", "<0x9F>", "</s>", "<pad>"]
    words = tokenizer("words")
    assert words.pieces(words.encode("über straße")) == ["▁über", "▁straße", "</s>"]
    assert words.piece_at(words.encode("über")[0]) == "ĠÃ¼ber"


def test_wordpieces_inside_a_word_are_shown_without_their_mark() -> None:
    pieces = tokenizer("wordpiece")
    ids = pieces.encode("xyz")
    assert pieces.pieces(ids) == ["▁", "x", "y", "z", "</s>"]
    assert [pieces.piece_at(number) for number in ids[:3]] == ["Ġ", "##x", "##y"]


@pytest.mark.parametrize("number", [258, -1])
def test_an_id_outside_the_vocabulary_is_an_error_that_names_it(number: int) -> None:
    with pytest.raises(DataError, match=f"^there is no piece {number} in a vocabulary of 258 pieces$"):
        tokenizer("bytes").piece_at(number)


def test_half_of_a_surrogate_pair_is_an_error_that_names_it() -> None:
    with pytest.raises(DataError, match=r"^a text contains U\+D83D, half of a surrogate pair; remove it$"):
        tokenizer("bpe").encode_all(["fine", "x\ud83d"])
