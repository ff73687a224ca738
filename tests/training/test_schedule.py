"""Learning rates: the paper's formula by hand, the other schedules by their shape."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.config import ScheduleKind, TrainConfig
from heedful.training.schedule import dropout_share, learning_rate

PAPER = TrainConfig()


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (1, 1.746928107421711e-07),  # 512^-0.5 x 4000^-1.5
        (2000, 3.493856214843422e-04),  # half of the peak
        (4000, 6.987712429686843e-04),  # (512 x 4000)^-0.5, the peak
        (16_000, 3.4938562148434216e-04),  # four times as late, half as large
        (100_000, 1.3975424859373687e-04),  # (512 x 100 000)^-0.5
    ],
)
def test_the_papers_formula_by_hand(step: int, rate: float) -> None:
    assert learning_rate(step, 512, PAPER) == pytest.approx(rate, rel=1e-9)


def test_wider_models_have_a_lower_rate() -> None:
    assert learning_rate(4000, 1024, PAPER) == pytest.approx(learning_rate(4000, 512, PAPER) / math.sqrt(2.0))


def test_in_the_papers_schedule_the_learning_rate_is_a_factor() -> None:
    rate = learning_rate(77, 512, TrainConfig(learning_rate=2.5))
    assert rate == pytest.approx(2.5 * learning_rate(77, 512, PAPER), rel=1e-12)


def config(schedule: ScheduleKind, warmup: int = 40, steps: int = 1000) -> TrainConfig:
    return TrainConfig(schedule=schedule, learning_rate=0.3, warmup_steps=warmup, max_steps=steps)


OTHERS: tuple[ScheduleKind, ...] = ("inverse-sqrt", "cosine", "linear", "constant")


@pytest.mark.parametrize("schedule", OTHERS)
def test_the_other_schedules_rise_linearly_to_the_peak(schedule: ScheduleKind) -> None:
    rates = [learning_rate(step, 512, config(schedule)) for step in range(1, 41)]
    assert rates == pytest.approx([0.3 * step / 40 for step in range(1, 41)])


@pytest.mark.parametrize("schedule", OTHERS)
def test_the_other_schedules_do_not_depend_on_the_width(schedule: ScheduleKind) -> None:
    assert learning_rate(77, 512, config(schedule)) == learning_rate(77, 64, config(schedule))


@given(st.sampled_from(["paper", *OTHERS]), st.integers(0, 90), st.integers(1, 150), st.integers(1, 200))
def test_rates_lie_between_zero_and_the_peak_and_never_rise_after_the_warm_up(
    schedule: ScheduleKind, warmup: int, steps: int, step: int
) -> None:
    it = config(schedule, warmup, steps)
    rate, later = learning_rate(step, 512, it), learning_rate(step + 1, 512, it)
    peak = 0.3 if schedule != "paper" else 0.3 * (512 * max(1, warmup)) ** -0.5
    assert 0.0 <= rate <= peak * (1.0 + 1e-12)
    assert later <= rate * (1.0 + 1e-12) if step >= warmup else later > rate


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_cosine_and_linear_reach_zero_at_the_last_step_and_stay_there(schedule: ScheduleKind) -> None:
    assert learning_rate(999, 512, config(schedule)) > 0.0
    assert learning_rate(1000, 512, config(schedule)) == pytest.approx(0.0, abs=1e-15)
    assert learning_rate(1001, 512, config(schedule)) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize(
    ("schedule", "quarter", "half"),
    [
        ("cosine", 0.3 * (0.5 + math.sqrt(0.125)), 0.15),
        ("linear", 0.225, 0.15),
        ("inverse-sqrt", 0.3 * math.sqrt(40 / 280), 0.3 * math.sqrt(40 / 520)),
        ("constant", 0.3, 0.3),
    ],
)
def test_the_shape_between(schedule: ScheduleKind, quarter: float, half: float) -> None:
    """A quarter and half of the way from step 40 to step 1000."""
    assert learning_rate(280, 512, config(schedule)) == pytest.approx(quarter)
    assert learning_rate(520, 512, config(schedule)) == pytest.approx(half)


@pytest.mark.parametrize("schedule", ["paper", *OTHERS])
def test_without_warm_up_the_rate_starts_at_the_peak(schedule: ScheduleKind) -> None:
    first, second = (learning_rate(step, 512, config(schedule, warmup=0)) for step in (1, 2))
    assert first == pytest.approx(0.3 if schedule != "paper" else 0.3 * 512**-0.5)
    assert second <= first


def test_dropout_rises_in_four_stairs_from_a_third() -> None:
    shares = [dropout_share(step, 8) for step in range(1, 12)]
    assert shares == pytest.approx([*(n / 6 for n in (2, 2, 3, 3, 4, 4, 5, 5)), 1, 1, 1])


def test_without_a_warm_up_dropout_is_constant() -> None:
    assert dropout_share(1, 0) == 1.0


def test_a_warm_up_shorter_than_its_stairs_ends_on_time() -> None:
    assert [dropout_share(step, 2) for step in (1, 2, 3)] == pytest.approx([1 / 3, 2 / 3, 1])
