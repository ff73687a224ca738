"""Diverse beam search, and ensembles."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search_examples import EOS, SYMBOLS, Clock, Table, by_position, log_prob_of, random_table, table_of

from heedful.config.experiment import SearchConfig
from heedful.decoding.beam import beam_search
from heedful.decoding.diverse import diverse_search
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.step_function import EnsembleState, make_ensemble_step
from heedful.errors import ConfigError


def diverse(
    table: Table, sentences: list[int], lengths: list[int], config: SearchConfig, n_best: int = 1
) -> list[list[Hypothesis]]:
    state, limits = table.start(sentences), torch.tensor(lengths)
    return diverse_search(table.step, state, SYMBOLS, limits, config, n_best=n_best)


def beam(
    table: Table, sentences: list[int], lengths: list[int], config: SearchConfig, n_best: int
) -> list[list[Hypothesis]]:
    state, limits = table.start(sentences), torch.tensor(lengths)
    return beam_search(table.step, state, SYMBOLS, limits, config, n_best=n_best)


configs = st.builds(
    lambda groups, width, **rest: SearchConfig(beam=groups * width, groups=groups, **rest),
    st.integers(1, 3),
    st.integers(1, 3),
    diversity=st.sampled_from([0.0, 0.5, 5.0]),
    alpha=st.sampled_from([0.0, 1.0]),
    no_repeat_ngram=st.sampled_from([0, 2]),
)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 999), config=configs, lengths=st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_groups_give_ordered_distinct_outputs_that_do_not_depend_on_the_batch(
    seed: int, config: SearchConfig, lengths: list[int]
) -> None:
    table, sentences = random_table(seed, vocabulary=9), [29 * number + 2 for number in range(len(lengths))]
    found = diverse(table, sentences, lengths, config, config.beam)
    for sentence, length, several in zip(sentences, lengths, found, strict=True):
        assert diverse(table, [sentence], [length], config, config.beam) == [several]
        finished = [hypothesis for hypothesis in several if hypothesis.finished]
        assert several[: len(finished)] == finished
        assert [h.score for h in finished] == sorted((h.score for h in finished), reverse=True)
        assert len({hypothesis.tokens for hypothesis in several}) == len(several)
        for hypothesis in several:  # diversity changes no score
            expected = log_prob_of(table, sentence, hypothesis.tokens, config.no_repeat_ngram)
            assert hypothesis.log_prob == pytest.approx(expected, abs=1e-4)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 999), width=st.integers(2, 4), lengths=st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_one_group_is_plain_beam_search(seed: int, width: int, lengths: list[int]) -> None:
    table, sentences = random_table(seed, vocabulary=9), list(range(len(lengths)))
    config = SearchConfig(beam=width, diversity=3.0)
    assert diverse(table, sentences, lengths, config, width) == beam(table, sentences, lengths, config, width)


def test_without_diversity_all_groups_find_the_same_outputs() -> None:
    table, config = random_table(4, vocabulary=9), SearchConfig(beam=6, groups=3)
    narrow = SearchConfig(beam=2)
    assert diverse(table, [1, 2], [9, 7], config, 2) == beam(table, [1, 2], [9, 7], narrow, 2)


def test_a_group_avoids_the_token_that_the_first_group_took() -> None:
    table = table_of({3: 0.6, 4: 0.3, 5: 0.1}, {EOS: 1.0})
    limits = torch.tensor([2])
    for diversity, second in ((0.0, None), (0.5, None), (0.8, 4), (9.0, 4)):  # ln 0.6 - ln 0.3 = 0.69
        config = SearchConfig(beam=2, groups=2, diversity=diversity)
        [found] = diverse_search(by_position(table), Clock(0), SYMBOLS, limits, config, n_best=2)
        assert [hypothesis.tokens[0] for hypothesis in found] == ([3] if second is None else [3, second])


def test_every_group_contributes_an_alternative() -> None:
    table = table_of({3: 0.5, 4: 0.3, 5: 0.2}, {EOS: 1.0})
    limits, together = torch.tensor([2]), SearchConfig(beam=4)
    apart = SearchConfig(beam=4, groups=2, diversity=9.0)
    for config, expected in ((together, [3, 4]), (apart, [3, 5])):  # the first group has 3 and 4, the second 5 and 3
        [found] = diverse_search(by_position(table), Clock(0), SYMBOLS, limits, config, n_best=2)
        assert [hypothesis.tokens[0] for hypothesis in found] == expected


def test_groups_that_do_not_divide_the_beam_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^search\.beam is 4, which 3 groups do not divide; change either$"):
        diverse(random_table(0, vocabulary=9), [1], [4], SearchConfig(groups=3))


# Ensembles


def test_an_ensemble_averages_probabilities() -> None:
    left = table_of({3: 0.8, 4: 0.2}, {EOS: 1.0})
    right = table_of({3: 0.1, 4: 0.9}, {EOS: 0.5, 3: 0.5})
    step = make_ensemble_step([by_position(left), by_position(right)])
    [found] = beam_search(
        step, EnsembleState((Clock(0), Clock(0))), SYMBOLS, torch.tensor([2]), SearchConfig(beam=2), n_best=2
    )
    assert [hypothesis.tokens for hypothesis in found] == [(4, EOS), (3, EOS)]
    expected = [math.log(0.55 * 0.75), math.log(0.45 * 0.75)]
    assert [hypothesis.log_prob for hypothesis in found] == pytest.approx(expected, abs=1e-5)


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 999), count=st.integers(1, 3))
def test_an_ensemble_of_one_model_twice_equals_the_model(seed: int, count: int) -> None:
    table, config = random_table(seed, vocabulary=9), SearchConfig(beam=3)
    states = EnsembleState(tuple(table.start([1, 2]) for _ in range(count)))
    found = beam_search(
        make_ensemble_step([table.step] * count), states, SYMBOLS, torch.tensor([6, 9]), config, n_best=2
    )
    plain = beam(table, [1, 2], [6, 9], config, 2)
    assert [[h.tokens for h in several] for several in found] == [[h.tokens for h in several] for several in plain]
    for ours, theirs in zip(found, plain, strict=True):
        assert [h.log_prob for h in ours] == pytest.approx([h.log_prob for h in theirs], abs=1e-4)
