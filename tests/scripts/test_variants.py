"""Words and variants that are made from sentence pairs."""

import random

from hypothesis import given
from hypothesis import strategies as st
from splits import Pairs
from variants import abbreviated, bare, hurried, with_variants
from word_pairs import Cases, word_pairs

_CASES = Cases({"my": "my", "sister": "sister", "haus": "Haus"}), Cases({"meine": "meine", "haus": "Haus"})


def many(pairs: Pairs) -> set[tuple[str, str]]:
    """All variants that a thousand copies of the pairs give."""
    return set(with_variants(1000 * pairs, _CASES, "en")[1000 * len(pairs) :])


def test_a_short_text_is_also_learnt_as_people_type_it() -> None:
    found = many([("Hello!", "Hallo!")])
    assert {("Hello", "Hallo"), ("hello", "Hallo"), ("HELLO!", "HALLO!"), ("Hello.", "Hallo.")} <= found
    assert ("Hello! Hello!", "Hallo! Hallo!") in found
    assert ("Hello! Hello! Hello!", "Hallo! Hallo! Hallo!") in found


def test_both_sides_lose_their_punctuation_and_only_first_words_their_capital() -> None:
    found = many([("My sister?", "Meine Haus?")])
    assert {("My sister", "Meine Haus"), ("my sister", "meine Haus")} <= found


def test_a_sign_has_no_punctuation_to_lose_but_a_capital() -> None:
    assert ("my house", "Haus") in many([("My house", "Haus")])


def test_only_the_source_is_mistyped() -> None:
    mistyped = [source for source, target in many([("Sunday", "Sonntag")]) if target == "Sonntag"]
    assert len(mistyped) > 5
    assert all(len(source) in (5, 6, 7) and source != "Sunday" for source in mistyped)


@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), max_size=20), st.integers(0, 5))
def test_all_pairs_stay_and_the_same_seed_gives_the_same_variants(pairs: Pairs, seed: int) -> None:
    found = with_variants(pairs, _CASES, "en", seed)
    assert found[: len(pairs)] == pairs
    assert found == with_variants(pairs, _CASES, "en", seed)


def test_people_in_a_hurry_leave_out_what_takes_a_second_key() -> None:
    assert hurried("I don't know, 'n' it's 5'.", "en") == "I dont know, 'n' its 5'."
    assert hurried("Größe, Übung", "de") == "Groesse, Uebung"
    assert hurried("¿Dónde está el niño?", "es") == "Donde esta el nino?"
    assert hurried("L'été, où ça ?", "fr") == "L'ete, ou ca ?"
    found = many([("I don't know.", "Ich weiß.")])
    assert {("I dont know.", "Ich weiß."), ("i dont know", "Ich weiß")} <= found


def test_a_chat_has_its_own_words() -> None:
    assert abbreviated("Thank you, are your people going to help?") == "thx, r ur ppl gonna help?"
    assert abbreviated("Youth areas") == "Youth areas"
    assert {("cu!", "Bis dann!"), ("cu", "Bis dann")} <= many([("See you!", "Bis dann!")])


def test_signs_of_spanish_questions_are_punctuation() -> None:
    assert bare("¿Cómo estás?") == "Cómo estás"


def test_words_that_nearly_always_translate_each_other_are_found() -> None:
    draw = random.Random(1)
    words = {"cat": "Katze", "dog": "Hund", "house": "Haus", "tree": "Baum", "sees": "sieht", "the": "das"}
    pairs = []
    for _ in range(300):
        chosen = ["the", *draw.sample(list(words)[:-1], 3)]
        pairs.append((" ".join(chosen), " ".join(words[word] for word in chosen)))
    cases = Cases.of([pair[0] for pair in pairs]), Cases.of([pair[1] for pair in pairs])
    assert dict(word_pairs(pairs, cases)).items() >= words.items() - {("the", "das")}


def test_rare_words_are_left_out() -> None:
    cases = Cases.of([]), Cases.of([])
    assert word_pairs([("rare", "selten")], cases) == []
