"""How texts are cut to lengths, and how outcomes are counted."""

import random

import pytest
from detection import NONE, Sample, cut, gibberish, read_code, tabulate_results, weigh_kinds, window

from heedful.text.languages import Detector, known_languages


def test_texts_are_cut_to_every_length() -> None:
    texts = [f"Das ist der {number}. von allen Sätzen hier." for number in range(12)]
    found = cut(texts, "de", "de", random.Random(1), each=5)
    by_length = {length: [one.text for one in found if one.length == length] for length in {o.length for o in found}}
    assert {length: {len(text.split()) for text in own} for length, own in by_length.items()} == {
        "1 word": {1},
        "3 words": {3},
        "sentence": {8},
        "paragraph": {40},
    }
    assert all(len(own) <= 5 for own in by_length.values())
    assert window("one two", 3, random.Random(1)) == ""


def test_outcomes_are_right_wrong_or_unknown() -> None:
    samples = [
        Sample("Where is the station?", "en", "en", "sentence"),
        Sample("Wo ist der Bahnhof?", "en", "en", "sentence"),  # so that detection is wrong
        Sample("今日はとても暑いです。", "en", "en", "sentence"),
        Sample("今日はとても暑いです。", "ja", "other languages", "sentence"),
        Sample("Where is the station?", NONE, "code", "sentence"),
    ]
    rows = {row["kind"]: row for row in tabulate_results(Detector(known_languages()), samples, ["en", "de"])}
    third = pytest.approx(100 / 3)
    assert {key: rows["en"][key] for key in ("texts", "right", "wrong", "unknown", "wrong and sure")} == {
        "texts": 3,
        "right": third,
        "wrong": third,
        "unknown": third,
        "wrong and sure": third,
    }
    assert (rows["other languages"]["unknown"], rows["code"]["wrong"]) == (100, 100)


def test_weights_add_up_to_one_and_served_texts_to_their_share() -> None:
    samples = [Sample("a", "en", "en", "1 word")] * 3 + [Sample("b", "es", "es", "sentence")] * 2
    weights = weigh_kinds(samples, ["en"])
    assert sum(weights) == pytest.approx(1)
    assert sum(weights[:3]) == pytest.approx(0.8)


def test_code_and_gibberish_are_made() -> None:
    assert len(read_code()) > 1000
    assert all(word.isalpha() for word in gibberish(random.Random(3)).split())
