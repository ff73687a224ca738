"""Constrained search: outputs contain their required phrases, and are the best that do."""

import itertools
from collections.abc import Sequence
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search_examples import EOS, PAD, SYMBOLS, Clock, Table, by_position, log_prob_of, random_table, table_of

from heedful.config.experiment import SearchConfig
from heedful.decoding.beam import beam_search
from heedful.decoding.constrained import START as BEGINNING
from heedful.decoding.constrained import PhraseAutomaton
from heedful.decoding.hypothesis import Hypothesis, length_penalty
from heedful.decoding.search import run_search
from heedful.decoding.token_constraints import Phrase, TokenConstraints, WordBoundaries
from heedful.errors import ConfigError, DataError, Diverged

WORDS = range(3, 9)
GLUES = frozenset({7, 8})
OPENS = frozenset({5})
ENDINGS = frozenset({8})
BOUNDARIES = WordBoundaries(OPENS, GLUES, ENDINGS)


def search(
    table: Table,
    constraints: list[TokenConstraints],
    lengths: list[int],
    config: SearchConfig,
    n_best: int = 1,
    boundaries: WordBoundaries = BOUNDARIES,
) -> list[list[Hypothesis]]:
    sentences = [17 * number + 5 for number in range(len(constraints))]
    limits, sources = torch.tensor(lengths), [[sentence] for sentence in sentences]
    return run_search(
        *(table.step, table.start(sentences), SYMBOLS, limits, config, sources),
        n_best=n_best,
        constraints=constraints,
        boundaries=boundaries,
    )


def count_phrase(tokens: tuple[int, ...], phrase: Phrase, boundaries: WordBoundaries) -> int:
    """How often an output contains a phrase as whole words, side by side; computed differently from the search."""
    places = []
    for at in range(len(tokens)):
        free = at == 0 or tokens[at - 1] in boundaries.opens
        for way in (phrase.tokens, phrase.close if free else (), phrase.capital if at == 0 else ()):
            end = at + len(way)
            if way and tokens[at:end] == way:
                places += [(end, at)] if not boundaries.glues.intersection(tokens[end : end + 1]) else []
                ending = phrase.inflects and boundaries.endings.intersection(tokens[end : end + 1])
                if ending and not boundaries.glues.intersection(tokens[end + 1 : end + 2]):
                    places.append((end + 1, at))
    count = last = 0
    for end, at in sorted(places):
        if at >= last:
            count, last = count + 1, end
    return count


def has_all(tokens: tuple[int, ...], phrases: Sequence[Phrase], boundaries: WordBoundaries) -> bool:
    return all(count_phrase(tokens, phrase, boundaries) >= phrases.count(phrase) for phrase in phrases)


# Plain tuples: the tests make phrases and constraints from them.
words = st.lists(st.sampled_from(WORDS), max_size=3).map(tuple)
phrases = st.tuples(st.sampled_from(sorted(set(WORDS) - GLUES)), words, words, words, st.booleans())
several = st.lists(phrases, max_size=3) | st.lists(phrases, min_size=1, max_size=1).map(lambda one: one * 2)
constraints = st.tuples(words, several)

PhraseParts = tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]
ConstraintParts = tuple[tuple[int, ...], list[PhraseParts]]


def phrase_of(parts: PhraseParts) -> Phrase:
    first, rest, close, capital, inflects = parts
    return Phrase((first, *rest), close, capital, inflects)


def make_constraints(parts: ConstraintParts) -> TokenConstraints:
    return TokenConstraints(parts[0], tuple(map(phrase_of, parts[1])))


configs = st.builds(
    SearchConfig,
    beam=st.integers(1, 4),
    alpha=st.sampled_from([0.0, 1.0]),
    min_length=st.sampled_from([0, 4]),
    no_repeat_ngram=st.sampled_from([0, 1, 2]),
)


def needed(constraint: TokenConstraints) -> int:
    """A length that is always enough."""
    return len(constraint.prefix) + sum(len(phrase.tokens) for phrase in constraint.phrases) + 1


# Laws


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 999), parts=st.lists(constraints, min_size=1, max_size=3), config=configs, data=st.data())
def test_every_output_contains_its_required_phrases(
    seed: int, parts: list[ConstraintParts], config: SearchConfig, data: st.DataObject
) -> None:
    table, asked = random_table(seed, vocabulary=9), [make_constraints(part) for part in parts]
    lengths = [needed(constraint) + data.draw(st.integers(0, 4)) for constraint in asked]
    n_best = data.draw(st.integers(1, config.beam))
    together = search(table, asked, lengths, config, n_best)
    for constraint, length, found in zip(asked, lengths, together, strict=True):
        assert 1 <= len(found) <= n_best
        assert [h.score for h in found if h.finished] == sorted((h.score for h in found if h.finished), reverse=True)
        assert len({hypothesis.tokens for hypothesis in found}) == len(found)
        for hypothesis in found:
            said = hypothesis.tokens[:-1] if hypothesis.finished else hypothesis.tokens
            assert said[: len(constraint.prefix)] == constraint.prefix
            assert has_all(said, constraint.phrases, BOUNDARIES)
            assert len(hypothesis.tokens) <= length
            assert not {PAD, EOS}.intersection(said)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 999), parts=st.lists(constraints, min_size=2, max_size=4), config=configs)
def test_a_sentence_alone_has_the_same_hypotheses_as_among_others(
    seed: int, parts: list[ConstraintParts], config: SearchConfig
) -> None:
    table, asked = random_table(seed, vocabulary=9), [make_constraints(part) for part in parts]
    lengths = [needed(constraint) + 2 for constraint in asked]
    together = search(table, asked, lengths, config)
    for number, (constraint, length) in enumerate(zip(asked, lengths, strict=True)):
        sentence = 17 * number + 5
        state, limits = table.start([sentence]), torch.tensor([length])
        alone = run_search(
            table.step, state, SYMBOLS, limits, config, [[1]], constraints=[constraint], boundaries=BOUNDARIES
        )
        assert [together[number]] == alone


@settings(deadline=None, max_examples=200)
@given(parts=several.filter(bool), said=st.lists(st.sampled_from(WORDS), max_size=8))
def test_an_automaton_knows_which_phrases_are_met_and_how_to_meet_the_rest(
    parts: list[PhraseParts], said: list[int]
) -> None:
    asked = [phrase_of(part) for part in parts]
    automaton, place = PhraseAutomaton(asked, BOUNDARIES), BEGINNING
    for token in said:
        place = automaton.advance(place, token)
    assert (automaton.remaining(place) == 0) == has_all(tuple(said), asked, BOUNDARIES)
    while left := automaton.remaining(place):
        best = min(
            automaton.continuations(place), key=lambda token: automaton.remaining(automaton.advance(place, token))
        )
        said, place = [*said, best], automaton.advance(place, best)
        assert automaton.remaining(place) < left
    assert has_all(tuple(said), asked, BOUNDARIES)


# Parity


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize(
    "constraint",
    [
        TokenConstraints((), (Phrase((4, 3)),)),
        TokenConstraints((), (Phrase((3,)), Phrase((4, 4)))),
        TokenConstraints((4,), (Phrase((4, 3)),)),
        TokenConstraints((3, 4)),
    ],
)
def test_an_exhaustive_beam_finds_what_enumeration_finds(alpha: float, constraint: TokenConstraints) -> None:
    config, most, boundaries = SearchConfig(beam=400, alpha=alpha), 6, WordBoundaries()
    for seed in range(3):
        table = random_table(seed, vocabulary=5)
        endings = [(*said, EOS) for n in range(most) for said in itertools.product((3, 4), repeat=n)]
        wanted = [
            ending
            for ending in endings
            if ending[: len(constraint.prefix)] == constraint.prefix and has_all(ending, constraint.phrases, boundaries)
        ]
        scored = [
            (log_prob_of(table, 5, ending) / length_penalty(float(len(ending)), alpha, "paper"), ending)
            for ending in wanted
        ]
        [found] = search(table, [constraint], [most], config, n_best=3, boundaries=boundaries)
        assert [hypothesis.tokens for hypothesis in found] == [ending for _, ending in sorted(scored, reverse=True)[:3]]


def test_requiring_a_phrase_of_the_plain_output_finds_one_as_good() -> None:
    table, plain = random_table(12, vocabulary=30), SearchConfig(beam=2, min_length=5)
    [[best]] = beam_search(table.step, table.start([5]), SYMBOLS, torch.tensor([9]), plain)
    constraint, wide = TokenConstraints((), (Phrase(best.tokens[1:3]),)), SearchConfig(beam=30, min_length=5)
    [[found]] = search(table, [constraint], [9], wide, boundaries=WordBoundaries())
    assert found.score >= best.score - 1e-4


# Examples


def test_a_phrase_inside_a_longer_word_does_not_count() -> None:
    automaton = PhraseAutomaton([Phrase((3, 4))], BOUNDARIES)

    def left(*said: int) -> int:
        place = BEGINNING
        for token in said:
            place = automaton.advance(place, token)
        return automaton.remaining(place)

    assert [left(), left(3), left(3, 4), left(3, 4, 7), left(3, 4, 6), left(3, 4, 6, 7)] == [2, 1, 0, 2, 0, 0]


@pytest.mark.parametrize(
    "several",
    [
        [Phrase((6, 3, 6))],
        [Phrase((6, 3, 6, 3, 6))],
        [Phrase((6, 6, 3))],
        [Phrase((4, 6), close=(3, 6))],
        [Phrase((6, 5), close=(3, 5))],
        [Phrase((6, 3, 6)), Phrase((3, 6, 4, 6)[1:])],
        [Phrase((6, 3, 6)), Phrase((6, 3))],
    ],
)
def test_phrases_that_overlap_themselves_or_others_are_found_in_every_output(several: list[Phrase]) -> None:
    boundaries = WordBoundaries(opens=frozenset({5}), glues=frozenset({3}))
    automaton = PhraseAutomaton(several, boundaries)
    states: dict[tuple[int, ...], int] = {(): BEGINNING}
    for length in range(1, 8):
        for said in product((3, 4, 5, 6), repeat=length):
            states[said] = automaton.advance(states[said[:-1]], said[-1])
            expected = has_all(said, several, boundaries)
            assert (automaton.remaining(states[said]) == 0) == expected, said
    assert len(automaton._states) < 60


def test_a_phrase_without_its_space_counts_only_where_a_word_may_begin() -> None:
    automaton = PhraseAutomaton([Phrase((3, 4), close=(7,))], BOUNDARIES)
    place = automaton.advance(BEGINNING, 7)
    assert automaton.remaining(place) == 0
    assert automaton.remaining(automaton.advance(automaton.advance(BEGINNING, 6), 7)) == 2
    assert automaton.remaining(automaton.advance(automaton.advance(BEGINNING, 5), 7)) == 0


def test_an_output_with_its_phrases_may_end_too_early_if_nothing_else_fits() -> None:
    # Only 7 and 8 are likely after the phrase, but they would extend its word, and there is no room for another.
    table = table_of({5: 1.0}, {7: 0.5, 8: 0.4, EOS: 0.1}, {7: 1.0}, vocabulary=9)
    config, required = SearchConfig(beam=1, min_length=3), TokenConstraints((), (Phrase((5,)),))
    [[best]] = run_search(
        *(by_position(table), Clock(0), SYMBOLS, torch.tensor([3]), config, [[1]]),
        constraints=[required],
        boundaries=BOUNDARIES,
    )
    assert best.tokens == (5, EOS)


@pytest.mark.parametrize("method", ["sample", "mbr"])
def test_every_search_keeps_the_prefix(method: str) -> None:
    table, prefix = random_table(5, vocabulary=12), TokenConstraints((9, 4, 4))
    variants = (
        SearchConfig(beam=1),
        SearchConfig(beam=3, no_repeat_ngram=1),
        SearchConfig(beam=4, groups=2),
        SearchConfig(method=method, samples=4),  # type: ignore[arg-type]
    )
    for config in variants:
        first, second = search(table, [prefix, TokenConstraints()], [8, 8], config)
        assert all(hypothesis.tokens[:3] == (9, 4, 4) for hypothesis in first)
        [alone] = search(table, [prefix], [8], config)
        assert first == alone
        assert second[0].tokens[:3] != (9, 4, 4)


@pytest.mark.parametrize(
    ("constraint", "length", "message"),
    [
        (
            TokenConstraints((), (Phrase((3, 4)), Phrase((6,)))),
            3,
            "the required words take 3 pieces, but the translation of",
        ),
        (
            TokenConstraints((3, 4)),
            2,
            "the required words take 2 pieces, but the translation of this text has room for 1;",
        ),
        (
            TokenConstraints((3,), (Phrase((3, 4)),)),
            2,
            "the required words take 2 pieces, but the translation of this text has",
        ),
        (TokenConstraints((), (Phrase(()),)), 9, "a required phrase is empty; give at least one token"),
        (TokenConstraints((), (Phrase((7,)),)), 9, "the required phrase [7] begins within a word; begin it at a word"),
        (TokenConstraints((3, EOS)), 9, "token 1 is required, but no output can contain it; leave it out"),
        (
            TokenConstraints((), (Phrase((3, PAD)),)),
            9,
            "token 0 is required, but no output can contain it; leave it out",
        ),
    ],
)
def test_constraints_that_no_output_can_meet_are_refused(
    constraint: TokenConstraints, length: int, message: str
) -> None:
    with pytest.raises((DataError, ConfigError)) as raised:
        search(random_table(0, vocabulary=9), [constraint], [length], SearchConfig())
    assert str(raised.value).startswith(message)


def test_sampling_cannot_require_phrases() -> None:
    with pytest.raises(ConfigError, match=r"^search.method is 'sample' and search.groups is 1, but only plain beam"):
        search(
            random_table(0, vocabulary=9), [TokenConstraints((), (Phrase((3,)),))], [9], SearchConfig(method="sample")
        )


def test_a_model_that_computes_nan_is_reported() -> None:
    with pytest.raises(Diverged, match="NaN or infinity"):
        search(Table(torch.full((9, 9), float("nan"))), [TokenConstraints((), (Phrase((3,)),))], [9], SearchConfig())
