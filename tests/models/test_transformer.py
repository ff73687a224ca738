"""The laws of `models/seq2seq.py` for every variant of the Transformer, and the paper's choices."""

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_examples import (
    EOS,
    PAD,
    SMALL,
    SOURCE_TYPES,
    TARGET_TYPES,
    VARIANTS,
    add_gradients,
    batch_of,
    example,
    folded,
    fresh,
    label,
    logits_of,
    sentences,
    shaken,
)
from torch import Tensor, nn

from heedful.config import Experiment, ModelConfig, TrainConfig
from heedful.models.build import build_model
from heedful.models.kv_cache import KVCache
from heedful.models.size import Vocabulary
from heedful.models.transformer import Transformer
from heedful.nn.dropout import Dropout
from heedful.nn.positions import sinusoids
from heedful.training.optimizer import make_optimizer, set_learning_rate


class TestLaws:
    @settings(deadline=None, max_examples=15)
    @given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), min_size=1, max_size=4))
    @torch.no_grad()
    def test_any_chain_of_selections_is_one_selection(self, chain: list[list[int]]) -> None:
        model, batch = shaken(SMALL), example([4, 2, 7], [5, 8, 3])
        start = model.start(model.encode(batch.source, batch.source_lengths))
        _, start = model.step(torch.tensor([3, 6, 9]), start)
        state, rows = start, torch.arange(3)
        for choice in chain:
            chosen = torch.tensor(choice) % len(rows)
            state, rows = state.select(chosen), rows[chosen]
        tokens = rows + 2
        expected, _ = model.step(torch.tensor([2, 3, 4]), start)
        torch.testing.assert_close(model.step(tokens, state)[0], expected[rows], rtol=1e-5, atol=1e-5)

    @torch.no_grad()
    def test_a_beam_that_keeps_its_sentences_does_not_copy_their_source(self) -> None:
        model, batch = shaken(SMALL), example([4, 2], [5, 8])
        state = model.start(model.encode(batch.source, batch.source_lengths)).select(torch.tensor([0, 0, 1, 1]))
        assert isinstance(state, KVCache)
        assert state.select(torch.tensor([1, 0, 3, 3])).source_keys is state.source_keys
        assert state.select(torch.tensor([1, 0, 1, 3])).source_keys is not state.source_keys

    @torch.no_grad()
    def test_every_word_of_the_source_matters_to_every_position(self) -> None:
        """The converse of the laws: nothing that may be attended to is hidden."""
        model, batch = shaken(SMALL), example([4], [5])
        logits = logits_of(model, batch)
        for place in range(4):
            source = batch.source.clone()
            source[place] = (source[place] + 1) % SOURCE_TYPES
            changed = logits_of(model, replace(batch, source=source))
            assert ((changed - logits).abs().amax(-1) > 1e-5).all()

    @pytest.mark.parametrize("config", VARIANTS[:7:3], ids=label)
    @torch.no_grad()
    def test_sentences_may_be_longer_than_the_table_of_positions(self, config: ModelConfig) -> None:
        model = shaken(config)
        logits_of(model, example([4], [5]))  # makes a table for short sentences, and one of 9 learned positions
        middle = example([40, 4], [5, 41])
        torch.testing.assert_close(torch.cat(folded(model, middle)), logits_of(model, middle), rtol=1e-5, atol=1e-5)
        long = batch_of(sentences([530, 4], SOURCE_TYPES), sentences([601, 5], TARGET_TYPES))
        alone = batch_of(sentences([530], SOURCE_TYPES), sentences([601], TARGET_TYPES))
        torch.testing.assert_close(logits_of(model, long)[:601], logits_of(model, alone), rtol=1e-5, atol=1e-5)

    def test_gradients_do_not_depend_on_other_sentences_either(self) -> None:
        model, batch = shaken(SMALL).double(), example([4, 11, 7], [5, 2, 6])
        add_gradients(model, [batch])
        together = {name: p.grad for name, p in model.named_parameters()}
        model.zero_grad(set_to_none=True)
        sources, targets = sentences([4, 11, 7], SOURCE_TYPES), sentences([5, 2, 6], TARGET_TYPES, seed=4)
        add_gradients(model, [batch_of([s], [t]) for s, t in zip(sources, targets, strict=True)])
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.grad, together[name])

    def test_every_weight_is_trained(self) -> None:
        for config in VARIANTS:
            model = fresh(config)
            add_gradients(model, [example([4, 11, 7], [5, 2, 6])])
            assert [name for name, p in model.named_parameters() if p.grad is None] == []


class TestPaper:
    """The choices of the preset `paper`, in the model."""

    def small_paper(self, dropout: float = 0.1) -> ModelConfig:
        paper = Experiment().model
        return replace(paper, d_model=12, d_ff=20, num_heads=3, encoder_layers=2, decoder_layers=4, dropout=dropout)

    @torch.no_grad()
    def test_no_norm_comes_after_the_stacks(self) -> None:
        model, batch = shaken(self.small_paper()), example([4, 2], [5, 3])
        outputs: list[Tensor] = []
        model.encoder[-1].register_forward_hook(lambda _, __, output: outputs.append(output))
        model.decoder[-1].register_forward_hook(lambda _, __, output: outputs.append(output))
        memory = model.encode(batch.source, batch.source_lengths)
        features = model.features(batch.target_in, batch.target_lengths, memory)
        assert torch.equal(memory.rows, outputs[0])
        assert torch.equal(features, outputs[1])
        assert sum(isinstance(m, nn.LayerNorm) for m in model.modules()) == 2 * 2 + 3 * 4

    @torch.no_grad()
    def test_pre_norm_has_one_after_each_stack(self) -> None:
        model, batch = shaken(replace(self.small_paper(), norm="pre")), example([4, 2], [5, 3])
        assert sum(isinstance(m, nn.LayerNorm) for m in model.modules()) == 2 * 2 + 3 * 4 + 2
        outputs: list[Tensor] = []
        model.encoder[-1].register_forward_hook(lambda _, __, output: outputs.append(output))
        memory = model.encode(batch.source, batch.source_lengths)
        assert torch.equal(memory.rows, model.encoder_norm(outputs[0]))

    def test_every_norm_has_epsilon_1e_6(self) -> None:
        norms = [m for m in fresh(self.small_paper()).modules() if isinstance(m, nn.LayerNorm)]
        assert {norm.eps for norm in norms} == {1e-6}

    def test_all_three_embeddings_are_one_matrix_without_an_output_bias(self) -> None:
        model = fresh(self.small_paper())
        tables = [name for name, p in model.named_parameters() if TARGET_TYPES in p.shape]
        assert tables == ["target_embedding.weight"]
        assert model.output_weight.data_ptr() == model.target_embedding.weight.data_ptr()

    @torch.no_grad()
    def test_source_and_target_look_up_the_same_matrix(self) -> None:
        model, batch = shaken(self.small_paper()), example([4], [5])
        seen: list[Tensor] = []
        model.encoder[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        model.decoder[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        logits_of(model, batch)
        for rows, ids in zip(seen, (batch.source, batch.target_in), strict=True):
            by_hand = model.target_embedding.weight[ids] * 12**0.5 + sinusoids(torch.arange(len(ids)), 12)
            torch.testing.assert_close(rows, by_hand)

    @pytest.mark.parametrize(("sharing", "tables"), [("all", 1), ("target", 2), ("none", 3)])
    def test_sharing_says_how_many_matrices_there_are(self, sharing: str, tables: int) -> None:
        model = fresh(replace(SMALL, sharing=sharing))  # type: ignore[arg-type]
        weights = {id(p) for p in model.parameters() if p.shape[0] in (SOURCE_TYPES, TARGET_TYPES)}
        assert len(weights) == tables
        with torch.no_grad():
            assert (model.output_weight is model.target_embedding.weight) == (sharing != "none")

    def test_dropout_is_on_sub_layer_outputs_and_embeddings_and_nowhere_else(self) -> None:
        model = fresh(self.small_paper())
        places = {name for name, m in model.named_modules() if isinstance(m, Dropout) and m.p > 0.0}
        encoder = {f"encoder.{i}.{part}_residual.dropout" for i in range(2) for part in ("attention", "feed_forward")}
        decoder = {
            f"decoder.{i}.{part}_residual.dropout"
            for i in range(4)
            for part in ("attention", "cross_attention", "feed_forward")
        }
        assert places == {"dropout", "target_dropout"} | encoder | decoder
        assert not any(isinstance(m, nn.Dropout) for m in model.modules())

    def test_no_two_sites_drop_the_same_numbers(self) -> None:
        sites = [m.site for m in fresh(self.small_paper()).modules() if isinstance(m, Dropout)]
        assert len(set(sites)) == len(sites)

    def test_a_dropped_sub_layer_leaves_the_residual_stream_intact(self) -> None:
        """If all outputs of sub-layers are dropped, only embedding + position remains, normalised again and again."""
        model, batch = fresh(replace(self.small_paper(), dropout=1.0)), example([4], [5])
        model.dropout.p = 0.0
        rows = model.encode(batch.source, batch.source_lengths, torch.tensor([7])).rows
        embedded = model.target_embedding(batch.source) + sinusoids(torch.arange(4), 12)
        torch.testing.assert_close(rows, torch.nn.functional.layer_norm(embedded, (12,)), rtol=1e-3, atol=1e-3)

    def test_embedding_and_position_are_dropped_together(self) -> None:
        model, batch = fresh(replace(self.small_paper(), dropout=1.0)), example([4], [5])
        assert (model.encode(batch.source, batch.source_lengths, torch.tensor([7])).rows == 0.0).all()

    def test_the_other_dropouts_work_if_they_are_set(self) -> None:
        config = replace(SMALL, attention_dropout=0.2, activation_dropout=0.3)
        shares = {n.rpartition(".")[0]: m.p for n, m in fresh(config).named_modules() if isinstance(m, Dropout) and m.p}
        assert shares["encoder.0.attention"] == shares["decoder.1.cross_attention"] == 0.2
        assert shares["encoder.0.feed_forward"] == shares["decoder.1.feed_forward"] == 0.3

    def test_the_decoder_starts_from_a_zero_vector(self) -> None:
        model = fresh(SMALL)
        seen: list[Tensor] = []
        model.decoder[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        logits_of(model, example([4], [5]))
        assert torch.equal(seen[0][0], sinusoids(torch.tensor([0]), 12)[0])

    @pytest.mark.parametrize("decay", [0.0, 0.1])
    @pytest.mark.parametrize("sharing", ["all", "target", "none"])
    def test_the_row_of_pad_stays_zero_in_training_although_every_target_starts_with_it(
        self, sharing: str, decay: float
    ) -> None:
        model = fresh(replace(SMALL, sharing=sharing))  # type: ignore[arg-type]
        optimizer = make_optimizer(model, TrainConfig(weight_decay=decay))
        set_learning_rate(optimizer, 0.01)
        before = model.target_embedding.weight.detach().clone()
        for _ in range(3):
            add_gradients(model, [example([4, 2], [5, 3]), example([3], [6])])
            optimizer.step()
            optimizer.zero_grad()
        tables = [p for p in model.parameters() if p.shape[0] in (SOURCE_TYPES, TARGET_TYPES)]
        assert all((table[PAD] == 0.0).all() for table in tables)
        assert all((table[EOS] != 0.0).all() for table in tables)
        assert not torch.equal(model.target_embedding.weight, before)

    def test_the_same_seed_gives_the_same_weights(self) -> None:
        one, same, other = fresh(SMALL, 5), fresh(SMALL, 5), fresh(SMALL, 6)
        assert all(map(torch.equal, one.parameters(), same.parameters()))
        assert not torch.equal(one.output_weight, other.output_weight)

    def test_all_biases_start_at_zero_and_all_gains_at_one(self) -> None:
        for name, parameter in fresh(self.small_paper()).named_parameters():
            if name.endswith("bias"):
                assert (parameter == 0.0).all()
            elif parameter.ndim == 1:
                assert (parameter == 1.0).all()


class TestBuild:
    def test_a_model_has_its_configuration_and_special_ids(self) -> None:
        config = replace(SMALL, sharing="target")
        model = build_model(config, Vocabulary(source=SOURCE_TYPES, target=TARGET_TYPES, pad_id=3, eos_id=1))
        assert isinstance(model, Transformer)
        assert (model.config, model.pad_id) == (config, 3)
        assert model.output_weight.shape == (TARGET_TYPES, 12)
        assert (model.output_weight[3] == 0.0).all()

    @torch.no_grad()
    def test_a_copy_is_independent(self) -> None:
        model, batch = shaken(SMALL), example([4], [5])
        twin = copy.deepcopy(model)
        assert torch.equal(logits_of(twin, batch), logits_of(model, batch))

    def test_a_state_before_the_first_token_has_no_keys(self) -> None:
        model, batch = shaken(SMALL), example([4, 2], [5, 3])
        state = model.start(model.encode(batch.source, batch.source_lengths))
        assert isinstance(state, KVCache)
        assert [tuple(keys.shape) for keys in state.keys] == [(2, 3, 0, 5)] * 2
        assert [tuple(values.shape) for values in state.values] == [(2, 3, 0, 7)] * 2
