"""The laws of `models/seq2seq.py` for every family, and the needs of training and of recording heads."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from model_examples import (
    FAMILIES,
    PAD,
    SOURCE_TYPES,
    TARGET_TYPES,
    VARIANTS,
    add_gradients,
    batch_of,
    example,
    folded,
    fresh_of_family,
    label,
    logits_of,
    sentences,
    shaken_of_family,
    update_of,
)
from torch import Tensor

from heedful.attention.head_names import Head, all_heads
from heedful.attention.pruning import apply_gates, open_gates, switch_off_heads
from heedful.attention.record import force_decode, record_attention
from heedful.config import ModelConfig, TrainConfig
from heedful.data.batch import Batch
from heedful.models.seq2seq import AnySeq2Seq
from heedful.models.size import model_size
from heedful.nn.multi_head import Kind
from heedful.training.gradients import Objective, SequentialGradients, ThreadedGradients
from heedful.training.loop import set_up_layers

every_family = pytest.mark.parametrize("config", FAMILIES.values(), ids=FAMILIES)
every_model = pytest.mark.parametrize("config", [*FAMILIES.values(), *VARIANTS], ids=[*FAMILIES, *map(label, VARIANTS)])
LOOKING = {name: config for name, config in FAMILIES.items() if shaken_of_family(config).attentions}
every_attention = pytest.mark.parametrize("config", LOOKING.values(), ids=LOOKING)


def gradients_of(model: AnySeq2Seq) -> dict[str, Tensor]:
    """The accumulated gradients, removed from the model."""
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


class TestLaws:
    @every_model
    @torch.no_grad()
    def test_folding_step_equals_decode(self, config: ModelConfig) -> None:
        model, batch = shaken_of_family(config), example([4, 2, 7], [5, 8, 3])
        torch.testing.assert_close(torch.cat(folded(model, batch)), logits_of(model, batch), rtol=1e-5, atol=1e-5)

    @every_model
    @torch.no_grad()
    def test_selecting_rows_commutes_with_step(self, config: ModelConfig) -> None:
        model, batch = shaken_of_family(config), example([4, 2, 7], [5, 8, 3])
        state = model.start(model.encode(batch.source, batch.source_lengths))
        _, state = model.step(torch.tensor([PAD, PAD, PAD]), state)
        tokens, after = torch.tensor([3, 6, 9]), torch.tensor([11, 2, 8])
        late, late_state = model.step(tokens, state)
        later, _ = model.step(after, late_state)
        for rows in map(torch.tensor, ([2, 0, 0, 1, 2], [2, 0], [0, 1, 2])):
            early, early_state = model.step(tokens[rows], state.select(rows))
            torch.testing.assert_close(early, late[rows], rtol=1e-5, atol=1e-5)
            early, _ = model.step(after[rows], early_state)
            torch.testing.assert_close(early, later[rows], rtol=1e-5, atol=1e-5)

    @every_family
    @torch.no_grad()
    def test_a_beam_may_drop_a_sentence_and_continue_with_its_neighbour(self, config: ModelConfig) -> None:
        model, batch = shaken_of_family(config), example([4, 2, 7], [5, 8, 3])
        state = model.start(model.encode(batch.source, batch.source_lengths))
        twice = state.select(torch.tensor([0, 0, 2, 2])).select(torch.tensor([1, 0, 3, 3])).select(torch.tensor([3]))
        expected, _ = model.step(torch.tensor([5, 5, 5]), state)
        torch.testing.assert_close(model.step(torch.tensor([5]), twice)[0], expected[2:], rtol=1e-5, atol=1e-5)

    @every_model
    @torch.no_grad()
    def test_a_position_never_depends_on_later_ones(self, config: ModelConfig) -> None:
        model, batch = shaken_of_family(config), example([4, 2, 7], [5, 8, 3])
        before = logits_of(model, batch).split([5, 8, 3])
        starts = (batch.target_lengths.cumsum(0) - batch.target_lengths).tolist()
        for place in range(1, 8):
            later = batch.target_in.clone()
            for begin, length in zip(starts, batch.target_lengths.tolist(), strict=True):
                later[begin + place : begin + length] = (later[begin + place : begin + length] + 5) % TARGET_TYPES
            after = logits_of(model, replace(batch, target_in=later)).split([5, 8, 3])
            for old, new in zip(before, after, strict=True):
                torch.testing.assert_close(new[:place], old[:place], rtol=1e-6, atol=1e-6)
                assert len(old) <= place or not torch.allclose(new[place:], old[place:], atol=1e-3)

    @every_model
    @torch.no_grad()
    def test_a_sentence_alone_equals_the_same_sentence_in_a_batch(self, config: ModelConfig) -> None:
        lengths, target_lengths = [4, 11, 1, 7, 4], [5, 2, 13, 1, 5]
        model, batch = shaken_of_family(config), example(lengths, target_lengths)
        together = logits_of(model, batch).split(target_lengths)
        sources, targets = sentences(lengths, SOURCE_TYPES), sentences(target_lengths, TARGET_TYPES, seed=4)
        for source, target, logits in zip(sources, targets, together, strict=True):
            alone = logits_of(model, batch_of([source], [target]))
            torch.testing.assert_close(alone, logits, rtol=1e-5, atol=1e-5)

    @every_family
    @torch.no_grad()
    def test_every_word_of_the_source_matters(self, config: ModelConfig) -> None:
        """The converse of the laws: nothing that may be seen is hidden."""
        model, batch = shaken_of_family(config), example([4], [5])
        logits = logits_of(model, batch)
        for place in range(4):
            source = batch.source.clone()
            source[place] = (source[place] + 1) % SOURCE_TYPES
            changed = logits_of(model, replace(batch, source=source))
            assert ((changed - logits).abs().amax(-1) > 1e-6).all()


class TestTraining:
    @every_family
    def test_every_weight_is_trained(self, config: ModelConfig) -> None:
        model = fresh_of_family(config)
        add_gradients(model, [example([4, 11, 7], [5, 2, 6])])
        found = gradients_of(model)
        assert found.keys() == dict(model.named_parameters()).keys()
        assert [name for name, gradient in found.items() if not gradient.any()] == []

    @every_family
    def test_the_split_of_an_update_changes_nothing_not_even_dropout(self, config: ModelConfig) -> None:
        model = fresh_of_family(replace(config, dropout=0.3)).double()
        whole = example([4, 11, 7, 3], [5, 2, 6, 6])
        first, second = parts_of(whole, [0, 2]), parts_of(whole, [1, 3])
        expected_loss = add_gradients(model, [whole])
        expected = gradients_of(model)
        assert add_gradients(model, [first, second]) == pytest.approx(expected_loss)
        torch.testing.assert_close(gradients_of(model), expected)
        side_by_side = ThreadedGradients(model, Objective(0.1, seed=1), workers=2)
        assert side_by_side(update_of(first, second), step=1) == pytest.approx(expected_loss)
        torch.testing.assert_close(gradients_of(model), expected)

    @every_family
    def test_dropout_changes_the_loss(self, config: ModelConfig) -> None:
        model, batch = fresh_of_family(replace(config, dropout=0.3)), example([4, 11], [5, 2])
        one, other = (
            SequentialGradients(model, Objective(0.1, seed=seed))(update_of(batch), step=1) for seed in (1, 2)
        )
        assert one != pytest.approx(other)

    @every_family
    def test_recomputed_activations_give_the_same_gradients(self, config: ModelConfig) -> None:
        model, batch = fresh_of_family(replace(config, dropout=0.3)), example([4, 11, 7], [5, 2, 6])
        add_gradients(model, [batch])
        expected = gradients_of(model)
        set_up_layers(model, TrainConfig(checkpoint_activations=True), torch.device("cpu"))
        add_gradients(model, [batch])
        torch.testing.assert_close(gradients_of(model), expected)

    @every_family
    def test_the_number_of_parameters_is_exact(self, config: ModelConfig) -> None:
        model = fresh_of_family(config)
        source = TARGET_TYPES if config.sharing in ("all", "inputs") else SOURCE_TYPES
        size = model_size(config, source, TARGET_TYPES)
        assert size.total == sum(p.numel() for p in model.parameters())
        encoder = [p for name, p in model.named_parameters() if name.startswith(("encoder", "source_in", "source_out"))]
        assert size.encoder == sum(p.numel() for p in encoder)


def parts_of(batch: Batch, rows: list[int]) -> Batch:
    """Some pairs of a batch, with their own indices."""
    sources = [part.tolist() for part in batch.source.split(batch.source_lengths.tolist())]
    targets = [part.tolist() for part in batch.target_out.split(batch.target_lengths.tolist())]
    return replace(batch_of([sources[i] for i in rows], [targets[i] for i in rows]), indices=batch.indices[rows])


def last_kind(model: AnySeq2Seq) -> Kind:
    """Attention to the source, if the model has any."""
    return list(model.attentions)[-1]


class TestHeads:
    @every_attention
    def test_rows_sum_to_one_and_padding_has_no_weight(self, config: ModelConfig) -> None:
        model, sources = shaken_of_family(config), sentences([3, 7, 5], SOURCE_TYPES)
        targets = sentences([6, 2, 4], TARGET_TYPES, seed=4)
        for source, target, found in zip(sources, targets, force_decode(model, sources, targets), strict=True):
            assert len(found.attention.cross) == len(model.attentions.get("cross", ()))
            for weights in found.attention.cross:
                assert weights.shape[1:] == (len(target), len(source))
            for kind, layers in model.attentions.items():
                assert len(found.attention.of(kind)) == len(layers)
                for weights in found.attention.of(kind):
                    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-6)

    @every_attention
    @torch.no_grad()
    def test_recording_does_not_change_the_result(self, config: ModelConfig) -> None:
        model, batch = shaken_of_family(config), example([4, 2, 7], [5, 8, 3])
        expected = logits_of(model, batch)
        with record_attention(model) as record:
            torch.testing.assert_close(logits_of(model, batch), expected, rtol=1e-5, atol=1e-5)
        assert record.weights(last_kind(model), 0).shape[0] == 3

    @every_attention
    @torch.no_grad()
    def test_every_head_can_be_switched_off_in_decode_and_in_step(self, config: ModelConfig) -> None:
        model, batch = shaken_of_family(config), example([4, 2, 7], [5, 8, 3])
        whole = logits_of(model, batch)
        for head in all_heads(model):
            with switch_off_heads(model, [head]):
                without = logits_of(model, batch)
                torch.testing.assert_close(torch.cat(folded(model, batch)), without, rtol=1e-5, atol=1e-5)
            assert not torch.allclose(without, whole, atol=1e-4)

    @every_attention
    @torch.no_grad()
    def test_a_head_can_be_switched_off_in_one_sentence(self, config: ModelConfig) -> None:
        model, batch = shaken_of_family(config), example([4, 2, 7], [5, 8, 3])
        kind = last_kind(model)
        head = Head(kind, 0, 0)
        gates = torch.ones(3, model.attentions[kind][0].num_heads)
        gates[1, 0] = 0.0
        whole = logits_of(model, batch).split([5, 8, 3])
        with switch_off_heads(model, [head]):
            without = logits_of(model, batch).split([5, 8, 3])
        with apply_gates(model, {**open_gates(model), (kind, 0): gates}):
            mixed = logits_of(model, batch).split([5, 8, 3])
        for found, expected in zip(mixed, (whole[0], without[1], whole[2]), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
