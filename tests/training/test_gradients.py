"""Gradients do not depend on the number of workers or on how an update is split."""

from dataclasses import replace
from unittest import mock

import pytest
import torch
from model_examples import SMALL, SOURCE_TYPES, TARGET_TYPES, batch_of, fresh, sentences, update_of
from torch import Tensor

from heedful.data.batch import Batch
from heedful.kernels.threads import count_workers, divide_threads
from heedful.models.transformer import Transformer
from heedful.nn.dropout import set_dropout_share
from heedful.nn.noise import sentence_keys
from heedful.process_memory import keep_freed_memory
from heedful.training.gradients import Objective, SequentialGradients, ThreadedGradients, make_gradients

CONFIG = replace(SMALL, dropout=0.3, attention_dropout=0.2, activation_dropout=0.1)
OBJECTIVE = Objective(0.1, seed=5)
SOURCES, TARGETS = [4, 11, 7, 2, 5], [5, 2, 6, 9, 3]


def parts(*groups: list[int]) -> list[Batch]:
    """The same five pairs, in groups and in any order."""
    sources, targets = sentences(SOURCES, SOURCE_TYPES), sentences(TARGETS, TARGET_TYPES, seed=4)
    return [
        replace(batch_of([sources[i] for i in group], [targets[i] for i in group]), indices=torch.tensor(group))
        for group in groups
    ]


def result(model: Transformer, loss: float) -> dict[str, Tensor]:
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found | {"loss": torch.tensor(loss)}


def assert_near(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("groups", [([0, 1], [2, 3, 4]), ([4, 0], [3], [1, 2]), ([0], [1], [2], [3], [4])])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_split_changes_nothing_not_even_dropout(groups: tuple[list[int], ...], workers: int) -> None:
    model = fresh(CONFIG)
    whole = result(model, SequentialGradients(model, OBJECTIVE)(update_of(*parts([0, 1, 2, 3, 4])), 7))
    split = result(model, make_gradients(model, OBJECTIVE, workers)(update_of(*parts(*groups)), 7))
    assert_near(whole, split)


class TestRDrop:
    def test_the_split_changes_nothing(self) -> None:
        objective, model = Objective(0.1, seed=5, r_drop=5.0), fresh(CONFIG)
        whole = result(model, SequentialGradients(model, objective)(update_of(*parts([0, 1, 2, 3, 4])), 7))
        split = result(model, make_gradients(model, objective, 2)(update_of(*parts([4, 0], [3], [1, 2])), 7))
        assert_near(whole, split)

    def test_two_passes_with_different_dropout_differ(self) -> None:
        model = fresh(CONFIG)
        update = update_of(*parts([0, 1, 2, 3, 4]))
        light, heavy = (
            SequentialGradients(model, Objective(0.1, seed=5, r_drop=weight))(update, 7) for weight in (1e-6, 5.0)
        )
        model.zero_grad(set_to_none=True)
        assert heavy > light + 0.1

    def test_without_dropout_it_is_the_plain_loss(self) -> None:
        model = fresh(replace(CONFIG, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0))
        update = update_of(*parts([0, 1, 2, 3, 4]))
        plain = result(model, SequentialGradients(model, OBJECTIVE)(update, 7))
        assert_near(plain, result(model, SequentialGradients(model, Objective(0.1, seed=5, r_drop=5.0))(update, 7)))

    def test_it_begins_when_dropout_has_its_full_probability(self) -> None:
        model = fresh(CONFIG)
        update = update_of(*parts([0, 1, 2, 3, 4]))
        for step, same in ((8, True), (9, False)):
            losses = [
                SequentialGradients(model, Objective(0.1, seed=5, dropout_warmup=8, r_drop=weight))(update, step)
                for weight in (0.0, 5.0)
            ]
            model.zero_grad(set_to_none=True)
            assert (losses[0] == losses[1]) is same


class TestWordDropout:
    OBJECTIVE = Objective(0.1, seed=5, word_dropout=0.4)

    def test_the_split_changes_nothing(self) -> None:
        model = fresh(CONFIG)
        whole = result(model, SequentialGradients(model, self.OBJECTIVE)(update_of(*parts([0, 1, 2, 3, 4])), 7))
        split = result(model, make_gradients(model, self.OBJECTIVE, 2)(update_of(*parts([4, 0], [3], [1, 2])), 7))
        assert_near(whole, split)

    def test_a_hidden_word_teaches_its_embedding_nothing(self) -> None:
        model = fresh(replace(CONFIG, sharing="none"))
        (batch,) = parts([0, 1, 2, 3, 4])
        touched = []
        for objective in (OBJECTIVE, self.OBJECTIVE):
            objective.add_gradient(model, batch, 7, 1.0)
            gradient = model.source_embedding.weight.grad
            assert gradient is not None
            touched.append({place for place, row in enumerate(gradient) if row.any()})
            model.zero_grad(set_to_none=True)
        assert touched[0] == set(batch.source.tolist())
        assert touched[1] < touched[0]

    def test_every_update_hides_other_words(self) -> None:
        model = fresh(replace(CONFIG, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0))
        (batch,) = parts([0, 1, 2, 3, 4])
        losses = [self.OBJECTIVE.loss(model, batch, step, 1.0).item() for step in (1, 2, 3, 3)]
        assert len(set(losses)) == 3
        assert losses[2] == losses[3]

    def test_it_warms_up_like_dropout(self) -> None:
        model = fresh(CONFIG)
        (batch,) = parts([0, 1, 2, 3, 4])
        warming = Objective(0.1, seed=5, dropout_warmup=8, word_dropout=0.3)
        late = Objective(0.1, seed=5, dropout_warmup=8, word_dropout=0.2)
        assert warming.loss(model, batch, 5, 1.0).item() == pytest.approx(
            replace(late, dropout_warmup=0).loss(at_two_thirds(model), batch, 5, 1.0).item(), rel=1e-5
        )


def at_two_thirds(model: Transformer) -> Transformer:
    set_dropout_share(model, 2.0 / 3.0)
    return model


@pytest.mark.parametrize("workers", [1, 2])
def test_dropout_warms_up_in_every_worker(workers: int) -> None:
    groups = ([0, 4], [1], [2, 3])
    constant = replace(CONFIG, dropout=0.2, attention_dropout=0.4 / 3, activation_dropout=0.2 / 3)  # two thirds
    warming = Objective(0.1, seed=5, dropout_warmup=8)
    found = []
    for config, objective in ((CONFIG, warming), (constant, OBJECTIVE)):
        model = fresh(config)
        found.append(result(model, make_gradients(model, objective, workers)(update_of(*parts(*groups)), 5)))
    assert_near(*found)


def test_workers_give_the_same_bits_every_time() -> None:
    found = []
    for _ in range(2):
        model = fresh(CONFIG)
        gradients = ThreadedGradients(model, OBJECTIVE, 3)
        found.append([result(model, gradients(update_of(*parts([0, 4], [1], [2, 3])), step)) for step in (1, 2, 3)])
    for one, other in zip(*found, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_fewer_parts_than_workers_are_enough() -> None:
    model = fresh(CONFIG)
    gradients = ThreadedGradients(model, OBJECTIVE, 4)
    whole = result(model, SequentialGradients(model, OBJECTIVE)(update_of(*parts([1])), 7))
    assert_near(whole, result(model, gradients(update_of(*parts([1])), 7)))


def test_workers_see_new_weights_and_leave_no_gradients_behind() -> None:
    model = fresh(CONFIG)
    gradients = ThreadedGradients(model, OBJECTIVE, 2)
    update = update_of(*parts([0, 1], [2, 3, 4]))
    first = result(model, gradients(update, 7))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    second = result(model, gradients(update, 7))
    assert not torch.equal(first["loss"], second["loss"])
    assert_near(second, result(model, SequentialGradients(model, OBJECTIVE)(update, 7)))


def test_an_error_in_a_worker_is_raised() -> None:
    model = fresh(CONFIG)
    gradients = ThreadedGradients(model, OBJECTIVE, 2)
    broken = replace(parts([0])[0], source=torch.tensor([99, 99, 99, 99]))
    with pytest.raises(IndexError):
        gradients(update_of(parts([1])[0], broken), 1)


@pytest.mark.parametrize("changed", [{"seed": 6}, {"step": 8}, {"pair": 3}])
def test_dropout_depends_on_seed_update_and_pair(changed: dict[str, int]) -> None:
    same = {"seed": 5, "step": 7, "pair": 2}
    keys = [sentence_keys(of["seed"], of["step"], torch.tensor([of["pair"]])).item() for of in (same, same | changed)]
    assert keys[0] != keys[1]
    assert all(0 <= key < 2**32 for key in keys)


def test_a_cpu_has_a_worker_for_each_thread() -> None:
    threads = torch.get_num_threads()
    assert count_workers(torch.device("cpu")) == min(threads, 8)
    assert count_workers(torch.device("cuda")) == 1


def test_threads_are_divided_inside_the_context() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        with divide_threads(2):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


def test_freed_memory_is_kept_if_the_c_library_can(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    class Glibc:
        def mallopt(self, option: int, value: int) -> int:
            calls.append((option, value))
            return 1

    monkeypatch.setattr("ctypes.CDLL", lambda name: Glibc())
    keep_freed_memory()
    assert {option for option, _ in calls} == {-1, -2, -3}
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())  # musl, macOS, Windows
    keep_freed_memory()
    assert len(calls) == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_memory_is_kept_for_the_next_update(workers: int) -> None:
    with mock.patch("heedful.training.gradients.keep_freed_memory") as keep:
        make_gradients(fresh(CONFIG), OBJECTIVE, workers)
    keep.assert_called_once_with()
