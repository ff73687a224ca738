"""Sampling: draws depend only on the seed and the sentence, and have the model's distribution."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search_examples import EOS, SYMBOLS, Clock, Table, by_position, log_prob_of, random_table, table_of

from heedful.config.experiment import SearchConfig
from heedful.decoding.greedy import greedy_search
from heedful.decoding.hypothesis import Hypothesis, length_penalty
from heedful.decoding.sampling import sample_search, sentence_key
from heedful.errors import ConfigError, Diverged


def draw(
    table: Table, sentences: list[int], lengths: list[int], config: SearchConfig, draws: int = 1
) -> list[list[Hypothesis]]:
    keys = torch.tensor([sentence_key(config.seed, [sentence]) for sentence in sentences], dtype=torch.long)
    limits = torch.tensor(lengths, dtype=torch.long)
    return sample_search(table.step, table.start(sentences), SYMBOLS, limits, config, keys, draws=draws)


configs = st.builds(
    SearchConfig,
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 3, 50]),
    top_p=st.sampled_from([0.2, 0.9, 1.0]),
    seed=st.integers(0, 9),
    min_length=st.integers(0, 3),
)


@settings(deadline=None, max_examples=20)
@given(table_seed=st.integers(0, 99), config=configs, lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_a_draw_depends_neither_on_the_batch_nor_on_the_number_of_draws(
    table_seed: int, config: SearchConfig, lengths: list[int]
) -> None:
    table = random_table(table_seed, vocabulary=90)
    sentences = [17 * number + 5 for number in range(len(lengths))]
    together = draw(table, sentences, lengths, config, draws=3)
    for sentence, length, found in zip(sentences, lengths, together, strict=True):
        assert draw(table, [sentence], [length], config, draws=2) == [found[:2]]
        for hypothesis in found:
            own = log_prob_of(table, sentence, hypothesis.tokens)
            assert hypothesis.log_prob == pytest.approx(own, abs=1e-4)  # whatever the temperature
            assert hypothesis.score == pytest.approx(own / length_penalty(float(len(hypothesis.tokens)), 0.6, "paper"))


def test_seed_sentence_and_number_of_the_draw_change_the_output() -> None:
    table = table_of(*[dict.fromkeys(range(3, 13), 0.1)] * 9, vocabulary=13)
    keys = torch.tensor([sentence_key(seed, source) for seed, source in [(1, [5, 6]), (1, [5, 7]), (2, [5, 6])]])
    found = sample_search(by_position(table), Clock(0), SYMBOLS, torch.tensor([9] * 3), SearchConfig(), keys, draws=2)
    assert len({hypothesis.tokens for several in found for hypothesis in several}) == 6


@pytest.mark.parametrize("config", [SearchConfig(top_k=1), SearchConfig(top_p=1e-9), SearchConfig(temperature=1e-6)])
def test_sampling_with_top_k_of_one_is_greedy_search(config: SearchConfig) -> None:
    table, sentences, lengths = random_table(3, vocabulary=40), [1, 2, 3], [9, 5, 12]
    greedy = greedy_search(table.step, table.start(sentences), SYMBOLS, torch.tensor(lengths), config)
    assert draw(table, sentences, lengths, config) == [[best] for best in greedy]


DRAWS = 4000


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (SearchConfig(), {3: 0.5, 4: 0.3, 5: 0.15, EOS: 0.05}),
        (SearchConfig(temperature=0.5), {3: 0.25, 4: 0.09, 5: 0.0225, EOS: 0.0025}),
        (SearchConfig(temperature=2.0), {3: 0.5**0.5, 4: 0.3**0.5, 5: 0.15**0.5, EOS: 0.05**0.5}),
        (SearchConfig(top_k=2), {3: 0.5, 4: 0.3}),
        (SearchConfig(top_p=0.81), {3: 0.5, 4: 0.3, 5: 0.15}),
        (SearchConfig(top_p=0.79), {3: 0.5, 4: 0.3}),
        (SearchConfig(top_k=3, top_p=0.6), {3: 0.5, 4: 0.3}),  # 0.5 / 0.95 is below 0.6
        (SearchConfig(temperature=0.5, top_p=0.7), {3: 0.25, 4: 0.09}),  # 0.25 / 0.365 is 0.68
    ],
)
def test_tokens_are_drawn_by_their_probability(config: SearchConfig, expected: dict[int, float]) -> None:
    table = table_of({3: 0.5, 4: 0.3, 5: 0.15, EOS: 0.05})
    keys = torch.tensor([sentence_key(1, [8])])
    found = sample_search(by_position(table), Clock(0), SYMBOLS, torch.tensor([1]), config, keys, draws=DRAWS)
    tokens = [hypothesis.tokens[0] for hypothesis in found[0]]
    whole = sum(expected.values())
    assert set(tokens) <= expected.keys()
    for token, weight in expected.items():
        share = weight / whole
        assert abs(tokens.count(token) / DRAWS - share) < 4 * math.sqrt(share * (1 - share) / DRAWS)


def test_a_wide_nucleus_is_found_completely() -> None:
    table = table_of(dict.fromkeys(range(3, 403), 1 / 400), vocabulary=403)
    keys = torch.tensor([sentence_key(1, [8])])
    config = SearchConfig(top_p=0.5)
    found = sample_search(by_position(table), Clock(0), SYMBOLS, torch.tensor([1]), config, keys, draws=DRAWS)
    drawn = {hypothesis.tokens[0] for hypothesis in found[0]}
    assert max(drawn) <= 203  # the first half of the equal tokens, give or take rounding
    assert len(drawn) >= 195


def test_zero_samples_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^you asked for 0 translations; ask for at least 1$"):
        draw(random_table(1, vocabulary=9), [1], [3], SearchConfig(), draws=0)


def test_sampling_from_nan_is_reported() -> None:
    with pytest.raises(Diverged, match="NaN or infinity"):
        draw(Table(torch.full((9, 7), float("nan"))), [1], [3], SearchConfig())
