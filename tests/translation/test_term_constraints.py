"""Terms: finding them in a source, encoding them, and requiring them as whole words."""

import random
import re
from functools import cache
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.config.experiment import TextConfig, TokenizerKind
from heedful.decoding.constrained import START, PhraseAutomaton
from heedful.errors import DataError
from heedful.text import Tokenizer
from heedful.text.constraints import (
    Constraints,
    Term,
    encode_term,
    find_missing,
    find_word_boundaries,
    read_glossary,
)
from heedful.text.tokenizer_training import learn_tokenizer
from heedful.translation.pipeline import ConstraintEncoder

KINDS: tuple[TokenizerKind, ...] = get_args(TokenizerKind)
WORDS = ("haus", "hausboot", "boot", "über", "see", "(see)", "am", "ufer", "x-y", "42", "…")


@cache
def tokenizer(kind: TokenizerKind) -> Tokenizer:
    pick = random.Random(7)
    lines = [" ".join(pick.choices(WORDS, k=9)) for _ in range(200)]
    size = {"wordpiece": 540, "unigram": 260}.get(kind, 270)
    return learn_tokenizer(lines, TextConfig(kind=kind, vocabulary_size=size))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("term", ["haus", "Über 42", "x-y", "NATO", "§7 (a)", "東京"])
def test_a_term_is_written_exactly_in_every_position(kind: TokenizerKind, term: str) -> None:
    own, ids = tokenizer(kind), encode_term(tokenizer(kind), term)
    before, bracket = own.encode("am see")[:-1], own.encode("am (")[:-1]
    assert own.decode([*before, *ids.spaced]) == f"am see {term}"
    if ids.close:
        assert own.decode([*bracket, *ids.close]) == f"am ({term}"
        assert own.decode(ids.close) == term


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=25)
@given(
    words=st.lists(st.sampled_from([*WORDS, "haus", "haus,", "haushaus", "hause", "Haus"]), max_size=6),
    times=st.integers(1, 3),
)
def test_a_term_that_the_automaton_accepts_is_there_as_often_as_required(
    kind: TokenizerKind, words: list[str], times: int
) -> None:
    own, text = tokenizer(kind), " ".join(words)
    term = Term("house", "haus")
    encoder = ConstraintEncoder(own, Constraints({term.source: term.target}))
    automaton, place = PhraseAutomaton(encoder.encode_terms([term] * times), encoder.boundaries), START
    ids = own.encode(text)
    for number in ids:
        place = automaton.advance(place, number)
    if automaton.remaining(place) == 0:
        assert not find_missing(text, [term] * times)
    if words.count("haus") >= times:  # between spaces, it is encoded like the constraint
        assert automaton.remaining(place) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_boundaries_distinguish_letters_from_other_pieces(kind: TokenizerKind) -> None:
    own = tokenizer(kind)
    opens, glues, endings = find_word_boundaries(own)
    assert endings <= glues
    for number in range(2, own.vocabulary_size):
        (piece,) = own.pieces([number])
        if re.fullmatch(r"[a-zü0-9]+", piece):
            assert number in glues - opens
        if re.fullmatch(r"▁[a-zü0-9]+", piece):
            assert number not in glues | opens
        if piece in ("(", "▁(", "-", "▁"):
            assert number in opens - glues


def test_a_source_term_counts_as_a_whole_word_and_the_longest_wins() -> None:
    constraints = Constraints({"boat": "Boot", "house boat": "Hausboot", "see": "sehen", "東京": "Tokio", "C++": "C++"})

    def find(text: str) -> list[str]:
        return [term.target for term in constraints.find_terms(text)]

    assert find("a house boat") == ["Hausboot"]
    assert find("a boat, a house boat and a boat") == ["Boot", "Hausboot", "Boot"]
    assert find("boats overseen (see)") == ["sehen"]
    assert find("“See the Boat!” See?") == ["sehen"]  # with a capital only at the beginning
    assert find("私は東京に行く") == ["Tokio"]
    assert find("C++ and C++, but Cxx") == ["C++", "C++"]
    assert find("") == []


@pytest.mark.parametrize(
    ("translation", "times", "missing"),
    [
        ("Das Tier und die Tiere.", 2, 0),
        ("Das Tier.", 2, 1),
        ("Die Tierhandlung.", 1, 1),  # a compound is another word
        ("Ein Stofftier, ein Untier.", 1, 1),
        ("tier", 1, 1),
    ],
)
def test_a_term_may_have_an_ending_and_is_counted(translation: str, times: int, missing: int) -> None:
    assert len(find_missing(translation, [Term("animal", "Tier")] * times)) == missing


def test_a_name_has_no_ending_and_a_word_may_begin_the_sentence() -> None:
    assert find_missing("ACMEs Büro", [Term("ACME", "ACME")])
    assert not find_missing("(ACME) ist da.", [Term("ACME", "ACME")])
    assert not find_missing("« Maison à vendre »", [Term("house", "maison")])
    assert find_missing("La Maison", [Term("house", "maison")])


@given(
    st.lists(st.sampled_from(["boat", "house boat", "house", "boats", "x"]), max_size=6),
    st.sampled_from([" ", ", ", " (", "-"]),
)
def test_there_is_a_term_for_every_occurrence(words: list[str], glue: str) -> None:
    found = Constraints({"boat": "Boot", "house boat": "Hausboot"}).find_terms(glue.join(words))
    text = glue.join(words)
    longest = len(re.findall(r"(?<!\w)house boat(?!\w)", text))
    assert [term.target for term in found].count("Hausboot") == longest
    assert [term.target for term in found].count("Boot") == len(re.findall(r"(?<!\w)boat(?!\w)", text)) - longest


def test_a_glossary_has_two_columns() -> None:
    lines = ["house\tHaus", "", " tree \t Baum ", "house\tHaus"]
    assert read_glossary(lines, "terms.tsv") == {"house": "Haus", "tree": "Baum"}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a\tb", "c"], "t.tsv, line 2 must be a source term, a tab and a target term, but is 'c'"),
        (["a\tb\tc"], "t.tsv, line 1 must be a source term, a tab and a target term, but is 'a\\tb\\tc'"),
        (["a\t "], "t.tsv, line 1 must be a source term, a tab and a target term, but is 'a\\t '"),
        (["a\tb", "a\tc"], "t.tsv, line 2: 'a' has a different translation above; keep one of them"),
    ],
)
def test_a_malformed_glossary_is_refused(lines: list[str], message: str) -> None:
    with pytest.raises(DataError) as raised:
        read_glossary(lines, "t.tsv")
    assert str(raised.value) == message


def test_a_term_that_the_tokenizer_would_change_is_refused() -> None:
    from tokenizers import Tokenizer as RustTokenizer
    from tokenizers import normalizers

    own = Tokenizer.from_json(tokenizer("bpe").to_json(), "a copy")
    assert isinstance(own._rust, RustTokenizer)
    own._rust.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Prepend(" ")])
    assert encode_term(own, "haus").spaced
    message = r"^the term 'Haus' cannot be required: the model's tokenizer turns it into 'haus'$"
    with pytest.raises(DataError, match=message):
        ConstraintEncoder(own, Constraints({"house": "Haus"}))
