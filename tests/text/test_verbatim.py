"""Addresses, numbers with units, emoji and placeholders come out as they went in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.text.verbatim import find_verbatim, is_kept, mask_verbatim

PARTS = [
    "https://example.com/a?b=1",
    "www.example.org",
    "tom@example.com",
    "example.com/path",
    "5 km",
    "3.5 kg",
    "20 °C",
]
PARTS += [
    "€50",
    "1,250 m²",
    "12:30",
    "2024-05-01",
    "75 %",
    "😀",
    "👍🏽",
    "❤️",
    "{count}",
    "%s",
    "%(name)s",
    "{{user}}",
    "${HOME}",
]


def parts_of(text: str) -> list[str]:
    return [text[start:end] for start, end in find_verbatim(text)]


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_found_and_nothing_around_it(part: str) -> None:
    assert parts_of(f"See {part} now.") == [part]
    assert parts_of(f"Is it ({part})?") == [part]
    assert parts_of(f"It is {part}, isn't it") == [part]


@pytest.mark.parametrize("text", ["5 dogs", "He left. Then", "in 1999", "a / b", "5 smart men", "100 metres"])
def test_ordinary_words_and_numbers_are_translated(text: str) -> None:
    assert parts_of(text) == []


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=9), st.sampled_from(["", "Tom", "x Paris Tom's"]))
def test_every_part_is_in_the_result_whatever_a_model_makes_of_the_stand_ins(parts: list[str], output: str) -> None:
    text = f"Ab {' cd '.join(parts)} ef."
    masked = mask_verbatim(text)
    assert masked is not None
    assert masked.restore(masked.text) == text or len(parts) > 6
    restored = masked.restore(output)
    assert all(part in restored for part in parts)


def test_stand_ins_are_replaced_wherever_the_model_puts_them() -> None:
    masked = mask_verbatim("Write to a@b.org about 5 km.")
    assert masked is not None
    assert masked.text == "Write to Tom about Paris."
    assert masked.restore("Über Paris schreib Tom!") == "Über 5 km schreib a@b.org!"
    assert masked.restore("Toms Paris.") == "a@b.org 5 km."


def test_a_stand_in_is_never_a_word_of_the_sentence() -> None:
    masked = mask_verbatim("Tom, write to a@b.org.")
    assert masked is not None
    assert masked.text == "Tom, write to Paris."


def test_emoji_at_the_ends_are_cut_off() -> None:
    masked = mask_verbatim("😀 Thank you 🎉🎉")
    assert masked is not None
    assert masked.text == "Thank you"
    assert masked.restore("Danke") == "😀 Danke 🎉🎉"


def test_a_sentence_of_emoji_is_left_to_the_model() -> None:
    assert mask_verbatim("😀") is None
    assert mask_verbatim("Nothing special.") is None


def test_links_count_the_words_of_the_parts() -> None:
    masked = mask_verbatim("😀 It is 5 km away.")
    assert masked is not None
    assert masked.text == "It is Tom away."
    # "Tom" is one word, and stands for two; the emoji is a word, too.
    links = masked.restore_links([(0, 0), (2, 1), (3, 2)], "Es Tom weg.")
    assert links == ((1, 1), (3, 2), (3, 3), (4, 2), (4, 3), (5, 4))


@pytest.mark.parametrize(
    ("text", "translation", "kept"),
    [
        ("5 m long", "5 m lang", True),
        ("5 m long", "15 m lang", False),
        ("5 m long", "5 mm lang", False),
        ("{a} and {a}", "{a} und {a}", True),
        ("{a} and {a}", "{a}", False),
        ("Nothing", "Nichts", True),
    ],
)
def test_a_part_is_kept_if_it_is_there_as_often(text: str, translation: str, kept: bool) -> None:
    assert is_kept(text, translation) is kept


@pytest.mark.timeout(60)
@pytest.mark.parametrize("part", ["a.", "a@", "http://", "www.", "1.", "{", "%", "😀", "1:", "a-", "{{a", "$"])
def test_a_hostile_text_takes_linear_time(part: str) -> None:
    find_verbatim(part * (100_000 // len(part)))
