"""Presets have the values of the paper and the right number of weights."""

from dataclasses import replace

import pytest
import torch

from heedful.config import PRESETS, Experiment, ModelConfig, SearchConfig
from heedful.config.presets import preset
from heedful.errors import ConfigError
from heedful.models.build import build_model
from heedful.models.size import Vocabulary, match_size, model_size
from heedful.tasks import make_experiment

# With one vocabulary of 37 000. By hand for the base model: an attention 4 x (512 x 512 + 512) = 1 050 624, a
# feed-forward network 512 x 2048 + 2048 + 2048 x 512 + 512 = 2 099 712, a norm 1024. So an encoder layer has
# 1 050 624 + 2 099 712 + 2 x 1024 = 3 152 384, a decoder layer 2 x 1 050 624 + 2 099 712 + 3 x 1024 = 4 204 032,
# six of each 44 138 496, and the one embedding 37 000 x 512 = 18 944 000. The others are computed in the same way.
COUNTS = {
    "paper": 63_082_496,
    "base": 63_082_496,
    "tiny": 4_736_000 + 4 * (132_480 + 198_784),
    "small": 9_472_000 + 6 * (789_760 + 1_053_440),
    "restricted": 63_082_496,
    "big": 214_245_376,
    # The number of heads changes nothing.
    "table3-A-h1": 63_082_496,
    "table3-A-h4": 63_082_496,
    "table3-A-h16": 63_082_496,
    "table3-A-h32": 63_082_496,
    # 18 attentions with narrower queries and keys: 2 x 513 x (512 - 128) fewer in each, and 2 x 513 x (512 - 256).
    "table3-B-dk16": 63_082_496 - 18 * 393_984,
    "table3-B-dk32": 63_082_496 - 18 * 262_656,
    "table3-C-N2": 18_944_000 + 2 * (3_152_384 + 4_204_032),
    "table3-C-N4": 18_944_000 + 4 * (3_152_384 + 4_204_032),
    "table3-C-N8": 18_944_000 + 8 * (3_152_384 + 4_204_032),
    "table3-C-d256": 9_472_000 + 6 * (1_315_072 + 1_578_752),
    "table3-C-d1024": 37_888_000 + 6 * (8_399_872 + 12_600_320),
    # 12 feed-forward networks with 1024 units fewer and 2048 more, 512 + 512 + 1 weights each.
    "table3-C-ff1024": 63_082_496 - 12 * 1024 * 1025,
    "table3-C-ff4096": 63_082_496 + 12 * 2048 * 1025,
    "table3-D-dropout0": 63_082_496,
    "table3-D-dropout0.2": 63_082_496,
    "table3-D-smoothing0": 63_082_496,
    "table3-D-smoothing0.2": 63_082_496,
    "table3-E-learned": 63_082_496 + 2 * 1024 * 512,
    "modern": 4_736_000 + 4 * (132_480 + 198_784) + 2 * 256 + 8 * 4 * 33,  # tiny, two more norms, distances
    # Four layers of gates that each map 256 inputs and 256 states to 256, with two biases: 4 gates, or 3.
    "lstm": 9_472_000 + 4 * 4 * 131_584,
    "gru": 9_472_000 + 4 * 3 * 131_584,
    # Both ways; then the start 65 792, keys 131 072, queries 65 792, v 256, gates with 768 inputs, maxout of 1024.
    "bahdanau": 9_472_000 + 2 * 3 * 131_584 + 262_912 + 3 * (196_864 + 65_792) + 524_800,
    # Both ways twice, the second with 512 inputs; then the start 263 168, keys 131 072, two layers, 768 to 256.
    "luong": 9_472_000 + 2 * 4 * (131_584 + 197_120) + 394_240 + 2 * 4 * 131_584 + 196_864,
    # Two tables of positions, 4 + 3 convolutions of 768 to 512, and 4 + 3 x 2 maps of 256 to 256.
    "convs2s": 9_472_000 + 2 * 1024 * 256 + 7 * 393_728 + 10 * 65_792,
    # A block of d_model 768 has 4 x 769 x 768 + 769 x 3072 + 3073 x 768 + 4 x 768, and one norm is behind them.
    "gpt-2": (37_000 + 1024) * 768 + 12 * 7_087_872 + 1536,
    "gpt": (37_000 + 128) * 128 + 4 * 198_272 + 256,
    # The same blocks, two types, a norm of the embeddings, and a head with a matrix, a norm and a bias for each piece.
    # An encoder with biases by distance for 4 x 4 heads, two types, two norms around it, and a head for hidden tokens.
    "bert": (37_000 + 2 + 2) * 128 + 4 * (198_272 + 4 * 33) + 256 + 129 * 128 + 256 + 37_000,
    "bert-base": (37_000 + 512 + 2 + 2) * 768 + 12 * 7_087_872 + 769 * 768 + 1536 + 37_000,
    # The published 60 506 624 and 76 961 152 have 32 128 pieces; the second has an output layer of its own.
    "t5-small": 37_000 * 512 + 44_057_088,
    "t5-v1.1-small": 2 * 37_000 * 512 + 44_062_080,
    # Layers of 4 or 8 matrices of d_model x d_model, two of d_model x d_ff and norms; a norm and 32 x 4 biases.
    "t5": 37_000 * 128 + 4 * (131_072 + 256) + 256 + 4 * (196_608 + 384) + 256,
    # The map of patches, the class token and 197 positions, the same blocks and norm; there are no labels yet.
    "vit-base": 769 * 768 + 198 * 768 + 12 * 7_087_872 + 1536,
    # Patches of 32 pixels without a bias, 50 positions, the class token, two norms, and 768 x 512; then 77 positions, a
    # norm, 512 x 512 and the scale. The published 151 277 313 have 49 408 pieces.
    "clip-vit-b-32": (3072 + 51 + 4 + 512) * 768 + 12 * 7_087_872 + (37_000 + 77 + 2 + 512) * 512 + 12 * 3_152_384 + 1,
    "clip": (48 + 66 + 4 + 128) * 128 + 8 * 132_480 + (37_000 + 77 + 2 + 128) * 128 + 1,
    "vit": 17 * 128 + 51 * 128 + 4 * 132_480 + 256,
}


def experiment(name: str) -> Experiment:
    return make_experiment({"model": {"preset": name}})


def built(config: ModelConfig, source: int, target: int) -> int:
    """The number of weights, counted without allocating them."""
    with torch.device("meta"):
        model = build_model(config, Vocabulary(source, target, pad_id=0, eos_id=1))
    return sum(p.numel() for p in model.parameters())


def test_every_preset_is_counted() -> None:
    assert COUNTS.keys() == PRESETS.keys()


@pytest.mark.parametrize("name", COUNTS)
def test_the_count_of_weights_is_exact(name: str) -> None:
    config = experiment(name).model
    assert model_size(config, 37_000, 37_000).total == COUNTS[name] == built(config, 37_000, 37_000)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "relative"])
@pytest.mark.parametrize("sharing", ["target", "none"])
def test_the_count_holds_for_models_without_a_preset(norm: str, positions: str, sharing: str) -> None:
    config = make_experiment(
        {
            "model": {
                "d_model": 10, "d_ff": 14, "num_heads": 3, "d_k": 4, "d_v": 6, "encoder_layers": 2,
                "decoder_layers": 5, "max_positions": 13, "norm": norm, "positions": positions, "sharing": sharing,
                "max_distance": 7,
            }
        }
    ).model  # fmt: skip
    assert model_size(config, 29, 31).total == built(config, 29, 31)


def test_the_parts_of_a_size_add_up() -> None:
    size = model_size(ModelConfig(), 37_000, 37_000)
    assert (size.embeddings, size.encoder, size.decoder) == (18_944_000, 18_914_304, 25_224_192)
    assert size.total == 63_082_496
    assert size.training_bytes == 16 * 63_082_496


@pytest.mark.parametrize("name", ["lstm", "gru", "bahdanau", "luong", "convs2s", "tiny"])
@pytest.mark.parametrize("total", [300_000, 4_000_000])
def test_no_other_width_is_closer_to_a_size(name: str, total: int) -> None:
    found = match_size(experiment(name).model, 500, 400, total)

    def miss(d_model: int) -> int:
        return abs(model_size(replace(found, d_model=d_model, d_ff=2 * d_model), 500, 400).total - total)

    assert found.d_model % 8 == 0
    assert found.d_model > 8
    assert miss(found.d_model) <= min(miss(found.d_model - 8), miss(found.d_model + 8))


def test_resizing_to_the_same_size_changes_nothing_and_otherwise_only_the_width() -> None:
    base = ModelConfig()
    assert match_size(base, 37_000, 37_000, 63_082_496) == base
    assert match_size(base, 37_000, 37_000, 63_082_496 // 2) == replace(base, d_model=336, d_ff=1344)


def test_heads_divide_the_width_unless_their_own_is_given() -> None:
    three = ModelConfig(d_model=120, d_ff=240, num_heads=3)
    assert match_size(three, 100, 100, 1_000_000).d_model % 24 == 0
    free = {match_size(replace(three, d_k=5, d_v=7), 100, 100, total).d_model % 24 for total in (10**5, 10**6)}
    assert free != {0}


def test_the_least_width_is_eight() -> None:
    assert match_size(ModelConfig(), 100, 100, 1).d_model == 8


@pytest.mark.parametrize("name", ["paper", "base"])
def test_the_paper_preset_has_every_number_of_the_paper(name: str) -> None:
    it = experiment(name)
    model, train = it.model, it.train
    assert (model.encoder_layers, model.decoder_layers, model.d_model, model.d_ff) == (6, 6, 512, 2048)
    assert (model.num_heads, model.d_k or 512 // 8, model.d_v or 512 // 8) == (8, 64, 64)
    assert (model.norm, model.activation, model.positions, model.sharing) == ("post", "relu", "sinusoidal", "all")
    assert (model.dropout, model.attention_dropout, model.activation_dropout) == (0.1, 0.0, 0.0)
    assert (train.schedule, train.learning_rate, train.warmup_steps) == ("paper", 1.0, 4000)
    assert (train.label_smoothing, train.batch_tokens, train.max_steps) == (0.1, 25_000, 100_000)
    assert (train.weight_decay, train.clip_norm, train.ema_decay) == (0.0, 0.0, 0.0)
    assert train.average_checkpoints == 5
    assert (it.text.kind, it.text.vocabulary_size, it.text.vocabularies) == ("bpe", 37_000, "joint")
    assert it.data.max_length == 256
    assert it.search == SearchConfig(beam=4, alpha=0.6, penalty="paper", max_extra=50, min_length=0, no_repeat_ngram=0)


def test_the_papers_values_are_the_defaults() -> None:
    assert experiment("paper") == Experiment()


def test_the_big_preset_is_the_papers_big_model() -> None:
    it = experiment("big")
    base = experiment("base")
    model = replace(base.model, preset="big", d_model=1024, d_ff=4096, num_heads=16, dropout=0.3)
    train = replace(base.train, max_steps=300_000, average_checkpoints=20)
    assert it == replace(base, model=model, train=train)


def test_tiny_has_the_sizes_of_wu_et_al() -> None:
    model = experiment("tiny").model
    assert (model.encoder_layers, model.decoder_layers) == (4, 4)
    assert (model.d_model, model.d_ff, model.num_heads) == (128, 256, 4)


# Table 3: the width of a head, and the other changes of the row.
ROWS: dict[str, dict[str, object]] = {
    "table3-A-h1": {"num_heads": 1, "d_k": 512, "d_v": 512},
    "table3-A-h4": {"num_heads": 4, "d_k": 128, "d_v": 128},
    "table3-A-h16": {"num_heads": 16, "d_k": 32, "d_v": 32},
    "table3-A-h32": {"num_heads": 32, "d_k": 16, "d_v": 16},
    "table3-B-dk16": {"num_heads": 8, "d_k": 16, "d_v": 64},
    "table3-B-dk32": {"num_heads": 8, "d_k": 32, "d_v": 64},
    "table3-C-N2": {"encoder_layers": 2, "decoder_layers": 2},
    "table3-C-N4": {"encoder_layers": 4, "decoder_layers": 4},
    "table3-C-N8": {"encoder_layers": 8, "decoder_layers": 8},
    "table3-C-d256": {"d_model": 256, "d_k": 32, "d_v": 32},
    "table3-C-d1024": {"d_model": 1024, "d_k": 128, "d_v": 128},
    "table3-C-ff1024": {"d_ff": 1024},
    "table3-C-ff4096": {"d_ff": 4096},
    "table3-D-dropout0": {"dropout": 0.0},
    "table3-D-dropout0.2": {"dropout": 0.2},
    "table3-D-smoothing0": {"label_smoothing": 0.0},
    "table3-D-smoothing0.2": {"label_smoothing": 0.2},
    "table3-E-learned": {"positions": "learned"},
}


def facts(it: Experiment) -> dict[str, object]:
    model = it.model
    widths = {
        "d_k": model.d_k or model.d_model // model.num_heads,
        "d_v": model.d_v or model.d_model // model.num_heads,
    }
    names = ("d_model", "d_ff", "num_heads", "encoder_layers", "decoder_layers", "dropout", "positions")
    return {name: getattr(model, name) for name in names} | widths | {"label_smoothing": it.train.label_smoothing}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_table_3_changes_only_what_the_paper_lists(name: str) -> None:
    assert facts(experiment(name)) == facts(Experiment()) | ROWS[name]


def test_every_row_of_table_3_has_a_preset() -> None:
    assert {name for name in PRESETS if name.startswith("table3")} == ROWS.keys()


def test_table_3_does_not_average_checkpoints() -> None:
    """Its caption: "We used beam search ... but no checkpoint averaging" (section 6.2)."""
    assert {experiment(name).train.average_checkpoints for name in ROWS} == {1}


def test_an_unknown_preset_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        preset("bigg")
    assert str(caught.value) == "unknown preset: bigg; did you mean 'big'?"
    with pytest.raises(ConfigError) as caught:
        experiment("qqq")
    assert str(caught.value) == (
        "unknown preset: qqq; there are paper, base, tiny, small, restricted, big, modern, lstm, gru, bahdanau, "
        "luong, convs2s, gpt-2, gpt, bert-base, bert, t5-small, t5-v1.1-small, t5, vit-base, vit, clip-vit-b-32, "
        "clip and the rows of Table 3"
    )


def test_gpt_2_has_the_published_number_of_weights() -> None:
    assert model_size(make_experiment({"model": {"preset": "gpt-2"}}).model, 50_257, 50_257).total == 124_439_808


@pytest.mark.parametrize(("name", "weights"), [("t5-small", 60_506_624), ("t5-v1.1-small", 76_961_152)])
def test_t5_has_the_published_number_of_weights(name: str, weights: int) -> None:
    config = make_experiment({"model": {"preset": name}}).model
    assert model_size(config, 32_128, 32_128).total == weights == built(config, 32_128, 32_128)
