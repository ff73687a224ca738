"""ViT against Google's facts and against `transformers`: every layer, starting weights, pictures on their own."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from model_examples import shake
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from heedful.attention.record import record_attention
from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.models.build import build_model
from heedful.models.flops import forward_flops
from heedful.models.size import Vocabulary, model_size
from heedful.models.vit import ViT, cut_patches
from heedful.tasks import make_experiment

SMALL = ModelConfig(
    family="vit",
    d_model=12,
    d_ff=22,
    num_heads=3,
    encoder_layers=2,
    dropout=0.0,
    norm="pre",
    activation="gelu",
    positions="learned",
    image_size=8,
    patch_size=4,
    channels=3,
    labels=("a", "b", "c", "d", "e"),
)
NOTHING = Vocabulary(1, 1, 0, 0)


def fresh(config: ModelConfig = SMALL, seed: int = 5) -> ViT:
    torch.manual_seed(seed)
    model = build_model(config, NOTHING)
    assert isinstance(model, ViT)
    return model


def vit(config: ModelConfig = SMALL, seed: int = 5) -> ViT:
    """A model in evaluation in which every weight matters."""
    model = fresh(config, seed).eval()
    shake(model)
    return model


def pictures(count: int, config: ModelConfig = SMALL) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(256, (count, config.image_size, config.image_size, config.channels), generator=generator)


def logits_of(model: ViT, pixels: Tensor) -> Tensor:
    count = len(pixels)
    memory = model.encode(pixels.flatten(), torch.full((count,), pixels[0].numel()))
    return model.decode(torch.zeros(count, dtype=torch.int64), torch.ones(count, dtype=torch.int64), memory)


def their_vit(model: ViT, **changes: Any) -> Any:
    """`transformers`' model with the same weights."""
    transformers = pytest.importorskip("transformers")
    config = model.config
    theirs = transformers.ViTForImageClassification(
        transformers.ViTConfig(
            hidden_size=config.d_model,
            num_hidden_layers=config.encoder_layers,
            num_attention_heads=config.num_heads,
            intermediate_size=config.d_ff,
            hidden_act="gelu",
            layer_norm_eps=config.norm_epsilon,
            image_size=config.image_size,
            patch_size=config.patch_size,
            num_channels=config.channels,
            num_labels=len(config.labels),
            attn_implementation="eager",
            **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0),
        )
    ).eval()
    weights = their_weights(model)
    assert theirs.state_dict().keys() == weights.keys()
    theirs.load_state_dict(weights)
    return theirs


def their_weights(model: ViT) -> Mapping[str, Tensor]:
    w, config = dict(model.named_parameters()), model.config
    shape = (config.d_model, config.channels, config.patch_size, config.patch_size)
    found = {
        "vit.embeddings.cls_token": w["class_token"][None, None],
        "vit.embeddings.position_embeddings": w["positions"][None],
        "vit.embeddings.patch_embeddings.projection.weight": w["patches.weight"].view(shape),
        "vit.embeddings.patch_embeddings.projection.bias": w["patches.bias"],
        "classifier.weight": w["head_weight"],
        "classifier.bias": w["head_bias"],
    }
    for end in ("weight", "bias"):
        found[f"vit.layernorm.{end}"] = w[f"encoder_norm.{end}"]
        for layer in range(config.encoder_layers):
            ours, theirs = f"encoder.{layer}", f"vit.layers.{layer}"
            parts = w[f"{ours}.attention.query_key_value.{end}"].chunk(3)
            for name, part in zip("qkv", parts, strict=True):
                found[f"{theirs}.attention.{name}_proj.{end}"] = part
            found[f"{theirs}.attention.o_proj.{end}"] = w[f"{ours}.attention.output.{end}"]
            found[f"{theirs}.layernorm_before.{end}"] = w[f"{ours}.attention_residual.norm.{end}"]
            found[f"{theirs}.layernorm_after.{end}"] = w[f"{ours}.feed_forward_residual.norm.{end}"]
            found[f"{theirs}.mlp.fc1.{end}"] = w[f"{ours}.feed_forward.inner.{end}"]
            found[f"{theirs}.mlp.fc2.{end}"] = w[f"{ours}.feed_forward.outer.{end}"]
    return found


@torch.no_grad()
@pytest.mark.parametrize("epsilon", [1e-6, 1e-12])
def test_logits_features_and_attention_equal_those_of_transformers(epsilon: float) -> None:
    model = vit(replace(SMALL, norm_epsilon=epsilon))
    theirs, given = their_vit(model), pictures(3)
    values = (given.permute(0, 3, 1, 2) / 255 - 0.5) / 0.5
    with record_attention(model) as record:
        memory = model.encode(given.flatten(), torch.full((3,), given[0].numel()))
    found = theirs(pixel_values=values, output_attentions=True, output_hidden_states=True)
    features = theirs.vit(pixel_values=values).last_hidden_state
    torch.testing.assert_close(memory.rows.view(features.shape), features, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logits_of(model, given), found.logits, rtol=1e-5, atol=1e-5)
    for layer, weights in enumerate(found.attentions):
        torch.testing.assert_close(record.weights("encoder", layer), weights, rtol=1e-5, atol=1e-5)


def test_patches_are_those_of_a_convolution() -> None:
    given = pictures(2)
    weight = torch.randn(7, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    values = given.permute(0, 3, 1, 2) / 127.5 - 1.0
    wanted = nn.functional.conv2d(values, weight, stride=4).flatten(2).transpose(1, 2).flatten(0, 1)
    found = cut_patches(given.flatten(), 2, SMALL) @ weight.flatten(1).T
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-4)


@torch.no_grad()
def test_a_picture_does_not_depend_on_the_others() -> None:
    model, given = vit(), pictures(4)
    together = logits_of(model, given)
    for number in range(4):
        torch.testing.assert_close(logits_of(model, given[number : number + 1])[0], together[number])


@torch.no_grad()
def test_the_mean_of_all_places_can_be_read_instead() -> None:
    model, given = vit(replace(SMALL, pooling="mean")), pictures(3)
    memory = model.encode(given.flatten(), torch.full((3,), given[0].numel()))
    wanted = memory.rows.view(3, 5, 12).mean(1) @ model.head_weight.T + model.head_bias
    torch.testing.assert_close(logits_of(model, given), wanted)


class TestStart:
    """The weights that training begins with."""

    model = fresh(replace(SMALL, d_model=120, d_ff=240, image_size=32))

    @property
    def weights(self) -> Mapping[str, Tensor]:
        return dict(self.model.named_parameters())

    def test_the_class_token_and_the_head_are_zero(self) -> None:
        for name in ("class_token", "head_weight", "head_bias"):
            assert not self.weights[name].any()

    def test_positions_have_standard_deviation_0_02(self) -> None:
        assert self.weights["positions"].std().item() == pytest.approx(0.02, rel=0.05)

    def test_each_projection_is_drawn_on_its_own(self) -> None:
        for part in self.weights["encoder.0.attention.query_key_value.weight"].chunk(3):
            assert part.abs().max().item() == pytest.approx((6 / 240) ** 0.5, rel=0.01)
        inner = self.weights["encoder.0.feed_forward.inner.weight"]
        assert inner.abs().max().item() == pytest.approx((6 / 360) ** 0.5, rel=0.01)

    def test_the_map_of_patches_is_lecun_normal(self) -> None:
        assert self.weights["patches.weight"].std().item() == pytest.approx(48**-0.5, rel=0.05)

    def test_biases_of_the_feed_forward_are_tiny_and_others_zero(self) -> None:
        assert self.weights["encoder.0.feed_forward.inner.bias"].std().item() == pytest.approx(1e-6, rel=0.2)
        for name in ("patches.bias", "encoder.1.attention.query_key_value.bias", "encoder.1.attention.output.bias"):
            assert not self.weights[name].any()


def test_the_base_model_has_the_published_number_of_weights() -> None:
    base = make_experiment({"model": {"preset": "vit-base", "labels": [str(number) for number in range(1000)]}}).model
    assert model_size(base, 1, 1).total == 86_567_656


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, channels=1, labels=("x", "y"))])
def test_size_and_operations_are_counted_exactly(config: ModelConfig) -> None:
    model = vit(config)
    assert model_size(config, 1, 1).total == sum(each.numel() for each in model.parameters())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        logits_of(model, pictures(3, config))
    ones = np.ones(3, dtype=np.int64)
    assert counter.get_total_flops() == forward_flops(config, 1, ones, ones)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"patch_size": 5}, "model.image_size is 28, which patches of 5 pixels do not divide"),
        ({"channels": 2}, "model.channels must be 1 for grey or 3 for colour, but is 2 instead"),
        ({"norm": "post"}, "model.norm is 'post' but model.family is 'vit', which has 'pre'"),
        ({"norm_epsilon": 0.0}, "model.norm_epsilon must be above 0, but is 0.0 instead"),
        ({"labels": ["a", "a"]}, "model.labels must be different names"),
    ],
    ids=str,
)
def test_an_impossible_configuration_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_experiment({"model": {"preset": "vit", **change}})
