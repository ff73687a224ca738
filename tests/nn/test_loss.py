"""The loss: equal to a plain implementation, to values by hand, and for any size of chunks."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heedful.nn import loss as objective
from heedful.nn.loss import smoothed_loss

ROWS, WIDTH, TYPES = 7, 5, 11


def example(seed: int = 0, rows: int = ROWS) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(rows, WIDTH, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(TYPES, WIDTH, generator=generator, dtype=torch.float64, requires_grad=True)
    return features, weight, torch.randint(0, TYPES, (rows,), generator=generator)


def plain_loss(features: Tensor, weight: Tensor, gold: Tensor, smoothing: float) -> Tensor:
    """Cross entropy with the whole smoothed target distribution."""
    wanted = torch.full((len(gold), len(weight)), smoothing / (len(weight) - 1), dtype=features.dtype)
    wanted[torch.arange(len(gold)), gold] = 1.0 - smoothing
    return -(wanted * (features @ weight.T).log_softmax(-1)).sum()


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(0, 9),
    smoothing=st.floats(0.0, 0.99),
    chunk=st.sampled_from([1, 30, 999]),
)
def test_value_and_gradients_equal_those_of_the_plain_loss(seed: int, rows: int, smoothing: float, chunk: int) -> None:
    features, weight, gold = example(seed, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objective, "_CHUNK_ELEMENTS", chunk)
        loss = smoothed_loss(features, weight, gold, smoothing)
    expected = plain_loss(features, weight, gold, smoothing)
    torch.testing.assert_close(loss.smoothed, expected)
    torch.testing.assert_close(loss.plain, plain_loss(features, weight, gold, 0.0))
    assert loss.tokens == rows
    ours = torch.autograd.grad(3.0 * loss.smoothed, (features, weight))
    theirs = torch.autograd.grad(3.0 * expected, (features, weight))
    torch.testing.assert_close(ours, theirs)


def test_gradients_agree_with_finite_differences() -> None:
    features, weight, gold = example()
    assert torch.autograd.gradcheck(lambda f, w: smoothed_loss(f, w, gold, 0.1).smoothed, (features, weight))


def test_a_bias_is_added_and_gets_a_gradient() -> None:
    features, weight, gold = example()
    bias = torch.linspace(-2, 2, len(weight), dtype=torch.float64, requires_grad=True)
    wider = torch.cat([features, torch.ones(len(features), 1)], 1), torch.cat([weight, bias[:, None]], 1)
    torch.testing.assert_close(smoothed_loss(features, weight, gold, 0.1, bias).smoothed, plain_loss(*wider, gold, 0.1))
    inputs = (features, weight, bias)
    assert torch.autograd.gradcheck(lambda f, w, b: smoothed_loss(f, w, gold, 0.1, b).smoothed, inputs)


def test_single_precision_is_as_accurate_as_its_rounding_allows() -> None:
    features, weight, gold = example(rows=300)
    loss = smoothed_loss(features.float(), weight.float(), gold, 0.1)
    assert loss.smoothed.dtype == torch.float32
    assert loss.smoothed.item() == pytest.approx(plain_loss(features, weight, gold, 0.1).item(), rel=1e-6)


def test_a_value_by_hand() -> None:
    """Four tokens, smoothing 0.1: the target is 0.9 for the gold token and 0.1 / 3 for each other one.

    With logits 0, ln 2, ln 3, ln 4 the probabilities are 0.1, 0.2, 0.3, 0.4; gold is the third.
    """
    logits = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64).log()
    loss = smoothed_loss(logits, torch.eye(4, dtype=torch.float64), torch.tensor([2]), 0.1)
    by_hand = -(0.9 * math.log(0.3) + 0.1 / 3 * (math.log(0.1) + math.log(0.2) + math.log(0.4)))
    assert loss.smoothed.item() == pytest.approx(by_hand, abs=1e-12)
    assert by_hand == pytest.approx(1.2445193, abs=1e-7)
    assert loss.plain.item() == pytest.approx(-math.log(0.3), abs=1e-12)


def test_a_gradient_by_hand() -> None:
    """Softmax minus the target distribution."""
    logits = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64).log().requires_grad_()
    smoothed_loss(logits, torch.eye(4, dtype=torch.float64), torch.tensor([2]), 0.1).smoothed.backward()
    expected = torch.tensor([[0.1 - 0.1 / 3, 0.2 - 0.1 / 3, 0.3 - 0.9, 0.4 - 0.1 / 3]], dtype=torch.float64)
    torch.testing.assert_close(logits.grad, expected)


@pytest.mark.parametrize("elements", [1, TYPES, 2 * TYPES + 5, 3 * TYPES, 10**6])
def test_the_size_of_the_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch, elements: int) -> None:
    features, weight, gold = example()
    whole = smoothed_loss(features, weight, gold, 0.1)
    gradients = torch.autograd.grad(whole.smoothed, (features, weight))
    monkeypatch.setattr(objective, "_CHUNK_ELEMENTS", elements)
    parts = smoothed_loss(features, weight, gold, 0.1)
    torch.testing.assert_close((parts.smoothed, parts.plain), (whole.smoothed, whole.plain))
    torch.testing.assert_close(torch.autograd.grad(parts.smoothed, (features, weight)), gradients)


def test_without_smoothing_it_is_cross_entropy() -> None:
    features, weight, gold = example()
    loss = smoothed_loss(features, weight, gold, 0.0)
    torch.testing.assert_close(loss.smoothed, F.cross_entropy(features @ weight.T, gold, reduction="sum"))
    assert torch.equal(loss.smoothed, loss.plain)


def test_pytorchs_own_smoothing_is_ours_with_a_smaller_share() -> None:
    """Theirs also gives the gold token a share of the smoothing: s over V tokens is s (V - 1) / V over the others."""
    features, weight, gold = example()
    theirs = F.cross_entropy(features @ weight.T, gold, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(smoothed_loss(features, weight, gold, 0.1 * (TYPES - 1) / TYPES).smoothed, theirs)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_without_gradients_the_value_is_the_same(smoothing: float) -> None:
    features, weight, gold = example()
    with_gradients = smoothed_loss(features, weight, gold, smoothing)
    with torch.no_grad():
        without = smoothed_loss(features, weight, gold, smoothing)
    assert torch.equal(without.smoothed, with_gradients.smoothed)
    assert torch.equal(without.plain, with_gradients.plain)
    assert not without.smoothed.requires_grad


def test_features_and_weights_are_not_changed() -> None:
    features, weight, gold = example()
    before = features.detach().clone(), weight.detach().clone()
    smoothed_loss(features, weight, gold, 0.1).smoothed.backward()
    assert torch.equal(features, before[0])
    assert torch.equal(weight, before[1])


def test_huge_logits_stay_finite() -> None:
    features, weight, gold = example()
    loss = smoothed_loss(1e4 * features, weight, gold, 0.1)
    assert loss.smoothed.isfinite()
