"""CLIP against OpenAI's facts and against `transformers`: both towers, every layer, starting weights, the loss."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from model_examples import shake
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from heedful.attention.record import record_attention
from heedful.config import Activation, ModelConfig
from heedful.data.batch import pack
from heedful.errors import ConfigError
from heedful.formats.huggingface_clip import own_clip_weights
from heedful.models.build import build_model
from heedful.models.clip import CLIP, PIXEL_MEANS, PIXEL_STDS, contrastive_loss
from heedful.models.flops import forward_flops
from heedful.models.size import Vocabulary, model_size
from heedful.storage.run_folder import fill_model
from heedful.tasks import make_experiment

PIECES, PAD = 29, 0
START, END = 27, 28
SMALL = ModelConfig(
    family="clip",
    d_model=12,
    d_ff=22,
    num_heads=3,
    encoder_layers=2,
    decoder_layers=3,
    text_d_model=20,
    text_d_ff=26,
    text_heads=4,
    projection=14,
    dropout=0.0,
    norm="pre",
    activation="quick-gelu",
    positions="learned",
    max_positions=9,
    image_size=8,
    patch_size=4,
    norm_epsilon=1e-5,
)


def fresh(config: ModelConfig = SMALL, seed: int = 5) -> CLIP:
    torch.manual_seed(seed)
    model = build_model(config, Vocabulary(PIECES, PIECES, PAD, END))
    assert isinstance(model, CLIP)
    return model


def clip(config: ModelConfig = SMALL) -> CLIP:
    """A model in evaluation in which every weight matters."""
    model = fresh(config).eval()
    shake(model)
    return model


def pictures(count: int, config: ModelConfig = SMALL) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(256, (count, config.image_size, config.image_size, 3), generator=generator)


def texts(lengths: list[int]) -> list[list[int]]:
    """Texts of random pieces, with start and end."""
    generator = torch.Generator().manual_seed(4)
    return [[START, *torch.randint(1, START, (n - 2,), generator=generator).tolist(), END] for n in lengths]


def encode(model: CLIP, pixels: Tensor) -> Tensor:
    return model.encode(pixels.flatten(), torch.full((len(pixels),), pixels[0].numel()))


def scaled(pixels: Tensor) -> Tensor:
    """Pixels as the original's preparation gives them."""
    means, stds = (torch.tensor(values)[:, None, None] for values in (PIXEL_MEANS, PIXEL_STDS))
    return (pixels.permute(0, 3, 1, 2) / 255 - means) / stds


def their_clip(config: ModelConfig, activation: str) -> Any:
    transformers = pytest.importorskip("transformers")
    text = config.text_tower
    torch.manual_seed(8)
    theirs = transformers.CLIPModel(
        transformers.CLIPConfig(
            text_config={
                **{"hidden_size": text.d_model, "intermediate_size": text.d_ff, "hidden_act": activation},
                **{"num_hidden_layers": text.encoder_layers, "num_attention_heads": text.num_heads},
                **{"max_position_embeddings": config.max_positions, "vocab_size": PIECES},
                **{"bos_token_id": START, "eos_token_id": END, "pad_token_id": END},
            },
            vision_config={
                **{"hidden_size": config.d_model, "intermediate_size": config.d_ff, "hidden_act": activation},
                **{"num_hidden_layers": config.encoder_layers, "num_attention_heads": config.num_heads},
                **{"image_size": config.image_size, "patch_size": config.patch_size},
            },
            projection_dim=config.projection,
            attn_implementation="eager",
        )
    ).eval()
    shake(theirs)
    return theirs


@torch.no_grad()
@pytest.mark.parametrize(("ours", "theirs"), [("quick-gelu", "quick_gelu"), ("gelu", "gelu")])
def test_features_logits_and_attention_equal_those_of_transformers(ours: Activation, theirs: str) -> None:
    config = replace(SMALL, activation=ours)
    model, other = fresh(config).eval(), their_clip(config, theirs)
    fill_model(model, own_clip_weights(Path("theirs"), other.state_dict(), config, PIECES), "theirs")
    given, read = pictures(3), texts([5, 9, 3, 7])
    grid = torch.tensor([text + [END] * (9 - len(text)) for text in read])
    with record_attention(model) as record:
        found = encode(model, given)
        words = model.encode_texts(*pack(read))
    wanted = other(pixel_values=scaled(given), input_ids=grid)
    torch.testing.assert_close(found, wanted.image_embeds, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(words, wanted.text_embeds, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model.compare(found, words), wanted.logits_per_image, rtol=1e-5, atol=1e-5)
    vision = other.vision_model(pixel_values=scaled(given), output_attentions=True).attentions
    for layer, weights in enumerate(vision):
        torch.testing.assert_close(record.weights("encoder", layer), weights, rtol=1e-5, atol=1e-5)
    text = other.text_model(input_ids=grid, output_attentions=True).attentions
    for layer, weights in enumerate(text):
        for row, each in enumerate(read):
            size = len(each)
            ours_here = record.weights("decoder", layer)[row, :, :size, :size]
            torch.testing.assert_close(ours_here, weights[row, :, :size, :size], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_loss_is_that_of_transformers() -> None:
    model, other = fresh().eval(), their_clip(SMALL, "quick_gelu")
    fill_model(model, own_clip_weights(Path("theirs"), other.state_dict(), SMALL, PIECES), "theirs")
    given, read = pictures(4), texts([5, 9, 3, 7])
    grid = torch.tensor([text + [END] * (9 - len(text)) for text in read])
    wanted = other(pixel_values=scaled(given), input_ids=grid, return_loss=True).loss
    logits = model.compare(encode(model, given), model.encode_texts(*pack(read)))
    torch.testing.assert_close(contrastive_loss(logits, torch.eye(4).bool()) / 4, wanted, rtol=1e-5, atol=1e-5)


def test_a_text_that_a_batch_has_twice_is_right_for_both_pictures() -> None:
    logits = torch.tensor([[3.0, 3.0, -1.0], [3.0, 3.0, -1.0], [0.0, 0.0, 4.0]])
    matches = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    rows = logits.log_softmax(1)
    wanted = -(rows[0, :2].mean() + rows[1, :2].mean() + rows[2, 2])
    columns = logits.log_softmax(0)
    wanted = (wanted - columns[:2, 0].mean() - columns[:2, 1].mean() - columns[2, 2]) / 2
    torch.testing.assert_close(contrastive_loss(logits, matches), wanted)


@torch.no_grad()
def test_vectors_have_length_1_and_do_not_depend_on_the_others() -> None:
    model, given, read = clip(), pictures(4), texts([5, 9, 3, 7])
    found, words = encode(model, given), model.encode_texts(*pack(read))
    for together in (found, words):
        torch.testing.assert_close(together.norm(dim=1), torch.ones(4))
    for number in range(4):
        torch.testing.assert_close(encode(model, given[number : number + 1])[0], found[number])
        torch.testing.assert_close(model.encode_texts(*pack([read[number]]))[0], words[number])


@torch.no_grad()
def test_a_text_is_read_from_left_to_right_and_stands_at_its_end() -> None:
    model = clip()
    read, other = texts([7])[0], texts([7])[0]
    other[5] = 1 + other[5] % 20
    with record_attention(model) as record:
        first = model.features(*pack([read]))
    assert not record.weights("decoder", 0)[0, 0].triu(1).any()
    assert not torch.allclose(first, model.features(*pack([other])))  # the end sees the token before it


def test_the_scale_never_exceeds_100() -> None:
    model = fresh()
    one = F.normalize(torch.ones(1, 14), dim=1)
    assert model.compare(one, one).item() == pytest.approx(1 / 0.07, rel=1e-5)
    with torch.no_grad():
        model.log_scale.fill_(7.0)
    assert model.compare(one, one).item() == pytest.approx(100.0, rel=1e-5)
    model.limit_scale()
    assert model.log_scale.item() == pytest.approx(math.log(100.0), rel=1e-6)


def test_every_norm_has_epsilon_1e_5() -> None:
    config = make_experiment({"model": {"preset": "clip"}}).model
    norms = [part for part in fresh(config).modules() if isinstance(part, torch.nn.LayerNorm)]
    assert len(norms) == 2 * 4 * 2 + 3
    assert {norm.eps for norm in norms} == {1e-5}


class TestStart:
    """The weights that training begins with."""

    model = fresh(
        replace(SMALL, d_model=120, d_ff=240, text_d_model=160, text_d_ff=320, image_size=32, max_positions=50)
    )

    @property
    def weights(self) -> Mapping[str, Tensor]:
        return dict(self.model.named_parameters())

    @pytest.mark.parametrize(
        ("name", "std"),
        [
            ("class_token", 120**-0.5),
            ("patch_positions", 120**-0.5),
            ("projection.weight", 120**-0.5),
            ("embedding.weight", 0.02),
            ("positions.weight", 0.01),
            ("text_projection.weight", 160**-0.5),
            ("decoder.0.attention.query_key_value.weight", 160**-0.5),
            ("decoder.1.attention.output.weight", (160 * 6) ** -0.5),
            ("decoder.1.feed_forward.inner.weight", 320**-0.5),
            ("decoder.2.feed_forward.outer.weight", (160 * 6) ** -0.5),
        ],
    )
    def test_weights_have_the_standard_deviations_of_the_original(self, name: str, std: float) -> None:
        weight = self.weights[name]
        assert weight.std().item() == pytest.approx(std, rel=0.2 if name == "class_token" else 0.06)

    def test_layers_of_pictures_start_as_pytorch_draws_them(self) -> None:
        projections = self.weights["encoder.0.attention.query_key_value.weight"]
        assert projections.abs().max().item() == pytest.approx((6 / 480) ** 0.5, rel=0.01)
        for name, inputs in (("attention.output", 120), ("feed_forward.inner", 120), ("feed_forward.outer", 240)):
            weight = self.weights[f"encoder.1.{name}.weight"]
            assert weight.abs().max().item() == pytest.approx(inputs**-0.5, rel=0.01)

    def test_only_feed_forward_networks_start_with_biases(self) -> None:
        for stack, width in (("encoder", 120), ("decoder", 160)):
            inner = self.weights[f"{stack}.0.feed_forward.inner.bias"]
            assert 0.9 * width**-0.5 < inner.abs().max().item() <= width**-0.5
            for name in ("query_key_value", "output"):
                assert not self.weights[f"{stack}.0.attention.{name}.bias"].any()

    def test_the_scale_starts_at_1_over_0_07(self) -> None:
        assert self.weights["log_scale"].item() == pytest.approx(math.log(1 / 0.07), rel=1e-6)

    def test_three_maps_have_no_bias(self) -> None:
        for name in ("patches", "projection", "text_projection"):
            assert f"{name}.bias" not in self.weights


def test_clip_has_the_published_number_of_weights() -> None:
    large = make_experiment({"model": {"preset": "clip-vit-b-32"}}).model
    assert model_size(large, 49_408, 49_408).total == 151_277_313


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, text_d_model=0, text_d_ff=0, text_heads=0, projection=0)])
def test_size_and_operations_are_counted_exactly(config: ModelConfig) -> None:
    model = clip(config)
    assert model_size(config, PIECES, PIECES).total == sum(each.numel() for each in model.parameters())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        encode(model, pictures(3, config))
        for text in texts([6, 6, 6]):
            model.encode_texts(*pack([text]))
    lengths = np.full(3, 6)
    full = 2 * config.text_tower.encoder_layers * config.text_tower.d_model * 2 * 3 * (36 - 21)  # masked products
    assert counter.get_total_flops() == forward_flops(config, PIECES, np.ones(3, dtype=np.int64), lengths) + full


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"patch_size": 5}, "model.image_size is 32, which patches of 5 pixels do not divide"),
        ({"channels": 1}, "model.channels is 1 but model.family is 'clip', which reads colours"),
        ({"norm": "post"}, "model.norm is 'post' but model.family is 'clip', which has 'pre'"),
        ({"text_d_model": 30}, "CLIP reads texts in a width of 30, which 4 heads do not divide"),
        ({"labels": ["a"]}, "model.labels are set but model.family is 'clip', which has none"),
        ({"text_heads": -1}, "model.text_heads must be at least 0, but is -1 instead"),
        ({"family": "vit", "activation": "quick-gelu"}, "only 'clip' has it: choose another"),
    ],
    ids=str,
)
def test_an_impossible_configuration_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_experiment({"model": {"preset": "clip", **change}})
