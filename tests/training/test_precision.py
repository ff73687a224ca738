"""Types other than float32, recomputed layers and compilation, as far as a CPU can run them."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import toy
from model_examples import FAMILIES, SMALL, example, fresh, fresh_of_family, update_of
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from heedful.config import PrecisionKind, TrainConfig
from heedful.device import choose_device, measure_memory
from heedful.errors import Diverged
from heedful.kernels import matmul
from heedful.models.transformer import Transformer
from heedful.nn import loss as objective
from heedful.nn.loss import smoothed_loss
from heedful.storage.sharded_tensors import gather_tensor
from heedful.training.checkpointing import RunProgress, make_checkpoint, restore_checkpoint
from heedful.training.distributed import SummedLoss, shard_module
from heedful.training.gradients import Objective, SequentialGradients, ThreadedGradients
from heedful.training.loop import TrainingState, set_up_layers, training_steps
from heedful.training.optimizer import make_optimizer
from heedful.training.precision import Precision, choose_precision
from heedful.training.process_group import ProcessGroup

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
CONFIG = TrainConfig(schedule="constant", learning_rate=0.01, warmup_steps=0)
# A smooth activation: with ReLU, a sum that is rounded across zero would switch a whole unit on or off.
NOISY = replace(SMALL, dropout=0.3, attention_dropout=0.2, activation_dropout=0.1, activation="gelu")
PARTS = example([4, 11, 7], [5, 2, 6]), example([3, 8], [9, 4])


@pytest.fixture(autouse=True)
def _no_product_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """In training, only products of some size are worth rounding."""
    monkeypatch.setattr(matmul, "_SMALL", 0)


def gradients_of(model: nn.Module) -> dict[str, Tensor]:
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert len(found) == len(list(model.parameters()))
    return found


def learnt(kind: Precision, step: int = 1) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of the small model with its dropout, unscaled."""
    model = fresh(NOISY).train()
    optimizer = make_optimizer(model, CONFIG)
    loss = SequentialGradients(model, Objective(0.1, 1, kind))(update_of(*PARTS), step)
    kind.unscale(optimizer)
    return loss, gradients_of(model)


class Autocast(Precision):
    """As on a GPU, where autocast chooses the type of each operator."""

    def cast(self) -> AbstractContextManager[None]:
        return torch.autocast("cpu", self.dtype)


class TestChoice:
    def test_another_cpu_uses_float32_without_a_warning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": False})
        assert choose_precision("auto", CPU) == (torch.float32, "")
        assert choose_precision("float32", CPU) == (torch.float32, "")

    def test_mps_uses_float32_unless_set_otherwise(self) -> None:
        assert choose_precision("auto", torch.device("mps")) == (torch.float32, "")
        assert choose_precision("float16", torch.device("mps")) == (torch.float16, "")

    @pytest.mark.parametrize(
        ("wanted", "has", "expected"),
        [
            ("auto", True, torch.bfloat16),
            ("auto", False, torch.float16),
            ("float32", True, torch.float32),
            ("float16", True, torch.float16),
            ("bfloat16", True, torch.bfloat16),
        ],
    )
    def test_a_gpu_uses_bfloat16_if_it_supports_it(
        self, monkeypatch: pytest.MonkeyPatch, wanted: PrecisionKind, has: bool, expected: torch.dtype
    ) -> None:
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has)
        assert choose_precision(wanted, CUDA) == (expected, "")

    def test_an_unsupported_type_gives_a_warning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": False})
        monkeypatch.setattr("platform.machine", lambda: "x86_64")
        assert choose_precision("bfloat16", CUDA) == (
            torch.float32,
            "train.precision is bfloat16, but this GPU does not support it (it does support float16): float32 is used",
        )
        for wanted in ("bfloat16", "float16"):
            assert choose_precision(wanted, CPU) == (
                torch.float32,
                f"train.precision is {wanted}, but this processor (x86_64) has no instructions for it and would be "
                "many times slower: float32 is used",
            )

    @pytest.mark.parametrize("name", ["avx512_bf16", "amx_bf16"])
    def test_a_cpu_with_bfloat16_uses_it(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, name: True})
        assert choose_precision("bfloat16", CPU) == choose_precision("auto", CPU) == (torch.bfloat16, "")
        assert choose_precision("float32", CPU) == (torch.float32, "")

    def test_cuda_multiplies_float32_in_tf32_and_others_do_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []
        monkeypatch.setattr(torch, "set_float32_matmul_precision", asked.append)
        choose_device("cpu")
        assert asked == []
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        assert choose_device("auto") == CUDA
        assert asked == ["high"]


class TestNarrowTypes:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
    def test_losses_and_gradients_are_near_those_of_float32(self, dtype: torch.dtype) -> None:
        loss, gradients = learnt(Precision())
        near, narrow = learnt(Precision(dtype))
        rounding = torch.finfo(dtype).eps
        assert near == pytest.approx(loss, rel=2 * rounding)
        assert near != loss  # products are really computed in that type
        assert {gradient.dtype for gradient in narrow.values()} == {torch.float32}
        apart = torch.cat([(narrow[name] - gradients[name]).flatten() for name in gradients])
        assert apart.norm() < 4 * rounding * torch.cat([g.flatten() for g in gradients.values()]).norm()

    def test_float32_is_not_cast(self) -> None:
        model = fresh(NOISY).train()
        loss = SequentialGradients(model, Objective(0.1, 1))(update_of(*PARTS), 1)
        again, gradients = learnt(Precision(torch.float32, CPU))
        assert again == loss
        assert all(torch.equal(gradients[name], gradient) for name, gradient in gradients_of(model).items())

    def test_every_worker_casts_in_its_own_thread(self) -> None:
        """Autocast belongs to a thread."""
        kind = Precision(torch.bfloat16)
        model = fresh(NOISY).train()
        alone, _ = learnt(kind)
        assert ThreadedGradients(model, Objective(0.1, 1, kind), 2)(update_of(*PARTS), 1) == pytest.approx(
            alone, rel=1e-6
        )

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
    @pytest.mark.parametrize("chunk", [70, 10**6])
    def test_the_loss_keeps_its_logits_in_float32(
        self, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, chunk: int
    ) -> None:
        """If the products are exact in both types, so is the result."""
        features = torch.eye(4, requires_grad=True)
        weight = torch.randint(-8, 9, (23, 4), generator=torch.Generator().manual_seed(1)).float().requires_grad_()
        gold = torch.tensor([3, 0, 22, 7])
        exact = smoothed_loss(features, weight, gold, 0.1)
        monkeypatch.setattr(objective, "_CHUNK_ELEMENTS", chunk)
        with torch.autocast("cpu", dtype):
            cast = smoothed_loss(features, weight, gold, 0.1)
            with torch.no_grad():
                validated = smoothed_loss(features, weight, gold, 0.1)
        torch.testing.assert_close((cast.smoothed, cast.plain), (exact.smoothed, exact.plain))
        torch.testing.assert_close((validated.smoothed, validated.plain), (exact.smoothed, exact.plain))
        ours = torch.autograd.grad(cast.smoothed, (features, weight))
        theirs = torch.autograd.grad(exact.smoothed, (features, weight))
        for narrow, wide in zip(ours, theirs, strict=True):
            assert narrow.dtype == torch.float32
            assert (narrow - wide).norm() < 2 * torch.finfo(dtype).eps * wide.norm()

    def test_features_in_a_narrow_type_are_accepted(self) -> None:
        features = torch.eye(4, dtype=torch.bfloat16, requires_grad=True)
        loss = smoothed_loss(features, torch.zeros(23, 4), torch.tensor([3, 0, 22, 7]), 0.1)
        assert loss.smoothed.dtype == torch.float32
        assert loss.smoothed.item() == pytest.approx(4 * math.log(23), rel=1e-6)

    def test_float16_keeps_the_tiny_gradients_of_unlikely_tokens(self) -> None:
        """Each of 20 000 tokens has a target of 5e-7, where float16 has only one digit."""
        generator = torch.Generator().manual_seed(1)
        features = 0.1 * torch.randn(6, 8, generator=generator)
        weight = 0.1 * torch.randn(20_000, 8, generator=generator)
        features[:, 0], weight[:6, 0] = 6.0, 3.0  # the gold tokens are nearly certain
        weight.requires_grad_()
        (wide,) = torch.autograd.grad(smoothed_loss(features, weight, torch.arange(6), 0.01).smoothed, weight)
        with torch.autocast("cpu", torch.float16):
            (narrow,) = torch.autograd.grad(smoothed_loss(features, weight, torch.arange(6), 0.01).smoothed, weight)
        others = slice(6, None)
        assert (narrow[others] - wide[others]).norm() < 0.002 * wide[others].norm()

    @pytest.mark.parametrize(
        ("rows", "size", "scale"), [(1, 60.0, 0.1), (3, 300.0, 0.01), (2, 4.0, 20.0), (40, 90.0, 0.1)]
    )
    def test_large_features_and_weights_do_not_overflow_float16(self, rows: int, size: float, scale: float) -> None:
        """Neither do few rows, as in the last chunk of a batch."""
        generator = torch.Generator().manual_seed(1)
        features = size * torch.randn(rows, 12, generator=generator).sign().requires_grad_()
        weight = (scale * torch.randn(50, 12, generator=generator)).requires_grad_()
        gold = torch.randint(50, (rows,), generator=generator)
        exact = torch.autograd.grad(smoothed_loss(features, weight, gold, 0.1).smoothed, (features, weight))
        with torch.autocast("cpu", torch.float16):
            near = torch.autograd.grad(smoothed_loss(features, weight, gold, 0.1).smoothed, (features, weight))
        for one, other in zip(near, exact, strict=True):
            assert one.isfinite().all()
            assert (one - other).norm() < 0.02 * other.norm()


class TestRecurrentLayers:
    """On CUDA, autocast of any type makes cuDNN compute recurrent layers in float16."""

    @pytest.fixture
    def cudnn(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Makes PyTorch's recurrent layers cast as cuDNN's do; lists the calls under autocast."""
        calls: list[str] = []

        def as_cudnn(forward: Callable[..., Any]) -> Callable[..., Any]:
            def run(layer: nn.Module, x: Any, state: Any = None) -> Any:
                if not torch.is_autocast_enabled("cpu"):
                    return forward(layer, x, state)
                calls.append(type(layer).__name__)
                with torch.autocast("cpu", enabled=False):
                    return tree_map(halve, forward(layer, tree_map(widen, x), tree_map(widen, state)))

            return run

        def widen(x: Any) -> Any:
            return x.half().float() if isinstance(x, Tensor) and x.is_floating_point() else x

        def halve(x: Any) -> Any:
            return x.half() if isinstance(x, Tensor) and x.is_floating_point() else x

        for kind in (nn.LSTM, nn.GRU):
            monkeypatch.setattr(kind, "forward", as_cudnn(kind.forward))
        return calls

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("name", [name for name, config in FAMILIES.items() if config.family == "recurrent"])
    def test_they_are_computed_in_float32(self, name: str, dtype: torch.dtype, cudnn: list[str]) -> None:
        found = []
        for kind in (Precision(), Precision(dtype, CPU)):
            model = fresh_of_family(replace(FAMILIES[name], dropout=0.2)).train()
            loss = SequentialGradients(model, Objective(0.1, 1, kind))(update_of(*PARTS), 1)
            kind.unscale(make_optimizer(model, CONFIG))
            found.append((loss, gradients_of(model)))
        assert cudnn == []
        (loss, exact), (near, gradients) = found
        assert near == pytest.approx(loss, rel=1e-2)
        for weight, gradient in exact.items():
            error = (gradients[weight] - gradient).norm() / gradient.norm().clamp(min=1e-3)
            assert error < 0.06, weight


class TestScale:
    def state(self, kind: Precision, poisoned: int = 0) -> TrainingState:
        """A state in which one gradient is infinite, the first `times` times."""
        model = fresh(SMALL)
        calls: list[int] = []

        def poison(gradient: Tensor) -> Tensor:
            calls.append(1)
            return gradient * math.inf if len(calls) <= poisoned else gradient

        model.encoder[0].feed_forward.inner.bias.register_hook(poison)
        return TrainingState(model, make_optimizer(model, CONFIG), None, precision=kind)

    def steps(self, state: TrainingState, count: int) -> list[tuple[int, float]]:
        """Updates skipped so far and the scale, after each update."""
        work = SequentialGradients(state.model, Objective(0.1, 1, state.precision))
        events = training_steps(state, [update_of(*PARTS)] * count, work, 12, CONFIG)
        return [(event.skipped, state.precision.scaler.get_scale()) for event in events]

    def test_only_the_backward_pass_is_scaled(self) -> None:
        kind = Precision(torch.float16)
        model = fresh(SMALL)
        loss = SequentialGradients(model, Objective(0.1, 1, kind))(update_of(*PARTS), 1)
        scaled = gradients_of(model)["decoder.1.feed_forward.outer.bias"].clone()
        kind.unscale(make_optimizer(model, CONFIG))
        torch.testing.assert_close(scaled / 65536.0, gradients_of(model)["decoder.1.feed_forward.outer.bias"])
        assert 2.0 < loss < 6.0

    def test_an_overflow_skips_the_update_and_halves_the_scale(self) -> None:
        state = self.state(Precision(torch.float16), poisoned=2)
        before = {name: p.detach().clone() for name, p in state.model.named_parameters()}
        # Each update has two parts, so the first one has both poisoned gradients.
        assert self.steps(state, 1) == [(1, 32768.0)]
        assert all(torch.equal(before[name], p) for name, p in state.model.named_parameters())
        assert state.step == 1
        assert self.steps(state, 1) == [(1, 32768.0)]
        assert not torch.equal(before["target_embedding.weight"], state.model.get_parameter("target_embedding.weight"))

    def test_an_overflow_without_a_scale_is_divergence(self) -> None:
        state = self.state(Precision(torch.float16), poisoned=100)
        with pytest.raises(Diverged, match=r"^at step 17 "):
            self.steps(state, 20)
        assert state.skipped == 16  # 65536 is two to the sixteenth

    def test_a_loss_of_nan_is_not_blamed_on_the_scale(self) -> None:
        state = self.state(Precision(torch.float16))
        with torch.no_grad():
            state.model.get_parameter("decoder.1.feed_forward.outer.bias")[3] = math.nan
        with pytest.raises(Diverged, match=r"^at step 1 .* the loss is nan"):
            self.steps(state, 1)

    def test_without_float16_an_infinite_gradient_is_divergence_at_once(self) -> None:
        with pytest.raises(Diverged, match=r"^at step 1 "):
            self.steps(self.state(Precision(torch.bfloat16), poisoned=1), 1)

    def test_the_scale_grows_after_many_good_updates(self) -> None:
        state = self.state(Precision(torch.float16))
        state.precision.scaler.set_growth_interval(3)
        assert [scale for _, scale in self.steps(state, 4)] == [65536.0, 65536.0, 131072.0, 131072.0]

    def test_a_checkpoint_keeps_it_as_plain_numbers(self) -> None:
        state = self.state(Precision(torch.float16), poisoned=2)
        self.steps(state, 3)
        saved = make_checkpoint(state, RunProgress(), {}, CPU)
        values = json.loads(json.dumps(saved.state))
        assert values["precision"]["scale"] == 32768.0
        assert values["precision"]["_growth_tracker"] == 2
        other = self.state(Precision(torch.float16))
        restore_checkpoint(other, replace(saved, state=values), CPU)
        assert other.precision.state() == state.precision.state()
        assert self.steps(other, 1) == self.steps(state, 1)

    def test_a_run_may_resume_in_another_type(self) -> None:
        state = self.state(Precision(torch.float16))
        self.steps(state, 1)
        other = self.state(Precision())
        restore_checkpoint(other, make_checkpoint(state, RunProgress(), {}, CPU), CPU)
        assert other.precision.state() == {}
        back = self.state(Precision(torch.float16))
        restore_checkpoint(back, make_checkpoint(other, RunProgress(), {}, CPU), CPU)
        assert back.precision.state()["scale"] == 65536.0

    def test_an_update_without_gradients_changes_nothing(self) -> None:
        kind = Precision(torch.float16)
        optimizer = make_optimizer(fresh(SMALL), CONFIG)
        for _ in range(2):
            kind.unscale(optimizer)
            kind.adapt(optimizer)
        assert kind.state()["_growth_tracker"] == 0


class TestSeveralProcesses:
    class Group(ProcessGroup):
        """A second process, whose first one has chosen another type."""

        rank = 1

        def run_on_first(self, work: Callable[[], Any]) -> Any:
            return "torch.bfloat16"

    def test_processes_that_would_choose_different_types_all_use_float32(self) -> None:
        found = Precision.of("float32", CPU, self.Group())
        assert found.dtype == torch.float32
        assert found.warning == (
            "process 1 would compute in torch.float32, the first in torch.bfloat16: all use float32; "
            "set train.precision = 'float16' if all GPUs support it"
        )
        assert Precision.of("float32", CPU, ProcessGroup()).warning == ""

    @pytest.fixture
    def alone(self, tmp_path: Path) -> Iterator[None]:
        """A group of one process, for FSDP2."""
        dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)  # type: ignore[attr-defined]
        yield
        dist.destroy_process_group()

    @pytest.mark.usefixtures("alone")
    @pytest.mark.parametrize("name", ["transformer", "gru-multiplicative", "convolutional"])
    def test_sharded_weights_are_gathered_in_the_narrow_type(self, name: str) -> None:
        """Otherwise autocast would keep a narrow copy of every whole weight until the backward pass."""
        config, types = replace(FAMILIES[name], dropout=0.2), set[torch.dtype]()
        model = fresh_of_family(config).train()
        loss = SummedLoss(model, Objective(0.1, 1, Autocast(torch.bfloat16, CPU)))
        shard_module(loss, CPU, 1, torch.bfloat16)
        for part in model.modules():
            if isinstance(part, nn.Linear):
                part.register_forward_pre_hook(lambda layer, _: types.add(layer.weight.dtype))
        found = loss(PARTS[0], 1, 0.1)
        found.backward()
        exact = fresh_of_family(config).train()
        expected = Objective(0.1, 1).add_gradient(exact, PARTS[0], 1, 0.1)
        assert types == {torch.bfloat16}
        assert found.item() == pytest.approx(expected.item(), rel=1e-2)
        for weight, sharded in zip(exact.parameters(), model.parameters(), strict=True):
            assert weight.grad is not None
            gradient = gather_tensor(sharded.grad)  # type: ignore[arg-type]
            assert (sharded.dtype, gradient.dtype) == (torch.float32, torch.float32)
            assert (gradient - weight.grad).norm() < 0.06 * weight.grad.norm().clamp(min=1e-3)


class TestGenerators:
    @pytest.mark.parametrize("device", ["cuda", "mps"])
    def test_a_checkpoint_keeps_the_generator_of_the_device(self, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """PyTorch's generator draws dropout there."""
        generators: dict[str, Tensor] = {}
        module = getattr(torch, device)
        monkeypatch.setattr(module, "get_rng_state", lambda *_: torch.tensor([3, 1, 4], dtype=torch.uint8))
        monkeypatch.setattr(module, "set_rng_state", lambda state, *_: generators.update({device: state}))
        model = fresh(NOISY)
        state = TrainingState(model, make_optimizer(model, CONFIG), None)
        checkpoint = make_checkpoint(state, RunProgress(), {}, torch.device(device))
        restore_checkpoint(state, checkpoint, torch.device(device))
        assert generators[device].tolist() == [3, 1, 4]
        restore_checkpoint(state, make_checkpoint(state, RunProgress(), {}, CPU), torch.device(device))


class TestCheckpointedActivations:
    def counted(self, model: Transformer) -> list[int]:
        calls: list[int] = []
        model.encoder[0].feed_forward.register_forward_hook(lambda *_: calls.append(1))
        return calls

    @pytest.mark.parametrize("norm", ["post", "pre"])
    @pytest.mark.parametrize("workers", [1, 2])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_losses_and_gradients_are_the_same_bits(self, norm: str, workers: int, dtype: torch.dtype) -> None:
        found = []
        for keep in (True, False):
            model = fresh(replace(NOISY, norm=norm, encoder_layers=3)).train()  # type: ignore[arg-type]
            model.checkpoint_activations = not keep
            aim = Objective(0.1, 1, Precision(dtype))
            work = ThreadedGradients(model, aim, workers) if workers > 1 else SequentialGradients(model, aim)
            found.append((work(update_of(*PARTS), 1), gradients_of(model)))
        (loss, gradients), (other_loss, others) = found
        assert loss == other_loss
        assert all(torch.equal(gradients[name], others[name]) for name in gradients)

    def test_recomputed_dropout_without_keys_is_the_same(self) -> None:
        """As on other devices, where PyTorch's generator draws the mask."""
        found = []
        for keep in (True, False):
            model = fresh(NOISY).train()
            model.checkpoint_activations = not keep
            torch.manual_seed(8)
            batch = PARTS[0]
            memory = model.encode(batch.source, batch.source_lengths)
            model.features(batch.target_in, batch.target_lengths, memory).square().sum().backward()
            found.append(gradients_of(model))
        assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])

    def test_a_layer_runs_twice_in_training_and_once_otherwise(self) -> None:
        model = fresh(SMALL)
        model.checkpoint_activations = True
        calls = self.counted(model)
        SequentialGradients(model.train(), Objective(0.1, 1))(update_of(PARTS[0]), 1)
        assert len(calls) == 2
        with torch.no_grad():
            model.encode(PARTS[0].source, PARTS[0].source_lengths)
        model.eval().encode(PARTS[0].source, PARTS[0].source_lengths)
        assert len(calls) == 4

    def test_it_is_off_by_default(self) -> None:
        model = fresh(SMALL).train()
        calls = self.counted(model)
        assert set_up_layers(model, TrainConfig(), CPU) == ""
        SequentialGradients(model, Objective(0.1, 1))(update_of(PARTS[0]), 1)
        assert len(calls) == 1
        set_up_layers(model, TrainConfig(checkpoint_activations=True), CPU)
        assert model.checkpoint_activations


class TestCompile:
    @pytest.fixture
    def compiled(self, monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
        """Records the layers to compile, and compiles none."""
        modules: list[nn.Module] = []
        monkeypatch.setattr(nn.Module, "compile", lambda module, dynamic: modules.append(module) if dynamic else None)
        return modules

    def test_a_cpu_compiles_nothing_and_says_so(self, compiled: list[nn.Module]) -> None:
        assert set_up_layers(fresh(SMALL), TrainConfig(compile=True), CPU) == (
            "train.compile is true, but on a CPU heedful's own kernels are faster, so nothing is compiled"
        )
        assert compiled == []

    def test_on_other_devices_every_layer_is_compiled(self, compiled: list[nn.Module]) -> None:
        model = fresh(SMALL)
        assert set_up_layers(model, TrainConfig(), CUDA) == ""
        assert compiled == []
        assert set_up_layers(model, TrainConfig(compile=True), CUDA) == ""
        assert compiled == [model.encoder[0], model.decoder[0], model.decoder[1]]


class TestReports:
    def test_a_run_reports_its_memory_and_unsupported_settings(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
        source, target = toy.write_pairs(tmp_path, "train", 300, seed=11)
        wanted = ("precision=bfloat16", "compile=true", "checkpoint_activations=true", "max_steps=12")
        with toy.plain_log():
            ran = toy.run(
                *("train", "--source", source, "--target", target, "--out", tmp_path / "run"),
                *toy.settings("train.validate_bleu=false", *(f"train.{setting}" for setting in wanted)),
            )
        assert ran.code == 0, ran.err
        told = " ".join(ran.err.split())
        assert "would be many times slower: float32 is used" in told
        assert "train.compile is true, but on a CPU" in told
        assert "MiB of memory (" in told
        about = json.loads((tmp_path / "run" / "about.json").read_text())
        (finished,) = toy.events(tmp_path / "run", "Finished")
        assert about["finished"]["peak_memory_mib"] == finished["peak_memory_mib"] > 50

    def test_memory_now_is_never_above_the_peak(self) -> None:
        used = measure_memory("cpu")
        assert 50 < used.now <= used.peak
