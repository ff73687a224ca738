"""T5 against the original: equality with `transformers`, the facts of its code, and its start."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from model_examples import (
    FAMILIES,
    PAD,
    TARGET_TYPES,
    batch_of,
    folded,
    fresh_of_family,
    logits_of,
    sentences,
    shaken_of_family,
)
from torch import Tensor, nn

from heedful.attention.record import record_attention
from heedful.config import ModelConfig
from heedful.models.t5 import T5
from heedful.models.transformer import DecoderLayer, EncoderLayer
from heedful.nn.attention import attend
from heedful.nn.feed_forward import FeedForward
from heedful.nn.linear import Linear
from heedful.nn.positions import BucketBias
from heedful.nn.residual import RMSNorm, rms_norm

# `transformers` has one width for queries, keys and values.
SMALL = replace(FAMILIES["t5"], d_k=5, d_v=5, max_distance=128)
VERSIONS = {"1.0": SMALL, "1.1": replace(SMALL, activation="gated-gelu-tanh", sharing="inputs")}
every_version = pytest.mark.parametrize("config", VERSIONS.values(), ids=VERSIONS)
# One source is longer than the distances that have a bias of their own.
SOURCES = sentences([4, 150, 1], TARGET_TYPES)
TARGETS = sentences([6, 2, 140], TARGET_TYPES, seed=4)


def t5(config: ModelConfig = SMALL, seed: int = 5) -> T5:
    model = shaken_of_family(config, seed)
    assert isinstance(model, T5)
    return model


def theirs_like(model: T5) -> Any:
    """T5 of `transformers` with the weights of ours."""
    transformers = pytest.importorskip("transformers")
    config, gated = model.config, model.config.activation == "gated-gelu-tanh"
    theirs = transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=TARGET_TYPES,
            d_model=config.d_model,
            d_kv=config.d_k,
            d_ff=config.d_ff,
            num_layers=config.encoder_layers,
            num_decoder_layers=config.decoder_layers,
            num_heads=config.num_heads,
            dropout_rate=0.0,
            feed_forward_proj="gated-gelu" if gated else "relu",
            tie_word_embeddings=not gated,
            decoder_start_token_id=PAD,
            attn_implementation="eager",
        )
    ).eval()
    with torch.no_grad():
        theirs.shared.weight.copy_(model.target_embedding.weight)
        if gated:
            theirs.lm_head.weight = nn.Parameter(model.output_weight.clone())  # they are built as one matrix
        for ours, stack, norm in (
            (model.encoder, theirs.encoder, model.encoder_norm),
            (model.decoder, theirs.decoder, model.decoder_norm),
        ):
            stack.final_layer_norm.weight.copy_(norm.weight)
            bias = ours[0].attention.bias
            assert bias is not None
            stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight.copy_(bias.weight)
            for layer, block in zip(ours, stack.block, strict=True):
                copy_layer(layer, block.layer)
    return theirs


def copy_layer(ours: Any, theirs: Any) -> None:
    own = theirs[0].SelfAttention
    copy_linear(ours.attention.query_key_value, own.q, own.k, own.v)
    copy_linear(ours.attention.output, own.o)
    norms = [ours.attention_residual.norm, ours.feed_forward_residual.norm]
    if len(theirs) == 3:
        cross = theirs[1].EncDecAttention
        copy_linear(ours.cross_attention.query, cross.q)
        copy_linear(ours.cross_attention.key_value, cross.k, cross.v)
        copy_linear(ours.cross_attention.output, cross.o)
        norms.insert(1, ours.cross_attention_residual.norm)
    for norm, part in zip(norms, theirs, strict=True):
        part.layer_norm.weight.copy_(norm.weight)
    network = theirs[-1].DenseReluDense
    copy_linear(ours.feed_forward.inner, *((network.wi_0, network.wi_1) if hasattr(network, "wi_0") else (network.wi,)))
    copy_linear(ours.feed_forward.outer, network.wo)


def copy_linear(ours: Linear, *theirs: nn.Linear) -> None:
    rows = ours.weight.split([part.out_features for part in theirs])
    for part, weight in zip(theirs, rows, strict=True):
        part.weight.copy_(weight)


class TestTransformers:
    """`transformers` in float32, sentence by sentence, so that it pads nothing."""

    @every_version
    @torch.no_grad()
    def test_hidden_states_and_logits_are_equal(self, config: ModelConfig) -> None:
        model = t5(config)
        theirs, batch = theirs_like(model), batch_of(SOURCES, TARGETS)
        memory = model.encode(batch.source, batch.source_lengths)
        features = model.features(batch.target_in, batch.target_lengths, memory)
        logits = logits_of(model, batch)
        lengths = batch.target_lengths.tolist()
        ours = zip(
            memory.rows.split(batch.source_lengths.tolist()),
            features.split(lengths),
            logits.split(lengths),
            strict=True,
        )
        for source, target, (encoded, decoded, scores) in zip(SOURCES, TARGETS, ours, strict=True):
            found = theirs(
                input_ids=torch.tensor([source]),
                decoder_input_ids=torch.tensor([[PAD, *target[:-1]]]),
                output_hidden_states=True,
            )
            torch.testing.assert_close(encoded, found.encoder_last_hidden_state[0], rtol=1e-5, atol=1e-5)
            hidden = found.decoder_hidden_states[-1][0]
            torch.testing.assert_close(decoded, model.output_scale * hidden, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(scores, found.logits[0], rtol=1e-5, atol=1e-5)

    @every_version
    @torch.no_grad()
    def test_every_head_attends_to_the_same(self, config: ModelConfig) -> None:
        model = t5(config)
        theirs = theirs_like(model)
        for source, target in zip(SOURCES, TARGETS, strict=True):
            batch = batch_of([source], [target])
            with record_attention(model) as record:
                logits_of(model, batch)
            found = theirs(
                input_ids=batch.source[None], decoder_input_ids=batch.target_in[None], output_attentions=True
            )
            kinds = {
                "encoder": found.encoder_attentions,
                "decoder": found.decoder_attentions,
                "cross": found.cross_attentions,
            }
            for kind, layers in kinds.items():
                for layer, weights in enumerate(layers):
                    ours = record.weights(kind, layer)  # type: ignore[arg-type]
                    torch.testing.assert_close(ours, weights, rtol=1e-5, atol=1e-5)

    @every_version
    def test_the_loss_has_the_same_gradients(self, config: ModelConfig) -> None:
        model = t5(config)
        theirs, source, target = theirs_like(model), SOURCES[0], TARGETS[0]
        batch = batch_of([source], [target])
        nn.functional.cross_entropy(logits_of(model, batch), torch.tensor(target)).backward()
        theirs(input_ids=torch.tensor([source]), labels=torch.tensor([target])).loss.backward()
        for ours, same in (
            (model.target_embedding.weight, theirs.shared.weight),
            (model.encoder[0].attention.bias.weight, bias_of(theirs.encoder)),  # type: ignore[union-attr]
            (model.decoder[0].attention.bias.weight, bias_of(theirs.decoder)),  # type: ignore[union-attr]
            (model.decoder_norm.weight, theirs.decoder.final_layer_norm.weight),
        ):
            torch.testing.assert_close(ours.grad, same.grad, rtol=1e-4, atol=1e-5)

    @every_version
    @torch.no_grad()
    def test_greedy_texts_are_equal(self, config: ModelConfig) -> None:
        from heedful.config import SearchConfig
        from heedful.decoding.torch_engine import TorchEngine

        model, eos = t5(config), 1
        theirs = theirs_like(model)
        engine = TorchEngine(model, eos)
        found = engine.decode(SOURCES, SearchConfig(beam=1, max_extra=20), n_best=1)
        for source, (best, *_) in zip(SOURCES, found, strict=True):
            longest = len(source) + 20
            expected = theirs.generate(
                torch.tensor([source]), max_new_tokens=longest, do_sample=False, num_beams=1, suppress_tokens=[PAD]
            )
            assert [token for token in best.tokens if token != eos] == [
                token for token in expected[0].tolist()[1:] if token != eos
            ]


def bias_of(stack: Any) -> Tensor:
    weight: Tensor = stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    return weight


@every_version
@torch.no_grad()
def test_a_cached_step_equals_the_whole_pass(config: ModelConfig) -> None:
    """With enough sentences for the pool of rows, and distances beyond the last bucket."""
    model = t5(config)
    batch = batch_of(SOURCES * 3, TARGETS * 3)
    torch.testing.assert_close(torch.cat(folded(model, batch)), logits_of(model, batch), rtol=1e-5, atol=1e-5)


class TestBuckets:
    @pytest.mark.parametrize("causal", [False, True])
    def test_they_are_those_of_transformers(self, causal: bool) -> None:
        modeling = pytest.importorskip("transformers.models.t5.modeling_t5")
        distances = torch.arange(-300, 301)
        expected = modeling.T5Attention._relative_position_bucket(distances, bidirectional=not causal)
        assert BucketBias(3, 32, 128, causal).find_buckets(distances).tolist() == expected.tolist()

    def test_near_keys_have_a_bucket_each_and_far_ones_share(self) -> None:
        bias = BucketBias(3, 32, 128, causal=True)
        assert bias.find_buckets(-torch.arange(16)).tolist() == list(range(16))
        assert bias.find_buckets(-torch.tensor([127, 128, 5000])).tolist() == [31, 31, 31]
        assert bias.find_buckets(torch.tensor([0, 1, 9])).tolist() == [0, 0, 0]

    def test_the_encoder_tells_left_from_right(self) -> None:
        bias = BucketBias(3, 32, 128, causal=False)
        assert bias.find_buckets(torch.tensor([-3, 3, -500, 500])).tolist() == [3, 19, 15, 31]

    @torch.no_grad()
    def test_the_layers_of_a_stack_share_one_bias_and_cross_attention_has_none(self) -> None:
        model = t5()
        names = [name for name, _ in model.named_parameters() if "bias" in name]
        assert names == ["encoder.0.attention.bias.weight", "decoder.0.attention.bias.weight"]
        for stack in (model.encoder, model.decoder):
            assert len({id(layer.attention.bias) for layer in stack}) == 1
        assert all(layer.cross_attention.bias is None for layer in model.decoder)


class TestParts:
    def test_rms_norm_subtracts_no_mean(self) -> None:
        norm, x = rms_norm(5), torch.tensor([[1e-3, 2e-3, -1e-3, 4e-3, 0.0]])
        nn.init.normal_(norm.weight)
        expected = x / (x.pow(2).mean() + 1e-6).sqrt() * norm.weight
        torch.testing.assert_close(norm(x), expected)
        assert norm.bias is None

    def test_a_gated_network_multiplies_two_maps(self) -> None:
        part, x = FeedForward(5, 9, "gated-gelu-tanh", 0.0, biases=False), torch.randn(4, 5)
        gates, inputs = part.inner.weight.split(9)
        expected = (nn.functional.gelu(x @ gates.T, approximate="tanh") * (x @ inputs.T)) @ part.outer.weight.T
        torch.testing.assert_close(part(x), expected)

    def test_scores_can_do_without_their_scale(self) -> None:
        q, k, v = torch.randn(3, 5), torch.randn(4, 5), torch.randn(4, 7)
        torch.testing.assert_close(attend(q, k, v, None, scale=1.0)[1], (q @ k.T).softmax(-1))

    def test_no_linear_layer_has_a_bias_and_no_attention_a_scale(self) -> None:
        model = t5()
        assert {part.bias for part in model.modules() if isinstance(part, Linear)} == {None}
        assert {part.scale for layers in model.attentions.values() for part in layers} == {1.0}

    def test_every_norm_is_rms_with_epsilon_1e_6(self) -> None:
        norms = [part for part in t5().modules() if isinstance(part, nn.LayerNorm)]
        assert len(norms) == 2 * 2 + 2 * 3 + 2
        assert all(isinstance(norm, RMSNorm) and norm.eps == 1e-6 for norm in norms)


class TestStart:
    """The weights that training begins with."""

    config = replace(SMALL, d_model=120, d_ff=480, num_heads=8, d_k=30, d_v=30)

    @every_version
    def test_weights_have_the_standard_deviations_of_the_original(self, config: ModelConfig) -> None:
        wide = replace(self.config, activation=config.activation, sharing=config.sharing)
        model = fresh_of_family(wide)
        assert isinstance(model, T5)
        layers: list[EncoderLayer | DecoderLayer] = [*model.encoder, *model.decoder]
        for layer in layers:
            query, key_value = layer.attention.query_key_value.weight.split([240, 480])
            about(query, (120 * 30) ** -0.5)
            about(key_value, 120**-0.5)
            about(layer.attention.output.weight, 240**-0.5)
            about(layer.feed_forward.inner.weight, 120**-0.5)
            about(layer.feed_forward.outer.weight, 480**-0.5)
        for last in model.decoder:
            about(last.cross_attention.query.weight, (120 * 30) ** -0.5)
            about(last.cross_attention.key_value.weight, 120**-0.5)
            about(last.cross_attention.output.weight, 240**-0.5)
        about(model.target_embedding.weight, 1.0)
        about(model.output_weight, 1.0)
        for stack in (model.encoder, model.decoder):
            assert stack[0].attention.bias is not None
            about(stack[0].attention.bias.weight, 120**-0.5, rel=0.2)

    def test_version_1_0_scales_what_the_shared_matrix_reads(self) -> None:
        one, other = (t5(config) for config in VERSIONS.values())
        assert one.output_scale == pytest.approx(1 / math.sqrt(12))
        assert other.output_scale == 1.0
        assert one.output_weight is one.target_embedding.weight
        assert other.output_weight is not other.target_embedding.weight
        assert other.source_embedding is other.target_embedding

    def test_the_start_symbol_is_learned(self) -> None:
        model = fresh_of_family(SMALL)
        assert isinstance(model, T5)
        logits_of(model, batch_of(SOURCES, TARGETS)).logsumexp(-1).sum().backward()
        assert model.target_embedding.weight.grad is not None
        assert model.target_embedding.weight.grad[PAD].any()
        assert model.target_embedding.weight[PAD].any()


def about(weight: Tensor, std: float, rel: float = 0.07) -> None:
    assert weight.std().item() == pytest.approx(std, rel=rel)
