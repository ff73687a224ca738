"""Marks in a text stand for special pieces, and leave the pieces around them as they are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tokenizer import KINDS, STEMS, tokenizer

from heedful.config.experiment import TokenizerKind
from heedful.text.marks import encode_with_marks

MARKS = {"[MASK]": 9001, "<extra_id_0>": 9002}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("characters", "bytes", "symbols")])
@given(words=st.lists(st.sampled_from([*STEMS, "größer", "日本", *MARKS]), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_a_mark_between_words_takes_the_place_of_a_word(kind: TokenizerKind, words: list[str]) -> None:
    own = tokenizer(kind)
    expected = [number for word in words for number in ([MARKS[word]] if word in MARKS else own.encode(word)[:-1])]
    assert encode_with_marks(own, " ".join(words), MARKS) == [*expected, own.eos_id]


@pytest.mark.parametrize("kind", ["characters", "bytes"])
def test_where_pieces_are_characters_the_spaces_stay(kind: TokenizerKind) -> None:
    own = tokenizer(kind)
    expected = [*own.encode("kind ")[:-1], 9001, *own.encode(" berg")]
    assert encode_with_marks(own, "kind [MASK] berg", MARKS) == expected


def test_a_mark_may_touch_a_word_another_mark_or_a_sign_that_stands_for_marks() -> None:
    own = tokenizer("bpe")
    found = encode_with_marks(own, "hund[MASK][MASK]en", MARKS)
    assert found[:-1][found.index(9001) : found.index(9001) + 2] == [9001, 9001]
    assert own.decode([number for number in found if number < 9000]).replace(" ", "") == "hunden"
    strange = encode_with_marks(own, "\ue000 [MASK]", MARKS)
    assert own.decode([number for number in strange if number < 9000]).strip() == "\ue000"
    assert strange.count(9001) == 1
