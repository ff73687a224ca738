"""Adam compared with one written by hand, its saved state, Muon, and the moving average."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from heedful.config import Family, ModelConfig, Positions, TrainConfig
from heedful.errors import FolderError
from heedful.kernels.matmul import narrow_products
from heedful.models.build import build_seq2seq
from heedful.models.size import Vocabulary
from heedful.training.optimizer import (
    MovingAverage,
    load_optimizer,
    make_optimizer,
    optimizer_tensors,
    orthogonalise,
    set_learning_rate,
)


def small_model(seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(3, 5)


def gradients(step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(5, 3, generator=generator), torch.randn(5, generator=generator)]


def update(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, rate: float = 0.01) -> None:
    for parameter, gradient in zip(model.parameters(), gradients(step), strict=True):
        parameter.grad = gradient
    set_learning_rate(optimizer, rate * step)
    optimizer.step()


def adam_by_hand(weights: list[Tensor], steps: int, decay: list[float]) -> list[Tensor]:
    """Kingma and Ba's algorithm 1, in double precision; decay is decoupled (Loshchilov and Hutter)."""
    result = []
    for place, start in enumerate(weights):
        weight = start.detach().double()
        m, v = torch.zeros_like(weight), torch.zeros_like(weight)
        for step in range(1, steps + 1):
            gradient, rate = gradients(step)[place].double(), 0.01 * step
            weight = weight * (1.0 - rate * decay[place])
            m = 0.9 * m + 0.1 * gradient  # the constants of section 5.3
            v = 0.98 * v + 0.02 * gradient**2
            m_hat, v_hat = m / (1.0 - 0.9**step), v / (1.0 - 0.98**step)
            weight = weight - rate * m_hat / (v_hat.sqrt() + 1e-9)
        result.append(weight.float())
    return result


@pytest.mark.parametrize(
    ("config", "decay"),
    [
        (TrainConfig(), [0.0, 0.0]),
        (TrainConfig(weight_decay=0.3), [0.3, 0.0]),
    ],
    ids=["paper", "decay-of-matrices"],
)
def test_three_updates_are_adams(config: TrainConfig, decay: list[float]) -> None:
    model = small_model()
    expected = adam_by_hand(list(model.parameters()), 3, decay)
    optimizer = make_optimizer(model, config)
    for step in (1, 2, 3):
        update(model, optimizer, step)
    for parameter, by_hand in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.detach(), by_hand)


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_the_rate_is_set_for_all_weights(decay: float) -> None:
    optimizer = make_optimizer(small_model(), TrainConfig(weight_decay=decay))
    assert {group["lr"] for group in optimizer.param_groups} == {0.0}
    set_learning_rate(optimizer, 0.25)
    assert {group["lr"] for group in optimizer.param_groups} == {0.25}


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_a_loaded_optimizer_continues_to_the_same_bits(decay: float) -> None:
    config = TrainConfig(weight_decay=decay)
    model, twin = small_model(), small_model()
    optimizer, other = make_optimizer(model, config), make_optimizer(twin, config)
    update(model, optimizer, 1)
    update(model, optimizer, 2)
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(model, optimizer).items()}
    twin.load_state_dict(model.state_dict())
    load_optimizer(twin, other, saved)
    update(model, optimizer, 3)
    update(twin, other, 3)
    assert all(map(torch.equal, model.parameters(), twin.parameters()))
    assert torch.equal(saved["step.weight"], torch.tensor(2.0))  # loading makes a copy


def test_the_state_is_named_after_the_weights_and_empty_at_first() -> None:
    model = small_model()
    optimizer = make_optimizer(model, TrainConfig())
    assert optimizer_tensors(model, optimizer) == {}
    update(model, optimizer, 1)
    assert optimizer_tensors(model, optimizer).keys() == {
        f"{moment}.{name}" for moment in ("exp_avg", "exp_avg_sq", "step") for name in ("weight", "bias")
    }


def test_an_empty_state_can_be_loaded() -> None:
    model = small_model()
    optimizer = make_optimizer(model, TrainConfig())
    load_optimizer(model, optimizer, {})
    assert optimizer_tensors(model, optimizer) == {}


def test_the_state_of_another_model_is_refused() -> None:
    model = small_model()
    optimizer = make_optimizer(model, TrainConfig())
    update(model, optimizer, 1)
    tensors = optimizer_tensors(model, optimizer)
    del tensors["exp_avg_sq.bias"]
    with pytest.raises(FolderError) as caught:
        load_optimizer(model, optimizer, tensors)
    assert str(caught.value) == "the checkpoint has no optimizer state for bias; it belongs to a different model"


def test_the_state_moves_to_the_device_of_the_weights() -> None:
    """A checkpoint is read into main memory, but the weights may be on a GPU; the meta device stands in for it."""
    model = small_model()
    optimizer = make_optimizer(model, TrainConfig())
    update(model, optimizer, 1)
    saved = optimizer_tensors(model, optimizer)
    far = small_model().to("meta")
    memory = torch.optim.Adam(far.parameters())
    load_optimizer(far, memory, saved)
    assert {tensor.device.type for state in memory.state.values() for tensor in state.values()} == {"meta"}


class TestMovingAverage:
    def set(self, model: nn.Module, value: float) -> None:
        for parameter in model.parameters():
            nn.init.constant_(parameter, value)

    def test_three_updates_by_hand(self) -> None:
        """The decay is min(decay, (1 + step) / (10 + step)): 2/11, 3/12, and then 0.3 instead of 4/13 = 0.307..."""
        model = small_model()
        self.set(model, 1.0)
        average = MovingAverage(model, decay=0.3)
        self.set(model, 2.0)
        average.update(model, 1)
        assert average.weights["bias"][0].item() == pytest.approx(2 / 11 * 1.0 + 9 / 11 * 2.0)
        before = average.weights["bias"][0].item()
        average.update(model, 2)
        assert average.weights["bias"][0].item() == pytest.approx(0.25 * before + 0.75 * 2.0)
        before = average.weights["weight"][4, 2].item()
        self.set(model, -3.0)
        average.update(model, 3)
        assert average.weights["weight"][4, 2].item() == pytest.approx(0.3 * before + 0.7 * -3.0)

    def test_after_many_updates_the_decay_is_the_configured_one(self) -> None:
        model = small_model()
        self.set(model, 0.0)
        average = MovingAverage(model, decay=0.998)
        self.set(model, 1.0)
        average.update(model, 100_000)
        assert average.weights["bias"][0].item() == pytest.approx(0.002, rel=1e-4)

    def test_it_neither_changes_the_model_nor_shares_its_memory(self) -> None:
        model = small_model()
        average = MovingAverage(model, decay=0.5)
        before = [p.detach().clone() for p in model.parameters()]
        average.weights["weight"].zero_()
        average.update(model, 1)
        assert all(map(torch.equal, model.parameters(), before))

    def test_it_is_loaded_by_name(self) -> None:
        average = MovingAverage(small_model(), decay=0.5)
        other = MovingAverage(small_model(seed=1), decay=0.5)
        other.load(dict(reversed(average.weights.items())))
        assert torch.equal(other.weights["weight"], average.weights["weight"])
        assert torch.equal(other.weights["bias"], average.weights["bias"])
        assert other.weights["bias"] is not average.weights["bias"]


# Muon


@pytest.mark.parametrize("columns", [24, 30, 40, 96])  # square, nearly square, wide: two ways to iterate
def test_orthogonalise_keeps_directions_and_equalises_singular_values(columns: int) -> None:
    torch.manual_seed(1)
    left, _, right = torch.linalg.svd(torch.randn(3, 24, columns), full_matrices=False)
    values = torch.logspace(-1.5, 0.0, 24)  # the largest is 30 times the smallest
    matrices = left * values @ right * torch.tensor([1e-12, 1.0, 1e15]).view(3, 1, 1)
    scaled = orthogonalise(matrices[1:])
    lengths = (left.mT @ orthogonalise(matrices) @ right.mT).diagonal(dim1=1, dim2=2)  # in the original directions
    assert ((lengths[1:] > 0.85) & (lengths[1:] < 1.1)).all()
    assert ((lengths[0] >= 0.0) & (lengths[0] < 1.1)).all()  # next to nothing: no direction is trusted
    assert torch.allclose(scaled, left[1:] @ right[1:], atol=0.1)
    assert torch.allclose(scaled, torch.stack([orthogonalise(one[None])[0] for one in matrices[1:]]), atol=1e-5)
    assert torch.allclose(orthogonalise(matrices.mT), orthogonalise(matrices).mT, atol=1e-6)
    assert torch.equal(orthogonalise(torch.zeros(1, 24, columns)), torch.zeros(1, 24, columns))


@pytest.mark.parametrize("columns", [24, 30, 40, 96])
def test_orthogonalise_in_bfloat16_does_the_same_a_little_less_exactly(columns: int) -> None:
    torch.manual_seed(1)
    left, _, right = torch.linalg.svd(torch.randn(3, 24, columns), full_matrices=False)
    matrices = left * torch.logspace(-1.0, 0.0, 24) @ right
    with torch.autocast("cpu", torch.bfloat16):  # as on a GPU
        cast = orthogonalise(matrices)
    for scaled in (orthogonalise(matrices.bfloat16()), cast):
        assert scaled.dtype == torch.bfloat16
        assert torch.allclose(left.mT @ scaled.float() @ right.mT, torch.eye(24), atol=0.25)


def test_muon_works_in_bfloat16_where_training_multiplies_in_it() -> None:
    exact, narrow = wide_model(), wide_model()
    for model, block in ((exact, nullcontext()), (narrow, narrow_products())):
        optimizer = make_optimizer(model, TrainConfig(optimizer="muon"))
        set_learning_rate(optimizer, 0.1)
        model.weight.grad = torch.randn(24, 40, generator=torch.Generator().manual_seed(2))
        with block:
            optimizer.step()
    moved = exact.weight - wide_model().weight
    assert narrow.weight.dtype == torch.float32
    assert 0.0 < (narrow.weight - exact.weight).norm() < 0.05 * moved.norm()


def wide_model() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(40, 24)


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_muon_moves_matrices_like_pytorchs_and_everything_else_like_adam(decay: float) -> None:
    model, matrix, vector = small_model(), small_model(), small_model()
    # Their one polynomial, applied so often, gives singular values of 1 too.
    theirs = torch.optim.Muon(
        [matrix.weight], lr=0.0, weight_decay=decay, adjust_lr_fn="match_rms_adamw",
        ns_coefficients=(1.875, -1.25, 0.375), ns_steps=20,
    )  # fmt: skip
    adam = make_optimizer(vector, TrainConfig(weight_decay=decay))
    muon = make_optimizer(model, TrainConfig(optimizer="muon", weight_decay=decay))
    for step in range(1, 6):
        update(model, muon, step)
        update(vector, adam, step)
        matrix.weight.grad = gradients(step)[0]
        set_learning_rate(theirs, 0.01 * step)
        theirs.step()
    assert torch.equal(model.bias, vector.bias)
    moved = (model.weight - small_model().weight).norm()
    assert (model.weight - matrix.weight).norm() < 0.1 * moved  # ours stops after three rounds


def test_muon_continues_where_it_was_saved() -> None:
    config = TrainConfig(optimizer="muon")
    model = small_model()
    optimizer = make_optimizer(model, config)
    update(model, optimizer, 1)
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(model, optimizer).items()}
    assert saved.keys() == {"momentum.weight", "exp_avg.bias", "exp_avg_sq.bias", "step.bias"}
    twin = small_model()
    twin.load_state_dict(model.state_dict())
    other = make_optimizer(twin, config)
    load_optimizer(twin, other, saved)
    for step in (2, 3):
        update(model, optimizer, step)
        update(twin, other, step)
    assert torch.equal(model.weight, twin.weight)
    assert torch.equal(model.bias, twin.bias)


@pytest.mark.parametrize("family", ["transformer", "recurrent", "convolutional"])
def test_muon_moves_only_matrices_between_embeddings_and_output(family: Family) -> None:
    positions: Positions = "learned" if family == "convolutional" else "sinusoidal"
    config = ModelConfig(
        family=family, d_model=16, d_ff=32, num_heads=4, encoder_layers=1, decoder_layers=1, positions=positions,
        sharing="none",
    )  # fmt: skip
    model = build_seq2seq(config, Vocabulary(11, 13, 0, 1))
    optimizer = make_optimizer(model, TrainConfig(optimizer="muon"))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    matrices, *others = ([names[id(p)] for p in group["params"]] for group in optimizer.param_groups)
    assert sorted([*matrices, *(name for several in others for name in several)]) == sorted(names.values())
    assert matrices
    tables = {name for name in names.values() if name.endswith(("embedding.weight", "own_output.weight"))}
    assert "own_output.weight" in tables
    assert tables <= set(others[0])
