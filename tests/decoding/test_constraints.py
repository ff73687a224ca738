"""Whatever is demanded of an output is in it, and of all such outputs it is the best that the beam can hold."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search_examples import EOS, PAD, SYMBOLS, Table, log_prob_of, random_table

from heedful.config.experiment import SearchConfig
from heedful.decoding.automaton import START as BEGINNING
from heedful.decoding.automaton import Automaton
from heedful.decoding.beam import beam_search
from heedful.decoding.constraints import Borders, Demand, Phrase
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.length_penalty import length_penalty
from heedful.decoding.search import find
from heedful.errors import ConfigError, DataError, Diverged

WORDS = range(3, 9)
GLUES = frozenset({7, 8})
OPENS = frozenset({5})
BORDERS = Borders(OPENS, GLUES)


def search(
    table: Table,
    demands: list[Demand],
    lengths: list[int],
    config: SearchConfig,
    n_best: int = 1,
    borders: Borders = BORDERS,
) -> list[list[Hypothesis]]:
    sentences = [17 * number + 5 for number in range(len(demands))]
    limits, sources = torch.tensor(lengths), [[sentence] for sentence in sentences]
    return find(
        *(table.step, table.start(sentences), SYMBOLS, limits, config, sources),
        n_best=n_best,
        demands=demands,
        borders=borders,
    )


def has(tokens: tuple[int, ...], phrase: Phrase, borders: Borders) -> bool:
    """Whether an output has a phrase with a border on both sides; worked out in another way than by the search."""
    for at in range(len(tokens)):
        free = at == 0 or tokens[at - 1] in borders.opens
        for way in (phrase.tokens, phrase.close if free else ()):
            after = tokens[at + len(way) : at + len(way) + 1]
            if way and tokens[at : at + len(way)] == way and not borders.glues.intersection(after):
                return True
    return False


# Plain tuples, out of which the tests make phrases and demands: the checks of their types are no part of a strategy.
words = st.lists(st.sampled_from(WORDS), max_size=3).map(tuple)
phrases = st.tuples(st.sampled_from(sorted(set(WORDS) - GLUES)), words, words)
demands = st.tuples(words, st.lists(phrases, max_size=3))

PhraseParts = tuple[int, tuple[int, ...], tuple[int, ...]]
DemandParts = tuple[tuple[int, ...], list[PhraseParts]]


def phrase_of(parts: PhraseParts) -> Phrase:
    first, rest, close = parts
    return Phrase((first, *rest), close)


def demand_of(parts: DemandParts) -> Demand:
    return Demand(parts[0], tuple(map(phrase_of, parts[1])))


configs = st.builds(
    SearchConfig,
    beam=st.integers(1, 4),
    alpha=st.sampled_from([0.0, 1.0]),
    min_length=st.sampled_from([0, 4]),
    no_repeat_ngram=st.sampled_from([0, 1, 2]),
)


def needed(demand: Demand) -> int:
    """Room that is always enough."""
    return len(demand.prefix) + sum(len(phrase.tokens) for phrase in demand.phrases) + 1


# Laws


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 999), parts=st.lists(demands, min_size=1, max_size=3), config=configs, data=st.data())
def test_every_output_has_all_that_is_demanded(
    seed: int, parts: list[DemandParts], config: SearchConfig, data: st.DataObject
) -> None:
    table, asked = random_table(seed, vocabulary=9), [demand_of(part) for part in parts]
    lengths = [needed(demand) + data.draw(st.integers(0, 4)) for demand in asked]
    n_best = data.draw(st.integers(1, config.beam))
    together = search(table, asked, lengths, config, n_best)
    for demand, length, found in zip(asked, lengths, together, strict=True):
        assert 1 <= len(found) <= n_best
        assert [h.score for h in found if h.finished] == sorted((h.score for h in found if h.finished), reverse=True)
        assert len({hypothesis.tokens for hypothesis in found}) == len(found)
        for hypothesis in found:
            said = hypothesis.tokens[:-1] if hypothesis.finished else hypothesis.tokens
            assert said[: len(demand.prefix)] == demand.prefix
            assert all(has(said, phrase, BORDERS) for phrase in demand.phrases)
            assert len(hypothesis.tokens) <= length
            assert not {PAD, EOS}.intersection(said)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 999), parts=st.lists(demands, min_size=2, max_size=4), config=configs)
def test_a_sentence_alone_has_the_same_hypotheses_as_among_others(
    seed: int, parts: list[DemandParts], config: SearchConfig
) -> None:
    table, asked = random_table(seed, vocabulary=9), [demand_of(part) for part in parts]
    lengths = [needed(demand) + 2 for demand in asked]
    together = search(table, asked, lengths, config)
    for number, (demand, length) in enumerate(zip(asked, lengths, strict=True)):
        sentence = 17 * number + 5
        state, limits = table.start([sentence]), torch.tensor([length])
        alone = find(table.step, state, SYMBOLS, limits, config, [[1]], demands=[demand], borders=BORDERS)
        assert [together[number]] == alone


@settings(deadline=None, max_examples=40)
@given(parts=st.lists(phrases, min_size=1, max_size=3), said=st.lists(st.sampled_from(WORDS), max_size=8))
def test_an_automaton_knows_what_is_met_and_how_to_meet_the_rest(parts: list[PhraseParts], said: list[int]) -> None:
    asked = [phrase_of(part) for part in parts]
    automaton, place = Automaton(asked, BORDERS), BEGINNING
    for token in said:
        place = automaton.move(place, token)
    if automaton.left(place) == 0:
        assert all(has(tuple(said), phrase, BORDERS) for phrase in asked)
    while left := automaton.left(place):
        best = min(automaton.wanted(place), key=lambda token: automaton.left(automaton.move(place, token)))
        said, place = [*said, best], automaton.move(place, best)
        assert automaton.left(place) < left
    assert all(has(tuple(said), phrase, BORDERS) for phrase in asked)


# Parity


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize(
    "demand",
    [
        Demand((), (Phrase((4, 3)),)),
        Demand((), (Phrase((3,)), Phrase((4, 4)))),
        Demand((4,), (Phrase((4, 3)),)),
        Demand((3, 4)),
    ],
)
def test_a_beam_that_holds_everything_finds_what_enumeration_finds(alpha: float, demand: Demand) -> None:
    config, most, borders = SearchConfig(beam=400, alpha=alpha), 6, Borders()
    for seed in range(3):
        table = random_table(seed, vocabulary=5)
        endings = [(*said, EOS) for n in range(most) for said in itertools.product((3, 4), repeat=n)]
        wanted = [
            ending
            for ending in endings
            if ending[: len(demand.prefix)] == demand.prefix and all(has(ending, p, borders) for p in demand.phrases)
        ]
        scored = [
            (log_prob_of(table, 5, ending) / length_penalty(float(len(ending)), alpha, "paper"), ending)
            for ending in wanted
        ]
        [found] = search(table, [demand], [most], config, n_best=3, borders=borders)
        assert [hypothesis.tokens for hypothesis in found] == [ending for _, ending in sorted(scored, reverse=True)[:3]]


def test_what_a_plain_beam_has_by_itself_is_found_with_its_own_phrase_demanded() -> None:
    table, plain = random_table(12, vocabulary=30), SearchConfig(beam=2, min_length=5)
    [[best]] = beam_search(table.step, table.start([5]), SYMBOLS, torch.tensor([9]), plain)
    demand, wide = Demand((), (Phrase(best.tokens[1:3]),)), SearchConfig(beam=30, min_length=5)
    [[found]] = search(table, [demand], [9], wide, borders=Borders())
    assert found.score >= best.score - 1e-4


# Examples


def test_a_longer_word_is_not_the_phrase() -> None:
    automaton = Automaton([Phrase((3, 4))], BORDERS)

    def left(*said: int) -> int:
        place = BEGINNING
        for token in said:
            place = automaton.move(place, token)
        return automaton.left(place)

    assert [left(), left(3), left(3, 4), left(3, 4, 7), left(3, 4, 6), left(3, 4, 6, 7)] == [2, 1, 0, 2, 0, 0]


def test_a_phrase_without_its_space_counts_only_where_a_word_may_begin() -> None:
    automaton = Automaton([Phrase((3, 4), close=(7,))], BORDERS)
    place = automaton.move(BEGINNING, 7)
    assert automaton.left(place) == 0
    assert automaton.left(automaton.move(automaton.move(BEGINNING, 6), 7)) == 2
    assert automaton.left(automaton.move(automaton.move(BEGINNING, 5), 7)) == 0


@pytest.mark.parametrize("method", ["sample", "mbr"])
def test_a_prefix_is_held_to_by_every_search(method: str) -> None:
    table, prefix = random_table(5, vocabulary=12), Demand((9, 4, 4))
    variants = (
        SearchConfig(beam=1),
        SearchConfig(beam=3, no_repeat_ngram=1),
        SearchConfig(beam=4, groups=2),
        SearchConfig(method=method, samples=4),  # type: ignore[arg-type]
    )
    for config in variants:
        first, second = search(table, [prefix, Demand()], [8, 8], config)
        assert all(hypothesis.tokens[:3] == (9, 4, 4) for hypothesis in first)
        [alone] = search(table, [prefix], [8], config)
        assert first == alone
        assert second[0].tokens[:3] != (9, 4, 4)


@pytest.mark.parametrize(
    ("demand", "length", "message"),
    [
        (Demand((), (Phrase((3, 4)), Phrase((6,)))), 3, "the pieces that must appear are 3, but an output of this"),
        (Demand((3, 4)), 2, "the pieces that must appear are 2, but an output of this text has room for 1 before"),
        (Demand((3,), (Phrase((3, 4)),)), 2, "the pieces that must appear are 2, but an output of this text has"),
        (Demand((), (Phrase(()),)), 9, "a phrase that must appear is empty; give at least one token"),
        (Demand((), (Phrase((7,)),)), 9, "the phrase [7] begins within a word, so that it cannot be placed"),
        (Demand((3, EOS)), 9, "an output cannot have the token 1 in its midst, but it is asked for"),
        (Demand((), (Phrase((3, PAD)),)), 9, "an output cannot have the token 0 in its midst, but it is asked for"),
    ],
)
def test_what_no_output_can_have_is_refused(demand: Demand, length: int, message: str) -> None:
    with pytest.raises((DataError, ConfigError)) as raised:
        search(random_table(0, vocabulary=9), [demand], [length], SearchConfig())
    assert str(raised.value).startswith(message)


def test_drawing_cannot_hold_to_phrases() -> None:
    with pytest.raises(ConfigError, match=r"^search.method is 'sample' and search.groups is 1, but only plain beam"):
        search(random_table(0, vocabulary=9), [Demand((), (Phrase((3,)),))], [9], SearchConfig(method="sample"))


def test_a_model_that_gives_no_numbers_is_told_of() -> None:
    with pytest.raises(Diverged, match="no numbers"):
        search(Table(torch.full((9, 9), float("nan"))), [Demand((), (Phrase((3,)),))], [9], SearchConfig())
