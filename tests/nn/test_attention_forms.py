"""Every form of equation 1 gives the result of `attend`, and `attend_heads` chooses the one that is expected."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from heedful.nn import attention as attention_module
from heedful.nn.attention import (
    CrossAttention,
    SelfAttention,
    attend,
    attend_fused,
    attend_heads,
    attend_plain,
    attend_windowed,
)
from heedful.nn.compiled_attention import attend_compiled, attend_pooled
from heedful.nn.key_values import CachedKeyValues, KeyValues, PackedKeyValues, PooledKeyValues, SpanKeyValues
from heedful.nn.layout import Layout
from heedful.nn.masks import key_mask
from heedful.nn.multi_head import ScaledDotProductAttention
from heedful.nn.noise import sentence_keys
from heedful.nn.positions import DistanceBias

# All sizes differ, so that mixing up two axes shows.
D_MODEL, HEADS, D_K, D_V = 6, 2, 3, 5
ALL_KEYS, ALL_VALUES = HEADS * D_K, HEADS * D_V
LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=5)
PAIRS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def lay_out(lengths: list[int]) -> Layout:
    return Layout.of(torch.tensor(lengths), sentence_keys(1, 4, torch.arange(len(lengths))))


def self_attention(
    dropout: float = 0.0, window: int = 0, max_distance: int = 0, scale: float | None = None
) -> SelfAttention:
    bias = DistanceBias(HEADS, max_distance) if max_distance else None
    if bias is not None:
        torch.nn.init.normal_(bias.weight, generator=torch.Generator().manual_seed(3))
    return SelfAttention(D_MODEL, HEADS, D_K, D_V, dropout, window, bias, scale)


def cross_attention(scale: float | None = None) -> CrossAttention:
    return CrossAttention(D_MODEL, HEADS, D_K, D_V, 0.0, scale)


def within(lengths: list[int], causal: bool) -> tuple[Tensor, PackedKeyValues]:
    """Rows for self-attention: queries, keys and values side by side."""
    layout = lay_out(lengths)
    return random(sum(lengths), 2 * ALL_KEYS + ALL_VALUES), PackedKeyValues(None, layout, layout, causal)


def between(lengths: list[tuple[int, int]]) -> tuple[Tensor, PackedKeyValues]:
    """Rows for cross-attention: queries in one tensor, keys and values in another."""
    here, there = lay_out([n for n, _ in lengths]), lay_out([m for _, m in lengths])
    rows = random(sum(m for _, m in lengths), ALL_KEYS + ALL_VALUES, seed=1)
    return random(sum(n for n, _ in lengths), ALL_KEYS), PackedKeyValues(rows, here, there, causal=False)


def by_hand(
    queries: Tensor,
    key_values: PackedKeyValues,
    window: int = 0,
    bias: DistanceBias | None = None,
    scale: float | None = None,
) -> Tensor:
    """`attend` sentence by sentence, query by query and head by head, over the keys that the query may attend to."""
    here, there = key_values.query_layout, key_values.key_layout
    rows = queries[:, ALL_KEYS:] if key_values.rows is None else key_values.rows
    found = []
    sentences = zip(queries.split(here.lengths.tolist()), rows.split(there.lengths.tolist()), strict=True)
    for q, kv in sentences:
        for i in range(len(q)):
            first = max(0, i - window) if window else 0
            last = i if key_values.causal else i + window if window else len(kv)
            near, heads = kv[first : last + 1], []
            for head in range(HEADS):
                keys = near[:, head * D_K : (head + 1) * D_K]
                values = near[:, ALL_KEYS + head * D_V : ALL_KEYS + (head + 1) * D_V]
                query, added = q[i : i + 1, head * D_K : (head + 1) * D_K], None
                if bias is not None:
                    added = torch.stack([bias(torch.tensor(first + j - i))[head] for j in range(len(near))])[None]
                heads.append(attend(query, keys, values, None, bias=added, scale=scale)[0])
            found.append(torch.cat(heads, dim=1))
    return torch.cat(found)


Form = Callable[[ScaledDotProductAttention, Tensor, PackedKeyValues], Tensor]
FORMS: dict[str, Form] = {
    "plain": attend_plain,
    "fused": attend_fused,
    "compiled": attend_compiled,
    "chosen": attend_heads,
}


class TestWholeSentences:
    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    @settings(deadline=None, max_examples=15)
    @given(lengths=LENGTHS, causal=st.booleans())
    def test_every_form_of_self_attention_equals_attend(self, form: Form, lengths: list[int], causal: bool) -> None:
        queries, key_values = within(lengths, causal)
        found = form(self_attention(), queries, key_values)
        torch.testing.assert_close(found, by_hand(queries, key_values), rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    @settings(deadline=None, max_examples=15)
    @given(lengths=PAIRS)
    def test_every_form_of_cross_attention_equals_attend(self, form: Form, lengths: list[tuple[int, int]]) -> None:
        queries, key_values = between(lengths)
        found = form(cross_attention(), queries, key_values)
        torch.testing.assert_close(found, by_hand(queries, key_values), rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("form", [attend_plain, attend_windowed, attend_heads])
    @settings(deadline=None, max_examples=15)
    @given(lengths=LENGTHS, causal=st.booleans(), window=st.integers(1, 10))
    def test_a_window_equals_attend_over_the_nearby_keys(
        self, form: Form, lengths: list[int], causal: bool, window: int
    ) -> None:
        queries, key_values = within(lengths, causal)
        found = form(self_attention(window=window), queries, key_values)
        torch.testing.assert_close(found, by_hand(queries, key_values, window), rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    @settings(deadline=None, max_examples=15)
    @given(lengths=LENGTHS, causal=st.booleans(), max_distance=st.integers(1, 10))
    def test_every_form_adds_the_bias_by_distance(
        self, form: Form, lengths: list[int], causal: bool, max_distance: int
    ) -> None:
        attention, (queries, key_values) = self_attention(max_distance=max_distance), within(lengths, causal)
        expected = by_hand(queries, key_values, bias=attention.bias)
        torch.testing.assert_close(form(attention, queries, key_values), expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    def test_every_form_uses_another_scale(self, form: Form) -> None:
        queries, key_values = within([4, 7, 1], causal=True)
        found = form(self_attention(scale=0.3), queries, key_values)
        torch.testing.assert_close(found, by_hand(queries, key_values, scale=0.3), rtol=1e-4, atol=1e-5)
        queries, key_values = between([(2, 5), (4, 3)])
        found = form(cross_attention(scale=0.3), queries, key_values)
        torch.testing.assert_close(found, by_hand(queries, key_values, scale=0.3), rtol=1e-4, atol=1e-5)

    def test_a_window_uses_another_scale(self) -> None:
        queries, key_values = within([4, 7, 1], causal=False)
        found = attend_windowed(self_attention(window=2, scale=0.3), queries, key_values)
        torch.testing.assert_close(found, by_hand(queries, key_values, 2, scale=0.3), rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("form", [attend_plain, attend_windowed])
    @pytest.mark.parametrize("causal", [False, True])
    def test_a_window_adds_the_bias_by_distance(self, form: Form, causal: bool) -> None:
        attention, (queries, key_values) = self_attention(window=2, max_distance=4), within([4, 7, 1], causal)
        expected = by_hand(queries, key_values, 2, attention.bias)
        torch.testing.assert_close(form(attention, queries, key_values), expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("causal", [False, True])
    def test_compiled_and_plain_drop_the_same_weights(self, causal: bool) -> None:
        attention, (queries, key_values) = self_attention(dropout=0.4), within([4, 7, 1], causal)
        compiled = attend_compiled(attention, queries, key_values)
        torch.testing.assert_close(compiled, attend_plain(attention, queries, key_values), rtol=1e-4, atol=1e-5)
        assert not torch.allclose(compiled, by_hand(queries, key_values), atol=1e-2)

    @pytest.mark.parametrize("form", [attend_fused, attend_windowed, attend_compiled])
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("max_distance", [0, 3])
    def test_gradients_equal_those_of_the_plain_form(self, form: Form, causal: bool, max_distance: int) -> None:
        attention = self_attention(window=2 if form is attend_windowed else 0, max_distance=max_distance)
        queries, key_values = within([4, 7, 1], causal)
        inputs = [queries.requires_grad_(), *([] if attention.bias is None else [attention.bias.weight])]
        direction, found = random(12, ALL_VALUES, seed=2), []
        for each in (form, attend_plain):
            outputs = each(attention, queries, key_values)
            found.append(torch.autograd.grad((outputs * direction).sum(), inputs))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


class TestOnePosition:
    """Three hypotheses with different histories; two have the same source."""

    SLOTS = torch.tensor([[3, 0, 6, 2], [3, 0, 5, 1], [7, 8, 4, 9]])
    FIRST, SOURCE_LENGTHS = torch.tensor([2, 2, 5]), torch.tensor([3, 3, 6])

    def pool(self) -> tuple[Tensor, Tensor, Tensor]:
        return random(3, ALL_KEYS), random(11, ALL_KEYS, seed=1), random(11, ALL_VALUES, seed=2)

    def expected(self, slots: list[list[int]]) -> Tensor:
        queries, keys, values = self.pool()
        found = []
        for query, own in zip(queries, slots, strict=True):
            parts = query.split(D_K), keys[own].split(D_K, dim=1), values[own].split(D_V, dim=1)
            found.append(torch.cat([attend(q[None], k, v, None)[0][0] for q, k, v in zip(*parts, strict=True)]))
        return torch.stack(found)

    def spans(self) -> list[list[int]]:
        ends = (self.FIRST + self.SOURCE_LENGTHS).tolist()
        return [list(range(first, end)) for first, end in zip(self.FIRST.tolist(), ends, strict=True)]

    @torch.inference_mode()
    @pytest.mark.parametrize("form", [attend_pooled, attend_plain, attend_heads])
    def test_slots_of_a_pool_equal_attend_over_their_rows(self, form: Callable[..., Tensor]) -> None:
        queries, keys, values = self.pool()
        found = form(self_attention(), queries, PooledKeyValues(keys, values, self.SLOTS))
        torch.testing.assert_close(found, self.expected(self.SLOTS.tolist()), rtol=1e-4, atol=1e-5)

    @torch.inference_mode()
    @pytest.mark.parametrize("form", [attend_pooled, attend_plain, attend_heads])
    def test_spans_of_packed_sources_equal_attend_over_their_rows(self, form: Callable[..., Tensor]) -> None:
        queries, keys, values = self.pool()
        key_values = SpanKeyValues(keys, values, self.FIRST, self.SOURCE_LENGTHS)
        found = form(cross_attention(), queries, key_values)
        torch.testing.assert_close(found, self.expected(self.spans()), rtol=1e-4, atol=1e-5)

    @torch.inference_mode()
    @pytest.mark.parametrize("form", [attend_plain, attend_heads])
    def test_a_grid_of_cached_keys_equals_attend_without_the_padding(self, form: Callable[..., Tensor]) -> None:
        queries, keys, values = self.pool()
        spans = SpanKeyValues(keys, values, self.FIRST, self.SOURCE_LENGTHS)
        _, k, v = spans.grids(queries, self_attention().head_sizes)
        mask = key_mask(torch.arange(6) < self.SOURCE_LENGTHS[:, None])
        found = form(self_attention(), queries, CachedKeyValues(k, v, mask))
        torch.testing.assert_close(found, self.expected(self.spans()), rtol=1e-4, atol=1e-5)


class TestChoice:
    def chosen(self, attention: ScaledDotProductAttention, queries: Tensor, key_values: KeyValues) -> str:
        """The form that runs."""
        names = ("plain", "fused", "windowed", "compiled", "pooled")
        called: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            for name in names:
                patch.setattr(attention_module, f"attend_{name}", self.record(called, name, len(queries)))
            attend_heads(attention, queries, key_values)
        (form,) = called
        return form

    def record(self, called: list[str], name: str, rows: int) -> Callable[..., Tensor]:
        def form(*_: object) -> Tensor:
            called.append(name)
            return torch.zeros(rows, ALL_VALUES)

        return form

    def test_training_on_a_cpu_takes_the_compiled_form(self) -> None:
        assert self.chosen(self_attention(), *within([3, 4], True)) == "compiled"
        assert self.chosen(self_attention(dropout=0.1), *within([3, 4], True)) == "compiled"

    def test_without_gradients_or_in_another_type_the_plain_form_runs(self) -> None:
        queries, key_values = within([3, 4], False)
        assert self.chosen(self_attention(), queries.double(), key_values) == "plain"
        with torch.no_grad():
            assert self.chosen(self_attention(), queries, key_values) == "plain"
        with torch.autocast("cpu", torch.bfloat16):
            assert self.chosen(self_attention(), queries, key_values) == "plain"

    def test_dropout_without_keys_takes_the_plain_form(self) -> None:
        layout = Layout.of(torch.tensor([3, 4]))
        queries, key_values = random(7, 2 * ALL_KEYS + ALL_VALUES), PackedKeyValues(None, layout, layout, False)
        assert self.chosen(self_attention(dropout=0.1), queries, key_values) == "plain"
        assert self.chosen(self_attention(dropout=0.1).eval(), queries, key_values) == "compiled"

    def test_a_window_runs_in_blocks_unless_weights_are_dropped(self) -> None:
        assert self.chosen(self_attention(window=2), *within([3, 4], True)) == "windowed"
        assert self.chosen(self_attention(0.1, window=2), *within([3, 4], True)) == "plain"

    def test_a_pooled_cache_takes_the_pooled_form(self) -> None:
        queries, keys, values = random(2, ALL_KEYS), random(4, ALL_KEYS), random(4, ALL_VALUES)
        pooled = PooledKeyValues(keys, values, torch.tensor([[0, 1], [2, 3]]))
        spans = SpanKeyValues(keys, values, torch.tensor([0, 2]), torch.tensor([2, 2]))
        cached = CachedKeyValues(random(2, HEADS, 3, D_K), random(2, HEADS, 3, D_V), None)
        forms = [self.chosen(self_attention(), queries, each) for each in (pooled, spans, cached)]
        assert forms == ["pooled", "pooled", "plain"]

    @pytest.mark.parametrize("gated", [True, False], ids=["gated", "read"])
    def test_heads_that_are_read_or_gated_take_the_plain_form(self, gated: bool) -> None:
        queries, keys, values = random(2, ALL_KEYS), random(4, ALL_KEYS), random(4, ALL_VALUES)
        pooled = PooledKeyValues(keys, values, torch.tensor([[0, 1], [2, 3]]))
        for attention in (self_attention(), self_attention(window=2)):
            if gated:
                attention.gates = torch.ones(HEADS)
            else:
                attention.weights_hook = lambda weights: None
            assert self.chosen(attention, *within([3, 4], True)) == "plain"
            assert self.chosen(attention, queries, pooled) == "plain"

    def test_cuda_takes_the_fused_kernels(self) -> None:
        _, key_values = within([3, 4], True)
        with FakeTensorMode():
            queries = torch.empty(7, 2 * ALL_KEYS + ALL_VALUES, device="cuda")
        assert self.chosen(self_attention(), queries, key_values) == "fused"
        assert self.chosen(self_attention(dropout=0.1), queries, key_values) == "fused"
        assert self.chosen(self_attention(window=2), queries, key_values) == "windowed"
