"""The parts of the network, one by one."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from fake_mps import fake_mps
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from heedful.config import Activation
from heedful.nn.attention import CrossAttention, SelfAttention, attend
from heedful.nn.dropout import Dropout, drop_words
from heedful.nn.embedding import Embedding
from heedful.nn.feed_forward import FeedForward, activate
from heedful.nn.layout import Layout
from heedful.nn.linear import glorot_linear
from heedful.nn.masks import causal_mask, key_mask
from heedful.nn.multi_head import join_heads, split_heads
from heedful.nn.noise import sentence_keys
from heedful.nn.positions import LearnedPositions, SinusoidalPositions, sinusoids
from heedful.nn.residual import Residual, layer_norm

LENGTHS = st.lists(st.integers(1, 7), min_size=1, max_size=6)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class TestAttend:
    @settings(deadline=None)
    @given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**32 - 1))
    def test_a_masked_key_has_weight_exactly_zero_and_rows_sum_to_one(
        self, batch: int, queries: int, keys: int, seed: int
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        q, k, v = (
            9 * torch.randn(batch, n, width, generator=generator) for n, width in ((queries, 3), (keys, 3), (keys, 8))
        )
        mask = torch.rand(batch, queries, keys, generator=generator) < 0.5
        mask[..., seed % keys] = True  # every query has a key
        output, weights = attend(q, k, v, mask)
        assert (weights[~mask] == 0.0).all()
        assert (weights >= 0.0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(batch, queries))
        torch.testing.assert_close(output, weights @ v)

    def test_it_is_equation_1_with_the_root_of_d_k(self) -> None:
        q, k, v = random(4, 9), random(6, 9, seed=1), random(6, 5, seed=2)
        output, weights = attend(q, k, v, None)
        by_hand = torch.stack([torch.exp(torch.stack([q[i].dot(k[j]) / 3.0 for j in range(6)])) for i in range(4)])
        by_hand /= by_hand.sum(-1, keepdim=True)
        torch.testing.assert_close(weights, by_hand)
        torch.testing.assert_close(output, sum(by_hand[:, j, None] * v[j] for j in range(6)))

    def test_it_equals_pytorchs_own_attention(self) -> None:
        q, k, v = random(2, 3, 4, 5), random(2, 3, 6, 5, seed=1), random(2, 3, 6, 7, seed=2)
        mask = key_mask(torch.tensor([[True] * 6, [True] * 4 + [False] * 2]))
        output, _ = attend(q, k, v, mask)
        torch.testing.assert_close(output, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))

    def test_masked_keys_and_values_have_no_effect(self) -> None:
        q, k, v = random(4, 5), random(6, 5, seed=1), random(6, 7, seed=2)
        mask = torch.tensor([True, True, False, True, False, True]).expand(4, 6)
        changed_k, changed_v = k.clone(), v.clone()
        changed_k[[2, 4]], changed_v[[2, 4]] = 1e30, 1e30
        assert torch.equal(attend(q, k, v, mask)[0], attend(q, changed_k, changed_v, mask)[0])

    def test_a_query_without_any_key_gives_nan(self) -> None:
        output, _ = attend(random(1, 3), random(2, 3), random(2, 4), torch.tensor([[False, False]]))
        assert output.isnan().all()

    def test_dropout_acts_on_the_weights_and_the_returned_weights_are_those_before_it(self) -> None:
        q, k, v = random(4, 5), random(6, 5, seed=1), random(6, 7, seed=2)
        keep = torch.tensor([0.0, 2.0, 2.0, 0.0, 2.0, 0.0]).expand(4, 6)
        output, weights = attend(q, k, v, None, keep)
        torch.testing.assert_close(output, (weights * keep) @ v)
        torch.testing.assert_close(weights.sum(-1), torch.ones(4))


class TestHeads:
    def test_split_and_join_are_inverse(self) -> None:
        x = random(3, 4, 10)
        assert torch.equal(join_heads(split_heads(x, 5)), x)

    def test_head_n_has_the_nth_block_of_columns(self) -> None:
        x = random(3, 4, 10)
        assert torch.equal(split_heads(x, 5)[:, 2], x[..., 4:6])

    def test_self_attention_is_the_heads_side_by_side(self) -> None:
        """Section 3.2.2, head by head with matrices cut out of the joint one."""
        attention = SelfAttention(d_model=8, num_heads=2, d_k=3, d_v=5, dropout=0.0)
        x, layout = random(4, 8), Layout.of(torch.tensor([4]))
        joint = attention.query_key_value.weight
        heads = []
        for head in range(2):
            w_q, w_k = joint[3 * head : 3 * head + 3], joint[6 + 3 * head : 9 + 3 * head]
            w_v = joint[12 + 5 * head : 17 + 5 * head]
            weights = torch.softmax((x @ w_q.T) @ (x @ w_k.T).T / math.sqrt(3), dim=-1)
            heads.append(weights @ (x @ w_v.T))
        by_hand = torch.cat(heads, dim=-1) @ attention.output.weight.T
        torch.testing.assert_close(attention(x, layout, causal=False), by_hand)


class TestLayout:
    @settings(deadline=None)
    @given(LENGTHS)
    def test_pack_undoes_pad(self, lengths: list[int]) -> None:
        layout = Layout.of(torch.tensor(lengths))
        x = random(sum(lengths), 3)
        grid = layout.pad(x)
        assert grid.shape == (len(lengths), max(lengths), 3)
        assert torch.equal(layout.pack(grid), x)

    @settings(deadline=None)
    @given(LENGTHS)
    def test_a_sentence_starts_at_column_0_of_its_row_and_the_rest_is_zero(self, lengths: list[int]) -> None:
        layout = Layout.of(torch.tensor(lengths))
        x = random(sum(lengths), 3)
        grid = layout.pad(x)
        for row, sentence in enumerate(x.split(lengths)):
            assert torch.equal(grid[row, : len(sentence)], sentence)
            assert (grid[row, len(sentence) :] == 0.0).all()
            assert layout.mask[row].tolist() == [column < len(sentence) for column in range(max(lengths))]
        assert layout.positions.tolist() == [place for n in lengths for place in range(n)]

    def test_pad_is_the_same_on_mps_where_rows_are_written_in_another_way(self) -> None:
        layout, x = Layout.of(torch.tensor([3, 1, 4])), random(8, 5)
        with fake_mps() as device:
            moved = Layout.of(layout.lengths.to(device))
            assert torch.equal(moved.pad(x.to(device)).cpu(), layout.pad(x))

    @settings(deadline=None, max_examples=20)
    @given(LENGTHS)
    def test_pad_and_pack_are_transposes_of_each_other(self, lengths: list[int]) -> None:
        """<pad(x), y> is <x, pack(y)>, and so are the gradients."""
        layout = Layout.of(torch.tensor(lengths))
        x = random(sum(lengths), 3).double().requires_grad_()
        y = random(len(lengths), max(lengths), 3, seed=1).double().requires_grad_()
        torch.testing.assert_close((layout.pad(x) * y).sum(), (x * layout.pack(y)).sum())
        (of_pad,) = torch.autograd.grad(layout.pad(x), x, y)
        (of_pack,) = torch.autograd.grad(layout.pack(y), y, x)
        assert torch.equal(of_pad, layout.pack(y))
        assert torch.equal(of_pack, layout.pad(x))

    @pytest.mark.parametrize("lengths", [[2, 4, 1], [3, 3]], ids=["ragged", "full"])
    def test_gradients_agree_with_finite_differences(self, lengths: list[int]) -> None:
        layout = Layout.of(torch.tensor(lengths))
        x = random(sum(lengths), 2).double().requires_grad_()
        y = random(len(lengths), max(lengths), 2).double().requires_grad_()
        assert torch.autograd.gradcheck(layout.pad, (x,))
        assert torch.autograd.gradcheck(layout.pack, (y,))


def row_keys(rows: int) -> Tensor:
    return torch.randint(0, 2**32, (rows,), generator=torch.Generator().manual_seed(8))


class TestDropout:
    ROWS, WIDTH = 3001, 131

    def dropped(self, p: float) -> Tensor:
        return Dropout(p)(torch.ones(self.ROWS, self.WIDTH), row_keys(self.ROWS))

    @pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.999])
    def test_the_share_of_zeros_is_p_and_the_mean_is_preserved(self, p: float) -> None:
        y = self.dropped(p)
        five_sigma = 5.0 * math.sqrt(p * (1.0 - p) / y.numel())
        assert abs((y == 0.0).double().mean().item() - p) < five_sigma
        assert abs(y.double().mean().item() - 1.0) < five_sigma / (1.0 - p)
        kept = y[y != 0.0]
        assert (kept == kept[0]).all()
        assert kept[0].item() == pytest.approx(1.0 / (1.0 - p))

    @pytest.mark.parametrize(("down", "right"), [(0, 1), (0, 2), (0, 64), (1, 0), (1, 1), (7, 3)])
    def test_neighbours_are_dropped_independently(self, down: int, right: int) -> None:
        """Neighbouring rows and columns have neighbouring keys, but their dropout must be independent."""
        p, gone = 0.3, self.dropped(0.3) == 0.0
        both = (gone[down:, right:] & gone[: self.ROWS - down, : self.WIDTH - right]).double().mean().item()
        assert abs(both - p * p) < 5.0 * math.sqrt(p * p * (1.0 - p * p) / gone.numel())

    def test_two_sites_drop_independently(self) -> None:
        p, x, keys = 0.3, torch.ones(self.ROWS, self.WIDTH), row_keys(self.ROWS)
        one, other = Dropout(p), Dropout(p)
        other.site = 1
        both = ((one(x, keys) == 0.0) & (other(x, keys) == 0.0)).double().mean().item()
        assert abs(both - p * p) < 5.0 * math.sqrt(p * p * (1.0 - p * p) / x.numel())

    @pytest.mark.parametrize(("p", "values"), [(0.0, {1.0}), (0.75, {0.0, 4.0}), (1.0, {0.0})])
    def test_a_mask_holds_only_zero_and_the_scale(self, p: float, values: set[float]) -> None:
        assert set(Dropout(p)(torch.ones(5, 7), row_keys(5)).flatten().tolist()) == values

    def test_a_rows_dropout_depends_on_its_key_and_not_on_its_place(self) -> None:
        x, keys, order = random(5, 11), row_keys(5), torch.tensor([3, 0, 4, 1, 2])
        assert torch.equal(Dropout(0.4)(x, keys)[order], Dropout(0.4)(x[order], keys[order]))

    def test_without_keys_pytorch_draws_the_mask(self) -> None:
        x, masked = random(5, 11), []
        for seed in (3, 3, 4):
            torch.manual_seed(seed)
            masked.append(Dropout(0.4)(x, None))
        assert torch.equal(masked[0], masked[1])
        assert not torch.equal(masked[0], masked[2])

    def test_evaluation_is_the_identity(self) -> None:
        x = random(5, 11)
        assert Dropout(0.4).eval()(x, row_keys(5)) is x

    def test_dropout_of_zero_is_the_identity(self) -> None:
        x = random(5, 11)
        assert Dropout(0.0).train()(x, row_keys(5)) is x

    def test_the_gradient_passes_where_the_value_passed(self) -> None:
        x = torch.ones(7, 11, requires_grad=True)
        y = Dropout(0.4)(x, row_keys(7))
        y.sum().backward()
        assert x.grad is not None
        assert torch.equal(x.grad, y)

    def test_other_devices_use_pytorchs_dropout(self) -> None:
        assert Dropout(0.4)(torch.empty(5, 7, device="meta"), torch.empty(5, dtype=torch.int64)).shape == (5, 7)

    def test_its_repr_shows_p(self) -> None:
        assert repr(Dropout(0.4)) == "Dropout(p=0.4)"


class TestPositions:
    def test_sine_at_even_and_cosine_at_odd_dimensions(self) -> None:
        """Section 3.5, value by value."""
        table = sinusoids(torch.tensor([0, 1, 3, 50]), 6)
        for row, position in enumerate((0, 1, 3, 50)):
            for i in range(3):
                angle = position / 10_000.0 ** (2 * i / 6)
                assert table[row, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
                assert table[row, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)

    def test_position_0_is_zeros_and_ones(self) -> None:
        assert sinusoids(torch.tensor([0]), 8).tolist() == [[0.0, 1.0] * 4]

    def test_late_positions_are_as_accurate_as_early_ones(self) -> None:
        """In single precision, angles would be wrong by 1e-3 at position 20 000."""
        assert sinusoids(torch.tensor([20_000]), 4)[0, 0].item() == pytest.approx(math.sin(20_000.0), abs=1e-7)

    def test_an_odd_width_ends_in_a_sine(self) -> None:
        assert sinusoids(torch.tensor([2]), 5)[0, 4].item() == pytest.approx(math.sin(2 / 10_000.0**0.8), abs=1e-7)

    def test_the_table_grows_with_the_longest_sentence(self) -> None:
        positions = SinusoidalPositions(6)
        short = positions(torch.arange(4), 4)
        long = positions(torch.arange(1301), 1301)
        assert torch.equal(long[:4], short)
        torch.testing.assert_close(long, sinusoids(torch.arange(1301), 6))

    def test_the_table_is_not_saved_with_the_weights(self) -> None:
        positions = SinusoidalPositions(6)
        positions(torch.arange(4), 4)
        assert positions.state_dict() == {}
        assert list(positions.parameters()) == []

    def test_a_table_made_while_translating_also_serves_training(self) -> None:
        positions, weight = SinusoidalPositions(6), torch.ones(4, 6, requires_grad=True)
        with torch.inference_mode():
            positions(torch.arange(9), 9)
        (weight * (positions(torch.arange(4), 4) + weight)).sum().backward()
        assert weight.grad is not None

    def test_learned_positions_past_the_table_use_its_last_row(self) -> None:
        positions = LearnedPositions(6, 5)
        rows = positions(torch.tensor([0, 4, 5, 900]), 901)
        assert torch.equal(rows, positions.weight[[0, 4, 4, 4]])


class TestEmbedding:
    def test_its_standard_deviation_is_d_model_to_the_minus_half_and_look_up_scales_it(self) -> None:
        torch.manual_seed(1)
        embedding = Embedding(vocabulary=3001, d_model=64, pad_id=2, scale=64**0.5)
        rows = embedding.weight[torch.arange(3001) != 2]
        assert rows.std().item() == pytest.approx(1.0 / 8.0, rel=0.01)
        assert abs(rows.mean().item()) < 0.001
        assert torch.equal(embedding(torch.tensor([5, 9])), 8.0 * embedding.weight[[5, 9]])
        assert embedding(torch.arange(3, 3001)).std().item() == pytest.approx(1.0, rel=0.01)

    def test_the_row_of_pad_is_zero_and_gets_no_gradient(self) -> None:
        embedding = Embedding(vocabulary=11, d_model=6, pad_id=2, scale=6**0.5)
        assert (embedding.weight[2] == 0.0).all()
        (embedding(torch.tensor([2, 3])) @ embedding.as_output.T).exp().sum().backward()
        assert embedding.weight.grad is not None
        assert (embedding.weight.grad[2] == 0.0).all()
        assert (embedding.weight.grad[4] != 0.0).any()


class TestLinear:
    @pytest.mark.parametrize(
        ("make", "inputs", "outputs"),
        [
            (lambda: glorot_linear(40, 120), 40, 120),
            # The paper's code initialises Q, K and V as one matrix of d x 3d, and K and V of the source as d x 2d.
            (lambda: SelfAttention(48, 4, 12, 12, 0.0).query_key_value, 48, 3 * 48),
            (lambda: SelfAttention(48, 4, 8, 20, 0.0).query_key_value, 48, 4 * (8 + 8 + 20)),
            (lambda: CrossAttention(48, 4, 12, 12, 0.0).key_value, 48, 2 * 48),
            (lambda: CrossAttention(48, 4, 8, 20, 0.0).query, 48, 32),
            (lambda: CrossAttention(48, 4, 8, 20, 0.0).output, 80, 48),
            (lambda: FeedForward(48, 100, "relu", 0.0).inner, 48, 100),
            (lambda: FeedForward(48, 100, "relu", 0.0).outer, 100, 48),
        ],
        ids=["plain", "d x 3d", "q k v", "d x 2d", "query", "output", "inner", "outer"],
    )
    def test_weights_are_glorot_uniform_and_biases_zero(
        self, make: Callable[[], nn.Linear], inputs: int, outputs: int
    ) -> None:
        torch.manual_seed(6)
        layer = make()
        bound = math.sqrt(6.0 / (inputs + outputs))
        assert layer.weight.shape == (outputs, inputs)
        assert 0.98 * bound < layer.weight.abs().max().item() <= bound
        assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3.0), rel=0.05)
        assert (layer.bias == 0.0).all()


class TestFeedForward:
    def test_it_is_equation_2(self) -> None:
        part, x = FeedForward(5, 9, "relu", 0.0), random(4, 5)
        nn.init.normal_(part.inner.bias)
        nn.init.normal_(part.outer.bias)
        inner = (x @ part.inner.weight.T + part.inner.bias).clamp(min=0.0)
        torch.testing.assert_close(part(x), inner @ part.outer.weight.T + part.outer.bias)

    @pytest.mark.parametrize(
        ("activation", "at_minus_one"),
        [
            ("relu", 0.0),
            ("gelu", -0.15865525),
            ("gelu-tanh", -0.15880801),
            ("swish", -0.26894143),
            ("quick-gelu", -0.15420423),
        ],
    )
    def test_the_named_activation_is_used(self, activation: Activation, at_minus_one: float) -> None:
        """GELU is x times the normal distribution function, which at -1 is 0.15865525; Swish times the logistic."""
        assert activate(torch.tensor([-1.0]), activation).item() == pytest.approx(at_minus_one, abs=1e-7)

    def test_its_dropout_is_between_the_activation_and_the_second_layer(self) -> None:
        part, x, keys = FeedForward(5, 9, "relu", 0.5), random(4, 5), row_keys(4)
        inner = part.dropout(torch.relu(part.inner(x)), keys)
        assert (inner == 0.0).float().mean() > 0.5
        torch.testing.assert_close(part(x, keys), part.outer(inner))


class TestResidual:
    def normalised(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)  # biased
        return centred / (variance + 1e-6).sqrt() * norm.weight + norm.bias

    def test_post_norm_is_as_in_the_paper(self) -> None:
        part, x = Residual(6, 0.0, "post"), 1e-3 * random(4, 6)  # so small that epsilon matters
        nn.init.normal_(part.norm.weight)
        nn.init.normal_(part.norm.bias)
        torch.testing.assert_close(part(x, None, torch.sin), self.normalised(x + torch.sin(x), part.norm))

    def test_pre_norm_leaves_the_residual_path_free(self) -> None:
        part, x = Residual(6, 0.0, "pre"), 1e-3 * random(4, 6)
        nn.init.normal_(part.norm.weight)
        torch.testing.assert_close(part(x, None, torch.sin), x + torch.sin(self.normalised(x, part.norm)))

    @pytest.mark.parametrize("grad", [True, False], ids=["compiled", "plain"])
    def test_dropout_acts_on_the_sub_layers_output_before_the_sum(self, grad: bool) -> None:
        x, keys = random(4, 6), row_keys(4)
        with torch.set_grad_enabled(grad):
            for place in ("post", "pre"):
                part = Residual(6, 0.5, place)
                y = part(x, keys, torch.sin)
                if place == "post":
                    torch.testing.assert_close(y, part.norm(x + part.dropout(torch.sin(x), keys)))
                else:
                    torch.testing.assert_close(y, x + part.dropout(torch.sin(part.norm(x)), keys))

    def test_epsilon_is_one_millionth(self) -> None:
        assert layer_norm(6).eps == 1e-6


def test_a_position_may_attend_to_itself_and_earlier_ones() -> None:
    assert causal_mask(3, torch.device("cpu")).tolist() == [[True, False, False], [True, True, False], [True] * 3]


@pytest.mark.parametrize("keyed", [True, False])
def test_word_dropout_hides_words_at_random_whatever_the_batch(keyed: bool) -> None:
    torch.manual_seed(1)
    ids, lengths = torch.arange(1, 30_001), torch.full((300,), 100)
    keys = sentence_keys(3, 5, torch.arange(300)) if keyed else None
    hidden = drop_words(ids, lengths, keys, pad_id=0, site=7, p=0.2)
    kept = hidden != 0
    assert torch.equal(hidden[kept], ids[kept])
    assert (~kept).float().mean().item() == pytest.approx(0.2, abs=0.01)
    assert 0.25 < (kept[:-1] == kept[1:]).float().mean().item() < 0.75  # 0.68 if neighbours are independent
    if keys is not None:
        assert torch.equal(drop_words(ids[200:500], lengths[2:5], keys[2:5], pad_id=0, site=7, p=0.2), hidden[200:500])
        assert not torch.equal(drop_words(ids, lengths, keys, pad_id=0, site=8, p=0.2), hidden)
