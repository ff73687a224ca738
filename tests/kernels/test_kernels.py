"""The compiled loops: each equals the plain form in value and gradient, and hides no NaN."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_examples import SMALL, VARIANTS, example, fresh, label, shake, update_of
from threadpoolctl import threadpool_info
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.kernels import matmul, scalars
from heedful.models.transformer import Transformer
from heedful.nn import attention as attention_module
from heedful.nn import compiled_attention, noise, residual
from heedful.nn import loss as objective
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.dropout import Dropout
from heedful.nn.layout import Layout
from heedful.nn.linear import glorot_linear
from heedful.training.gradients import Objective, SequentialGradients

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function that switches the compiled loops off."""

    def switch() -> None:
        monkeypatch.setattr(residual, "can_use_kernels", lambda x: False)
        monkeypatch.setattr(attention_module, "can_use_kernels", lambda x: False)
        monkeypatch.setattr(objective, "_compiled_gradient", objective._plain_gradient)

    return switch


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def laid_out(lengths: list[int], seed: int = 1) -> Layout:
    return Layout.of(torch.tensor(lengths), noise.sentence_keys(seed, 4, torch.arange(len(lengths))))


def gradients(model: Transformer, step: int = 3) -> dict[str, Tensor]:
    model.zero_grad(set_to_none=True)
    batch = example([4, 11, 7, 1], [5, 2, 6, 3])
    loss = SequentialGradients(model, Objective(0.1, seed=9))(update_of(batch), step)
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return found | {"loss": torch.tensor(loss)}


class TestWholeModels:
    CONFIGS = tuple(
        replace(config, dropout=dropout, attention_dropout=dropout, activation_dropout=dropout / 2)
        for config in VARIANTS
        if config.positions == "sinusoidal" and config.activation == "relu"
        for dropout in (0.0, 0.3)
    )

    @pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{label(c)}-{c.dropout}")
    def test_losses_and_gradients_equal_those_of_plain_pytorch(
        self, config: ModelConfig, plain: Callable[[], None]
    ) -> None:
        """With the same seed, both drop the same numbers."""
        model = fresh(config)
        shake(model)
        compiled = gradients(model)
        plain()
        expected = gradients(model)
        assert compiled.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(compiled[name], value, rtol=2e-4, atol=2e-6)

    def test_both_paths_use_dropout(self, plain: Callable[[], None]) -> None:
        """Otherwise the test above would prove nothing."""
        model = fresh(replace(SMALL, dropout=0.3))
        assert gradients(model)["loss"] != gradients(model, step=4)["loss"]
        plain()
        assert gradients(model)["loss"] != gradients(model, step=4)["loss"]


class TestAttention:
    @settings(deadline=None, max_examples=30)
    @given(LENGTHS, st.booleans(), st.sampled_from([0.0, 0.4]))
    def test_self_attention(self, lengths: list[int], causal: bool, p: float) -> None:
        part, layout = SelfAttention(6, 2, 3, 5, p), laid_out(lengths)
        self.compare(lambda x: part(x, layout, causal), random(sum(lengths), 6))

    @settings(deadline=None, max_examples=30)
    @given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5))
    def test_cross_attention(self, lengths: list[tuple[int, int]]) -> None:
        part = CrossAttention(6, 2, 3, 5, 0.4)
        here, there = laid_out([a for a, _ in lengths]), laid_out([b for _, b in lengths])
        memory = random(sum(b for _, b in lengths), 6, seed=3)
        self.compare(lambda x: part(x, here, memory, there), random(sum(a for a, _ in lengths), 6))
        self.compare(lambda m: part(random(len(here.positions), 6), here, m, there), memory)

    def compare(self, form: Callable[[Tensor], Tensor], x: Tensor) -> None:
        x.requires_grad_()
        with pytest.MonkeyPatch.context() as patch:
            compiled = form(x)
            weights = random(*compiled.shape, seed=5)
            slope = torch.autograd.grad((compiled * weights).sum(), x)
            patch.setattr(attention_module, "can_use_kernels", lambda _: False)
            expected = form(x)
            torch.testing.assert_close(compiled, expected, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(slope, torch.autograd.grad((expected * weights).sum(), x), rtol=1e-4, atol=1e-5)


class TestRows:
    @pytest.mark.parametrize("width", [3, 7, 8, 31, 32, 200])
    @pytest.mark.parametrize("p", [0.2, 1.0])
    def test_dropout_add_and_norm(self, width: int, p: float) -> None:
        keys, dropout, norm = laid_out([5, 3]).dropout_keys, Dropout(p), nn.LayerNorm(width, eps=1e-6)
        dropout.site = 7
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
        x, y, weights = random(8, width), random(8, width, seed=1), random(8, width, seed=2)
        inputs = (x.requires_grad_(), y.requires_grad_(), norm.weight, norm.bias)
        for compiled, expected, known in (
            (residual.dropout_add(x, y, dropout, keys), x + dropout(y, keys), inputs[:2]),
            (residual.dropout_add_norm(x, y, dropout, keys, norm), norm(x + dropout(y, keys)), inputs),
        ):
            torch.testing.assert_close(compiled, expected, rtol=1e-4, atol=1e-5)
            ours = torch.autograd.grad((compiled * weights).sum(), known)
            theirs = torch.autograd.grad((expected * weights).sum(), known)
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


class TestNumbers:
    def test_the_hash_is_the_same_in_numba_and_pytorch(self) -> None:
        x = torch.randint(0, 2**32, (1000,), generator=torch.Generator().manual_seed(1))
        assert noise.mix(x).tolist() == [int(scalars.mix(np.uint32(value))) for value in x.tolist()]

    def test_hashes_do_not_collide(self) -> None:
        assert len(noise.mix(torch.arange(100_000)).unique()) == 100_000

    def test_exp_is_accurate_to_two_units_in_the_last_place(self) -> None:
        for x in np.linspace(-86.9, 0.0, 4001, dtype=np.float32):
            assert scalars.exp(x) == pytest.approx(math.exp(x), rel=2.5e-7)

    def test_exp_of_nan_is_nan(self) -> None:
        assert math.isnan(scalars.exp(np.float32(np.nan)))
        assert scalars.exp(np.float32(-1e30)) < 1e-37

    @settings(deadline=None)
    @given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40))
    def test_largest_equals_max(self, values: list[float]) -> None:
        array = np.array(values, dtype=np.float32) + np.float32(0.0)  # no negative zero, which equals zero
        assert scalars.largest(array.view(np.int32)) == array.max()


class TestNothingIsHidden:
    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize(
        "place", ["encoder.0.attention.query_key_value.bias", "decoder.1.feed_forward.inner.weight"]
    )
    def test_nan_and_infinity_reach_the_loss_or_the_gradients(self, place: str, value: float) -> None:
        model = fresh(replace(SMALL, dropout=0.3, attention_dropout=0.3))
        with torch.no_grad():
            model.get_parameter(place).view(-1)[0] = value
        found = gradients(model)
        assert not all(gradient.isfinite().all() for gradient in found.values())

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_nan_and_infinity_in_the_logits_reach_the_loss(self, value: float) -> None:
        features, weight = random(3, 4), random(9, 4, seed=1)
        features[1, 2] = value
        features.requires_grad_()
        loss = objective.smoothed_loss(features, weight, torch.tensor([1, 2, 3]), 0.1)
        assert not loss.smoothed.isfinite()


@pytest.mark.parametrize("scale", [0.1, 30.0])
@pytest.mark.parametrize("types", [2, 9, 1000])
def test_the_loss_agrees_with_double_precision(scale: float, types: int) -> None:
    features, weight = (scale * random(50, 8)).requires_grad_(), random(types, 8, seed=1).requires_grad_()
    gold = torch.randint(0, types, (50,), generator=torch.Generator().manual_seed(2))
    ours = objective.smoothed_loss(features, weight, gold, 0.1)
    theirs = objective.smoothed_loss(features.double(), weight.double(), gold, 0.1)
    assert ours.smoothed.item() == pytest.approx(theirs.smoothed.item(), rel=1e-5)
    assert ours.plain.item() == pytest.approx(theirs.plain.item(), rel=1e-5)
    for mine, exact in zip(
        torch.autograd.grad(ours.smoothed, (features, weight)),
        torch.autograd.grad(theirs.smoothed, (features, weight)),
        strict=True,
    ):
        torch.testing.assert_close(mine, exact, rtol=1e-3, atol=1e-4 * scale)


@pytest.mark.parametrize("chunk", [60, 10**6])
@pytest.mark.parametrize("biased", [True, False])
def test_r_drop_adds_the_divergence_of_two_passes(chunk: int, biased: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equations 1 to 4 of Liang et al. (2021), by PyTorch's own functions in double precision."""
    monkeypatch.setattr(objective, "_CHUNK_ELEMENTS", chunk)
    known = [2.0 * random(14, 5), random(23, 5, seed=1), *([random(23, seed=2)] if biased else [])]
    gold = torch.tensor([3, 0, 22, 7, 7, 1, 11]).repeat(2)

    def expected(features: Tensor, weight: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        log_p = nn.functional.linear(features, weight, bias).log_softmax(-1)
        nll = -log_p.gather(1, gold[:, None]).sum()
        first, second = log_p.chunk(2)
        kl = partial(nn.functional.kl_div, reduction="sum", log_target=True)
        spread = 0.1 / 22 * (-log_p.sum() - nll)
        return 0.9 * nll + spread + 3.0 * (kl(second, first) + kl(first, second)) / 2.0, nll

    for dtype in (torch.float32, torch.float64):  # the compiled and the plain form
        inputs = [part.to(dtype).requires_grad_() for part in known]
        exact = [part.double().requires_grad_() for part in known]
        ours = objective.smoothed_loss(inputs[0], inputs[1], gold, 0.1, inputs[2] if biased else None, r_drop=3.0)
        smoothed, plain = expected(*exact)
        torch.testing.assert_close(
            (ours.smoothed.double(), ours.plain.double()), (smoothed, plain), rtol=1e-5, atol=1e-5
        )
        mine, theirs = torch.autograd.grad(ours.smoothed, inputs), torch.autograd.grad(smoothed, exact)
        for slope, true in zip(mine, theirs, strict=True):
            torch.testing.assert_close(slope.double(), true, rtol=1e-4, atol=1e-4)


def test_translating_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_attention._CompiledAttention, "apply", None)
    monkeypatch.setattr(objective, "_compiled_gradient", None)
    model, batch = fresh(SMALL).eval(), example([4, 2], [5, 3])
    with torch.no_grad():
        memory = model.encode(batch.source, batch.source_lengths)
        assert model.decode(batch.target_in, batch.target_lengths, memory).isfinite().all()


class TestProducts:
    @pytest.mark.parametrize("library", ["numpy", "torch", "onednn"])
    @pytest.mark.parametrize("rows", [5, 700], ids=["small", "large"])
    def test_all_libraries_give_the_same_product(
        self, library: matmul.Library, rows: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(matmul, "fastest_library", lambda: library)
        left, right = random(rows, 47), random(41, 47, seed=1)
        exact = left.double() @ right.double().T
        torch.testing.assert_close(matmul.matmul(left, right.T).double(), exact, rtol=1e-5, atol=2e-5)
        torch.testing.assert_close(matmul.matmul(right, left.T).double(), exact.T, rtol=1e-5, atol=2e-5)

    @pytest.mark.parametrize(
        ("processor", "instructions", "blas", "expected"),
        [
            ("znver5", "AVX512", "scipy-openblas", "onednn"),
            ("znver3", "AVX2", "scipy-openblas", "numpy"),
            ("znver3", "AVX2", "accelerate", "torch"),
            ("skylake-avx512", "AVX512", "scipy-openblas", "torch"),
        ],
    )
    def test_amd_processors_do_not_use_mkl(
        self, processor: str, instructions: str, blas: str, expected: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: processor)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
        monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
        monkeypatch.setattr(np, "show_config", lambda mode: {"Build Dependencies": {"blas": {"name": blas}}})
        assert matmul.fastest_library.__wrapped__() == expected

    def test_small_products_stay_exact(self) -> None:
        layer, x = glorot_linear(47, 41), random(50, 47)
        with matmul.narrow_products():
            narrow = layer(x)
        assert torch.equal(narrow, layer(x))

    def test_narrow_products_round_both_factors_and_nothing_else(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(matmul, "_SMALL", 0)
        layer, x = glorot_linear(47, 41), random(50, 47).requires_grad_()
        nn.init.normal_(layer.bias)
        with matmul.narrow_products():
            narrow = layer(x)
        d_out = random(50, 41, seed=2)
        slopes = torch.autograd.grad(narrow, (x, layer.weight, layer.bias), d_out)  # outside of the block
        rounded, weight, d_rounded = (t.detach().bfloat16().double() for t in (x, layer.weight, d_out))
        close = partial(torch.testing.assert_close, rtol=2**-7, atol=2**-7, check_dtype=False)
        close(narrow, rounded @ weight.T + layer.bias)
        close(slopes[0], d_rounded @ weight)
        close(slopes[1], d_rounded.T @ rounded)
        torch.testing.assert_close(slopes[2], d_out.sum(0))
        assert narrow.dtype == slopes[1].dtype == torch.float32
        assert (layer(x) - narrow).abs().max() > 1e-4, "outside of the block, products are exact again"

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_rows_of_zeros_change_no_result(self, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
        """oneDNN compiles code for every shape; rounded numbers of rows keep the shapes few."""
        monkeypatch.setattr(matmul, "_SMALL", 0)
        monkeypatch.setattr(matmul, "fastest_library", lambda: "onednn")
        assert {len(matmul.pad_rows(random(rows, 3), dtype, 1)) for rows in range(1, 129)} == {64, 128}
        layer, gold = glorot_linear(47, 41), torch.arange(50) % 23
        known = random(50, 47).requires_grad_(), layer.weight, random(23, 41, seed=3).requires_grad_()
        found = []
        for multiple in (1, 64):
            monkeypatch.setattr(matmul, "_ROWS", multiple)
            with matmul.narrow_products() if dtype == torch.bfloat16 else nullcontext():
                loss = objective.smoothed_loss(layer(known[0]), known[2], gold, 0.1).smoothed
            found.append([loss, *torch.autograd.grad(loss, known)])
        torch.testing.assert_close(found[0], found[1])

    def test_each_thread_has_its_own_width_of_products(self) -> None:
        with matmul.narrow_products(), ThreadPoolExecutor(1) as other:
            assert matmul.products_are_narrow()
            assert not other.submit(matmul.products_are_narrow).result()
        assert not matmul.products_are_narrow()

    def test_fast_batches_leave_pytorchs_setting_as_it_was(self, monkeypatch: pytest.MonkeyPatch) -> None:
        setting = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
        before = setting.fp32_precision
        monkeypatch.setattr(matmul, "fastest_library", lambda: "onednn")
        with matmul.fast_batches():
            assert setting.fp32_precision == "bf16"
        assert setting.fp32_precision == before
        monkeypatch.setattr(matmul, "fastest_library", lambda: "torch")
        with matmul.fast_batches():
            assert setting.fp32_precision == before

    def test_a_linear_layer_equals_pytorchs(self) -> None:
        ours, x = glorot_linear(7, 4), random(5, 7).requires_grad_()
        nn.init.normal_(ours.bias)
        known = (x, ours.weight, ours.bias)
        theirs = nn.functional.linear(*known)
        torch.testing.assert_close(ours(x), theirs)
        slopes = torch.autograd.grad(ours(x).square().sum(), known)
        torch.testing.assert_close(slopes, torch.autograd.grad(theirs.square().sum(), known))

    def test_numpys_threads_are_limited_inside_the_context(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(matmul, "fastest_library", lambda: "numpy")
        matmul._pools()
        with matmul.limit_blas_threads(1):
            assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}
