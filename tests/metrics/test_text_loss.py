"""Loss, perplexity and bits per character of a text."""

import math

import pytest

from heedful.metrics.text_loss import bits_per_character, score_text


def test_a_fair_coin_has_one_bit_per_character() -> None:
    assert bits_per_character(math.log(2.0), 1.0) == pytest.approx(1.0)
    assert bits_per_character(math.log(2.0), 0.25) == pytest.approx(0.25)


def test_windows_count_by_their_tokens() -> None:
    loss, perplexity, bits = score_text([6.0, 1.0], [4, 3], 0.5, context=4)
    assert (loss.metric, perplexity.metric, bits.metric) == ("loss", "perplexity", "bits per character")
    assert loss.value == pytest.approx(1.0)
    assert perplexity.value == pytest.approx(math.e)
    assert bits.value == pytest.approx(0.5 / math.log(2.0))
    assert loss.signature.startswith("loss|tokens:7|context:4|version:")


def test_the_interval_is_that_of_the_mean_of_the_windows() -> None:
    losses = [float(number % 3) for number in range(900)]  # mean 1, variance 2/3
    (loss, *_) = score_text(losses, [1] * 900, 1.0, context=1)
    wide = 1.96 * math.sqrt(2 / 3 / 900)
    assert loss.low == pytest.approx(1 - wide, abs=0.2 * wide)
    assert loss.high == pytest.approx(1 + wide, abs=0.2 * wide)


def test_the_same_text_always_has_the_same_interval() -> None:
    assert score_text([1.0, 2.0, 5.0], [2, 2, 3], 1.0, 3) == score_text([1.0, 2.0, 5.0], [2, 2, 3], 1.0, 3)
