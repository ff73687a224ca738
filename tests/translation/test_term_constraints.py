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
from heedful.text.constraints import Constraints, encode_term, find_word_boundaries, read_glossary
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
@given(words=st.lists(st.sampled_from([*WORDS, "haus", "haus,", "haushaus"]), max_size=6))
def test_a_term_that_the_automaton_accepts_is_a_whole_word(kind: TokenizerKind, words: list[str]) -> None:
    own, text = tokenizer(kind), " ".join(words)
    encoder = ConstraintEncoder(own, Constraints({"house": "haus"}))
    automaton, place = PhraseAutomaton(encoder.encode("a house").phrases, encoder.boundaries), START
    ids = own.encode(text)
    for number in ids:
        place = automaton.advance(place, number)
    found = re.search(r"(?<!\w)haus(?!\w)", text)
    if automaton.remaining(place) == 0:
        assert found
    if re.search(r"(?:^| )haus(?: |$)", text):  # between spaces, it is encoded like the constraint
        assert automaton.remaining(place) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_boundaries_distinguish_letters_from_other_pieces(kind: TokenizerKind) -> None:
    own = tokenizer(kind)
    opens, glues = find_word_boundaries(own)
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
    assert constraints.find_terms("a house boat") == ["Hausboot"]
    assert constraints.find_terms("a boat, a house boat and a boat") == ["Boot", "Hausboot"]
    assert constraints.find_terms("boats overseen (see)") == ["sehen"]
    assert constraints.find_terms("私は東京に行く") == ["Tokio"]
    assert constraints.find_terms("C++ and C++, but C++x") == ["C++"]
    assert constraints.find_terms("") == []


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
    from tokenizers import normalizers

    own = Tokenizer.from_json(tokenizer("bpe").to_json(), "a copy")
    own._rust.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Prepend(" ")])
    assert encode_term(own, "haus").spaced
    message = r"^the term 'Haus' cannot be required: the model's tokenizer turns it into 'haus'$"
    with pytest.raises(DataError, match=message):
        ConstraintEncoder(own, Constraints({"house": "Haus"}))
