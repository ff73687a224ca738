"""The training loop: the parts of an update, NaN and infinity, events, and learning."""

import itertools
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
import torch
from model_examples import (
    PAD,
    SMALL,
    SOURCE_TYPES,
    TARGET_TYPES,
    add_gradients,
    batch_of,
    example,
    fresh,
    sentences,
    shaken,
    update_of,
)
from torch import Tensor, nn

from heedful.config import ModelConfig, OnNonFinite, TrainConfig
from heedful.data.batch import Batch, Position
from heedful.errors import Diverged
from heedful.models.transformer import Transformer
from heedful.training.events import Finished, Saved, Started, StepDone, Validated, event_to_json
from heedful.training.gradients import Objective, SequentialGradients, Update
from heedful.training.loop import TrainingState, gradient_norm, training_steps
from heedful.training.optimizer import MovingAverage, make_optimizer

CONFIG = TrainConfig(schedule="constant", learning_rate=0.01, warmup_steps=0, label_smoothing=0.1)


def learner_of(model: Transformer, config: TrainConfig, decay: float = 0.0) -> TrainingState:
    return TrainingState(model, make_optimizer(model, config), MovingAverage(model, decay) if decay else None)


def updates_of(*batches: Batch, epoch: int = 0) -> Iterator[Update]:
    for number, batch in enumerate(batches):
        yield update_of(batch, epoch=epoch, then=Position(epoch, number + 1))


def steps_of(state: TrainingState, updates: Iterable[Update], d_model: int, config: TrainConfig) -> Iterator[StepDone]:
    gradients = SequentialGradients(state.model, Objective(config.label_smoothing, seed=1))
    return training_steps(state, updates, gradients, d_model, config)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class TestAccumulation:
    SOURCES, TARGETS = (4, 11, 7, 2, 5), (5, 2, 6, 9, 3)

    def parts(self, *sizes: int) -> list[Batch]:
        sources = sentences(list(self.SOURCES), SOURCE_TYPES)
        targets = sentences(list(self.TARGETS), TARGET_TYPES, seed=4)
        cuts = [sum(sizes[:place]) for place in range(len(sizes) + 1)]
        return [batch_of(sources[a:b], targets[a:b]) for a, b in itertools.pairwise(cuts)]

    @pytest.mark.parametrize("sizes", [(2, 3), (1, 4), (1, 3, 1)])
    def test_parts_of_an_update_give_the_loss_and_gradients_of_the_whole(self, sizes: tuple[int, ...]) -> None:
        """They are divided by the tokens of all parts together, not by those of each part."""
        model = shaken(SMALL).double()
        whole = add_gradients(model, self.parts(5))
        gradients = {name: p.grad for name, p in model.named_parameters()}
        model.zero_grad(set_to_none=True)
        assert add_gradients(model, self.parts(*sizes), 0.1) == pytest.approx(whole, rel=1e-12)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.grad, gradients[name])

    def test_the_loss_is_a_mean_over_target_tokens(self) -> None:
        """A model whose weights are zero finds all tokens equally likely."""
        model = fresh(SMALL)
        with torch.no_grad():
            model.target_embedding.weight.zero_()
        loss = add_gradients(model, self.parts(2, 3))
        assert loss == pytest.approx(math.log(TARGET_TYPES), rel=1e-6)


class TestGradientNorm:
    def model(self) -> nn.Linear:
        model = nn.Linear(2, 1)
        model.weight.grad, model.bias.grad = torch.tensor([[3.0, 4.0]]), torch.tensor([12.0])
        return model

    def test_it_is_the_root_of_the_sum_of_squares(self) -> None:
        model = self.model()
        assert gradient_norm(model, 0.0) == pytest.approx(13.0)
        assert model.weight.grad is not None
        assert model.weight.grad.tolist() == [[3.0, 4.0]]

    def test_clipping_scales_gradients_down_to_the_limit_and_returns_the_norm_before(self) -> None:
        model = self.model()
        assert gradient_norm(model, 2.0) == pytest.approx(13.0)
        assert gradient_norm(model, 0.0) == pytest.approx(2.0, rel=1e-5)

    def test_clipping_leaves_small_gradients_alone(self) -> None:
        model = self.model()
        gradient_norm(model, 20.0)
        assert gradient_norm(model, 0.0) == pytest.approx(13.0)


class TestSteps:
    def test_an_event_describes_the_update(self) -> None:
        state = learner_of(fresh(SMALL), CONFIG)
        batch, other = example([4, 2], [5, 3]), example([3], [6])
        events = list(steps_of(state, [update_of(batch, other, epoch=2, then=Position(2, 7))], 12, CONFIG))
        assert len(events) == 1
        event = events[0]
        assert (event.step, event.epoch, event.learning_rate, event.skipped) == (1, 2, 0.01, 0)
        assert event.tokens == 4 + 2 + 5 + 3 + 3 + 6
        assert event.tokens_per_second > 0.0
        assert 0.0 < event.loss < 10.0
        assert event.gradient_norm > 0.0
        assert (state.step, state.position) == (1, Position(2, 7))

    def test_nothing_happens_before_the_first_event_is_requested(self) -> None:
        state = learner_of(fresh(SMALL), CONFIG)
        before = weights_of(state.model)
        steps = steps_of(state, updates_of(example([4], [5]), example([3], [6])), 12, CONFIG)
        assert same_bits(before, weights_of(state.model))
        assert next(steps).step == 1
        assert state.step == 1
        assert not same_bits(before, weights_of(state.model))

    def test_each_update_uses_the_rate_of_the_schedule(self) -> None:
        config = TrainConfig(warmup_steps=2)
        state = learner_of(fresh(SMALL), config)
        state.step = 1  # resumed
        batch = example([4], [5])
        rates = [event.learning_rate for event in steps_of(state, updates_of(batch, batch, batch), 12, config)]
        assert rates == pytest.approx([(12 * step) ** -0.5 for step in (2, 3, 4)])

    def test_gradients_of_one_update_do_not_reach_the_next(self) -> None:
        batch, other = example([4], [5]), example([3], [6])
        state, alone = learner_of(fresh(SMALL), CONFIG), fresh(SMALL)
        steps = steps_of(state, updates_of(batch, other), 12, CONFIG)
        next(steps)
        alone.load_state_dict(state.model.state_dict())
        add_gradients(alone, [other])
        assert next(steps).gradient_norm == pytest.approx(gradient_norm(alone, 0.0), rel=1e-6)

    def test_the_same_seed_trains_to_the_same_bits(self) -> None:
        trained = []
        for _ in range(2):
            state = learner_of(fresh(replace(SMALL, dropout=0.3)), CONFIG, decay=0.9)
            torch.manual_seed(3)
            events = list(steps_of(state, updates_of(example([4], [5]), example([3], [6])), 12, CONFIG))
            trained.append((weights_of(state.model), [event.loss for event in events]))
        assert same_bits(trained[0][0], trained[1][0])
        assert trained[0][1] == trained[1][1]

    def test_dropout_is_on_even_if_validation_turned_it_off(self) -> None:
        state = learner_of(fresh(replace(SMALL, dropout=0.3)).eval(), CONFIG)
        next(steps_of(state, updates_of(example([4], [5])), 12, CONFIG))
        assert state.model.training

    def test_the_average_follows(self) -> None:
        state = learner_of(fresh(SMALL), CONFIG, decay=0.9)
        before = weights_of(state.model)
        next(steps_of(state, updates_of(example([4], [5])), 12, CONFIG))
        after = weights_of(state.model)
        assert state.average is not None
        for name, weight in state.average.weights.items():
            torch.testing.assert_close(weight, before[name] * 2 / 11 + after[name] * 9 / 11)


class TestNotFinite:
    def poisoned(self, on_non_finite: OnNonFinite, times: int) -> tuple[TrainingState, TrainConfig]:
        """A state in which some gradients are NaN, the first `times` times."""
        config = replace(CONFIG, on_non_finite=on_non_finite, clip_norm=1.0)
        state = learner_of(fresh(SMALL), config, decay=0.9)
        calls: list[int] = []

        def poison(gradient: Tensor) -> Tensor:
            calls.append(1)
            return gradient * math.nan if len(calls) <= times else gradient

        state.model.encoder[0].feed_forward.inner.bias.register_hook(poison)  # type: ignore[index, union-attr]
        return state, config

    def test_stop_raises_with_the_weights_untouched_bit_for_bit(self) -> None:
        state, config = self.poisoned("stop", 1)
        before = weights_of(state.model)
        with pytest.raises(Diverged) as caught:
            next(steps_of(state, updates_of(example([4], [5])), 12, config))
        assert state.average is not None
        assert same_bits(before, weights_of(state.model))
        assert same_bits(before, state.average.weights)
        assert (state.step, state.skipped) == (0, 0)
        message = str(caught.value)
        assert message.startswith("at step 1 with learning rate 0.01 the loss is 4.02")
        assert message.endswith(
            " and its gradient norm nan; lower train.learning_rate or set train.on_non_finite = 'skip', "
            "and resume from the last checkpoint"
        )
        assert caught.value.exit_code == 6

    def test_skip_counts_and_leaves_the_weights_untouched(self) -> None:
        state, config = self.poisoned("skip", 2)
        before = weights_of(state.model)
        batches = example([4], [5]), example([3], [6]), example([2], [7])
        steps = steps_of(state, updates_of(*batches), 12, config)
        assert [next(steps).skipped, next(steps).skipped] == [1, 2]
        assert same_bits(before, weights_of(state.model))
        assert state.average is not None
        assert same_bits(before, state.average.weights)
        assert state.position == Position(0, 2)
        last = next(steps)
        assert (last.step, last.skipped) == (3, 2)
        assert math.isfinite(last.gradient_norm)
        after = weights_of(state.model)
        assert not same_bits(before, after)
        assert all(weight.isfinite().all() for weight in after.values())

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_a_loss_of_nan_is_refused_too(self, value: float) -> None:
        state = learner_of(fresh(SMALL), CONFIG)
        with torch.no_grad():
            state.model.get_parameter("decoder.1.feed_forward.outer.bias")[3] = value
        before = weights_of(state.model)
        with pytest.raises(Diverged, match=r"^at step 1 with learning rate 0.01 the loss is nan "):
            next(steps_of(state, updates_of(example([4], [5])), 12, CONFIG))
        after = weights_of(state.model)
        assert all(torch.equal(before[n].nan_to_num(7.0), after[n].nan_to_num(7.0)) for n in before)


class TestEvents:
    def test_an_event_is_a_line_of_json_named_by_its_kind(self) -> None:
        line = event_to_json(StepDone(3, 1, 1.23456789012345, 0.5, 2.0, 70, 1234.5))
        assert "\n" not in line
        assert json.loads(line) == {
            "event": "StepDone", "step": 3, "epoch": 1, "loss": 1.23456789, "learning_rate": 0.5, "gradient_norm": 2.0,
            "tokens": 70, "tokens_per_second": 1234.5, "skipped": 0,
        }  # fmt: skip

    @pytest.mark.parametrize(
        "event",
        [
            Started(0, 9, None, 5, 3, 1, "cpu"),
            Validated(3, 1.5, 4.5, None, "BLEU", True, 0.25),
            Saved(3, "a/b"),
            Finished(3, 'all "9" steps', 1.5, ""),
        ],
        ids=lambda event: type(event).__name__,
    )
    def test_every_event_survives_json(self, event: Started | Validated | Saved | Finished) -> None:
        read = json.loads(event_to_json(event))
        assert type(event)(**{key: value for key, value in read.items() if key != "event"}) == event

    @pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
    def test_nan_and_infinity_become_null(self, loss: float) -> None:
        assert '"loss": null' in event_to_json(StepDone(3, 1, loss, 0.5, 2.0, 70, 1234.5, 1))


class TestLearning:
    TYPES = 10

    def batch(self, generator: torch.Generator, reverse: bool) -> Batch:
        lengths = torch.randint(2, 6, (24,), generator=generator).tolist()
        words = [torch.randint(2, self.TYPES, (n,), generator=generator).tolist() for n in lengths]
        return batch_of([[*w, 1] for w in words], [[*(w[::-1] if reverse else w), 1] for w in words])

    @pytest.mark.parametrize(("reverse", "norm"), [(False, "post"), (True, "pre")], ids=["copy", "reverse"])
    def test_a_small_model_learns(self, reverse: bool, norm: str) -> None:
        """It copies or reverses its source: attention to the right place is all it needs."""
        model_config = ModelConfig(
            d_model=32, d_ff=48, num_heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0, norm=norm,  # type: ignore[arg-type]
        )  # fmt: skip
        config = TrainConfig(
            schedule="cosine", learning_rate=0.01, warmup_steps=20, max_steps=300, label_smoothing=0.0, clip_norm=1.0
        )
        torch.manual_seed(1)
        state = learner_of(Transformer(model_config, self.TYPES, self.TYPES, PAD), config)
        generator = torch.Generator().manual_seed(2)
        batches = (self.batch(generator, reverse) for _ in range(300))
        losses = [event.loss for event in steps_of(state, updates_of(*batches), 32, config)]
        assert losses[0] > 2.0
        assert sum(losses[-10:]) / 10 < 0.2  # from about 3
        fresh_one = self.batch(generator, reverse)
        with torch.no_grad():
            model = state.model.eval()
            memory = model.encode(fresh_one.source, fresh_one.source_lengths)
            guess = model.decode(fresh_one.target_in, fresh_one.target_lengths, memory).argmax(-1)
        assert (guess == fresh_one.target_out).double().mean().item() > 0.95
