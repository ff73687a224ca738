"""Beam search over simple step functions: tables of random logits, looked up by the whole output so far."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search_examples import (
    CONTEXTS,
    EOS,
    PAD,
    START,
    SYMBOLS,
    Clock,
    Table,
    by_position,
    log_prob_of,
    random_table,
    repeats,
    table_of,
)

from heedful.config.experiment import Penalty, SearchConfig
from heedful.decoding.beam import beam_search
from heedful.decoding.greedy import greedy_search
from heedful.decoding.hypothesis import Hypothesis, length_penalty
from heedful.errors import ConfigError, Diverged


def search(
    table: Table, sentences: list[int], lengths: list[int], config: SearchConfig, n_best: int = 1
) -> list[list[Hypothesis]]:
    return beam_search(
        table.step, table.start(sentences), SYMBOLS, torch.tensor(lengths, dtype=torch.long), config, n_best=n_best
    )


def greedy(table: Table, sentences: list[int], lengths: list[int], config: SearchConfig) -> list[Hypothesis]:
    return greedy_search(table.step, table.start(sentences), SYMBOLS, torch.tensor(lengths, dtype=torch.long), config)


def plain_beam(table: Table, sentence: int, max_length: int, config: SearchConfig) -> list[Hypothesis]:
    """Beam search for one sentence with plain lists, as in tensor2tensor: nothing is dropped before the end."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[Hypothesis] = []
    for length in range(1, max_length + 1):
        candidates = []
        for total, said in live:
            state = table.start([sentence])
            for token in (START, *said):
                logits, state = table.step(torch.tensor([token]), state)
            again = [
                token
                for token in range(logits.shape[1])
                if config.no_repeat_ngram and repeats((*said, token), config.no_repeat_ngram)
            ]
            logits[:, again] = -math.inf  # before the softmax, so that the others share their probability
            for token, value in enumerate(logits[0].log_softmax(dim=0).tolist()):
                too_short = token == EOS and length <= config.min_length
                if token not in (*SYMBOLS.banned, *again) and not too_short:
                    candidates.append((total + value, (*said, token)))
        candidates.sort(key=lambda candidate: -candidate[0])
        candidates = candidates[: 2 * config.beam]
        penalty = length_penalty(float(length), config.alpha, config.penalty)
        finished += [Hypothesis(said, total, total / penalty) for total, said in candidates if said[-1] == EOS]
        live = [candidate for candidate in candidates if candidate[1][-1] != EOS][: config.beam]
    cut = [Hypothesis(said, total, total / penalty, finished=False) for total, said in live]
    return sorted(finished, key=lambda hypothesis: -hypothesis.score) + cut


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [hypothesis.tokens for hypothesis in found] == [hypothesis.tokens for hypothesis in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-4)
        assert ours.score == pytest.approx(theirs.score, abs=1e-4)
        assert ours.finished == theirs.finished


configs = st.builds(
    SearchConfig,
    beam=st.integers(2, 5),
    alpha=st.sampled_from([0.0, 0.6, 1.3]),
    penalty=st.sampled_from(["paper", "power"]),
    min_length=st.integers(0, 3),
    no_repeat_ngram=st.integers(0, 3),
)
seeds = st.integers(0, 2**16)


# Laws


@settings(deadline=None, max_examples=40)
@given(seed=seeds, config=configs, lengths=st.lists(st.integers(4, 11), min_size=1, max_size=7), data=st.data())
def test_a_sentence_alone_has_the_same_hypotheses_as_among_others(
    seed: int, config: SearchConfig, lengths: list[int], data: st.DataObject
) -> None:
    table, n_best = random_table(seed, vocabulary=13), data.draw(st.integers(1, config.beam))
    sentences = [17 * number + 5 for number in range(len(lengths))]
    together = search(table, sentences, lengths, config, n_best)
    for sentence, length, hypotheses in zip(sentences, lengths, together, strict=True):
        assert search(table, [sentence], [length], config, n_best) == [hypotheses]


@settings(deadline=None, max_examples=40)
@given(seed=seeds, config=configs, lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4), data=st.data())
def test_dropping_hypotheses_early_never_changes_the_result(
    seed: int, config: SearchConfig, lengths: list[int], data: st.DataObject
) -> None:
    table, n_best = random_table(seed, vocabulary=9), data.draw(st.integers(1, config.beam))
    sentences = [29 * number + 2 for number in range(len(lengths))]
    outputs = search(table, sentences, lengths, config, n_best)
    for sentence, length, found in zip(sentences, lengths, outputs, strict=True):
        assert_same(found, plain_beam(table, sentence, length, config)[:n_best])


@settings(deadline=None, max_examples=40)
@given(seed=seeds, lengths=st.lists(st.integers(1, 12), min_size=1, max_size=6), min_length=st.integers(0, 4))
def test_a_beam_of_one_is_greedy_search(seed: int, lengths: list[int], min_length: int) -> None:
    table, sentences = random_table(seed, vocabulary=7), list(range(len(lengths)))
    config = SearchConfig(beam=1, min_length=min_length, no_repeat_ngram=3)
    assert [best for [best] in search(table, sentences, lengths, config)] == greedy(table, sentences, lengths, config)


@settings(deadline=None, max_examples=40)
@given(seed=seeds, ngram=st.integers(1, 4), beam=st.integers(1, 4))
def test_no_ngram_occurs_twice(seed: int, ngram: int, beam: int) -> None:
    table = random_table(seed, vocabulary=8)
    config = SearchConfig(beam=beam, no_repeat_ngram=ngram, min_length=5)
    outputs = [*search(table, [3, 11, 4], [25, 18, 22], config, beam), greedy(table, [3, 11, 4], [25, 18, 22], config)]
    assert not any(repeats(hypothesis.tokens, ngram) for output in outputs for hypothesis in output)


def test_without_the_rule_ngrams_do_occur_twice() -> None:
    outputs = search(random_table(0, vocabulary=6), [3, 11, 4], [25, 18, 22], SearchConfig(min_length=12), 4)
    assert any(repeats(hypothesis.tokens, 2) for output in outputs for hypothesis in output)


@settings(deadline=None, max_examples=30)
@given(seed=seeds, config=configs)
def test_the_n_best_are_ordered_and_distinct_with_correct_probabilities(seed: int, config: SearchConfig) -> None:
    table = random_table(seed, vocabulary=10)
    for sentence, found in zip([8, 21], search(table, [8, 21], [9, 14], config, config.beam), strict=True):
        finished = [hypothesis for hypothesis in found if hypothesis.finished]
        assert found[: len(finished)] == finished
        assert [h.score for h in finished] == sorted((h.score for h in finished), reverse=True)
        assert len({hypothesis.tokens for hypothesis in found}) == len(found) == config.beam
        for hypothesis in found:
            expected = log_prob_of(table, sentence, hypothesis.tokens, config.no_repeat_ngram)
            assert hypothesis.log_prob == pytest.approx(expected, abs=1e-4)
            assert hypothesis.finished == (hypothesis.tokens[-1] == EOS)
            assert not set(hypothesis.tokens[:-1]) & {PAD, START, EOS}


# Parity


@pytest.mark.parametrize("penalty", ["paper", "power"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.5])
@pytest.mark.parametrize(("kinds", "max_length"), [(3, 5), (4, 4)])
def test_an_exhaustive_beam_finds_what_enumeration_finds(
    penalty: Penalty, alpha: float, kinds: int, max_length: int
) -> None:
    words = range(3, 2 + kinds)  # and EOS
    endings = [(*said, EOS) for n in range(max_length) for said in itertools.product(words, repeat=n)]
    config = SearchConfig(beam=kinds**max_length, alpha=alpha, penalty=penalty)
    for seed, sentence in [(1, 0), (2, 40), (3, 77)]:
        table = random_table(seed, vocabulary=2 + kinds)
        scored = [
            (log_prob_of(table, sentence, ending) / length_penalty(float(len(ending)), alpha, penalty), ending)
            for ending in endings
        ]
        scored.sort(reverse=True)
        [found] = search(table, [sentence], [max_length], config, n_best=7)
        assert [hypothesis.tokens for hypothesis in found] == [ending for _, ending in scored[:7]]
        assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in scored[:7]], abs=1e-4)


# Golden numbers


def test_the_score_of_a_known_sequence_matches_a_calculation_by_hand() -> None:
    table = table_of({3: 0.5, 4: 0.3, EOS: 0.2}, {EOS: 0.8, 5: 0.2}, {EOS: 1.0})
    [[best]] = beam_search(by_position(table), Clock(0), SYMBOLS, torch.tensor([3]), SearchConfig(beam=2))
    assert best.tokens == (3, EOS)
    assert best.log_prob == pytest.approx(-0.916291, abs=1e-5)  # ln 0.4
    assert best.score == pytest.approx(-0.835335, abs=1e-5)  # / (7/6)^0.6 = 1.096914


def test_a_longer_output_may_win_after_a_shorter_one_has_finished() -> None:
    table = table_of({EOS: 0.6, 3: 0.4}, {4: 1.0}, {4: 1.0}, {EOS: 1.0})
    lengths = torch.tensor([4])
    config = SearchConfig(beam=2, alpha=2.0, penalty="power")
    [[best]] = beam_search(by_position(table), Clock(0), SYMBOLS, lengths, config)
    assert best.tokens == (3, 4, 4, EOS)  # ln 0.4 / 16 against ln 0.6
    [[best]] = beam_search(by_position(table), Clock(0), SYMBOLS, lengths, SearchConfig(beam=2, alpha=0.0))
    assert best.tokens == (EOS,)


# Examples


def test_a_search_stops_when_no_hypothesis_can_still_win() -> None:
    # Without a penalty, a finished 0.6 immediately beats the remaining 0.4.
    table = table_of({EOS: 0.6, 3: 0.4}, {4: 1.0}, {4: 1.0}, {EOS: 1.0})
    beam_search(by_position(table), Clock(0), SYMBOLS, torch.tensor([4]), SearchConfig(beam=2, alpha=0.0))
    assert table.rows == [1]


def test_a_hypothesis_that_cannot_win_leaves_the_batch() -> None:
    # "3 EOS" has ln 0.5 / (7/6)^2 = -0.51; "3 5" can reach ln 0.3 / (10/6)^2 = -0.43, "4 5" only to -0.93.
    table = table_of({3: 0.8, 4: 0.2}, {EOS: 0.625, 5: 0.375}, {5: 1.0}, {5: 1.0}, {EOS: 1.0})
    config = SearchConfig(beam=2, alpha=2.0)
    beam_search(by_position(table), Clock(0), SYMBOLS, torch.tensor([5]), config)
    assert table.rows == [1, 2, 1, 1, 1]


def test_finished_sentences_leave_the_batch() -> None:
    table = random_table(5, vocabulary=11, spread=3.0)
    lengths = [4, 30, 2, 9, 17]
    greedy_outputs = greedy(table, [1, 2, 3, 4, 5], lengths, SearchConfig(min_length=1))
    ended = [len(output.tokens) for output in greedy_outputs]
    assert len(set(ended)) > 2
    assert table.rows == [sum(length >= step for length in ended) for step in range(1, max(ended) + 1)]

    table.rows.clear()
    search(table, [1, 2, 3, 4, 5], [2, 2, 7, 2, 2], SearchConfig(beam=3, min_length=6))
    assert table.rows == [5, 15, 3, 3, 3, 3, 3]


def test_a_state_is_not_copied_when_its_rows_do_not_change() -> None:
    table = random_table(7, vocabulary=12)
    state = table.start([1, 2, 3])
    greedy_search(table.step, state, SYMBOLS, torch.tensor([6, 6, 6]), SearchConfig(min_length=6))
    assert state.selected == []
    greedy_search(table.step, state, SYMBOLS, torch.tensor([6, 4, 6]), SearchConfig(min_length=6))
    assert state.selected == [2]


def test_outputs_that_are_cut_off_are_marked_and_come_last() -> None:
    table = table_of({3: 0.9, 4: 0.1}, {5: 0.99, EOS: 0.01})
    lengths, config = torch.tensor([2]), SearchConfig(beam=3)
    [found] = beam_search(by_position(table), Clock(0), SYMBOLS, lengths, config, n_best=3)
    assert [(h.tokens, h.finished) for h in found] == [((3, EOS), True), ((4, EOS), True), ((3, 5), False)]
    assert found[2].score == pytest.approx(math.log(0.891) / (7 / 6) ** 0.6)
    [[best]] = beam_search(by_position(table), Clock(0), SYMBOLS, lengths, config)
    assert best.tokens == (3, EOS)
    [cut] = greedy_search(by_position(table), Clock(0), SYMBOLS, lengths, config)
    assert (cut.tokens, cut.finished) == ((3, 5), False)


def test_min_length_counts_the_tokens_before_eos() -> None:
    table = table_of(*[{EOS: 0.9, 3: 0.1}] * 6)
    for least in range(5):
        config = SearchConfig(beam=2, min_length=least)
        [[best]] = beam_search(by_position(table), Clock(0), SYMBOLS, torch.tensor([6]), config)
        [first] = greedy_search(by_position(table), Clock(0), SYMBOLS, torch.tensor([6]), config)
        assert best.tokens == first.tokens == (3,) * least + (EOS,)


def test_an_output_may_end_too_early_if_nothing_else_is_allowed() -> None:
    table = table_of(*[{EOS: 0.2, 3: 0.4, 4: 0.4}] * 9)
    config = SearchConfig(beam=2, min_length=8, no_repeat_ngram=1)
    [[best]] = beam_search(by_position(table), Clock(0), SYMBOLS, torch.tensor([9]), config)
    assert best.tokens == (3, 4, EOS)


def test_banned_ids_keep_their_share_of_the_probability() -> None:
    table = table_of({PAD: 0.7, 3: 0.2, EOS: 0.1}, {EOS: 1.0})
    [[best]] = beam_search(by_position(table), Clock(0), SYMBOLS, torch.tensor([2]), SearchConfig(beam=2))
    assert best.tokens == (3, EOS)
    assert best.log_prob == pytest.approx(math.log(0.2))


def test_equal_candidates_are_ordered_by_id() -> None:
    table = table_of({5: 0.25, 4: 0.25, 3: 0.25, EOS: 0.25}, {EOS: 0.5, 3: 0.5})
    config = SearchConfig(beam=3, alpha=0.0)
    [found] = beam_search(by_position(table), Clock(0), SYMBOLS, torch.tensor([2]), config, n_best=3)
    assert [hypothesis.tokens for hypothesis in found] == [(EOS,), (3, EOS), (4, EOS)]


def test_the_logits_of_a_model_are_not_modified() -> None:
    table = random_table(3, vocabulary=9)
    before = table.logits.clone()
    step = by_position(table)
    beam_search(step, Clock(0), SYMBOLS, torch.tensor([8]), SearchConfig(beam=2, min_length=5, no_repeat_ngram=2))
    assert torch.equal(table.logits, before)


def test_half_precision_is_summed_in_single_precision() -> None:
    table = random_table(4, vocabulary=9)
    halves = Table(table.logits.bfloat16())
    [[best]] = search(halves, [6], [12], SearchConfig(min_length=8))
    assert best.log_prob == pytest.approx(log_prob_of(halves, 6, best.tokens), abs=1e-4)


def test_no_sentences_give_no_hypotheses() -> None:
    table = random_table(0, vocabulary=5)
    assert search(table, [], [], SearchConfig()) == []
    assert greedy(table, [], [], SearchConfig()) == []


def test_a_vocabulary_may_be_smaller_than_the_beam() -> None:
    table = random_table(2, vocabulary=4)
    [found] = search(table, [9], [2], SearchConfig(beam=8), n_best=8)
    assert table.rows == [1, 1]
    assert {hypothesis.tokens for hypothesis in found} == {(EOS,), (3, EOS), (3, 3)}


def test_a_model_that_computes_nan_is_reported() -> None:
    table = Table(torch.full((CONTEXTS, 7), float("nan")))
    with pytest.raises(Diverged, match="NaN or infinity, so it cannot translate; use a checkpoint from before"):
        search(table, [1, 2], [5, 6], SearchConfig())
    with pytest.raises(Diverged, match="the model computes NaN or infinity"):
        greedy(table, [1, 2], [5, 6], SearchConfig())


@pytest.mark.parametrize(
    ("config", "n_best", "message"),
    [
        (SearchConfig(), 8, "you asked for 8 translations, but search.beam is 4; set --beam to at least 8"),
        (SearchConfig(), 0, "you asked for 0 translations; ask for at least 1"),
        (SearchConfig(beam=0), 1, "search.beam is 0 but must be at least 1; set --beam to 1 or more"),
        (SearchConfig(alpha=-0.5), 1, "search.alpha is -0.5 but must not be negative; set --alpha to 0 or more"),
    ],
)
def test_impossible_search_options_are_named(config: SearchConfig, n_best: int, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        search(random_table(0, vocabulary=5), [1], [4], config, n_best)
    assert str(raised.value) == message
