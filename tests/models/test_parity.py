"""Logits and gradients equal those of two independent implementations with the same weights."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from model_examples import PAD, SMALL, TARGET_TYPES, batch_of, label, logits_of, sentences, shaken
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.data.batch import Batch
from heedful.models.transformer import DecoderLayer, EncoderLayer, Transformer
from heedful.nn.layout import Layout
from heedful.nn.positions import sinusoids

# Their keys and values have width d_model / heads; the stacks differ in depth.
SHARED = replace(SMALL, d_model=12, d_k=0, d_v=0, encoder_layers=2, decoder_layers=3)
SOURCE_LENGTHS, TARGET_LENGTHS = [4, 9, 1, 7], [6, 2, 8, 5]
Pairs = list[tuple[Tensor, Tensor]]  # a weight of ours and the same weight of theirs


@pytest.fixture
def batch() -> Batch:
    """Sentences of many lengths, so that the others need padding on both sides."""
    return batch_of(sentences(SOURCE_LENGTHS, TARGET_TYPES), sentences(TARGET_LENGTHS, TARGET_TYPES, seed=4))


def padded(ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Ids as a rectangle, and a mask of its padding."""
    rows = nn.utils.rnn.pad_sequence(list(ids.split(lengths.tolist())), batch_first=True, padding_value=PAD)
    return rows, ~Layout.of(lengths).mask


def copy_to_theirs(pairs: Pairs) -> None:
    with torch.no_grad():
        for ours, theirs in pairs:
            assert ours.shape == theirs.shape
            theirs.copy_(ours)


def of_linear(ours: nn.Linear, theirs: nn.Linear) -> Pairs:
    return [(ours.weight, theirs.weight), (ours.bias, theirs.bias)]


def of_norm(ours: nn.Module, theirs: nn.Module) -> Pairs:
    return [(ours.weight, theirs.weight), (ours.bias, theirs.bias)]  # type: ignore[list-item]


def assert_same_gradients(ours: Tensor, theirs: Tensor, pairs: Pairs) -> None:
    direction = torch.randn(ours.shape, generator=torch.Generator().manual_seed(8))
    (ours * direction).sum().backward()
    (theirs * direction).sum().backward()
    for weight, same in pairs:
        assert weight.grad is not None
        assert same.grad is not None
        rows = slice(1, None) if weight.shape[0] == TARGET_TYPES else slice(None)  # our row of PAD is never trained
        torch.testing.assert_close(weight.grad[rows], same.grad[rows], rtol=1e-4, atol=1e-5)


class TestPyTorch:
    """`torch.nn.Transformer`, which is post-norm; its extra norm after each stack is removed."""

    def theirs(self, config: ModelConfig) -> nn.Transformer:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about nested tensors, which it uses in evaluation only
            model = nn.Transformer(
                config.d_model,
                config.num_heads,
                config.encoder_layers,
                config.decoder_layers,
                config.d_ff,
                dropout=0.0,
                activation=config.activation,
                layer_norm_eps=1e-6,
                batch_first=True,
                norm_first=config.norm == "pre",
            )
        if config.norm == "post":
            model.encoder.norm = model.decoder.norm = None
        return model

    def of_attention(self, ours: Any, theirs: Any) -> Pairs:
        pairs = [(ours.query_key_value.weight, theirs.in_proj_weight), (ours.query_key_value.bias, theirs.in_proj_bias)]
        return pairs + of_linear(ours.output, theirs.out_proj)

    def of_encoder(self, ours: EncoderLayer, theirs: Any) -> Pairs:
        return (
            self.of_attention(ours.attention, theirs.self_attn)
            + of_norm(ours.attention_residual.norm, theirs.norm1)
            + of_linear(ours.feed_forward.inner, theirs.linear1)
            + of_linear(ours.feed_forward.outer, theirs.linear2)
            + of_norm(ours.feed_forward_residual.norm, theirs.norm2)
        )

    def of_decoder(self, ours: DecoderLayer, theirs: Any) -> Pairs:
        return (
            self.of_attention(ours.attention, theirs.self_attn)
            + of_norm(ours.attention_residual.norm, theirs.norm1)
            + of_linear(ours.cross_attention.output, theirs.multihead_attn.out_proj)
            + of_norm(ours.cross_attention_residual.norm, theirs.norm2)
            + of_linear(ours.feed_forward.inner, theirs.linear1)
            + of_linear(ours.feed_forward.outer, theirs.linear2)
            + of_norm(ours.feed_forward_residual.norm, theirs.norm3)
        )

    def mapped(self, ours: Transformer, theirs: nn.Transformer) -> Pairs:
        pairs: Pairs = []
        for layer, same in zip(ours.encoder, theirs.encoder.layers, strict=True):
            pairs += self.of_encoder(layer, same)
        for decoder, same in zip(ours.decoder, theirs.decoder.layers, strict=True):
            pairs += self.of_decoder(decoder, same)
            cross, joint = decoder.cross_attention, same.multihead_attn
            with torch.no_grad():
                joint.in_proj_weight.copy_(torch.cat([cross.query.weight, cross.key_value.weight]))
                joint.in_proj_bias.copy_(torch.cat([cross.query.bias, cross.key_value.bias]))
        if ours.config.norm == "pre":
            pairs += of_norm(ours.encoder_norm, theirs.encoder.norm)
            pairs += of_norm(ours.decoder_norm, theirs.decoder.norm)
        return pairs

    def logits(self, ours: Transformer, theirs: nn.Transformer, batch: Batch) -> Tensor:
        source, source_gaps = padded(batch.source, batch.source_lengths)
        target, target_gaps = padded(batch.target_in, batch.target_lengths)
        embed = ours.target_embedding.weight.detach() * 12**0.5
        features = theirs(
            embed[source] + sinusoids(torch.arange(source.shape[1]), 12),
            embed[target] + sinusoids(torch.arange(target.shape[1]), 12),
            tgt_mask=torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1),  # True: may not attend
            src_key_padding_mask=source_gaps,
            memory_key_padding_mask=source_gaps,
        )
        return features[~target_gaps] @ ours.output_weight.detach().T

    @pytest.mark.parametrize(
        "config",
        [replace(SHARED, norm="post"), replace(SHARED, norm="pre"), replace(SHARED, activation="gelu")],
        ids=label,
    )
    def test_logits_and_gradients_equal_theirs(self, config: ModelConfig, batch: Batch) -> None:
        ours, theirs = shaken(config), self.theirs(config)
        pairs = self.mapped(ours, theirs)
        copy_to_theirs(pairs)
        logits, same = logits_of(ours, batch), self.logits(ours, theirs, batch)
        torch.testing.assert_close(logits, same, rtol=1e-5, atol=1e-5)
        assert_same_gradients(logits, same, pairs)
        for decoder, layer in zip(ours.decoder, theirs.decoder.layers, strict=True):
            cross = decoder.cross_attention
            joint = torch.cat([cross.query.weight.grad, cross.key_value.weight.grad])  # type: ignore[list-item]
            torch.testing.assert_close(joint, layer.multihead_attn.in_proj_weight.grad, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def transformers() -> Iterator[Any]:
    """The library, which takes seconds to import and prints warnings of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        yield transformers


class TestMarian:
    """Hugging Face's MarianMT: post-norm, tied, scaled embeddings; its own table of positions is replaced by ours."""

    def theirs(self, transformers: Any, config: ModelConfig) -> Any:
        model = transformers.MarianMTModel(
            transformers.MarianConfig(
                vocab_size=TARGET_TYPES,
                d_model=config.d_model,
                encoder_layers=config.encoder_layers,
                decoder_layers=config.decoder_layers,
                encoder_attention_heads=config.num_heads,
                decoder_attention_heads=config.num_heads,
                encoder_ffn_dim=config.d_ff,
                decoder_ffn_dim=config.d_ff,
                activation_function=config.activation,
                scale_embedding=True,
                share_encoder_decoder_embeddings=True,
                dropout=0.0,
                max_position_embeddings=32,
                pad_token_id=PAD,
                eos_token_id=1,
                decoder_start_token_id=PAD,
            )
        )
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = 1e-6
        table = sinusoids(torch.arange(32), config.d_model)
        with torch.no_grad():
            model.model.encoder.embed_positions.weight.copy_(table)
            model.model.decoder.embed_positions.weight.copy_(table)
        assert (model.final_logits_bias == 0.0).all()
        return model.eval()

    def copy_attention(self, joint: list[Tensor], theirs: Any) -> None:
        """Ours has one matrix for queries, keys and values; theirs has three."""
        width = joint[0].shape[0] // 3
        for place, part in enumerate((theirs.q_proj, theirs.k_proj, theirs.v_proj)):
            rows = slice(place * width, (place + 1) * width)
            part.weight.copy_(joint[0][rows])
            part.bias.copy_(joint[1][rows])

    @torch.no_grad()
    def copy_joint(self, layer: Any, same: Any) -> None:
        own = layer.attention.query_key_value
        self.copy_attention([own.weight, own.bias], same.self_attn)
        if isinstance(layer, DecoderLayer):
            q, kv = layer.cross_attention.query, layer.cross_attention.key_value
            self.copy_attention([torch.cat([q.weight, kv.weight]), torch.cat([q.bias, kv.bias])], same.encoder_attn)

    def of_layer(self, layer: Any, same: Any) -> Pairs:
        pairs = (
            of_linear(layer.attention.output, same.self_attn.out_proj)
            + of_norm(layer.attention_residual.norm, same.self_attn_layer_norm)
            + of_linear(layer.feed_forward.inner, same.fc1)
            + of_linear(layer.feed_forward.outer, same.fc2)
            + of_norm(layer.feed_forward_residual.norm, same.final_layer_norm)
        )
        if isinstance(layer, DecoderLayer):
            pairs += of_linear(layer.cross_attention.output, same.encoder_attn.out_proj)
            pairs += of_norm(layer.cross_attention_residual.norm, same.encoder_attn_layer_norm)
        return pairs

    def mapped(self, ours: Transformer, theirs: Any) -> Pairs:
        pairs: Pairs = [(ours.target_embedding.weight, theirs.model.shared.weight)]
        stacks = ((ours.encoder, theirs.model.encoder.layers), (ours.decoder, theirs.model.decoder.layers))
        for layers, same_layers in stacks:
            for layer, same in zip(layers, same_layers, strict=True):
                pairs += self.of_layer(layer, same)
                self.copy_joint(layer, same)
        return pairs

    @pytest.mark.parametrize("activation", ["relu", "gelu"])
    def test_logits_and_gradients_equal_theirs(self, transformers: Any, batch: Batch, activation: str) -> None:
        config = replace(SHARED, activation=activation)  # type: ignore[arg-type]
        ours, theirs = shaken(config), self.theirs(transformers, config)
        with torch.no_grad():
            ours.target_embedding.weight[PAD] = 0.0
        pairs = self.mapped(ours, theirs)
        copy_to_theirs(pairs)
        source, source_gaps = padded(batch.source, batch.source_lengths)
        target, target_gaps = padded(batch.target_in, batch.target_lengths)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            same = theirs(input_ids=source, attention_mask=(~source_gaps).long(), decoder_input_ids=target).logits
        logits = logits_of(ours, batch)
        torch.testing.assert_close(logits, same[~target_gaps], rtol=1e-5, atol=1e-5)
        assert_same_gradients(logits, same[~target_gaps], pairs)
